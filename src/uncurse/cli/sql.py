"""`uncurse sql`: a map as a SQL expression."""

from __future__ import annotations

from typing import Annotated

import typer

from .app import app
from .options import DialectName, MapFile
from .reading import load_map

GroupColumn = Annotated[str | None, typer.Option(help="Column of groups, for a map by group.")]


@app.command()
def sql(
    map_file: MapFile,
    dialect: Annotated[DialectName, typer.Option(help="SQL dialect.")] = "duckdb",
    score: Annotated[str, typer.Option(help="Column of the served score.")] = "score",
    group: GroupColumn = None,
) -> None:
    """Print a map as a SQL expression.

    The expression is NULL where the column does not hold a score.

    Example: uncurse sql map.json --dialect bigquery --score s0
    """
    typer.echo(sql_text(map_file, dialect, score, group))


def sql_text(map_file: str, dialect: str, score: str, group: str | None) -> str:
    """Return the SQL expression of the map in a file; its record knows the column of its groups."""
    from ..maps import Grouped
    from ..serving import to_sql

    score_map, record = load_map(map_file)
    if isinstance(score_map, Grouped) and group is None and record is not None:
        group = record.group
    return to_sql(score_map, score, dialect=dialect, group=group)
