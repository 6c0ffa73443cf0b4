"""Mathematical functions in single and double precision, and functions of libdevice."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import libdevice

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
        out[7, i] = p ** v
        out[8, i] = math.pow(p, 2.5)
        out[9, i] = v ** 3
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


@cuda.jit(fastmath=True)
def fast_functions(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[0, i] = math.sin(v)
        out[1, i] = math.cos(v)
        out[2, i] = math.exp(v)
        out[3, i] = math.log(v + np.float32(3))
        out[4, i] = v / (v + np.float32(2))
        out[5, i] = math.sqrt(v + np.float32(1.5))
        out[6, i] = math.pow(v + np.float32(2), np.float32(1.5))


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


@cuda.jit
def libdevice_double(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[0, i] = libdevice.rsqrt(v + 2)
        s, c = libdevice.sincos(v)
        out[1, i] = s
        out[2, i] = c
        out[3, i] = libdevice.cbrt(v)
        out[4, i] = libdevice.exp10(v)
        out[5, i] = libdevice.fmax(v, 0.25)
        out[6, i] = libdevice.fma(v, v, 1.0)
        out[7, i] = libdevice.rint(8 * v)
        out[8, i] = libdevice.round(8 * v)
        out[9, i] = libdevice.fdim(v, 0.125)
        out[10, i] = libdevice.powi(v, 3)
        out[11, i] = libdevice.normcdf(v)
        out[12, i] = libdevice.double2int_rz(8 * v)
        out[13, i] = libdevice.sinpi(v)
        out[14, i] = libdevice.scalbn(v, 5)
        out[15, i] = libdevice.rcbrt(v + 2)


@cuda.jit
def libdevice_single(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[0, i] = libdevice.rsqrtf(v + np.float32(2))
        out[1, i] = libdevice.saturatef(v)
        out[2, i] = libdevice.fminf(v, np.float32(0.25))
        out[3, i] = libdevice.fast_expf(v)
        out[4, i] = libdevice.fadd_rn(v, v)
        out[5, i] = libdevice.fmul_rn(v, v)
        out[6, i] = libdevice.expf(v)
        out[7, i] = libdevice.float2int_rn(np.float32(8) * v)
        out[8, i] = libdevice.frcp_rn(v + np.float32(2))
        out[9, i] = libdevice.fsqrt_rn(v + np.float32(2))


@cuda.jit
def libdevice_integer(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = libdevice.mulhi(a[i], b[i])
        out[1, i] = libdevice.popc(a[i])
        out[2, i] = libdevice.clz(a[i])
        out[3, i] = libdevice.brev(a[i])
        out[4, i] = libdevice.byte_perm(a[i], b[i], 0x2143)
        out[5, i] = libdevice.ffs(a[i])
        out[6, i] = libdevice.float_as_int(libdevice.int_as_float(a[i] & 0x3FFFFFFF))
        out[7, i] = libdevice.hadd(a[i], b[i])
        out[8, i] = libdevice.abs(a[i] // 2)
        out[9, i] = libdevice.mul24(a[i] & 0xFFF, b[i] & 0xFFF)


def _unit(dtype: Any, rows: int) -> Callable[[np.random.Generator], Args]:
    """Values in (-0.95, 0.95) with a zero among them, and as many rows for the results."""

    def make(rng: np.random.Generator) -> Args:
        x = rng.uniform(-0.95, 0.95, N).astype(dtype)
        x[5] = 0
        return x, np.zeros((rows, N), dtype)

    return make


def _rows(*functions: Callable[[Any], Any]) -> Callable[[Args], Expected]:
    """Expected rows, each a function of the argument in double precision."""

    def reference(args: Args) -> Expected:
        x = args[0].astype(np.float64)
        return {1: np.stack([np.asarray(function(x), np.float64) for function in functions])}

    return reference


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
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


def _integer_args(rng: np.random.Generator) -> Args:
    a, b = (rng.integers(-(2**31), 2**31, N).astype(np.int32) for _ in range(2))
    return a, b, np.zeros((10, N), np.int64)


def _integers(args: Args) -> Expected:
    a, b = args[0].astype(np.int64), args[1].astype(np.int64)
    text = [np.binary_repr(int(v) & 0xFFFFFFFF, 32) for v in a]
    reversed_bits = np.array([int(t[::-1], 2) for t in text], np.uint32).view(np.int32)
    a_bytes, b_bytes = (np.ascontiguousarray(v).view(np.uint8).reshape(-1, 4) for v in args[:2])
    eight = np.concatenate([a_bytes, b_bytes], axis=1)
    chosen = np.ascontiguousarray(eight[:, [3, 4, 1, 2]]).view(np.int32).ravel()
    rows = (
        (a * b) >> 32,
        [t.count("1") for t in text],
        [len(t) - len(t.lstrip("0")) for t in text],
        reversed_bits,
        chosen,
        [32 - t.rindex("1") if "1" in t else 0 for t in text],
        a & 0x3FFFFFFF,
        (a + b) >> 1,
        np.abs(a // 2),
        (a & 0xFFF) * (b & 0xFFF),
    )
    return {2: np.array(rows)}


_DOUBLE = (
    lambda x: 1 / np.sqrt(x + 2),
    np.sin,
    np.cos,
    np.cbrt,
    lambda x: 10.0**x,
    lambda x: np.maximum(x, 0.25),
    lambda x: x * x + 1,
    lambda x: np.rint(8 * x),
    lambda x: np.copysign(np.floor(np.abs(8 * x) + 0.5), x),
    lambda x: np.maximum(x - 0.125, 0),
    lambda x: x**3,
    _each(lambda v: 0.5 * math.erfc(-v / math.sqrt(2))),
    lambda x: np.trunc(8 * x),
    lambda x: np.sin(np.pi * x),
    lambda x: 32 * x,
    lambda x: np.cbrt(1 / (x + 2)),
)
_SINGLE = (
    lambda x: 1 / np.sqrt(x + 2),
    lambda x: np.clip(x, 0, 1),
    lambda x: np.minimum(x, 0.25),
    np.exp,
    lambda x: 2 * x,
    lambda x: x * x,
    np.exp,
    lambda x: np.rint(8 * x),
    lambda x: 1 / (x + 2),
    lambda x: np.sqrt(x + 2),
)
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
    _each(math.erf),
    _each(math.erfc),
    lambda x: _each(math.gamma)(x + 3),
    lambda x: _each(math.lgamma)(x + 4),
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
_FAST = (
    np.sin,
    np.cos,
    np.exp,
    lambda x: np.log(x + 3),
    lambda x: x / (x + 2),
    lambda x: np.sqrt(x + 1.5),
    lambda x: (x + 2) ** 1.5,
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
_TOLERANCE = {np.float32: 2e-6, np.float64: 4e-15}
_GROUPS: tuple[tuple[Any, tuple[Any, ...], str], ...] = (
    (trigonometric, _TRIGONOMETRIC, "math"),
    (hyperbolic, _HYPERBOLIC, "math"),
    (exponential, _EXPONENTIAL, "math"),
    (special, _SPECIAL, "math"),
    (rounding, _ROUNDING, "math"),
    (numpy_functions, _NUMPY, "math"),
)


def _group(kernel: Any, functions: tuple[Any, ...], features: str, dtype: Any) -> Case:
    return Case(
        f"{kernel.__name__}_{np.dtype(dtype).name}",
        kernel,
        _unit(dtype, len(functions)),
        line(0),
        _rows(*functions),
        rtol=_TOLERANCE[dtype],
        atol=_TOLERANCE[dtype],
        features=uses(features),
        effects=effects("x", "out"),
    )


CASES = [
    *(_group(*group, dtype) for group in _GROUPS for dtype in (np.float32, np.float64)),
    *(
        Case(
            f"two_arguments_{np.dtype(dtype).name}",
            two_arguments,
            _pair_args(dtype),
            line(0),
            _pairs,
            rtol=_TOLERANCE[dtype],
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
    Case(
        "fast_functions",
        fast_functions,
        _unit(np.float32, 7),
        line(0),
        _rows(*_FAST),
        # The fast sine and cosine promise 2**-21 absolute; the fast power a few times that.
        rtol=1e-5,
        atol=2e-6,
        features=uses("math fastmath"),
        effects=effects("x", "out"),
    ),
    _group(libdevice_double, _DOUBLE, "libdevice", np.float64),
    _group(libdevice_single, _SINGLE, "libdevice", np.float32),
    Case(
        "libdevice_integer",
        libdevice_integer,
        _integer_args,
        line(0),
        _integers,
        features=uses("libdevice bit"),
        effects=effects("a b", "out"),
    ),
]
