"""A replay as text, as flat records and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import documents
from ...text_tables import TextTable
from .replay import CAVEATS, Replay
from .text import as_percent


def replay_table(found: Replay) -> list[tuple[str, ...]]:
    """Return a header and a row for each policy."""
    header = ("policy", "won", "clicks", "predicted", "over-prediction (95%)", "overcharge (95%)", "spend",
              "cost per click", "surplus")  # fmt: skip
    table: list[tuple[str, ...]] = [header]
    for name, one in found.accounts.items():
        low, high = one.error_interval
        least, most = one.overcharge_interval
        table.append(
            (
                name, f"{100 * one.won / one.auctions:.1f}%", f"{one.clicks:,}", f"{one.predicted:.1f}",
                f"{as_percent(one.error, 0)} ({as_percent(low, 0)} to {as_percent(high, 0)})",
                f"{one.overcharge:,.0f} ({least:,.0f} to {most:,.0f})", f"{one.spend:,.1f}",
                f"{one.cost_per_click:,.1f}", f"{one.surplus:,.1f}",
            )
        )  # fmt: skip
    return table


def replay_parts(found: Replay) -> list[str | Sequence[str] | TextTable]:
    """Return the text of a replay in parts, for `as_text` and `as_markdown`."""
    served, logged = found.accounts["as served"], found.logged
    low, high = served.overcharge_interval
    first = (
        f"As served, advertisers would be charged {served.overcharge:,.0f} (95% interval {low:,.0f} to {high:,.0f}) "
        f"more than the {served.clicks:,} clicks are worth: {as_percent(served.error, 0)}."
    )
    shading = "" if found.shading == 1 else f", bids shaded to {found.shading:g}"
    second = (
        f"{logged.auctions:,} logged auctions with {logged.clicks:,} clicks, at a cost per click of "
        f"{logged.cost_per_click:,.1f}. Replayed as {found.price}-price auctions, value of a click {logged.value:,.4g}"
        f"{shading}. Prices are for a thousand impressions; other amounts are totals in the same currency."
    )
    return [first, second, TextTable("", replay_table(found)), ["Caveats", *(f"- {line}" for line in CAVEATS)]]


def replay_records(found: Replay) -> list[dict[str, Any]]:
    """Return a flat record for each policy."""
    return [{"policy": name, **account.to_dict()} for name, account in found.accounts.items()]


def replay_json(found: Replay) -> str:
    """Return a replay as one JSON document."""
    rows = [
        {k: None if isinstance(v, float) and not abs(v) < float("inf") else v for k, v in record.items()}
        for record in replay_records(found)
    ]
    content = {"price": found.price, "shading": found.shading, "records": rows, "caveats": list(CAVEATS)}
    return documents.dumps("auction-replay", content)
