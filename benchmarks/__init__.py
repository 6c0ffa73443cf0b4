"""Runnable comparisons with hand-written code: `python -m benchmarks.cpu` and `.cuda`."""
