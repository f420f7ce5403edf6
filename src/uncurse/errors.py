"""The exception that uncurse raises for invalid input."""


class UncurseError(ValueError):
    """Invalid input; the message names the value and the remedy.

    Examples
    --------
    >>> issubclass(UncurseError, ValueError)
    True
    """
