"""Barriers in device functions, voting barriers, fences, grid-wide synchronisation."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import cuda, float32, int32, int64

from .case import Args, Case, Expected, blocks, dyadic, effects, fixed, line, uses


@cuda.jit(device=True)
def block_sum(value):
    # Shared memory and barriers inside a device function.
    partial = cuda.shared.array(64, int64)
    t = cuda.threadIdx.x
    partial[t] = value
    cuda.syncthreads()
    width = cuda.blockDim.x // 2
    while width > 0:
        if t < width:
            partial[t] += partial[t + width]
        cuda.syncthreads()
        width //= 2
    total = partial[0]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def centred(value):
    return value * cuda.blockDim.x - block_sum(value)


@cuda.jit
def barrier_in_device_function(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else 0
    total = block_sum(value)
    squares = block_sum(value * value)
    for _ in range(2):
        squares = block_sum(squares) // 64
    if i < out.shape[1]:
        out[0, i] = total
        out[1, i] = squares


@cuda.jit
def shared_memory_reached_twice(x, out):
    # The kernel links the device function's shared array along two paths.
    i = cuda.grid(1)
    value = x[i] if i < x.size else 0
    first = centred(value)
    second = block_sum(first * first)
    if i < out.shape[1]:
        out[0, i] = first
        out[1, i] = second


@cuda.jit(device=True)
def exchange(tile, t, value):
    # Shared memory of the caller.
    tile[t] = value
    cuda.syncthreads()
    got = tile[cuda.blockDim.x - 1 - t]
    cuda.syncthreads()
    return got


@cuda.jit
def barrier_on_passed_tile(x, rounds, out):
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    value = x[t]
    for _ in range(rounds[0]):
        value = exchange(tile, t, value) + float32(1)
    out[t] = value


@cuda.jit
def barrier_votes(x, count, every, some):
    i = cuda.grid(1)
    inside = i < x.size
    positive = cuda.syncthreads_count(int(inside and x[i] > 0))
    all_small = cuda.syncthreads_and(int(not inside or x[i] < 3))
    any_large = cuda.syncthreads_or(int(inside and x[i] > 3.5))
    if cuda.threadIdx.x == 0:
        count[cuda.blockIdx.x] = positive
        every[cuda.blockIdx.x] = all_small != 0
        some[cuda.blockIdx.x] = any_large != 0


@cuda.jit
def fence_and_last_block(x, partial, ticket, out):
    # The block that finishes last adds the others' results: the fence makes them visible.
    last = cuda.shared.array(1, int32)
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        total = 0
        for i in range(b, x.size, cuda.gridDim.x):
            total += x[i]
        partial[b] = total
        cuda.threadfence()
        last[0] = cuda.atomic.add(ticket, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    cuda.threadfence_block()
    if last[0] != 0 and cuda.threadIdx.x == 0:
        cuda.threadfence_system()
        total = 0
        for k in range(cuda.gridDim.x):
            total += partial[k]
        out[0] = total
        ticket[0] = 0


@cuda.jit
def grid_wide_shift(x, rounds):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    n = x.size
    for _ in range(rounds):
        value = x[(i + 1) % n]
        grid.sync()
        if i < n:
            x[i] = value
        grid.sync()


def _device_sums(args: Args) -> Expected:
    x = args[0]
    full = np.pad(x, (0, -x.size % 64)).reshape(-1, 64)
    # The sum over a block of one number is 64 times it, which the division takes back.
    sums = [np.repeat(part.sum(axis=1), 64) for part in (full, full**2)]
    return {1: np.stack(sums)[:, : x.size]}


def _centred_sums(args: Args) -> Expected:
    x = args[0]
    full = np.pad(x, (0, -x.size % 64)).reshape(-1, 64)
    first = full * 64 - full.sum(axis=1, keepdims=True)
    second = np.repeat((first**2).sum(axis=1), 64)
    return {1: np.stack([first.ravel(), second])[:, : x.size]}


def _exchanged(args: Args) -> Expected:
    x = args[0]
    rounds = int(args[1][0])
    return {2: (x[::-1] if rounds % 2 else x) + rounds}


def _votes(args: Args) -> Expected:
    pieces = np.split(args[0], range(64, args[0].size, 64))
    return {
        1: [np.sum(piece > 0) for piece in pieces],
        2: [np.all(piece < 3) for piece in pieces],
        3: [np.any(piece > 3.5) for piece in pieces],
    }


def _vote_args(rng: np.random.Generator) -> Args:
    x = dyadic(rng, 303)
    x[:100] = np.minimum(x[:100], 2.5)
    count = blocks(x.size, 64)
    return x, np.zeros(count, np.int32), np.zeros(count, np.bool_), np.zeros(count, np.bool_)


def _last_block(args: Args) -> Expected:
    x = args[0]
    return {1: [x[b::5].sum() for b in range(5)], 3: [x.sum()]}


CASES = [
    Case(
        "barrier_in_device_function",
        barrier_in_device_function,
        lambda rng: (rng.integers(-50, 50, 171), np.zeros((2, 171), np.int64)),
        line(0),
        _device_sums,
        features=uses("barrier static_shared device_function"),
        effects=effects("x", "out"),
    ),
    Case(
        "shared_memory_reached_twice",
        shared_memory_reached_twice,
        lambda rng: (rng.integers(-50, 50, 171), np.zeros((2, 171), np.int64)),
        line(0),
        _centred_sums,
        features=uses("barrier static_shared device_function"),
        effects=effects("x", "out"),
    ),
    Case(
        "barrier_on_passed_tile",
        barrier_on_passed_tile,
        lambda rng: (dyadic(rng, 32), rng.integers(1, 6, 1), np.zeros(32, np.float32)),
        fixed(1, 32),
        _exchanged,
        features=uses("barrier static_shared device_function"),
        effects=effects("x rounds", "out"),
    ),
    Case(
        "barrier_votes",
        barrier_votes,
        _vote_args,
        line(0),
        _votes,
        features=uses("barrier barrier_vote bool"),
        effects=effects("x", "count every some"),
    ),
    Case(
        "fence_and_last_block",
        fence_and_last_block,
        lambda rng: (
            rng.integers(-99, 99, 301),
            np.zeros(5, np.int64),
            np.zeros(1, np.int32),
            np.zeros(1, np.int64),
        ),
        fixed(5, 33),
        _last_block,
        features=uses("barrier static_shared atomic fence"),
        effects=effects("x partial ticket", "partial ticket out"),
    ),
    Case(
        "grid_wide_shift",
        grid_wide_shift,
        lambda rng: (dyadic(rng, 117), 3),
        fixed(4, 32),
        lambda a: {0: np.roll(a[0], -3)},
        features=uses("grid_sync barrier"),
        effects=effects("x", "x"),
    ),
]
