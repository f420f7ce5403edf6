"""The one exception that uncurse raises for invalid input."""


class UncurseError(ValueError):
    """Input that cannot be used. The message names the value and the remedy."""


__all__ = ["UncurseError"]
