"""Grids of one to three dimensions: indices, sizes, strides loops, rows and columns on x."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import cuda

from .case import (
    Args,
    Case,
    Expected,
    blocks,
    dyadic,
    effects,
    fixed,
    line,
    plane,
    ragged,
    turned_plane,
)


@cuda.jit
def add_grid_stride(x, y, out):
    start = cuda.grid(1)
    for i in range(start, out.size, cuda.gridsize(1)):
        out[i] = x[i] + y[i]


@cuda.jit
def where_am_i(thread, block, size, grid):
    i = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x
    if i < thread.size:
        thread[i] = cuda.threadIdx.x
        block[i] = cuda.blockIdx.x
        size[i] = cuda.blockDim.x
        grid[i] = cuda.gridDim.x


@cuda.jit
def coordinates(out):
    # One number that names thread and block in all three dimensions.
    x, y, z = cuda.grid(3)
    if x < out.shape[2] and y < out.shape[1] and z < out.shape[0]:
        thread = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 100 * cuda.threadIdx.z
        block = cuda.blockIdx.x + 10 * cuda.blockIdx.y + 100 * cuda.blockIdx.z
        out[z, y, x] = 1000 * block + thread


@cuda.jit
def dimensions(out):
    if cuda.grid(1) == 0 and cuda.blockIdx.y + cuda.blockIdx.z + cuda.threadIdx.y == 0:
        out[0] = cuda.blockDim.x
        out[1] = cuda.blockDim.y
        out[2] = cuda.blockDim.z
        out[3] = cuda.gridDim.x
        out[4] = cuda.gridDim.y
        out[5] = cuda.gridDim.z
        x, y, z = cuda.gridsize(3)
        out[6] = x
        out[7] = y
        out[8] = z


@cuda.jit
def add_rows_on_x(a, b, out):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = a[i, j] + b[i, j]


@cuda.jit
def add_columns_on_x(a, b, out):
    j, i = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = a[i, j] + b[i, j]


@cuda.jit
def add_grid_stride_2d(a, b, out):
    x, y = cuda.grid(2)
    step_x, step_y = cuda.gridsize(2)
    for i in range(y, out.shape[0], step_y):
        for j in range(x, out.shape[1], step_x):
            out[i, j] = a[i, j] - b[i, j]


@cuda.jit
def add_grid_stride_3d(a, out):
    x, y, z = cuda.grid(3)
    step_x, step_y, step_z = cuda.gridsize(3)
    for i in range(z, out.shape[0], step_z):
        for j in range(y, out.shape[1], step_y):
            for k in range(x, out.shape[2], step_x):
                out[i, j, k] = 2 * a[i, j, k] + 1


@cuda.jit
def row_max_one_block_each(a, out):
    if cuda.threadIdx.x == 0:
        row = cuda.blockIdx.x
        best = a[row, 0]
        for j in range(1, a.shape[1]):
            if a[row, j] > best:
                best = a[row, j]
        out[row] = best


@cuda.jit
def gather(x, index, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[index[i]]


@cuda.jit
def scatter(x, index, out):
    i = cuda.grid(1)
    if i < x.size:
        out[index[i]] = x[i]


@cuda.jit
def wrapped_indices(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[-1 - i] + x[-i]


@cuda.jit
def copy_2d_from_1d(x, out):
    # Division and remainder of the index, as ported code does it.
    i = cuda.grid(1)
    if i < x.size:
        out[i // out.shape[1], i % out.shape[1]] = x[i]


def _three(rng: np.random.Generator) -> Args:
    shape = ragged(rng, 20, 50, 16), ragged(rng, 20, 50, 8)
    return dyadic(rng, shape), dyadic(rng, shape), np.zeros(shape, np.float32)


def _coordinates(args: Args) -> Expected:
    z, y, x = np.indices(args[0].shape)
    thread = x % 4 + 10 * (y % 3) + 100 * (z % 2)
    block = x // 4 + 10 * (y // 3) + 100 * (z // 2)
    return {0: 1000 * block + thread}


def _where(args: Args) -> Expected:
    n = args[0].size
    block, thread = np.divmod(np.arange(n), 48)
    return {0: thread, 1: block, 2: np.full(n, 48), 3: np.full(n, blocks(n, 48))}


def _permuted(args: Args) -> Expected:
    out = args[2]
    out[args[1]] = args[0]
    return {2: out}


def _gather_args(rng: np.random.Generator) -> Args:
    n = ragged(rng, 200, 400)
    index = rng.integers(0, 77, n)
    return dyadic(rng, 77), index.astype(np.int32), np.zeros(n, np.float32)


def _scatter_args(rng: np.random.Generator) -> Args:
    n = ragged(rng, 200, 400)
    return dyadic(rng, n), rng.permutation(n + 20)[:n], dyadic(rng, n + 20)


CASES = [
    Case(
        "add_grid_stride",
        add_grid_stride,
        lambda rng: (dyadic(rng, 1003), dyadic(rng, 1003), np.zeros(1003, np.float32)),
        fixed(3, 64),
        lambda a: {2: a[0] + a[1]},
        effects=effects("x y", "out"),
    ),
    Case(
        "where_am_i",
        where_am_i,
        lambda rng: tuple(np.zeros(205, np.int32) for _ in range(4)),
        line(0, 48),
        _where,
        effects=effects("", "thread block size grid"),
    ),
    Case(
        "coordinates",
        coordinates,
        lambda rng: (np.zeros((5, 7, 9), np.int64),),
        fixed((3, 3, 3), (4, 3, 2)),
        _coordinates,
        effects=effects("", "out"),
    ),
    Case(
        "dimensions",
        dimensions,
        lambda rng: (np.zeros(9, np.int32),),
        fixed((3, 4, 5), (6, 7, 2)),
        lambda a: {0: np.array([6, 7, 2, 3, 4, 5, 18, 28, 10])},
        effects=effects("", "out"),
    ),
    Case(
        "add_rows_on_x",
        add_rows_on_x,
        _three,
        plane(0, (16, 8)),
        lambda a: {2: a[0] + a[1]},
        effects=effects("a b", "out"),
    ),
    Case(
        "add_columns_on_x",
        add_columns_on_x,
        _three,
        turned_plane(0, (8, 16)),
        lambda a: {2: a[0] + a[1]},
        effects=effects("a b", "out"),
    ),
    Case(
        "add_grid_stride_2d",
        add_grid_stride_2d,
        _three,
        fixed((2, 3), (8, 4)),
        lambda a: {2: a[0] - a[1]},
        effects=effects("a b", "out"),
    ),
    Case(
        "add_grid_stride_3d",
        add_grid_stride_3d,
        lambda rng: (dyadic(rng, (7, 9, 11)), np.zeros((7, 9, 11), np.float32)),
        fixed((2, 2, 2), (4, 2, 2)),
        lambda a: {1: 2 * a[0] + 1},
        effects=effects("a", "out"),
    ),
    Case(
        "row_max_one_block_each",
        row_max_one_block_each,
        lambda rng: (rng.normal(size=(13, 29)), np.zeros(13)),
        fixed(13, 5),
        lambda a: {1: a[0].max(axis=1)},
        effects=effects("a", "out"),
    ),
    Case(
        "gather",
        gather,
        _gather_args,
        line(1),
        lambda a: {2: np.take(a[0], a[1])},
        effects=effects("x index", "out"),
    ),
    Case(
        "scatter",
        scatter,
        _scatter_args,
        line(0),
        _permuted,
        effects=effects("x index", "out"),
    ),
    Case(
        "wrapped_indices",
        wrapped_indices,
        lambda rng: (dyadic(rng, 83), np.zeros(83, np.float32)),
        line(1, 32),
        lambda a: {1: a[0][::-1] + np.roll(a[0][::-1], 1)},
        effects=effects("x", "out"),
    ),
    Case(
        "copy_2d_from_1d",
        copy_2d_from_1d,
        lambda rng: (dyadic(rng, 23 * 17), np.zeros((23, 17), np.float32)),
        line(0),
        lambda a: {1: a[0].reshape(23, 17)},
        effects=effects("x", "out"),
    ),
]
