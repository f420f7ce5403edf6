"""Export a map to run without uncurse, one file per target, and one for C and Python."""
