"""Development tools: docstring checks, mutation testing and fuzzing of the core."""
