"""What the commands read: logs, or evidence in their place; and the shares to select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UncurseError
from .app import working

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..maps import ScoreMap


_MOST_SHARES = 1_000


def names_of(text: str | None) -> list[str]:
    """Column names, comma-separated."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not names:
        raise UncurseError("--scores is empty; name the served column and its replicas, such as --scores s1,s2")
    return names


def read(
    log: Sequence[str],
    scores: list[str],
    label: str | None,
    weight: str | None,
    group: str | None,
    request: str | None,
    top_k: int | None,
    scale: str,
    link: str,
    negative_rate: float | None,
    engine: str,
    replica_counts: bool = False,
) -> Evidence:
    """Evidence of logs, with a bar while they are read."""
    from ..evidence import TopK
    from ..logs import collect as collect_log
    from ..logs.files import count_rows

    if top_k is not None and request is None:
        raise UncurseError("--top-k needs --request, the column that tells requests apart")
    with working("reading", lambda: count_rows(log) if engine == "polars" and request is None else None) as advance:
        return collect_log(
            list(log),
            scores,
            label=label,
            weight=weight,
            group=group,
            top_k=None if request is None else TopK(request, top_k or 1),
            scale=scale,
            link=link,
            negative_rate=negative_rate,
            replica_counts=replica_counts,
            engine=engine,
            progress=advance,
        )


def evidence_of(
    sources: Sequence[str],
    scores: str | None,
    label: str | None,
    options: tuple[Any, ...],
    given: dict[str, Any],
    *,
    need_label: bool = False,
    need_counts: bool = False,
) -> Evidence:
    """Evidence of logs, or evidence files merged: then what was said of columns must be what they hold."""
    from ..evidence import Evidence, merged

    kept = [source.lower().endswith(".json") for source in sources]
    twice = [source for source in sources if list(sources).count(source) > 1]
    if twice:
        raise UncurseError(f"{twice[0]} is named twice; its rows would count double")
    if any(kept) and not all(kept):
        raise UncurseError(f"{', '.join(sources)} are logs and evidence mixed; collect the logs first")
    option = "--score" if "score" in given else "--scores"
    if not all(kept):
        if scores is None:
            raise UncurseError(f"{option} is missing; name the column{'s' * (option == '--scores')} of the scores")
        if option == "--score" and len(names_of(scores)) > 1:
            raise UncurseError(f"--score is {scores}; name the served column alone")
        if need_label and label is None:
            raise UncurseError("--label is missing; name the column of labels, 0 or 1")
        return read(sources, names_of(scores), label, *(*options, need_counts))
    evidence = merged(Evidence.load(source) for source in sources)
    spec = evidence.spec
    held = {
        "scores": ",".join(spec.scores),
        "score": spec.scores[0],
        **{name: getattr(spec, name) for name in ("scale", "link", "group", "weight", "label", "negative_rate")},
        "request": None if spec.top_k is None else spec.top_k.request,
    }
    for name, value in given.items():
        if value is not None and held[name] != value:
            raise UncurseError(
                f"--{name.replace('_', '-')} is {value}, but {', '.join(sources)} was collected with {held[name]}; "
                "leave it out, or collect anew"
            )
    if need_label and spec.label is None:
        raise UncurseError(f"{', '.join(sources)} was collected without labels; collect it with --label")
    if need_counts and evidence.replica_counts is None:
        raise UncurseError(
            f"{', '.join(sources)} was collected without replica counts; collect it again without "
            "--no-replica-counts, or use --method vad"
        )
    return evidence


def check_pool(names: Sequence[str], pool: Evidence) -> None:
    """A pool is all candidates, scored by more than one model."""
    if pool.spec.top_k is not None:
        raise UncurseError(
            f"{', '.join(names)} holds the {pool.spec.top_k} only, where λ would be far too low; collect the whole "
            "pool, without --request"
        )
    if len(pool.spec.scores) < 2:
        raise UncurseError(
            f"--scores names one column, {pool.spec.scores[0]!r}; name two or more, the served one first: train the "
            "model once more, with another seed, and score the pool with it"
        )


def as_served(evidence: Evidence, rate: float | None) -> ScoreMap | None:
    """The prediction that the served score stands for: corrected, where negatives were sampled."""
    import numpy as np

    from ..maps import Affine

    if rate is None:
        return None
    if not 0 < rate <= 1:
        raise UncurseError(f"--negative-rate is {rate:g}; pass the share of negatives kept, such as 0.1")
    if evidence.spec.negative_rate is not None:
        raise UncurseError("this evidence was collected with its negative rate; leave --negative-rate out")
    return Affine(1.0, float(np.log(rate)), scale=evidence.spec.scale)


def shares_of(text: str | None, selection: str | None) -> list[float]:
    """0.02:0.10:0.01 with both ends, or 0.02,0.1, or both kinds joined by commas; of winners all, by default."""
    import numpy as np

    from ..validation import check_share

    if text is None:
        text = "1" if selection is not None else "0.02:0.10:0.01"
    shares: list[float] = []
    for part in text.split(","):
        try:
            numbers = [float(number) for number in part.split(":")]
            if len(numbers) == 1:
                shares += numbers
            else:
                first, last, step = numbers
                if not (step > 0 and last >= first):
                    raise ValueError
                count = int(np.floor((last - first) / step + 1e-9)) + 1
                if count > _MOST_SHARES:
                    raise UncurseError(f"--alpha is {text!r}, {count:,} shares; use at most {_MOST_SHARES:,}")
                shares += [round(first + i * step, 12) for i in range(count)]
        except UncurseError:
            raise
        except (ValueError, OverflowError):
            raise UncurseError(
                f"--alpha is {text!r}; pass shares such as 0.02,0.1, or first:last:step such as 0.02:0.10:0.01"
            ) from None
    return [check_share(share, "--alpha") for share in shares]


__all__ = ["as_served", "check_pool", "evidence_of", "names_of", "read", "shares_of"]
