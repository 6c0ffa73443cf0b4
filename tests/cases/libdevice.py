"""Functions of libdevice, and fast maths."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np
from numba import cuda
from numba.cuda import libdevice

from .case import Args, Case, Expected, effects, line, uses
from .maths import N, each, group, rows, unit


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
    each(lambda v: 0.5 * math.erfc(-v / math.sqrt(2))),
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
_FAST = (
    np.sin,
    np.cos,
    np.exp,
    lambda x: np.log(x + 3),
    lambda x: x / (x + 2),
    lambda x: np.sqrt(x + 1.5),
    lambda x: (x + 2) ** 1.5,
)


CASES = [
    Case(
        "fast_functions",
        fast_functions,
        unit(np.float32, 7),
        line(0),
        rows(*_FAST),
        # The fast sine and cosine promise 2**-21 absolute; the fast power a few times that.
        rtol=1e-5,
        atol=2e-6,
        features=uses("math fastmath"),
        effects=effects("x", "out"),
    ),
    group(libdevice_double, _DOUBLE, "libdevice", np.float64),
    group(libdevice_single, _SINGLE, "libdevice", np.float32),
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
