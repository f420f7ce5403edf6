"""Export a map to run without uncurse: one program (`maps.compile`), one file per target."""
