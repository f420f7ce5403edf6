"""How SQL dialects write names, texts and numbers: the only place where SQL is quoted."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UncurseError


@dataclass(frozen=True)
class Dialect:
    """The lexical rules of a SQL dialect.

    Examples
    --------
    >>> SPARK.name("a`b"), DUCKDB.literal("it's"), DUCKDB.number(0.5)
    ('`a``b`', "'it''s'", '0.5e0')
    """

    double: str  # name of the type
    text: str
    quote: str  # character around a name
    escapes: bool = True  # a backslash in a text starts an escape sequence
    name_escapes: bool = False  # and in a name
    typed: bool = False  # numbers are cast to `double`: Snowflake does not document the type of 1e0

    def name(self, column: str) -> str:
        """Quote the name of a column."""
        if not column:
            raise UncurseError("'' names no column; pass the column's name")
        if self.name_escapes:
            return f"{self.quote}{_escape(column, self.quote)}{self.quote}"
        return f"{self.quote}{column.replace(self.quote, self.quote * 2)}{self.quote}"

    def literal(self, text: str) -> str:
        """Write a text constant."""
        return f"'{_escape(text, chr(39))}'" if self.escapes else "'" + text.replace("'", "''") + "'"

    def number(self, value: float) -> str:
        """Write a floating-point constant, with an exponent: without one it would be a decimal."""
        text = repr(float(value) + 0.0)  # + 0.0 removes the sign of -0.0
        text = text if "e" in text else f"{text}e0"
        if self.typed:
            return f"'{text}'::{self.double}"
        return text if value >= 0 else f"({text})"


def _escape(text: str, quote: str) -> str:
    text = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return "".join(f"\\u{ord(letter):04x}" if letter < " " else letter for letter in text)


DUCKDB = Dialect("DOUBLE", "VARCHAR", '"', escapes=False)
SPARK = Dialect("DOUBLE", "STRING", "`")
#: Dialects by name.
BY_NAME = {
    "duckdb": DUCKDB,
    "spark": SPARK,
    "bigquery": Dialect("FLOAT64", "STRING", "`", name_escapes=True),
    "snowflake": Dialect("DOUBLE", "VARCHAR", '"', typed=True),
}
