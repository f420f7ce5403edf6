"""Checks of docstrings, prose and pages, and what the documentation is made with."""
