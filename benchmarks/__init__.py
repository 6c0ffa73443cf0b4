"""Runnable comparisons: `python -m benchmarks.cpu`, `.cuda` and `.dispatch`."""
