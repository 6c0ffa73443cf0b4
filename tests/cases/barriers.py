"""Kernels with block barriers: reductions, scans, sorts, many phases."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import cuda, float32, float64, int32, int64

from .case import (
    Args,
    Case,
    Expected,
    blocks,
    dyadic,
    effects,
    fixed,
    line,
    ragged,
    uses,
)


@cuda.jit
def reverse_in_block(x, out):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    if i < out.size:
        out[i] = tile[cuda.blockDim.x - 1 - t]


@cuda.jit
def block_reduce(x, out):
    partial = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@cuda.jit
def scan_hillis_steele(x, out):
    # Two buffers in one array, swapped at every step.
    buffers = cuda.shared.array((2, 64), int64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    n = cuda.blockDim.x
    source = 0
    buffers[0, t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    offset = 1
    while offset < n:
        if t >= offset:
            buffers[1 - source, t] = buffers[source, t] + buffers[source, t - offset]
        else:
            buffers[1 - source, t] = buffers[source, t]
        source = 1 - source
        cuda.syncthreads()
        offset *= 2
    if i < out.size:
        out[i] = buffers[source, t]


@cuda.jit
def scan_blelloch(x, out):
    # Exclusive; each thread owns two elements.
    tree = cuda.shared.array(128, float64)
    t = cuda.threadIdx.x
    n = 2 * cuda.blockDim.x
    base = cuda.blockIdx.x * n
    for k in range(2):
        j = base + 2 * t + k
        tree[2 * t + k] = x[j] if j < x.size else 0.0
    step = 1
    width = n >> 1
    while width > 0:
        cuda.syncthreads()
        if t < width:
            tree[step * (2 * t + 2) - 1] += tree[step * (2 * t + 1) - 1]
        step *= 2
        width >>= 1
    if t == 0:
        tree[n - 1] = 0.0
    width = 1
    while width < n:
        step >>= 1
        cuda.syncthreads()
        if t < width:
            left = step * (2 * t + 1) - 1
            right = step * (2 * t + 2) - 1
            kept = tree[left]
            tree[left] = tree[right]
            tree[right] += kept
        width *= 2
    cuda.syncthreads()
    for k in range(2):
        j = base + 2 * t + k
        if j < out.size:
            out[j] = tree[2 * t + k]


@cuda.jit
def bitonic_sort(x):
    keys = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    n = x.shape[1]
    row = cuda.blockIdx.x
    keys[t] = x[row, t] if t < n else float32(np.inf)
    cuda.syncthreads()
    size = 2
    while size <= cuda.blockDim.x:
        gap = size // 2
        while gap > 0:
            other = t ^ gap
            if other > t:
                ascending = (t & size) == 0
                if (keys[t] > keys[other]) == ascending:
                    keys[t], keys[other] = keys[other], keys[t]
            cuda.syncthreads()
            gap //= 2
        size *= 2
    if t < n:
        x[row, t] = keys[t]


@cuda.jit
def odd_even_sort(keys):
    # In global memory, as many rounds as the array says.
    t = cuda.threadIdx.x
    n = keys.size
    for phase in range(n):
        k = 2 * t + phase % 2
        if k + 1 < n and keys[k] > keys[k + 1]:
            keys[k], keys[k + 1] = keys[k + 1], keys[k]
        cuda.syncthreads()


@cuda.jit
def lu_in_place(a):
    # One block for each matrix, one thread for each row, no pivoting.
    m = a[cuda.blockIdx.x]
    row = cuda.threadIdx.x
    n = m.shape[0]
    for k in range(n - 1):
        if k < row < n:
            m[row, k] /= m[k, k]
        cuda.syncthreads()
        if k < row < n:
            for j in range(k + 1, n):
                m[row, j] -= m[row, k] * m[k, j]
        cuda.syncthreads()


@cuda.jit
def life_generations(board, generations):
    # A torus that lives in shared memory between the generations.
    now = cuda.shared.array((12, 12), int32)
    i = cuda.threadIdx.y
    j = cuda.threadIdx.x
    rows = board.shape[0]
    columns = board.shape[1]
    now[i, j] = board[i, j]
    cuda.syncthreads()
    for _ in range(generations):
        alive = -now[i, j]
        for di in range(-1, 2):
            for dj in range(-1, 2):
                alive += now[(i + di + rows) % rows, (j + dj + columns) % columns]
        cuda.syncthreads()
        if alive == 3:
            now[i, j] = 1
        elif alive != 2:
            now[i, j] = 0
        cuda.syncthreads()
    board[i, j] = now[i, j]


def _zero(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


def _by_block(x: np.ndarray, size: int) -> np.ndarray:
    return np.pad(x, (0, -x.size % size)).reshape(-1, size)


def _reverse(args: Args) -> Expected:
    n = args[0].size
    return {1: _by_block(args[0], 64)[:, ::-1].ravel()[:n]}


def _inclusive(args: Args) -> Expected:
    return {1: np.cumsum(_by_block(args[0], 64), axis=1).ravel()[: args[0].size]}


def _exclusive(args: Args) -> Expected:
    x = _by_block(args[0], 128)
    return {1: (np.cumsum(x, axis=1) - x).ravel()[: args[0].size]}


def _lu_args(rng: np.random.Generator) -> Args:
    return (rng.normal(size=(3, 13, 13)) + 20 * np.eye(13),)


def _lu(args: Args) -> Expected:
    # Row k of U and column k of L from the leading minors, by solving with the blocks above.
    a = args[0]
    out = np.empty_like(a)
    for m, packed in zip(a, out, strict=True):
        for k in range(m.shape[0]):
            lead = np.linalg.solve(m[:k, :k], m[:k, k:])
            schur = m[k:, k:] - m[k:, :k] @ lead
            packed[k, k:] = schur[0]
            packed[k + 1 :, k] = schur[1:, 0] / schur[0, 0]
    return {0: out}


def _generations(args: Args) -> Expected:
    board = args[0]
    for _ in range(args[1]):
        padded = np.pad(board, 1, mode="wrap")
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))
        around = windows.sum(axis=(-2, -1)) - board
        board = ((around == 3) | ((around == 2) & (board == 1))).astype(board.dtype)
    return {0: board}


SHARED = uses("barrier static_shared")


CASES = [
    Case(
        "reverse_in_block",
        reverse_in_block,
        lambda rng: (dyadic(rng, 64 * 3 + 17), _zero(64 * 3 + 17)),
        line(0),
        _reverse,
        features=SHARED,
        effects=effects("x", "out"),
    ),
    Case(
        "block_reduce",
        block_reduce,
        lambda rng: (dyadic(rng, 451), _zero(4)),
        line(0, 128),
        lambda a: {1: _by_block(a[0].astype(np.float64), 128).sum(axis=1)},
        features=SHARED,
        effects=effects("x", "out"),
    ),
    Case(
        "scan_hillis_steele",
        scan_hillis_steele,
        lambda rng: (rng.integers(-99, 99, 215), np.zeros(215, np.int64)),
        line(0),
        _inclusive,
        features=SHARED,
        effects=effects("x", "out"),
    ),
    Case(
        "scan_blelloch",
        scan_blelloch,
        lambda rng: (dyadic(rng, 333, np.float64), np.zeros(333)),
        lambda a: (blocks(a[0].size, 128), 64),
        _exclusive,
        features=SHARED,
        effects=effects("x", "out"),
    ),
    Case(
        "bitonic_sort",
        bitonic_sort,
        lambda rng: (rng.normal(size=(3, ragged(rng, 65, 127))).astype(np.float32),),
        fixed(3, 128),
        lambda a: {0: np.sort(a[0], axis=1)},
        features=SHARED,
        effects=effects("x", "x"),
    ),
    Case(
        "odd_even_sort",
        odd_even_sort,
        lambda rng: (rng.integers(0, 50, ragged(rng, 30, 60)),),
        fixed(1, 32),
        lambda a: {0: np.sort(a[0])},
        features=uses("barrier"),
        effects=effects("keys", "keys"),
    ),
    Case(
        "lu_in_place",
        lu_in_place,
        _lu_args,
        fixed(3, 16),
        _lu,
        # The reference solves where the kernel eliminates; the matrices are well conditioned.
        rtol=1e-10,
        atol=1e-12,
        features=uses("barrier"),
        effects=effects("a", "a"),
    ),
    Case(
        "life_generations",
        life_generations,
        lambda rng: (rng.integers(0, 2, (11, 12), np.int32), 5),
        fixed(1, (12, 11)),
        _generations,
        features=SHARED,
        effects=effects("board", "board"),
    ),
]
