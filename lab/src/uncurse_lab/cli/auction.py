"""`uncurse-lab auction`: what over-prediction of the chosen ads costs in money, in a simulated market or on a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from uncurse.cli.options import ReportFile, share
from uncurse.cli.output import Format, Quiet, check_outputs, note, working
from uncurse.errors import UncurseError

from .show import MarkdownFile, Seed, passed, refuse, show

_QUICK = {"auctions": 50_000, "history": 50_000, "pool": 50_000, "repetitions": 3}
_LOOPS = 3  # repetitions of the closed loop
_LOOP_QUICK = {"ads": 1000, "requests": 10_000}
_OF_MARKETS = (
    "candidates noise landscape auctions repetitions policy labels explore sensitivity days bootstrap quick report"
)


def auction(
    context: typer.Context,
    candidates: Annotated[int, typer.Option(min=1, help="Ads for each request.")] = 100,
    noise: Annotated[float, typer.Option(help="Standard deviation of the error of log odds.")] = 0.3,
    value: Annotated[
        float | None, typer.Option(help="Value of a click (5); with --replay by default the cost per click of the log.")
    ] = None,
    auction: Annotated[
        Literal["second", "first"], typer.Option(help="The winner pays the second price, or its own bid.")
    ] = "second",
    shading: Annotated[float, typer.Option(help="Factor on all bids.")] = 1.0,
    landscape: Annotated[
        Path | None,
        typer.Option(help="Competing prices: a histogram of whole prices (.json), or a parquet or CSV file."),
    ] = None,
    landscape_column: Annotated[str, typer.Option(help="Column of the prices in a parquet or CSV file.")] = "price",
    auctions: Annotated[int, typer.Option(min=1, help="Auctions of each repetition.")] = 200_000,
    repetitions: Annotated[
        int, typer.Option(min=1, help="Repetitions, for standard errors (closed loop: 3 by default).")
    ] = 5,
    policy: Annotated[list[str] | None, typer.Option(help="Policy to compare; may be repeated.")] = None,
    labels: Annotated[
        Literal["won", "earlier", "random"],
        typer.Option(help="Labeled rows: won by the served model, by an earlier model, or random ads."),
    ] = "won",
    explore: Annotated[
        float | None,
        typer.Option(parser=share, metavar="SHARE", help="Share of requests that show a random ad, such as 2%."),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also vary the ads for each request, noise, shading and budget.")
    ] = False,
    days: Annotated[
        int | None, typer.Option(min=4, help="Also run a closed loop for so many days, such as 30.")
    ] = None,
    bootstrap: Annotated[
        bool,
        typer.Option("--bootstrap", help="In the closed loop, replicas are bootstraps instead of retrained models."),
    ] = False,
    log: Annotated[
        str | None, typer.Option("--replay", help="Log of auctions to replay, instead of a simulation.")
    ] = None,
    click: Annotated[str | None, typer.Option(help="Column of clicks in the log.")] = None,
    price: Annotated[str | None, typer.Option(help="Column of the highest competing price in the log.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the served score in the log.")] = None,
    scale: Annotated[
        Literal["probability", "logit"] | None, typer.Option(help="Scale of the score in the log.")
    ] = None,
    maps: Annotated[
        list[str] | None, typer.Option("--map", help="Map file to replay the log with; may be repeated.")
    ] = None,
    currency: Annotated[str, typer.Option(help="Currency of the prices, such as €.")] = "units",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer auctions and repetitions.")] = False,
    seed: Seed = 0,
    report: ReportFile = None,
    markdown: MarkdownFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Show what over-prediction after selection costs in money.

    A platform scores the ads of each request, bids for the best, wins and pays. Every policy turns the same scores into
    bids: as served, by a multiplier, calibrators, VAD, replica calibration, Auto, or the truth. A .txt or .tsv log
    without a header has columns 0, 1, 2 and so on.

    \b
    Examples:
      uncurse-lab auction --candidates 100 --report auction.html
      uncurse-lab auction --labels earlier --sensitivity --days 30
      uncurse-lab auction --replay log.parquet --click click --price price --score p --scale probability --map map.json
    """
    inputs = [path for path in (landscape, log, *(maps or [])) if path is not None]
    check_outputs({"--report": report, "--markdown": markdown}, inputs)
    if log is not None:
        refuse(context, _OF_MARKETS, "a simulated market; omit it with --replay")
        if click is None or price is None or score is None or scale is None:
            raise UncurseError("--replay needs --click, --price, --score and --scale; pass all of them")
        from uncurse import load

        from ..auction.replay import read_log, replay

        if not maps:
            note("pass --map FILE to compare a map with the scores as served")
        with working("replaying"):
            policies = {path: load(path).map.at_logits for path in maps or []}
            logged = read_log(log, click, price, score, scale=scale)
            replayed = replay(logged, policies, value=value, price=auction, shading=shading, currency=currency)
        show(replayed.parts, replayed.to_json, format, markdown=markdown)
        return
    refuse(context, "click price score scale maps", "a log; pass --replay LOG too")
    if bootstrap and days is None:
        raise UncurseError("--bootstrap is for the closed loop; pass --days 30 too")
    from ..auction import DEFAULT, Landscape, Market, Outcome, Settings, simulate
    from ..auction.loop import LOOP_DEFAULT, World, run_loop
    from ..auction.results import SENSITIVITY, Results

    prices = Landscape.default() if landscape is None else Landscape.from_file(landscape, landscape_column)
    worth = Market.value if value is None else value
    market = Market(candidates, noise=noise, value=worth, price=auction, shading=shading, landscape=prices)
    sizes = {"auctions": auctions, "repetitions": repetitions}
    given = passed(context, *sizes)
    sizes |= {name: size for name, size in _QUICK.items() if quick and name not in given}
    settings = Settings(labels=labels, explore=explore or 0.0, seed=seed, **sizes)
    fields = SENSITIVITY if sensitivity else {}
    runs = 1 + sum(map(len, fields.values()))
    with working("auctions", runs * settings.auctions * settings.repetitions) as advance:

        def run(**changed: Any) -> Outcome:
            options = replace(settings, budget=changed.pop("budget", None))
            return simulate(replace(market, **changed), options, policies=policy or DEFAULT, progress=advance)

        outcome = run()
        varied = {name: tuple((value, run(**{name: value})) for value in values) for name, values in fields.items()}
    loop = None
    if days is not None:
        # The ads of the loop are its own; the kind of auction and the prices are those of the market.
        own = replace(World().market, price=auction, shading=shading, landscape=prices)
        platform = World(market=own, bootstrap=bootstrap, **(_LOOP_QUICK if quick else {}))
        count, names = repetitions if "repetitions" in given else _LOOPS, policy or LOOP_DEFAULT
        with working("closed loops", count * (len(names) + 1)) as advance:
            loop = run_loop(
                platform, days, policies=names, explore=settings.explore, repetitions=count, seed=seed,
                labels="random" if labels == "random" else "shown", progress=advance,
            )  # fmt: skip
    found = Results(outcome, varied, loop, currency)
    show(found.parts, found.to_json, format, markdown=markdown, report=report, page=found.page)
