"""Warps: shuffles, votes, matches, masks."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32, int32

from .case import Args, Case, Expected, dyadic, effects, fixed, line, uses

FULL = 0xFFFFFFFF


@cuda.jit
def shuffles(x, source, out):
    i = cuda.grid(1)
    value = x[i]
    lane = cuda.laneid
    out[0, i] = cuda.shfl_sync(FULL, value, source[lane])
    out[1, i] = cuda.shfl_up_sync(FULL, value, 3)
    out[2, i] = cuda.shfl_down_sync(FULL, value, 5)
    out[3, i] = cuda.shfl_xor_sync(FULL, value, 9)
    out[4, i] = cuda.shfl_sync(FULL, value, 0)


@cuda.jit
def warp_reduce(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else float32(0)
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(FULL, value, step)
        step //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


@cuda.jit
def warp_scan(x, out):
    i = cuda.grid(1)
    value = x[i] if i < x.size else 0
    for power in range(5):
        other = cuda.shfl_up_sync(FULL, value, 1 << power)
        if cuda.laneid >= 1 << power:
            value += other
    if i < out.size:
        out[i] = value


@cuda.jit
def block_reduce_by_warps(x, out):
    # Warp 0 shuffles again while the other warps already wait at the last barrier.
    sums = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    lane = t % 32
    value = x[i] if i < x.size else float32(0)
    for k in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(FULL, value, k)
    if lane == 0:
        sums[t // 32] = value
    cuda.syncthreads()
    if t < 32:
        value = sums[lane] if lane < cuda.blockDim.x // 32 else float32(0)
        for k in (16, 8, 4, 2, 1):
            value += cuda.shfl_xor_sync(FULL, value, k)
        if lane == 0:
            sums[0] = value
    cuda.syncthreads()
    if i < out.size:
        out[i] = sums[0]


@cuda.jit
def half_warps(x, out):
    # The halves of a warp are in different branches, each with its own mask.
    i = cuda.grid(1)
    lane = cuda.laneid
    value = x[i]
    if lane < 16:
        value += cuda.shfl_xor_sync(0x0000FFFF, value, 8)
        value += cuda.shfl_xor_sync(0x0000FFFF, value, 4)
    else:
        value -= cuda.shfl_down_sync(0xFFFF0000, value, 1)
    cuda.syncwarp(FULL)
    out[i] = cuda.shfl_xor_sync(FULL, value, 16)


@cuda.jit
def shuffles_in_uneven_warps(rounds, out):
    # Each warp goes round its own number of times.
    i = cuda.grid(1)
    value = i
    for _ in range(rounds[i // 32]):
        value += cuda.shfl_xor_sync(FULL, value, 1) + 1
    out[i] = value


@cuda.jit
def votes(x, every, some, same, ballot):
    i = cuda.grid(1)
    value = x[i]
    every[i] = cuda.all_sync(FULL, value > 0)
    some[i] = cuda.any_sync(FULL, value > 3.5)
    same[i] = cuda.eq_sync(FULL, value > 0)
    ballot[i] = cuda.ballot_sync(FULL, value > 1)


@cuda.jit
def compact_by_ballot(x, out, count):
    # Keeps the positives of each warp in order.
    i = cuda.grid(1)
    keep = i < x.size and x[i] > 0
    mask = cuda.ballot_sync(FULL, keep)
    place = cuda.popc(mask & cuda.lanemask_lt())
    if keep:
        out[i // 32 * 32 + place] = x[i]
    if cuda.laneid == 0:
        count[i // 32] = cuda.popc(mask)


@cuda.jit
def matches(x, any_mask, all_mask, all_same):
    i = cuda.grid(1)
    any_mask[i] = cuda.match_any_sync(FULL, x[i])
    mask, same = cuda.match_all_sync(FULL, x[i] // 100)
    all_mask[i] = mask
    all_same[i] = same


@cuda.jit
def lanes(lane, below, size, active):
    t = cuda.threadIdx.x + cuda.blockDim.x * cuda.threadIdx.y
    i = t + cuda.blockIdx.x * cuda.blockDim.x * cuda.blockDim.y
    active[i] = cuda.activemask()
    lane[i] = cuda.laneid
    below[i] = cuda.lanemask_lt()
    size[i] = cuda.warpsize


@cuda.jit
def warp_synchronous(x, out):
    # Neighbours talk through shared memory with no more than a warp barrier between.
    tile = cuda.shared.array(96, int32)
    t = cuda.threadIdx.x
    first = t - cuda.laneid
    tile[t] = x[t]
    cuda.syncwarp()
    step = 16
    while step > 0:
        value = tile[first + (cuda.laneid + step) % 32]
        cuda.syncwarp()
        tile[t] += value
        cuda.syncwarp(FULL)
        step >>= 1
    out[t] = tile[t]


def _lanes_of(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:-1], -1, 32)


def _shuffled(args: Args) -> Expected:
    x, source, _ = args
    warps = _lanes_of(x)
    lane = np.arange(32)
    picks = (
        source % 32,
        np.where(lane >= 3, lane - 3, lane),
        np.where(lane < 27, lane + 5, lane),
        lane ^ 9,
        np.zeros(32, int),
    )
    return {2: np.stack([warps[:, pick].ravel() for pick in picks])}


def _shuffle_cases() -> list[Case]:
    def make(dtype: Any) -> Any:
        def values(rng: np.random.Generator) -> Args:
            if np.issubdtype(dtype, np.floating):
                x = rng.normal(size=128).astype(dtype)
            else:
                info = np.iinfo(dtype)
                x = rng.integers(info.min, info.max, 128, dtype)
            return x, rng.integers(0, 32, 32, np.int32), np.zeros((5, 128), dtype)

        return values

    return [
        Case(
            f"shuffles_{np.dtype(dtype).name}",
            shuffles,
            make(dtype),
            fixed(2, 64),
            _shuffled,
            features=uses("shuffle warp"),
            effects=effects("x source", "out"),
        )
        for dtype in (np.int32, np.int64, np.float32, np.float64)
    ]


def _half_warps(args: Args) -> Expected:
    warps = _lanes_of(args[0].astype(np.float64))
    low, high = warps[:, :16], warps[:, 16:]
    low = low + low[:, np.arange(16) ^ 8]
    low = low + low[:, np.arange(16) ^ 4]
    # Lane 31 has nothing above it and gets its own value.
    high = high - np.concatenate([high[:, 1:], high[:, -1:]], axis=1)
    return {1: np.concatenate([high, low], axis=1).ravel()}


def _uneven(args: Args) -> Expected:
    rounds, out = args
    pairs = np.arange(out.size).reshape(-1, 16, 2)
    for warp, count in zip(pairs, rounds, strict=True):
        for _ in range(count):
            warp[:] = warp.sum(axis=1, keepdims=True) + 1
    return {1: pairs.ravel()}


def _mask(flags: np.ndarray) -> Any:
    """One 32-bit mask for each row of 32 flags."""
    return np.sum(flags.astype(np.uint64) << np.arange(32, dtype=np.uint64), axis=-1)


def _vote_args(rng: np.random.Generator) -> Args:
    x = dyadic(rng, 160)
    x[:32] = 2.0
    x[32:64] = -1.0
    empty = [np.zeros(160, np.bool_) for _ in range(3)]
    return x, *empty, np.zeros(160, np.uint32)


def _voted(args: Args) -> Expected:
    warps = _lanes_of(args[0])
    positive = warps > 0
    verdicts = (
        positive.all(axis=1),
        (warps > 3.5).any(axis=1),
        positive.all(axis=1) | ~positive.any(axis=1),
        _mask(warps > 1),
    )
    return {k + 1: np.repeat(verdict, 32) for k, verdict in enumerate(verdicts)}


def _compacted(args: Args) -> Expected:
    x, out, _ = args
    counts = []
    for k in range(0, x.size, 32):
        kept = x[k : k + 32][x[k : k + 32] > 0]
        out[k : k + kept.size] = kept
        counts.append(kept.size)
    return {1: out, 2: counts}


def _matched(args: Args) -> Expected:
    warps = _lanes_of(args[0])
    any_mask = _mask(warps[:, :, None] == warps[:, None, :])
    hundreds = warps // 100
    same = (hundreds == hundreds[:, :1]).all(axis=1)
    return {
        1: any_mask.ravel(),
        2: np.repeat(np.where(same, 0xFFFFFFFF, 0), 32),
        3: np.repeat(same, 32),
    }


def _match_args(rng: np.random.Generator) -> Args:
    x = rng.integers(0, 9, 96).astype(np.int32)
    x[40] = 250
    return x, np.zeros(96, np.uint32), np.zeros(96, np.uint32), np.zeros(96, np.bool_)


def _lane_facts(args: Args) -> Expected:
    lane = np.tile(np.arange(32), 6)
    return {
        0: lane,
        1: 2**lane - 1,
        2: np.full(192, 32),
        3: np.full(192, 0xFFFFFFFF),
    }


CASES = [
    *_shuffle_cases(),
    Case(
        "warp_reduce",
        warp_reduce,
        lambda rng: (dyadic(rng, 301), np.zeros(1, np.float32)),
        line(0),
        lambda a: {1: [a[0].sum(dtype=np.float64)]},
        features=uses("shuffle warp atomic"),
        effects=effects("x out", "out"),
    ),
    Case(
        "warp_scan",
        warp_scan,
        lambda rng: (rng.integers(-99, 99, 145), np.zeros(145, np.int64)),
        line(0),
        lambda a: {1: np.cumsum(np.pad(a[0], (0, 15)).reshape(-1, 32), axis=1).ravel()[:145]},
        features=uses("shuffle warp"),
        effects=effects("x", "out"),
    ),
    Case(
        "block_reduce_by_warps",
        block_reduce_by_warps,
        lambda rng: (dyadic(rng, 300), np.zeros(300, np.float32)),
        line(0, 160),
        lambda a: {1: np.repeat([a[0][:160].sum(), a[0][160:].sum()], (160, 140))},
        features=uses("shuffle barrier static_shared"),
        effects=effects("x", "out"),
    ),
    Case(
        "half_warps",
        half_warps,
        lambda rng: (dyadic(rng, 64), np.zeros(64, np.float32)),
        fixed(1, 64),
        _half_warps,
        features=uses("shuffle warp"),
        effects=effects("x", "out"),
    ),
    Case(
        "shuffles_in_uneven_warps",
        shuffles_in_uneven_warps,
        lambda rng: (rng.integers(0, 7, 6), np.zeros(192, np.int64)),
        fixed(2, 96),
        _uneven,
        features=uses("shuffle"),
        effects=effects("rounds", "out"),
    ),
    Case(
        "votes",
        votes,
        _vote_args,
        fixed(1, 160),
        _voted,
        features=uses("vote bool"),
        effects=effects("x", "every some same ballot"),
    ),
    Case(
        "compact_by_ballot",
        compact_by_ballot,
        lambda rng: (dyadic(rng, 150), np.zeros(160, np.float32), np.zeros(5, np.int32)),
        fixed(1, 160),
        _compacted,
        features=uses("vote warp bit"),
        effects=effects("x", "out count"),
    ),
    Case(
        "matches",
        matches,
        _match_args,
        fixed(1, 96),
        _matched,
        features=uses("match bool"),
        effects=effects("x", "any_mask all_mask all_same"),
    ),
    Case(
        "lanes",
        lanes,
        lambda rng: (
            np.zeros(192, np.int32),
            np.zeros(192, np.uint32),
            np.zeros(192, np.int32),
            np.zeros(192, np.uint32),
        ),
        fixed(2, (16, 6)),
        _lane_facts,
        features=uses("warp"),
        effects=effects("", "lane below size active"),
    ),
    Case(
        "warp_synchronous",
        warp_synchronous,
        lambda rng: (rng.integers(-99, 99, 96, np.int32), np.zeros(96, np.int32)),
        fixed(1, 96),
        lambda a: {1: np.repeat(a[0].reshape(3, 32).sum(axis=1), 32)},
        features=uses("warp static_shared"),
        effects=effects("x", "out"),
    ),
]
