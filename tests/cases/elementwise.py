"""Kernels whose threads work alone: arithmetic on elements, argument lists, early exits."""

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
    fixed,
    line,
    ragged,
    uses,
)


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def scale_early_return(x, out, factor):
    i = cuda.grid(1)
    if i >= out.shape[0]:
        return
    if x[i] < 0:
        out[i] = 0
        return
    out[i] = x[i] * factor


@cuda.jit
def row_sum(a, out):
    i = cuda.grid(1)
    if i < a.shape[0]:
        total = np.float32(0)
        for j in range(a.shape[1]):
            total += a[i, j]
        out[i] = total


@cuda.jit
def many_arguments(a, b, c, d, e, f, g, h, p, q, r, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + 2 * b[i] - c[i] * d + e[i] * f - g + h[i] + p * q + r


@cuda.jit
def reads_only(x, y):
    i = cuda.grid(1)
    if i < x.size:
        total = x[i] + y[i]
        if total > 1e30:
            total = -total


@cuda.jit
def constants(out, step, flag):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = i * step if flag else -i


@cuda.jit
def first_above(x, limit, count, out):
    row = cuda.grid(1)
    if row < x.shape[0]:
        found = -1
        for j in range(count):
            if x[row, j] > limit:
                found = j
                break
        out[row] = found


@cuda.jit(fastmath=True)
def polynomial_fastmath(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[i] = ((v * 0.5 + 1.0) * v - 2.0) * v / 4.0


def _many(rng: np.random.Generator) -> Args:
    n = ragged(rng, 200, 400)
    a, b, c, e, h = (dyadic(rng, n, np.float64) for _ in range(5))
    return a, b, c, 1.5, e, 2, np.float32(0.25), h, 3, 0.5, np.int16(-7), np.zeros(n)


def _first_above(args: Args) -> Expected:
    above = args[0][:, : args[2]] > args[1]
    return {3: np.where(above.any(axis=1), above.argmax(axis=1), -1)}


CASES = [
    Case(
        "axpy",
        axpy,
        lambda rng: (np.float32(1.5), dyadic(rng, 301), dyadic(rng, 301)),
        line(1),
        lambda a: {2: a[2] + a[0] * a[1]},
        effects=effects("x y", "y"),
    ),
    Case(
        "axpy_python_scalar",
        axpy,
        lambda rng: (2, *(dyadic(rng, 131, np.float64) for _ in range(2))),
        line(1, 32),
        lambda a: {2: a[2] + 2 * a[1]},
        effects=effects("x y", "y"),
    ),
    Case(
        "scale_early_return",
        scale_early_return,
        lambda rng: (dyadic(rng, 217), np.ones(217, np.float32), np.float32(0.5)),
        line(0),
        lambda a: {1: np.maximum(a[0], 0) / 2},
        effects=effects("x", "out"),
    ),
    Case(
        "row_sum",
        row_sum,
        lambda rng: (dyadic(rng, (75, 33)), np.zeros(75, np.float32)),
        fixed(3, 32),
        lambda a: {1: a[0].sum(axis=1, dtype=np.float64)},
        effects=effects("a", "out"),
    ),
    Case(
        "many_arguments",
        many_arguments,
        _many,
        line(0),
        lambda a: {
            11: a[0] + 2 * a[1] - a[2] * a[3] + a[4] * a[5] - a[6] + a[7] + a[8] * a[9] + a[10]
        },
        effects=effects("a b c e h", "out"),
    ),
    Case(
        "reads_only",
        reads_only,
        lambda rng: (dyadic(rng, 90), dyadic(rng, 90)),
        line(0, 32),
        lambda a: {},
        features=uses("no_write"),
        effects=effects("", ""),
    ),
    Case(
        "constants_true",
        constants,
        lambda rng: (np.zeros(70), 0.5, True),
        line(0, 32),
        lambda a: {0: np.linspace(0, 69 / 2, 70)},
        features=uses("bool"),
        effects=effects("", "out"),
    ),
    Case(
        "constants_false",
        constants,
        lambda rng: (np.zeros(70), 3, np.bool_(False)),
        line(0, 32),
        lambda a: {0: np.linspace(0, -69, 70)},
        features=uses("bool"),
        effects=effects("", "out"),
    ),
    Case(
        "first_above",
        first_above,
        lambda rng: (rng.normal(size=(70, 12)), 1.0, 9, np.zeros(70, np.int64)),
        fixed(3, 32),
        _first_above,
        effects=effects("x", "out"),
    ),
    Case(
        "polynomial_fastmath",
        polynomial_fastmath,
        lambda rng: (rng.uniform(0.5, 4, 211).astype(np.float32), np.zeros(211, np.float32)),
        line(0),
        lambda a: {1: np.polyval([0.125, 0.25, -0.5, 0], a[0].astype(np.float64))},
        # fastmath may reassociate and use reciprocals; the polynomial cancels near its roots.
        rtol=1e-5,
        atol=1e-5,
        features=uses("fastmath"),
        effects=effects("x", "out"),
    ),
]
