"""Device functions, recursion, and what a kernel closes over."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba import cuda

from .case import (
    Args,
    Case,
    Expected,
    dyadic,
    effects,
    line,
    ragged,
    uses,
)

WEIGHT = 0.25
SHIFT = np.int32(3)
TABLE = np.array([2.0, -1.0, 0.5, 4.0, -0.25], np.float32)
MATRIX = np.arange(12, dtype=np.int64).reshape(3, 4)


@cuda.jit(device=True)
def clamp(v, low, high):
    return min(max(v, low), high)


@cuda.jit(device=True)
def squash(v):
    return clamp(v, -2.0, 2.0) / 2.0


@cuda.jit(device=True)
def store_both(out, i, v):
    out[0, i] = v
    out[1, i] = -v


@cuda.jit
def nested_device_functions(x, out):
    i = cuda.grid(1)
    if i < x.size:
        store_both(out, i, squash(x[i]) + clamp(x[i], 0.0, 1.0))


@cuda.jit(device=True)
def power(base, exponent):
    if exponent == 0:
        return 1
    half = power(base, exponent // 2)
    return half * half * (base if exponent % 2 else 1)


@cuda.jit
def recursive_power(base, exponent, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = power(base[i], exponent[i])


@cuda.jit
def global_constants(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * WEIGHT + TABLE[i % 5] + MATRIX[i % 3, (i + SHIFT) % 4]


def make_scaled(weights, offset, combine):
    """A kernel that closes over an array, a number and a device function."""

    @cuda.jit
    def scaled(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = combine(x[i], weights[i % weights.size]) + offset

    return scaled


@cuda.jit(device=True)
def times(a, b):
    return a * b


@cuda.jit(device=True)
def larger(a, b):
    return a if a > b else b


def _global_constants(args: Args) -> Expected:
    x = args[0]
    i = np.arange(x.size)
    table = np.array([2.0, -1.0, 0.5, 4.0, -0.25])
    return {1: x / 4 + np.resize(table, x.size) + (i % 3) * 4 + (i + 3) % 4}


def _closure_args(rng: np.random.Generator) -> Args:
    n = ragged(rng, 100, 150)
    return dyadic(rng, n, np.float64), np.zeros(n)


CASES = [
    Case(
        "nested_device_functions",
        nested_device_functions,
        lambda rng: (dyadic(rng, 111, np.float64), np.zeros((2, 111))),
        line(0, 32),
        lambda a: {1: (np.clip(a[0], -2, 2) / 2 + np.clip(a[0], 0, 1)) * np.array([[1.0], [-1.0]])},
        features=uses("device_function"),
        effects=effects("x", "out"),
    ),
    Case(
        "recursive_power",
        recursive_power,
        lambda rng: (rng.integers(-5, 6, 90), rng.integers(0, 13, 90), np.zeros(90, np.int64)),
        line(2, 32),
        lambda a: {2: a[0] ** a[1]},
        features=uses("device_function recursion"),
        effects=effects("base exponent", "out"),
    ),
    Case(
        "global_constants",
        global_constants,
        lambda rng: (dyadic(rng, 143, np.float64), np.zeros(143)),
        line(0),
        _global_constants,
        features=uses("closure"),
        effects=effects("x", "out"),
    ),
    Case(
        "closure_a",
        make_scaled(np.array([1.0, 2.0, 4.0]), 0.5, times),
        _closure_args,
        line(0),
        lambda a: {1: a[0] * np.resize([1.0, 2.0, 4.0], a[0].size) + 0.5},
        features=uses("closure device_function"),
        effects=effects("x", "out"),
    ),
    Case(
        # The same source with other values in its closure: a cache must tell the two apart.
        "closure_b",
        make_scaled(np.array([3.0, -1.0]), -2, larger),
        _closure_args,
        line(0),
        lambda a: {1: np.maximum(a[0], np.resize([3.0, -1.0], a[0].size)) - 2},
        features=uses("closure device_function"),
        effects=effects("x", "out"),
    ),
]
