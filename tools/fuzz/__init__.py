"""A fuzzer of the core's public names: ``python -m tools.fuzz --calls 100000 --seed 0``."""
