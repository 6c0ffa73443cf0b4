"""Integer and bool elements: widths, signs, wraparound, shifts, division."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, int8, int16, int64, uint8, uint16, uint32

from .case import Args, Case, Expected, effects, line, uses

N = 117


@cuda.jit
def integer_arithmetic(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] // b[i]
        out[1, i] = a[i] % b[i]
        out[2, i] = a[i] * b[i]
        out[3, i] = a[i] - b[i]
        out[4, i] = -a[i]
        out[5, i] = abs(a[i])
        out[6, i] = (a[i] & b[i]) | (a[i] ^ 5)
        out[7, i] = ~a[i]


@cuda.jit
def shifts(a, by, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] << by[i]
        out[1, i] = a[i] >> by[i]


@cuda.jit
def true_division(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = a[i] / b[i]


@cuda.jit
def wraparound(a, b, out):
    # Explicit casts keep Numba from widening, so that the type itself wraps.
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = uint8(uint8(a[i]) + uint8(b[i]))
        out[1, i] = int8(a[i] * b[i])
        out[2, i] = uint16(uint16(a[i]) - uint16(b[i]))
        out[3, i] = int16(a[i] << 9)
        out[4, i] = uint32(0 - a[i])


@cuda.jit
def unsigned_hash(x, out):
    i = cuda.grid(1)
    if i < x.size:
        h = x[i]
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        h ^= h >> np.uint64(33)
        out[i] = h


@cuda.jit
def float_to_integer(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = int(x[i])
        out[1, i] = int8(x[i])
        out[2, i] = uint8(abs(x[i]))
        out[3, i] = int64(x[i] * 2.0)


@cuda.jit
def compare(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] < b[i]
        out[1, i] = a[i] <= b[i]
        out[2, i] = a[i] == b[i]
        out[3, i] = a[i] != b[i]
        out[4, i] = not (a[i] > b[i])


@cuda.jit
def logic(a, b, out, counts):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = (a[i] and not b[i]) or (b[i] and not a[i])
        counts[i] = a[i] + b[i]
        if a[i]:
            counts[i] += 10


def _whole(dtype: Any) -> Any:
    def make(rng: np.random.Generator) -> Args:
        low, high = max(np.iinfo(dtype).min, -9999), min(np.iinfo(dtype).max, 9999)
        a, b = (rng.integers(low, high, N, dtype) for _ in range(2))
        b[b == 0] = 3
        a[: N // 2] //= 7
        return a, b, np.zeros((8, N), np.int64)

    return make


def _arithmetic(args: Args) -> Expected:
    # Numba computes in 64 bits whatever the width, but for a lone minus, abs and complement.
    own = args[0]
    a, b = own.astype(np.int64), args[1].astype(np.int64)
    rows = (a // b, a % b, a * b, a - b, -own, np.abs(own), (a & b) | (a ^ 5), ~own)
    return {2: np.stack([row.astype(np.int64) for row in rows])}


def _shift_args(dtype: Any) -> Any:
    def make(rng: np.random.Generator) -> Args:
        info = np.iinfo(dtype)
        a = rng.integers(info.min, info.max, N, dtype)
        return a, rng.integers(0, info.bits, N).astype(dtype), np.zeros((2, N), dtype)

    return make


def _shifted(args: Args) -> Expected:
    a, by = args[0], args[1]
    left = [(int(v) << int(k)) % 2 ** (8 * a.itemsize) for v, k in zip(a, by, strict=True)]
    unsigned = np.dtype(f"u{a.itemsize}")
    return {2: np.stack([np.array(left, unsigned).view(a.dtype), np.right_shift(a, by)])}


def _wrapped(args: Args) -> Expected:
    a, b = (v.astype(np.int64) for v in args[:2])
    rows = (
        (a + b) % 2**8,
        (a * b).astype(np.int8),
        (a - b) % 2**16,
        (a * 512).astype(np.int16),
        (-a) % 2**32,
    )
    return {2: np.stack([np.asarray(row, np.int64) for row in rows])}


def _hashed(args: Args) -> Expected:
    def mix(h: int) -> int:
        h ^= h >> 33
        h = h * 0xFF51AFD7ED558CCD % 2**64
        h ^= h >> 33
        h = h * 0xC4CEB9FE1A85EC53 % 2**64
        return h ^ h >> 33

    return {1: np.array([mix(int(v)) for v in args[0]], np.uint64)}


def _compare_args(dtype: Any) -> Any:
    def make(rng: np.random.Generator) -> Args:
        a, b = (rng.integers(0, 9, N).astype(dtype) for _ in range(2))
        if np.issubdtype(dtype, np.floating):
            a[::7] = np.nan
        elif np.issubdtype(dtype, np.unsignedinteger):
            a[::7] = np.iinfo(dtype).max
        else:
            a[::7] = -a[::7] - 1
        return a, b, np.zeros((5, N), np.bool_)

    return make


def _compared(args: Args) -> Expected:
    a, b = args[0], args[1]
    return {2: np.stack([a < b, a <= b, a == b, a != b, ~(a > b)])}


def _small(dtype: Any) -> str:
    return "small_int" if np.dtype(dtype).itemsize < 4 else ""


CASES = [
    *(
        Case(
            f"integer_arithmetic_{np.dtype(dtype).name}",
            integer_arithmetic,
            _whole(dtype),
            line(0),
            _arithmetic,
            features=uses(_small(dtype)),
            effects=effects("a b", "out"),
        )
        for dtype in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64)
    ),
    *(
        Case(
            f"shifts_{np.dtype(dtype).name}",
            shifts,
            _shift_args(dtype),
            line(0),
            _shifted,
            features=uses(_small(dtype)),
            effects=effects("a by", "out"),
        )
        for dtype in (np.int16, np.int32, np.uint32, np.int64, np.uint64)
    ),
    Case(
        "true_division",
        true_division,
        lambda rng: (
            rng.integers(-99, 99, N),
            rng.integers(1, 20, N, np.uint16),
            np.zeros(N),
        ),
        line(0),
        lambda a: {2: a[0] / a[1]},
        features=uses("small_int"),
        effects=effects("a b", "out"),
    ),
    Case(
        "wraparound",
        wraparound,
        lambda rng: (
            rng.integers(0, 256, N, np.uint8),
            rng.integers(0, 256, N, np.uint8),
            np.zeros((5, N), np.int64),
        ),
        line(0),
        _wrapped,
        features=uses("small_int"),
        effects=effects("a b", "out"),
    ),
    Case(
        "unsigned_hash",
        unsigned_hash,
        lambda rng: (rng.integers(0, 2**64, N, np.uint64), np.zeros(N, np.uint64)),
        line(0),
        _hashed,
        effects=effects("x", "out"),
    ),
    Case(
        "float_to_integer",
        float_to_integer,
        lambda rng: (rng.uniform(-120, 120, N), np.zeros((4, N), np.int32)),
        line(0),
        lambda a: {
            1: np.stack([a[0], a[0], np.abs(a[0]), 2 * a[0]]).astype(np.int32),
        },
        features=uses("small_int"),
        effects=effects("x", "out"),
    ),
    *(
        Case(
            f"compare_{np.dtype(dtype).name}",
            compare,
            _compare_args(dtype),
            line(0),
            _compared,
            features=uses(f"bool {_small(dtype)}"),
            effects=effects("a b", "out"),
        )
        for dtype in (np.int8, np.uint8, np.int64, np.uint64, np.float32, np.float64)
    ),
    Case(
        "logic",
        logic,
        lambda rng: (
            rng.random(N) < 0.5,
            rng.random(N) < 0.5,
            np.zeros(N, np.bool_),
            np.zeros(N, np.uint8),
        ),
        line(0),
        lambda a: {2: a[0] ^ a[1], 3: a[0].astype(np.uint8) * 11 + a[1]},
        features=uses("bool small_int"),
        effects=effects("a b", "out counts"),
    ),
]
