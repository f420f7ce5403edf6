"""Criteo's and Avazu's click logs, encoded to Arrow files. Needs PyArrow, which the extra `deep` installs."""

from uncurse.optional import needing

with needing("deep"):
    from .encoded import MAGIC, Encoded
    from .encoding import encode
    from .lines import count_lines

__all__ = ["MAGIC", "Encoded", "count_lines", "encode"]
