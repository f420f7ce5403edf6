"""Mutation testing of the core: ``python -m tools.mutants --count 200 --seed 0``."""
