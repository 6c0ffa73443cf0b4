"""Barriers in every control flow that CUDA allows."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import cuda, float32, int32, int64

from .case import Args, Case, Expected, dyadic, effects, fixed, line, uses


@cuda.jit
def rotate_rounds(x, rounds):
    # The trip count comes from memory, one for each block.
    tile = cuda.shared.array(32, int64)
    t = cuda.threadIdx.x
    n = cuda.blockDim.x
    value = x[cuda.blockIdx.x, t]
    for k in range(rounds[cuda.blockIdx.x]):
        tile[t] = value
        cuda.syncthreads()
        value = tile[(t + k + 1) % n] + k
        cuda.syncthreads()
    x[cuda.blockIdx.x, t] = value


@cuda.jit
def relax_until(x, tolerance, steps):
    # Every thread reads the same shared flag, so the loop ends for all at once.
    unsettled = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    n = x.size
    count = 0
    while True:
        if t == 0:
            unsettled[0] = 0
        cuda.syncthreads()
        value = x[t] if t < n else 0
        if value > tolerance:
            unsettled[0] = 1
            x[t] = value // 2
        cuda.syncthreads()
        going = unsettled[0]
        cuda.syncthreads()
        if going == 0:
            break
        count += 1
    if t == 0:
        steps[0] = count


@cuda.jit
def uneven_work_then_barrier(work, out):
    # Threads leave their own loops at different times and then all meet.
    done = cuda.shared.array(64, int64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    total = 0
    if i < work.size:
        k = 0
        while k < work[i]:
            k += 1
            if k % 3 == 0:
                continue
            total += k
    done[t] = total
    cuda.syncthreads()
    if i < out.size:
        out[i] = done[t] + done[(t + 1) % cuda.blockDim.x]


@cuda.jit
def barrier_after_return(x, out):
    # As users write it: the threads beyond the end have left before the barrier.
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i >= x.size:
        return
    tile[t] = x[i]
    cuda.syncthreads()
    last = min(cuda.blockDim.x, x.size - cuda.blockIdx.x * cuda.blockDim.x) - 1
    out[i] = tile[last - t]


@cuda.jit
def barrier_in_branches(x, out):
    # Each block takes one side, and each side has barriers of its own.
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    b = cuda.blockIdx.x
    n = cuda.blockDim.x
    tile[t] = x[b, t]
    if b % 3 == 0:
        cuda.syncthreads()
        value = tile[n - 1 - t]
        cuda.syncthreads()
        tile[t] = value + 1
        cuda.syncthreads()
        out[b, t] = tile[(t + 1) % n]
    elif b % 3 == 1:
        cuda.syncthreads()
        out[b, t] = tile[(t + 5) % n]
    else:
        out[b, t] = -tile[t]


@cuda.jit
def barrier_in_nested_loops(x, out):
    tile = cuda.shared.array((4, 8), int64)
    i = cuda.threadIdx.y
    j = cuda.threadIdx.x
    value = x[i, j]
    for a in range(3):
        for b in range(a + 1):
            tile[i, j] = value
            cuda.syncthreads()
            value += tile[(i + a) % 4, (j + b) % 8]
            cuda.syncthreads()
            if a == 2 and b == 1:
                break
        if a == 1:
            continue
        value -= 1
    out[i, j] = value


@cuda.jit
def barrier_3d_block(x, out):
    tile = cuda.shared.array((3, 4, 5), float32)
    i = cuda.threadIdx.z
    j = cuda.threadIdx.y
    k = cuda.threadIdx.x
    tile[i, j, k] = x[cuda.blockIdx.x, i, j, k]
    cuda.syncthreads()
    out[cuda.blockIdx.x, i, j, k] = tile[2 - i, 3 - j, 4 - k]


@cuda.jit
def private_state_over_barriers(x, out):
    # Scalars, a local array and loop counters have to survive many barriers.
    tile = cuda.shared.array(32, float32)
    own = cuda.local.array(4, float32)
    t = cuda.threadIdx.x
    first = x[t]
    for k in range(4):
        own[k] = first * (k + 1)
    total = float32(0)
    for k in range(4):
        tile[t] = own[k]
        cuda.syncthreads()
        own[3 - k] += tile[t ^ 1]
        total += tile[31 - t] * (k + 1)
        cuda.syncthreads()
    out[0, t] = total
    for k in range(4):
        out[k + 1, t] = own[k]


def _rotate(args: Args) -> Expected:
    x, rounds = args
    for row, count in zip(x, rounds, strict=True):
        for k in range(count):
            row[:] = np.roll(row, -(k + 1)) + k
    return {0: x}


def _relax(args: Args) -> Expected:
    x, tolerance, _ = args
    steps = 0
    while (x > tolerance).any():
        x = np.where(x > tolerance, x // 2, x)
        steps += 1
    return {0: x, 2: [steps]}


def _uneven(args: Args) -> Expected:
    n = args[0].size
    sums = np.array([sum(k for k in range(1, w + 1) if k % 3) for w in args[0]])
    full = np.pad(sums, (0, -n % 64)).reshape(-1, 64)
    return {1: (full + np.roll(full, -1, axis=1)).ravel()[:n]}


def _after_return(args: Args) -> Expected:
    pieces = np.split(args[0], range(64, args[0].size, 64))
    return {1: np.concatenate([piece[::-1] for piece in pieces])}


def _branches(args: Args) -> Expected:
    x, out = args
    out[0::3] = np.roll(x[0::3, ::-1] + 1, -1, axis=1)
    out[1::3] = np.roll(x[1::3], -5, axis=1)
    out[2::3] = -x[2::3]
    return {1: out}


def _nested(args: Args) -> Expected:
    value = args[0]
    for a, b, less in ((0, 0, 1), (1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 1)):
        value = value + np.roll(value, (-a, -b), (0, 1)) - less
    return {1: value}


def _private(args: Args) -> Expected:
    own = np.outer(np.arange(1, 5), args[0].astype(np.float64))
    total = np.zeros(32)
    for k in range(4):
        tile = own[k].copy()
        own[3 - k] += tile.reshape(16, 2)[:, ::-1].ravel()
        total += tile[::-1] * (k + 1)
    return {1: np.vstack([total, own])}


CASES = [
    Case(
        "rotate_rounds",
        rotate_rounds,
        lambda rng: (rng.integers(0, 99, (5, 27)), rng.integers(0, 6, 5)),
        fixed(5, 27),
        _rotate,
        features=uses("barrier static_shared"),
        effects=effects("x rounds", "x"),
    ),
    Case(
        "relax_until",
        relax_until,
        lambda rng: (rng.integers(1, 500, 77), 7, np.zeros(1, np.int64)),
        fixed(1, 96),
        _relax,
        features=uses("barrier static_shared"),
        effects=effects("x", "x steps"),
    ),
    Case(
        "uneven_work_then_barrier",
        uneven_work_then_barrier,
        lambda rng: (rng.integers(0, 40, 150), np.zeros(150, np.int64)),
        line(0),
        _uneven,
        features=uses("barrier static_shared"),
        effects=effects("work", "out"),
    ),
    Case(
        "barrier_after_return",
        barrier_after_return,
        lambda rng: (dyadic(rng, 150), np.zeros(150, np.float32)),
        line(0),
        _after_return,
        features=uses("barrier static_shared early_exit"),
        effects=effects("x", "out"),
    ),
    Case(
        "barrier_in_branches",
        barrier_in_branches,
        lambda rng: (dyadic(rng, (8, 30)), np.zeros((8, 30), np.float32)),
        fixed(8, 30),
        _branches,
        features=uses("barrier static_shared"),
        effects=effects("x", "out"),
    ),
    Case(
        "barrier_in_nested_loops",
        barrier_in_nested_loops,
        lambda rng: (rng.integers(-9, 9, (4, 8)), np.zeros((4, 8), np.int64)),
        fixed(1, (8, 4)),
        _nested,
        features=uses("barrier static_shared"),
        effects=effects("x", "out"),
    ),
    Case(
        "barrier_3d_block",
        barrier_3d_block,
        lambda rng: (dyadic(rng, (7, 3, 4, 5)), np.zeros((7, 3, 4, 5), np.float32)),
        fixed(7, (5, 4, 3)),
        lambda a: {1: a[0][:, ::-1, ::-1, ::-1]},
        features=uses("barrier static_shared"),
        effects=effects("x", "out"),
    ),
    Case(
        "private_state_over_barriers",
        private_state_over_barriers,
        lambda rng: (dyadic(rng, 32), np.zeros((5, 32), np.float32)),
        fixed(1, 32),
        _private,
        features=uses("barrier static_shared local"),
        effects=effects("x", "out"),
    ),
]
