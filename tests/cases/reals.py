"""Complex, half-precision and vector elements."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numba import complex128, cuda

from .case import Args, Case, Expected, dyadic, effects, line, uses

N = 117


@cuda.jit
def complex_arithmetic(a, b, factor, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] * b[i] + factor
        out[1, i] = a[i] - b[i].conjugate()
        out[2, i] = -a[i] * 2
        out[3, i] = complex(a[i].imag, b[i].real)
        out[4, i] = abs(b[i])


@cuda.jit
def complex_division(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = a[i] / b[i]


@cuda.jit
def julia(start, c, limit, out):
    i = cuda.grid(1)
    if i < start.size:
        z = complex128(start[i])
        count = 0
        while z.real * z.real + z.imag * z.imag < 4.0 and count < limit:
            z = z * z + c
            count += 1
        out[i] = count


@cuda.jit
def half_arithmetic(a, b, factor, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] + b[i]
        out[1, i] = a[i] - b[i]
        out[2, i] = a[i] * factor
        out[3, i] = -a[i]
        out[4, i] = a[i] if a[i] > b[i] else b[i]


@cuda.jit
def half_intrinsics(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = cuda.fp16.hadd(a[i], b[i])
        out[1, i] = cuda.fp16.hmul(a[i], b[i])
        out[2, i] = cuda.fp16.hfma(a[i], b[i], a[i])
        out[3, i] = cuda.fp16.habs(a[i])
        out[4, i] = cuda.fp16.hmax(a[i], b[i])


@cuda.jit
def half_storage(x, out):
    # Arithmetic in single precision, memory in half: what most users want of float16.
    i = cuda.grid(1)
    if i < x.size:
        out[i] = np.float16(np.float32(x[i]) * np.float32(1.5) + np.float32(0.25))


@cuda.jit
def vector_members(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        v = cuda.float32x4(x[i], y[i], x[i] + y[i], np.float32(1))
        w = cuda.int32x2(i, 2 * i)
        out[0, i] = v.x * v.w
        out[1, i] = v.y - v.z
        out[2, i] = w.x + w.y


def _complex(rng: np.random.Generator, dtype: Any) -> np.ndarray:
    return (dyadic(rng, N, np.float64) + 1j * dyadic(rng, N, np.float64)).astype(dtype)


def _complex_args(dtype: Any) -> Any:
    def make(rng: np.random.Generator) -> Args:
        return _complex(rng, dtype), _complex(rng, dtype), dtype(0.5 - 2j), np.zeros((5, N), dtype)

    return make


def _complex_rows(args: Args) -> Expected:
    a, b = (v.astype(np.complex128) for v in args[:2])
    rows = (a * b + 0.5 - 2j, a - np.conj(b), -2 * a, a.imag + 1j * b.real, np.abs(b))
    return {3: np.stack(rows)}


def _quotient_args(dtype: Any) -> Any:
    def make(rng: np.random.Generator) -> Args:
        b = _complex(rng, dtype)
        b[b == 0] = 1
        return _complex(rng, dtype), b, np.zeros(N, dtype)

    return make


def _julia(args: Args) -> Expected:
    z, c, limit, out = args
    z = z.astype(np.complex128)
    for _ in range(limit):
        inside = np.abs(z) < 2
        out += inside
        z = np.where(inside, z * z + c, z)
    return {3: out}


def _half_args(rng: np.random.Generator) -> Args:
    a, b = (rng.normal(size=N).astype(np.float16) for _ in range(2))
    return a, b, np.float16(1.5), np.zeros((5, N), np.float16)


def _halves(args: Args) -> Expected:
    # A sum or product of two halves is exact in double precision, so it is rounded once.
    a, b = (v.astype(np.float64) for v in args[:2])
    rows = (a + b, a - b, a * float(args[2]), -a, np.maximum(a, b))
    return {3: np.stack(rows).astype(np.float16)}


def _half_functions(args: Args) -> Expected:
    a, b = (v.astype(np.float64) for v in args[:2])
    rows = (a + b, a * b, a * b + a, np.abs(a), np.maximum(a, b))
    return {2: np.stack(rows).astype(np.float16)}


CASES = [
    *(
        Case(
            f"complex_arithmetic_{np.dtype(dtype).name}",
            complex_arithmetic,
            _complex_args(dtype),
            line(0),
            _complex_rows,
            # The modulus is rounded; the rest is exact.
            rtol=4 * float(np.finfo(dtype).eps),
            features=uses("complex"),
            effects=effects("a b", "out"),
        )
        for dtype in (np.complex64, np.complex128)
    ),
    *(
        Case(
            f"complex_division_{np.dtype(dtype).name}",
            complex_division,
            _quotient_args(dtype),
            line(0),
            lambda a: {2: a[0].astype(np.complex128) / a[1].astype(np.complex128)},
            # Algorithms differ: relative to the modulus, so a small part may be off by more.
            rtol=8 * float(np.finfo(dtype).eps),
            atol=32 * float(np.finfo(dtype).eps),
            features=uses("complex"),
            effects=effects("a b", "out"),
        )
        for dtype in (np.complex64, np.complex128)
    ),
    Case(
        "julia",
        julia,
        lambda rng: (
            (rng.uniform(-1.5, 1.5, N) + 1j * rng.uniform(-1.5, 1.5, N)).astype(np.complex64),
            -0.4 + 0.6j,
            30,
            np.zeros(N, np.int64),
        ),
        line(0),
        _julia,
        features=uses("complex"),
        effects=effects("start", "out"),
    ),
    Case(
        "half_arithmetic",
        half_arithmetic,
        _half_args,
        line(0),
        _halves,
        features=uses("float16"),
        effects=effects("a b", "out"),
    ),
    Case(
        "half_intrinsics",
        half_intrinsics,
        lambda rng: (*_half_args(rng)[:2], np.zeros((5, N), np.float16)),
        line(0),
        _half_functions,
        features=uses("float16"),
        effects=effects("a b", "out"),
    ),
    Case(
        "half_storage",
        half_storage,
        lambda rng: (rng.normal(size=N).astype(np.float16), np.zeros(N, np.float16)),
        line(0),
        lambda a: {1: (a[0].astype(np.float32) * 1.5 + 0.25).astype(np.float16)},
        features=uses("float16"),
        effects=effects("x", "out"),
    ),
    Case(
        "vector_members",
        vector_members,
        lambda rng: (dyadic(rng, N), dyadic(rng, N), np.zeros((3, N), np.float32)),
        line(0),
        lambda a: {2: np.stack([a[0], -a[0], 3 * np.arange(N, dtype=np.float32)])},
        features=uses("vector_type"),
        effects=effects("x y", "out"),
    ),
]
