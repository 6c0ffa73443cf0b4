"""Shared memory of every kind: static and dynamic, several dtypes, shared histograms, an FFT."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np
from numba import complex64, cuda, float32, float64, int8, int32, int64, uint8

from .case import Args, Case, Expected, blocks, dyadic, effects, fixed, line, ragged, uses


@cuda.jit
def dynamic_reverse(x, out):
    tile = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    if i < out.size:
        out[i] = tile[tile.size - 1 - t]


@cuda.jit
def dynamic_two_views(x, out, order):
    # Keys and their positions: two arrays of different types in one dynamic allocation.
    n = cuda.blockDim.x
    keys = cuda.shared.array(0, float64)[:n]
    positions = cuda.shared.array(0, int32)[2 * n : 3 * n]
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    keys[t] = x[i] if i < x.size else np.inf
    positions[t] = t
    cuda.syncthreads()
    for phase in range(n):
        k = 2 * t + phase % 2
        if k + 1 < n and keys[k] > keys[k + 1]:
            keys[k], keys[k + 1] = keys[k + 1], keys[k]
            positions[k], positions[k + 1] = positions[k + 1], positions[k]
        cuda.syncthreads()
    if i < out.size:
        out[i] = keys[t]
        order[i] = positions[t]


@cuda.jit
def dynamic_reinterpret(x, low, high):
    # The same bytes seen as two types.
    words = cuda.shared.array(0, int64)
    halves = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    words[t] = x[t]
    cuda.syncthreads()
    low[t] = halves[2 * t]
    high[t] = halves[2 * t + 1]


@cuda.jit
def static_and_dynamic(x, out):
    fixed_tile = cuda.shared.array((4, 8), float32)
    tile = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    fixed_tile[t // 8, t % 8] = x[t]
    tile[t] = 2 * x[31 - t]
    cuda.syncthreads()
    out[t] = fixed_tile[3 - t // 8, 7 - t % 8] + tile[31 - t] / 2


@cuda.jit
def static_of_many_types(x, out):
    # Odd lengths, so that an allocator that forgets alignment is found out.
    bytes_ = cuda.shared.array(33, int8)
    doubles = cuda.shared.array(33, float64)
    flags = cuda.shared.array(35, uint8)
    pairs = cuda.shared.array(33, complex64)
    singles = cuda.shared.array(37, float32)
    t = cuda.threadIdx.x
    value = x[t]
    bytes_[t] = t - 16
    doubles[t] = value
    flags[t] = value > 0
    pairs[t] = complex(value, t)
    singles[t] = -value
    cuda.syncthreads()
    k = 32 - t
    out[t, 0] = bytes_[k]
    out[t, 1] = doubles[k]
    out[t, 2] = flags[k]
    out[t, 3] = pairs[k].real
    out[t, 4] = pairs[k].imag
    out[t, 5] = singles[k]


@cuda.jit
def histogram_shared(x, low, high, counts):
    local = cuda.shared.array(40, int32)
    t = cuda.threadIdx.x
    bins = counts.size
    for k in range(t, bins, cuda.blockDim.x):
        local[k] = 0
    cuda.syncthreads()
    width = (high - low) / bins
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        if low <= x[i] < high:
            k = int((x[i] - low) / width)
            cuda.atomic.add(local, min(k, bins - 1), 1)
    cuda.syncthreads()
    for k in range(t, bins, cuda.blockDim.x):
        cuda.atomic.add(counts, k, local[k])


@cuda.jit
def fft_shared(x, out):
    # Radix 2, one transform for each block.
    data = cuda.shared.array(64, complex64)
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x
    n = 64
    flipped = 0
    rest = t
    for _ in range(6):
        flipped = (flipped << 1) | (rest & 1)
        rest >>= 1
    data[flipped] = x[row, t]
    cuda.syncthreads()
    half = 1
    while half < n:
        if t % (2 * half) < half:
            angle = -math.pi * (t % half) / half
            factor = complex(math.cos(angle), math.sin(angle))
            even = data[t]
            odd = data[t + half] * factor
            data[t] = even + odd
            data[t + half] = even - odd
        cuda.syncthreads()
        half *= 2
    out[row, t] = data[t]


@cuda.jit
def segmented_max(x, segment, out):
    # Shared atomics on floats, then one store for each segment and block.
    best = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    if t < 8:
        best[t] = float32(-np.inf)
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(best, segment[i], x[i])
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.max(out, t, best[t])


@cuda.jit
def local_histogram(x, out):
    # A local array indexed by data, of two dimensions.
    counts = cuda.local.array((2, 5), int32)
    row = cuda.grid(1)
    if row < x.shape[0]:
        for a in range(2):
            for b in range(5):
                counts[a, b] = 0
        for j in range(x.shape[1]):
            counts[j % 2, x[row, j]] += 1
        for a in range(2):
            for b in range(5):
                out[row, a, b] = counts[a, b]


@cuda.jit
def local_sort(x, k, out):
    # The k smallest of a row by insertion.
    kept = cuda.local.array(8, float64)
    row = cuda.grid(1)
    if row >= x.shape[0]:
        return
    held = 0
    for j in range(x.shape[1]):
        value = x[row, j]
        if held < k:
            held += 1
        elif value >= kept[held - 1]:
            continue
        slot = held - 1
        while slot > 0 and kept[slot - 1] > value:
            kept[slot] = kept[slot - 1]
            slot -= 1
        kept[slot] = value
    for j in range(k):
        out[row, j] = kept[j]


def _reversed(args: Args) -> Expected:
    x = np.pad(args[0], (0, -args[0].size % 48))
    return {1: x.reshape(-1, 48)[:, ::-1].ravel()[: args[0].size]}


def _sorted(args: Args) -> Expected:
    pieces = np.split(args[0], range(24, args[0].size, 24))
    # Odd-even transposition never swaps equals, so it is stable.
    order = [np.argsort(piece, kind="stable") for piece in pieces]
    return {1: np.concatenate([np.sort(piece) for piece in pieces]), 2: np.concatenate(order)}


def _many_types(args: Args) -> Expected:
    x = args[0][::-1]
    t = np.arange(33)[::-1]
    return {1: np.stack([t - 16, x, x > 0, x, t, -x], axis=1)}


def _segments(rng: np.random.Generator) -> Args:
    n = ragged(rng, 200, 300)
    x = rng.normal(size=n).astype(np.float32)
    return x, rng.integers(0, 7, n), np.full(8, -0.5, np.float32)


def _segmented(args: Args) -> Expected:
    np.maximum.at(args[2], args[1], args[0])
    return {2: args[2]}


def _counted(args: Args) -> Expected:
    x = args[0]
    return {1: np.stack([[np.bincount(row[a::2], minlength=5) for a in range(2)] for row in x])}


def _halves(args: Args) -> Expected:
    halves = np.frombuffer(args[0].tobytes(), "<i4")
    return {1: halves[::2], 2: halves[1::2]}


CASES = [
    Case(
        "dynamic_reverse",
        dynamic_reverse,
        lambda rng: (dyadic(rng, 207), np.zeros(207, np.float32)),
        lambda a: (blocks(a[0].size, 48), 48, 0, 48 * 4),
        _reversed,
        features=uses("barrier dynamic_shared"),
        effects=effects("x", "out"),
    ),
    Case(
        # As many threads as a block can have.
        "dynamic_reverse_1024",
        dynamic_reverse,
        lambda rng: (dyadic(rng, 3000), np.zeros(3000, np.float32)),
        fixed(3, 1024, 0, 4096),
        lambda a: {
            1: np.pad(a[0], (0, 72)).reshape(3, 1024)[:, ::-1].ravel()[:3000],
        },
        features=uses("barrier dynamic_shared"),
        effects=effects("x", "out"),
    ),
    Case(
        "dynamic_two_views",
        dynamic_two_views,
        lambda rng: (dyadic(rng, 107, np.float64), np.zeros(107), np.zeros(107, np.int32)),
        lambda a: (blocks(a[0].size, 24), 24, 0, 24 * 12),
        _sorted,
        features=uses("barrier dynamic_shared"),
        effects=effects("x", "out order"),
    ),
    Case(
        "dynamic_reinterpret",
        dynamic_reinterpret,
        lambda rng: (
            rng.integers(-(2**62), 2**62, 29),
            np.zeros(29, np.int32),
            np.zeros(29, np.int32),
        ),
        fixed(1, 29, 0, 29 * 8),
        _halves,
        features=uses("barrier dynamic_shared"),
        effects=effects("x", "low high"),
    ),
    Case(
        "static_and_dynamic",
        static_and_dynamic,
        lambda rng: (dyadic(rng, 32), np.zeros(32, np.float32)),
        fixed(1, 32, 0, 128),
        lambda a: {1: a[0][::-1] + a[0]},
        features=uses("barrier static_shared dynamic_shared"),
        effects=effects("x", "out"),
    ),
    Case(
        "static_of_many_types",
        static_of_many_types,
        lambda rng: (dyadic(rng, 33), np.zeros((33, 6))),
        fixed(1, 33),
        _many_types,
        features=uses("barrier static_shared small_int complex"),
        effects=effects("x", "out"),
    ),
    Case(
        "histogram_shared",
        histogram_shared,
        # Bin edges at multiples of 1/4, data at odd multiples of 1/16: no edge is ever hit.
        lambda rng: (dyadic(rng, 1007, np.float64) + 1 / 16, -3.0, 3.0, np.ones(24, np.int32)),
        fixed(3, 64),
        lambda a: {3: 1 + np.histogram(a[0], bins=24, range=(-3, 3))[0]},
        features=uses("barrier static_shared atomic"),
        effects=effects("x counts", "counts"),
    ),
    Case(
        "fft_shared",
        fft_shared,
        lambda rng: (
            (rng.normal(size=(3, 64)) + 1j * rng.normal(size=(3, 64))).astype(np.complex64),
            np.zeros((3, 64), np.complex64),
        ),
        fixed(3, 64),
        lambda a: {1: np.fft.fft(a[0].astype(np.complex128), axis=1)},
        # Six rounded stages of values of size 8 in single precision.
        rtol=1e-5,
        atol=1e-5,
        features=uses("barrier static_shared complex math"),
        effects=effects("x", "out"),
    ),
    Case(
        "segmented_max",
        segmented_max,
        _segments,
        line(0),
        _segmented,
        features=uses("barrier static_shared atomic"),
        effects=effects("x segment out", "out"),
    ),
    Case(
        "local_histogram",
        local_histogram,
        lambda rng: (rng.integers(0, 5, (45, 23), np.uint8), np.zeros((45, 2, 5), np.int32)),
        fixed(2, 32),
        _counted,
        features=uses("local small_int"),
        effects=effects("x", "out"),
    ),
    Case(
        "local_sort",
        local_sort,
        lambda rng: (rng.normal(size=(45, 23)), 6, np.zeros((45, 6))),
        fixed(2, 32),
        lambda a: {2: np.sort(a[0], axis=1)[:, : a[1]]},
        features=uses("local"),
        effects=effects("x", "out"),
    ),
]
