"""Bit counts, fused and selecting intrinsics."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import cuda

from .case import Args, Case, Expected, dyadic, effects, line, uses


@cuda.jit
def bits_32(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = cuda.popc(x[i])
        out[1, i] = cuda.brev(x[i])
        out[2, i] = cuda.clz(x[i])
        out[3, i] = cuda.ffs(x[i])


@cuda.jit
def select_and_fused(a, b, c, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = cuda.fma(a[i], b[i], c[i])
        out[1, i] = cuda.selp(a[i] > b[i], a[i], c[i])
        out[2, i] = cuda.cbrt(a[i] * a[i] * a[i])


def _bits(args: Args) -> Expected:
    x = args[0]
    text = [np.binary_repr(int(v), x.dtype.itemsize * 8) for v in x]
    rows = (
        [t.count("1") for t in text],
        [int(t[::-1], 2) for t in text],
        [len(t) - len(t.lstrip("0")) for t in text],
        [(len(t) - t.rindex("1")) if "1" in t else 0 for t in text],
    )
    return {1: np.array(rows, np.uint64)}


def _bit_args(rng: np.random.Generator) -> Args:
    x = rng.integers(0, 2**32, 71, np.uint32) >> rng.integers(0, 32, 71, np.uint32)
    x[:3] = 0, 1, 2**31
    return x, np.zeros((4, 71), np.uint64)


def _bit_args_64(rng: np.random.Generator) -> Args:
    x = rng.integers(0, 2**63, 71, np.uint64) >> rng.integers(0, 63, 71, np.uint64)
    x[:3] = 0, 1, 2**63
    return x, np.zeros((4, 71), np.uint64)


CASES = [
    Case(
        "bits_32",
        bits_32,
        _bit_args,
        line(0, 32),
        _bits,
        features=uses("bit"),
        effects=effects("x", "out"),
    ),
    Case(
        "bits_64",
        bits_32,
        _bit_args_64,
        line(0, 32),
        _bits,
        features=uses("bit"),
        effects=effects("x", "out"),
    ),
    Case(
        "select_and_fused_float32",
        select_and_fused,
        lambda rng: (*(dyadic(rng, 97) for _ in range(3)), np.zeros((3, 97), np.float32)),
        line(0, 32),
        lambda a: {3: np.stack([a[0] * a[1] + a[2], np.where(a[0] > a[1], a[0], a[2]), a[0]])},
        # The cube root; the rest is exact.
        rtol=1e-6,
        features=uses("bit math"),
        effects=effects("a b c", "out"),
    ),
    Case(
        "select_and_fused_float64",
        select_and_fused,
        lambda rng: (*(dyadic(rng, 97, np.float64) for _ in range(3)), np.zeros((3, 97))),
        line(0, 32),
        lambda a: {3: np.stack([a[0] * a[1] + a[2], np.where(a[0] > a[1], a[0], a[2]), a[0]])},
        rtol=1e-14,
        features=uses("bit math"),
        effects=effects("a b c", "out"),
    ),
]
