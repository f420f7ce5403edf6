"""`uncurse-lab auction`: what over-prediction of the chosen ads costs in money, in a simulated market or on a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from uncurse.cli.options import MarkdownFile, ReportFile, Seed, share
from uncurse.cli.output import Format, Quiet, check_outputs, command_line, emit, note, working, write_file
from uncurse.cli.reading import load_map
from uncurse.errors import UncurseError
from uncurse.text_tables import as_markdown, as_text

from .app import app

if TYPE_CHECKING:
    from ..auction import Market, Settings

_QUICK = {"auctions": 50_000, "history": 50_000, "pool": 50_000, "repetitions": 3}
_LOOPS = 3  # repetitions of the closed loop
_LOOP_QUICK = {"ads": 1000, "requests": 10_000}


@app.command()
def auction(
    candidates: Annotated[int | None, typer.Option(min=1, help="Ads for each request (default 100).")] = None,
    noise: Annotated[float | None, typer.Option(help="Standard deviation of the error of log odds (0.3).")] = None,
    spread: Annotated[float | None, typer.Option(help="Standard deviation of the true log odds (1).")] = None,
    mean: Annotated[float | None, typer.Option(help="Mean of the true log odds (-7).")] = None,
    value: Annotated[
        float | None, typer.Option(help="Value of a click (5); with --replay by default the cost per click of the log.")
    ] = None,
    auction: Annotated[
        Literal["second", "first"], typer.Option(help="The winner pays the second price, or its own bid.")
    ] = "second",
    shading: Annotated[float, typer.Option(help="Factor on all bids.")] = 1.0,
    budget: Annotated[
        float | None, typer.Option(help="Largest spend for 1,000 requests; bids are lowered to keep it.")
    ] = None,
    landscape: Annotated[
        Path | None,
        typer.Option(help="Competing prices: a histogram of whole prices (.json), or a parquet or CSV file."),
    ] = None,
    landscape_column: Annotated[str, typer.Option(help="Column of the prices in a parquet or CSV file.")] = "price",
    auctions: Annotated[int | None, typer.Option(min=1, help="Auctions of each repetition (200,000).")] = None,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="Repetitions, for standard errors (5; closed loop 3).")
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Policy to compare; may be repeated.")] = None,
    labels: Annotated[
        Literal["won", "earlier", "random"] | None,
        typer.Option(help="Labelled rows: won by the served model (default), by an earlier model, or random ads."),
    ] = None,
    explore: Annotated[str | None, typer.Option(help="Share of requests that show a random ad, such as 2%.")] = None,
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
    replay: Annotated[str | None, typer.Option(help="Log of auctions to replay, instead of a simulation.")] = None,
    click: Annotated[str | None, typer.Option(help="Column of clicks in the log.")] = None,
    price: Annotated[str | None, typer.Option(help="Column of the highest competing price in the log.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the served score in the log.")] = None,
    scale: Annotated[
        Literal["probability", "logit"] | None, typer.Option(help="Scale of the score in the log.")
    ] = None,
    maps: Annotated[
        list[str] | None, typer.Option("--map", help="Map file to replay the log with; may be repeated.")
    ] = None,
    train: Annotated[
        str | None, typer.Option(help="Log of other auctions, to fit calibrators for the replay to.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer auctions and repetitions.")] = False,
    seed: Seed = 0,
    report: ReportFile = None,
    markdown: MarkdownFile = None,
    format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Show what over-prediction after selection costs in money.

    A platform scores the ads of each request, bids for the best, wins and pays. Every policy turns the same scores into
    bids: as served, by a multiplier, calibrators, VAD, Tower, Auto, or the truth. A .txt or .tsv log without a header
    has columns 0, 1, 2 and so on.

    \b
    Examples:
      uncurse-lab auction --candidates 100 --report auction.html
      uncurse-lab auction --labels earlier --sensitivity --days 30
      uncurse-lab auction --replay log.parquet --click click --price price --score p --scale probability --map map.json
    """
    inputs = [path for path in (landscape, replay, train, *(maps or [])) if path is not None]
    check_outputs({"--report": report, "--markdown": markdown}, inputs)
    of_markets = {
        "--candidates": candidates, "--noise": noise, "--spread": spread, "--mean": mean, "--budget": budget,
        "--landscape": landscape, "--auctions": auctions, "--repetitions": repetitions, "--policy": policy,
        "--labels": labels, "--explore": explore, "--sensitivity": sensitivity, "--days": days,
        "--bootstrap": bootstrap, "--quick": quick, "--report": report,
    }  # fmt: skip
    of_logs = {"--click": click, "--price": price, "--score": score, "--scale": scale, "--map": maps, "--train": train}
    remedy = "a simulated market; omit it with --replay" if replay else "a log; pass --replay LOG too"
    for name, option in (of_markets if replay else of_logs).items():
        if option is not None and option is not False:
            raise UncurseError(f"{name} is for {remedy}")
    if replay is not None:
        columns = {"--click": click, "--price": price, "--score": score, "--scale": scale}
        options = {"value": value, "price": auction, "shading": shading}
        _replay(replay, columns, maps or [], train, options, markdown, format)
        return
    if bootstrap and days is None:
        raise UncurseError("--bootstrap is for the closed loop; pass --days 30 too")
    from ..auction import Landscape, Market, Settings, results

    prices = Landscape.default() if landscape is None else Landscape.from_file(landscape, landscape_column)
    numbers = {"candidates": candidates, "noise": noise, "spread": spread, "mean": mean, "value": value}
    given: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
    market = Market(price=auction, shading=shading, landscape=prices, **given)
    sizes: dict[str, Any] = {**(_QUICK if quick else {})}
    sizes |= {name: size for name, size in (("auctions", auctions), ("repetitions", repetitions)) if size is not None}
    random = 0.0 if explore is None else share(explore, "--explore")
    settings = Settings(budget=budget, labels=labels or "won", explore=random, seed=seed, **sizes)
    outcome, varied = _simulate(market, settings, policy, sensitivity)
    loop = None
    if days is not None:
        loop = _run_loop(market, settings, days, repetitions or _LOOPS, policy, bootstrap, quick)
    found = results.Results(outcome, varied, loop)
    emit(format, lambda: results.text(found), lambda: results.to_json(found))
    if markdown is not None:
        write_file(markdown, results.markdown(found))
    if report is not None:
        from ..auction.page import render

        with working("drawing"):
            page = render(found, command_line())
        write_file(report, page)


def _simulate(market: Market, settings: Settings, policies: list[str] | None, vary: bool) -> Any:
    """Simulate the market, and others if they are wanted, with one progress bar."""
    from ..auction import DEFAULT, sensitivity, simulate
    from ..auction.results import SENSITIVITY

    fields = SENSITIVITY if vary else {}
    runs = 1 + sum(map(len, fields.values()))
    with working("auctions", lambda: runs * settings.auctions * settings.repetitions) as advance:
        options: dict[str, Any] = {"policies": policies or DEFAULT, "progress": advance}
        outcome = simulate(market, settings, **options)
        return outcome, {
            name: sensitivity(market, settings, name, values, **options) for name, values in fields.items()
        }


def _run_loop(
    market: Market,
    settings: Settings,
    days: int,
    repetitions: int,
    policies: list[str] | None,
    bootstrap: bool,
    quick: bool,
) -> Any:
    """Run a closed loop; its ads are its own, and the market has the same kind of auction and prices."""
    from ..auction.loop import LOOP_DEFAULT, World, run_loop

    own = replace(World().market, price=market.price, shading=market.shading, landscape=market.landscape)
    world = World(market=own, bootstrap=bootstrap, **(_LOOP_QUICK if quick else {}))
    names = policies or LOOP_DEFAULT
    labels = "random" if settings.labels == "random" else "shown"
    options: dict[str, Any] = {"explore": settings.explore, "labels": labels, "seed": settings.seed}
    with working("closed loops", lambda: repetitions * (len(names) + 1)) as advance:
        return run_loop(world, days, policies=names, repetitions=repetitions, progress=advance, **options)


def _replay(
    log: str,
    columns: dict[str, str | None],
    maps: list[str],
    train: str | None,
    options: dict[str, Any],
    markdown: Path | None,
    format: str,
) -> None:
    from ..auction import replay

    for name, column in columns.items():
        if column is None:
            raise UncurseError(f"{name} is missing; --replay needs --click, --price, --score and --scale")
    click, price, score, scale = map(str, columns.values())
    with working("replaying"):
        auctions = replay.read_log(log, click, price, score, scale=scale)
        policies = {} if train is None else replay.fit_on_log(replay.read_log(train, click, price, score, scale=scale))
        for path in maps:
            policies[Path(path).name if Path(path).name not in policies else path] = load_map(path)[0].at_logits
        found = replay.replay(auctions, policies, **options)
    parts = replay.replay_parts(found)
    emit(format, lambda: as_text(parts), lambda: replay.replay_json(found))
    if train is None and not maps:
        note("pass --train LOG for calibrators, or --map FILE for a map, to compare them with the scores as served")
    if markdown is not None:
        write_file(markdown, as_markdown(parts))
