"""Mathematical functions in single and double precision."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

from .case import Args, Case, Expected, effects, line, uses

N = 107


@cuda.jit
def trigonometric(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[0, i] = math.sin(4 * v)
        out[1, i] = math.cos(4 * v)
        out[2, i] = math.tan(v)
        out[3, i] = math.asin(v)
        out[4, i] = math.acos(v)
        out[5, i] = math.atan(3 * v)


@cuda.jit
def hyperbolic(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[0, i] = math.sinh(v)
        out[1, i] = math.cosh(v)
        out[2, i] = math.tanh(v)
        out[3, i] = math.asinh(v)
        out[4, i] = math.acosh(v + 3)
        out[5, i] = math.atanh(v / 2)


@cuda.jit
def exponential(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        p = v + 1.5
        out[0, i] = math.exp(v)
        out[1, i] = math.expm1(v / 8)
        out[2, i] = math.log(p)
        out[3, i] = math.log1p(v / 2)
        out[4, i] = math.log2(p)
        out[5, i] = math.log10(p)
        out[6, i] = math.sqrt(p)
        out[7, i] = p**v
        out[8, i] = math.pow(p, 2.5)
        out[9, i] = v**3
        out[10, i] = math.exp2(v)


@cuda.jit
def special(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[0, i] = math.erf(v)
        out[1, i] = math.erfc(v)
        out[2, i] = math.gamma(v + 3)
        out[3, i] = math.lgamma(v + 4)


@cuda.jit
def rounding(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i] * 8
        out[0, i] = math.floor(v)
        out[1, i] = math.ceil(v)
        out[2, i] = math.trunc(v)
        out[3, i] = math.fabs(v)
        out[4, i] = abs(v)
        out[5, i] = round(v)
        out[6, i] = int(v)
        out[7, i] = math.copysign(3.0, v)


@cuda.jit
def two_arguments(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = math.atan2(x[i], y[i])
        out[1, i] = math.hypot(x[i], y[i])
        out[2, i] = math.fmod(8 * x[i], y[i])
        out[3, i] = min(x[i], y[i])
        out[4, i] = max(x[i], y[i])
        out[5, i] = x[i] / y[i]
        out[6, i] = 8 * x[i] // y[i]
        out[7, i] = 8 * x[i] % y[i]


@cuda.jit
def classify(x, nan, infinite, finite):
    i = cuda.grid(1)
    if i < x.size:
        nan[i] = math.isnan(x[i])
        infinite[i] = math.isinf(x[i])
        finite[i] = math.isfinite(x[i])


@cuda.jit
def pieces(x, mantissa, exponent, whole, fraction, scaled):
    i = cuda.grid(1)
    if i < x.size:
        m, e = math.frexp(x[i])
        mantissa[i] = m
        exponent[i] = e
        f, w = math.modf(x[i])
        fraction[i] = f
        whole[i] = w
        scaled[i] = math.ldexp(x[i], e - 3)


@cuda.jit
def numpy_functions(x, out):
    # NumPy's names on scalars, as far as numba-cuda has them.
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = np.sin(x[i])
        out[1, i] = np.log(x[i] + 3)
        out[2, i] = np.hypot(x[i], 0.5)
        out[3, i] = np.arctan2(x[i], 0.5)
        out[4, i] = np.maximum(x[i], 0.25)
        out[5, i] = np.deg2rad(x[i])


def unit(dtype: Any, rows: int) -> Callable[[np.random.Generator], Args]:
    """Values in (-0.95, 0.95) with a zero among them, and as many rows for the results."""

    def make(rng: np.random.Generator) -> Args:
        x = rng.uniform(-0.95, 0.95, N).astype(dtype)
        x[5] = 0
        return x, np.zeros((rows, N), dtype)

    return make


def rows(*functions: Callable[[Any], Any]) -> Callable[[Args], Expected]:
    """Expected rows, each a function of the argument in double precision."""

    def reference(args: Args) -> Expected:
        x = args[0].astype(np.float64)
        return {1: np.stack([np.asarray(function(x), np.float64) for function in functions])}

    return reference


def each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A scalar function of the standard library over an array."""
    return np.vectorize(function, otypes=[np.float64])


def _pair_args(dtype: Any) -> Callable[[np.random.Generator], Args]:
    def make(rng: np.random.Generator) -> Args:
        # Multiples of 1/8, so that quotients that are whole are so in any precision.
        x, y = (rng.integers(-32, 32, N) / 8 for _ in range(2))
        y[y == 0] = 0.375
        return x.astype(dtype), y.astype(dtype), np.zeros((8, N), dtype)

    return make


def _pairs(args: Args) -> Expected:
    x, y = args[0].astype(np.float64), args[1].astype(np.float64)
    rows = (
        np.arctan2(x, y),
        np.hypot(x, y),
        np.fmod(8 * x, y),
        np.minimum(x, y),
        np.maximum(x, y),
        x / y,
        np.floor_divide(8 * x, y),
        np.mod(8 * x, y),
    )
    return {2: np.stack(rows)}


def _odd_values(dtype: Any) -> Callable[[np.random.Generator], Args]:
    def make(rng: np.random.Generator) -> Args:
        x = rng.normal(size=N).astype(dtype)
        x[rng.integers(0, N, 60)] = rng.choice([np.nan, np.inf, -np.inf, 0.0], 60)
        return x, *(np.zeros(N, np.bool_) for _ in range(3))

    return make


def _piece_args(dtype: Any) -> Callable[[np.random.Generator], Args]:
    def make(rng: np.random.Generator) -> Args:
        x = (rng.normal(size=N) * 10.0 ** rng.integers(-5, 6, N)).astype(dtype)
        x[3] = 0
        arrays = [np.zeros(N, dtype) for _ in range(4)]
        return x, arrays[0], np.zeros(N, np.int32), *arrays[1:]

    return make


def _pieces(args: Args) -> Expected:
    mantissa, exponent = np.frexp(args[0])
    fraction, whole = np.modf(args[0])
    scaled = np.ldexp(args[0], exponent - 3)
    return {1: mantissa, 2: exponent, 3: whole, 4: fraction, 5: scaled}


_TRIGONOMETRIC = (
    lambda x: np.sin(4 * x),
    lambda x: np.cos(4 * x),
    np.tan,
    np.arcsin,
    np.arccos,
    lambda x: np.arctan(3 * x),
)
_HYPERBOLIC = (
    np.sinh,
    np.cosh,
    np.tanh,
    np.arcsinh,
    lambda x: np.arccosh(x + 3),
    lambda x: np.arctanh(x / 2),
)
_EXPONENTIAL = (
    np.exp,
    lambda x: np.expm1(x / 8),
    lambda x: np.log(x + 1.5),
    lambda x: np.log1p(x / 2),
    lambda x: np.log2(x + 1.5),
    lambda x: np.log10(x + 1.5),
    lambda x: np.sqrt(x + 1.5),
    lambda x: (x + 1.5) ** x,
    lambda x: (x + 1.5) ** 2.5,
    lambda x: x**3,
    np.exp2,
)
_SPECIAL = (
    each(math.erf),
    each(math.erfc),
    lambda x: each(math.gamma)(x + 3),
    lambda x: each(math.lgamma)(x + 4),
)
_ROUNDING = (
    lambda x: np.floor(8 * x),
    lambda x: np.ceil(8 * x),
    lambda x: np.trunc(8 * x),
    lambda x: np.abs(8 * x),
    lambda x: np.abs(8 * x),
    lambda x: np.rint(8 * x),
    lambda x: np.trunc(8 * x),
    lambda x: np.copysign(3, x),
)
_NUMPY = (
    np.sin,
    lambda x: np.log(x + 3),
    lambda x: np.sqrt(x * x + 0.25),
    lambda x: np.arctan(2 * x),
    lambda x: np.clip(x, 0.25, None),
    lambda x: x * np.pi / 180,
)


# libdevice promises a few units in the last place: 2**-23 and 2**-52 times at most 16. The
# absolute part is for results near a zero of the function, where the argument's own rounding
# (4 * x, x + 1.5 in single precision) is all there is.
TOLERANCE = {np.float32: 2e-6, np.float64: 4e-15}
_GROUPS: tuple[tuple[Any, tuple[Any, ...], str], ...] = (
    (trigonometric, _TRIGONOMETRIC, "math"),
    (hyperbolic, _HYPERBOLIC, "math"),
    (exponential, _EXPONENTIAL, "math"),
    (special, _SPECIAL, "math"),
    (rounding, _ROUNDING, "math"),
    (numpy_functions, _NUMPY, "math"),
)


def group(kernel: Any, functions: tuple[Any, ...], features: str, dtype: Any) -> Case:
    return Case(
        f"{kernel.__name__}_{np.dtype(dtype).name}",
        kernel,
        unit(dtype, len(functions)),
        line(0),
        rows(*functions),
        rtol=TOLERANCE[dtype],
        atol=TOLERANCE[dtype],
        features=uses(features),
        effects=effects("x", "out"),
    )


CASES = [
    *(group(*entry, dtype) for entry in _GROUPS for dtype in (np.float32, np.float64)),
    *(
        Case(
            f"two_arguments_{np.dtype(dtype).name}",
            two_arguments,
            _pair_args(dtype),
            line(0),
            _pairs,
            rtol=TOLERANCE[dtype],
            features=uses("math"),
            effects=effects("x y", "out"),
        )
        for dtype in (np.float32, np.float64)
    ),
    *(
        Case(
            f"classify_{np.dtype(dtype).name}",
            classify,
            _odd_values(dtype),
            line(0),
            lambda a: {1: np.isnan(a[0]), 2: np.isinf(a[0]), 3: np.isfinite(a[0])},
            features=uses("math bool"),
            effects=effects("x", "nan infinite finite"),
        )
        for dtype in (np.float32, np.float64)
    ),
    *(
        Case(
            f"pieces_{np.dtype(dtype).name}",
            pieces,
            _piece_args(dtype),
            line(0),
            _pieces,
            features=uses("math"),
            effects=effects("x", "mantissa exponent whole fraction scaled"),
        )
        for dtype in (np.float32, np.float64)
    ),
]
