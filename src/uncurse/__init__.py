"""uncurse."""
