"""Small kernels that the tests launch."""

from __future__ import annotations

from numba import cuda


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def multiply_add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] * y[i] + x[i]


@cuda.jit
def scale(x, out, k):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = k * x[i]


@cuda.jit
def increment(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


@cuda.jit
def shift(x, out):
    """Reads a neighbour: wrong if `out` is written before all of `x` is read."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[(i + 1) % x.size] + 1


@cuda.jit
def add_2d(x, y, out):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + y[i, j]


def grid(n: int, threads: int = 64) -> int:
    """Blocks that cover n threads; at least one."""
    return max(1, -(-n // threads))
