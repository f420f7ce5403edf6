"""How SQL dialects write names, texts and numbers: the only place where SQL is quoted."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UncurseError


@dataclass(frozen=True)
class Dialect:
    """The lexical rules of a SQL dialect.

    Parameters
    ----------
    double, text : str
        Names of the types for floating-point numbers and for text.
    quote : str
        Character around a quoted name.
    escapes : bool, default=True
        Whether a backslash in a text starts an escape sequence.
    name_escapes : bool, default=False
        Whether a backslash in a quoted name starts an escape sequence.
    typed : bool, default=False
        Whether a number is cast to `double`; Snowflake does not document the type of ``1e0``.

    Examples
    --------
    >>> SPARK.name("a`b"), DUCKDB.literal("it's"), DUCKDB.number(0.5)
    ('`a``b`', "'it''s'", '0.5e0')
    """

    double: str
    text: str
    quote: str
    escapes: bool = True
    name_escapes: bool = False
    typed: bool = False

    def name(self, column: str) -> str:
        """Return the quoted name of a column.

        Parameters
        ----------
        column : str
            The name.

        Returns
        -------
        str
            SQL.
        """
        if not column:
            raise UncurseError("'' names no column; pass the column's name")
        if self.name_escapes:
            return f"{self.quote}{_escape(column, self.quote)}{self.quote}"
        return f"{self.quote}{column.replace(self.quote, self.quote * 2)}{self.quote}"

    def literal(self, text: str) -> str:
        """Return a text constant.

        Parameters
        ----------
        text : str
            The text.

        Returns
        -------
        str
            SQL.
        """
        return f"'{_escape(text, chr(39))}'" if self.escapes else "'" + text.replace("'", "''") + "'"

    def number(self, value: float) -> str:
        """Return a floating-point constant.

        Parameters
        ----------
        value : float
            A finite number.

        Returns
        -------
        str
            SQL with an exponent; without one it would be a decimal.
        """
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

__all__ = ["BY_NAME", "DUCKDB", "SPARK", "Dialect"]
