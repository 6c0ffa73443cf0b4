"""Tiles in shared memory: matrix product, transposition, stencils with a halo."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import cuda, float32, float64

from .case import (
    Args,
    Case,
    Expected,
    dyadic,
    effects,
    fixed,
    line,
    plane,
    turned_plane,
    uses,
)

TILE = 8


@cuda.jit
def matmul_tiled(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    total = float32(0)
    for k in range((a.shape[1] + TILE - 1) // TILE):
        left[ty, tx] = 0
        right[ty, tx] = 0
        if y < a.shape[0] and k * TILE + tx < a.shape[1]:
            left[ty, tx] = a[y, k * TILE + tx]
        if x < b.shape[1] and k * TILE + ty < b.shape[0]:
            right[ty, tx] = b[k * TILE + ty, x]
        cuda.syncthreads()
        for m in range(TILE):
            total += left[ty, m] * right[m, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@cuda.jit
def transpose_tiled(a, out):
    tile = cuda.shared.array((16, 17), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    column = cuda.blockIdx.x * 16 + tx
    for k in range(0, 16, cuda.blockDim.y):
        row = cuda.blockIdx.y * 16 + ty + k
        if row < a.shape[0] and column < a.shape[1]:
            tile[ty + k, tx] = a[row, column]
    cuda.syncthreads()
    row_out = cuda.blockIdx.y * 16 + tx
    for k in range(0, 16, cuda.blockDim.y):
        column_out = cuda.blockIdx.x * 16 + ty + k
        if column_out < out.shape[0] and row_out < out.shape[1]:
            out[column_out, row_out] = tile[tx, ty + k]


@cuda.jit
def stencil_1d(x, out):
    tile = cuda.shared.array(64 + 2 * 3, float64)
    t = cuda.threadIdx.x + 3
    i = cuda.grid(1)
    n = x.size
    tile[t] = x[i] if i < n else 0.0
    if cuda.threadIdx.x < 3:
        tile[t - 3] = x[i - 3] if 0 <= i - 3 < n else 0.0
        tile[t + 64] = x[i + 64] if i + 64 < n else 0.0
    cuda.syncthreads()
    if i < n:
        total = 0.0
        for k in range(-3, 4):
            total += tile[t + k]
        out[i] = total


@cuda.jit
def stencil_2d(u, out):
    tile = cuda.shared.array((10, 10), float32)
    i, j = cuda.grid(2)
    ti = cuda.threadIdx.x + 1
    tj = cuda.threadIdx.y + 1
    rows, columns = u.shape
    inside = i < rows and j < columns
    if inside:
        tile[ti, tj] = u[i, j]
        if ti == 1 and i > 0:
            tile[0, tj] = u[i - 1, j]
        if ti == 8 and i + 1 < rows:
            tile[9, tj] = u[i + 1, j]
        if tj == 1 and j > 0:
            tile[ti, 0] = u[i, j - 1]
        if tj == 8 and j + 1 < columns:
            tile[ti, 9] = u[i, j + 1]
    cuda.syncthreads()
    if 0 < i < rows - 1 and 0 < j < columns - 1:
        around = tile[ti - 1, tj] + tile[ti + 1, tj] + tile[ti, tj - 1] + tile[ti, tj + 1]
        out[i, j] = float32(0.25) * around


@cuda.jit
def stencil_3d(u, out):
    # The halo is loaded by a loop over the whole tile.
    tile = cuda.shared.array((6, 6, 6), float32)
    base_i = cuda.blockIdx.z * 4 - 1
    base_j = cuda.blockIdx.y * 4 - 1
    base_k = cuda.blockIdx.x * 4 - 1
    t = cuda.threadIdx.x + 4 * (cuda.threadIdx.y + 4 * cuda.threadIdx.z)
    for flat in range(t, 216, 64):
        i = base_i + flat // 36
        j = base_j + flat // 6 % 6
        k = base_k + flat % 6
        value = float32(0)
        if 0 <= i < u.shape[0] and 0 <= j < u.shape[1] and 0 <= k < u.shape[2]:
            value = u[i, j, k]
        tile[flat // 36, flat // 6 % 6, flat % 6] = value
    cuda.syncthreads()
    k, j, i = cuda.grid(3)
    if i < u.shape[0] and j < u.shape[1] and k < u.shape[2]:
        total = float32(0)
        for di in range(3):
            for dj in range(3):
                for dk in range(3):
                    total += tile[
                        cuda.threadIdx.z + di, cuda.threadIdx.y + dj, cuda.threadIdx.x + dk
                    ]
        out[i, j, k] = total


def _box_3d(args: Args) -> Expected:
    padded = np.pad(args[0], 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3))
    return {1: windows.sum(axis=(-3, -2, -1))}


def _four_point(args: Args) -> Expected:
    u, out = args
    out[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
    return {1: out}


SHARED = uses("barrier static_shared")


CASES = [
    Case(
        "matmul_tiled",
        matmul_tiled,
        lambda rng: (
            dyadic(rng, (21, 29)),
            dyadic(rng, (29, 18)),
            np.zeros((21, 18), np.float32),
        ),
        turned_plane(2, (TILE, TILE)),
        lambda a: {2: a[0].astype(np.float64) @ a[1].astype(np.float64)},
        features=SHARED,
        effects=effects("a b", "c"),
    ),
    Case(
        "transpose_tiled",
        transpose_tiled,
        lambda rng: (dyadic(rng, (37, 21)), np.zeros((21, 37), np.float32)),
        fixed((2, 3), (16, 4)),
        lambda a: {1: a[0].T},
        features=SHARED,
        effects=effects("a", "out"),
    ),
    Case(
        "stencil_1d",
        stencil_1d,
        lambda rng: (dyadic(rng, 147, np.float64), np.zeros(147)),
        line(0),
        lambda a: {1: np.convolve(a[0], np.ones(7), "same")},
        features=SHARED,
        effects=effects("x", "out"),
    ),
    Case(
        "stencil_2d",
        stencil_2d,
        lambda rng: (dyadic(rng, (21, 19)), dyadic(rng, (21, 19))),
        plane(0, (8, 8)),
        _four_point,
        features=SHARED,
        effects=effects("u", "out"),
    ),
    Case(
        "stencil_3d",
        stencil_3d,
        lambda rng: (dyadic(rng, (5, 6, 7)), np.zeros((5, 6, 7), np.float32)),
        fixed((2, 2, 2), (4, 4, 4)),
        _box_3d,
        features=SHARED,
        effects=effects("u", "out"),
    ),
]
