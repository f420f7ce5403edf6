"""The version of this release."""

__version__ = "1.0.0"
