"""Python inside a kernel: iteration, built-ins, exceptions, cmath, compiler options."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import cmath
import math

import numpy as np
from numba import cuda, float32, njit

from .case import Args, Case, Expected, dyadic, effects, fixed, line, uses


@cuda.jit
def iteration(x, weights, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        row = x[i]
        weighted = 0.0
        for k, v in enumerate(row):
            weighted += k * v
        dot = 0.0
        for a, b in zip(row, weights):  # noqa: B905 - Numba has no strict=
            dot += a * b
        falling = 0.0
        for v in row[::-1]:
            falling = 0.5 * falling + v
        steps = 0
        for k in range(10, i % 5, -3):
            steps += k
        out[i, 0] = weighted
        out[i, 1] = dot
        out[i, 2] = falling
        out[i, 3] = steps


@cuda.jit
def whole_array_iteration(x, out):
    if cuda.grid(1) == 0:
        for index in np.ndindex(x.shape):
            out[0] += x[index]
        for (i, j), v in np.ndenumerate(x):
            out[1] += v * (i - j)
        for v in x.flat:
            out[2] = max(out[2], v)


@cuda.jit
def array_attributes(x, out):
    if cuda.grid(1) == 0:
        out[0] = x.ndim
        out[1] = x.size
        out[2] = len(x)
        out[3] = x.itemsize
        out[4] = x.nbytes
        out[5] = x.strides[0]
        out[6] = x.shape[1]


@cuda.jit
def built_ins(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        q, r = divmod(int(v), 3)
        out[0, i] = q
        out[1, i] = r
        out[2, i] = max(v, 1.0, -v)
        out[3, i] = min(v, 1.0, 0.5 * v)
        out[4, i] = pow(v, 2)
        out[5, i] = (1.0 if v else 0.0) + int(v == v)
        out[6, i] = math.degrees(math.radians(v))
        out[7, i] = (v > 0) - (v < 0)


@cuda.jit
def raising(x, out):
    # Without debug=True an exception only ends its thread, and nobody hears of it.
    i = cuda.grid(1)
    if i < x.size:
        if x[i] < 0:
            raise ValueError("negative")
        assert x[i] < 3
        out[i] = x[i]


@cuda.jit
def divide_by_zero(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] / y[i]


@cuda.jit
def complex_functions(z, out):
    i = cuda.grid(1)
    if i < z.size:
        v = z[i]
        out[0, i] = cmath.exp(v)
        out[1, i] = cmath.sqrt(v)
        out[2, i] = cmath.log(v)
        out[3, i] = cmath.phase(v)
        out[4, i] = v**2
        out[5, i] = cmath.sin(v) + cmath.cosh(v)
        modulus, angle = cmath.polar(v)
        out[6, i] = cmath.rect(modulus, angle)


@njit
def from_the_cpu(v):
    return 2 * v + 1


@cuda.jit(device=True, inline="always")
def inlined(v):
    if v < 0:
        return -v
    return v


@cuda.jit
def borrowed_functions(x, out):
    # A function of Numba's CPU compiler, and one that Numba inlines itself.
    i = cuda.grid(1)
    if i < x.size:
        out[i] = from_the_cpu(x[i]) - inlined(x[i])


@cuda.jit(max_registers=64, launch_bounds=128)
def with_options(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * x[i] - 1


@cuda.jit
def aligned_arrays(x, out):
    tile = cuda.shared.array(64, float32, alignment=64)
    own = cuda.local.array(3, float32, alignment=16)
    t = cuda.threadIdx.x
    for k in range(3):
        own[k] = x[t] + k
    tile[t] = own[t % 3]
    cuda.syncthreads()
    out[t] = tile[63 - t]


@cuda.jit
def cache_hints(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        first = cuda.ldca(x, i) + cuda.ldcg(y, i)
        second = cuda.ldcs(x, x.size - 1 - i) + cuda.ldlu(y, i) + cuda.ldcv(y, 0)
        cuda.stcs(out, (0, i), first)
        cuda.stwt(out, (1, i), second)


@cuda.jit
def sleeping(x):
    i = cuda.grid(1)
    cuda.nanosleep(20)
    if i < x.size:
        x[i] += 1


@cuda.jit
def choose_array(a, b, which, x):
    # One name for two arguments: either may be written.
    i = cuda.grid(1)
    target = a if which[0] > 0 else b
    if i < x.size:
        target[i] = x[i]


@cuda.jit
def ping_pong(a, b, rounds):
    # The names swap, so both are read and written.
    t = cuda.threadIdx.x
    n = a.size
    for _ in range(rounds):
        b[t] = a[(t + 1) % n] + 1
        cuda.syncthreads()
        a, b = b, a


def _iterated(args: Args) -> Expected:
    x, weights, _ = args
    columns = x.shape[1]
    rows = np.arange(x.shape[0]) % 5
    steps = [sum(k for k in (10, 7, 4, 1) if k > stop) for stop in rows]
    halves = 0.5 ** np.arange(columns)
    return {2: np.stack([x @ np.arange(columns), x @ weights, x @ halves, steps], axis=1)}


def _visited(args: Args) -> Expected:
    x = args[0]
    i, j = np.indices(x.shape)
    return {1: [x.sum(), (x * (i - j)).sum(), max(x.max(), 0)]}


def _built_in(args: Args) -> Expected:
    x = args[0]
    whole = np.trunc(x)
    rows = (
        whole // 3,
        whole % 3,
        np.maximum(np.abs(x), 1),
        np.minimum(np.minimum(x, 1), x / 2),
        x * x,
        1 + (x != 0),
        x,
        np.sign(x),
    )
    return {1: np.stack(rows)}


def _silent(args: Args) -> Expected:
    x, out = args
    return {1: np.where((x >= 0) & (x < 3), x, out)}


def _quotients(args: Args) -> Expected:
    with np.errstate(divide="ignore", invalid="ignore"):
        return {2: args[0] / args[1]}


def _complex_rows(args: Args) -> Expected:
    z = args[0]
    rows = (
        np.exp(z),
        np.sqrt(z),
        np.log(z),
        np.angle(z),
        z * z,
        np.sin(z) + np.cosh(z),
        z,
    )
    return {1: np.stack(rows)}


def _cached(args: Args) -> Expected:
    x, y, _ = args
    return {2: np.stack([x + y, x[::-1] + y + y[0]])}


def _bounced(args: Args) -> Expected:
    buffers = [args[0], args[1]]
    for _ in range(args[2]):
        buffers = [np.roll(buffers[0], -1) + 1, buffers[0]]
    newest = 0 if args[2] % 2 == 0 else 1
    return {newest: buffers[0], 1 - newest: buffers[1]}


CASES = [
    Case(
        "iteration",
        iteration,
        lambda rng: (dyadic(rng, (45, 7), np.float64), dyadic(rng, 7), np.zeros((45, 4))),
        fixed(2, 32),
        _iterated,
        effects=effects("x weights", "out"),
    ),
    Case(
        "whole_array_iteration",
        whole_array_iteration,
        lambda rng: (dyadic(rng, (5, 7), np.float64), np.zeros(3)),
        fixed(1, 5),
        _visited,
        effects=effects("x out", "out"),
    ),
    Case(
        "array_attributes",
        array_attributes,
        lambda rng: (np.zeros((6, 5), np.int16)[::2], np.zeros(7, np.int64)),
        fixed(1, 5),
        lambda a: {1: [2, 15, 3, 2, 30, 20, 5]},
        features=uses("strided"),
        effects=effects("", "out"),
    ),
    Case(
        "built_ins",
        built_ins,
        lambda rng: (dyadic(rng, 83, np.float64), np.zeros((8, 83))),
        line(0, 32),
        _built_in,
        # Degrees of radians; the rest is exact.
        rtol=1e-14,
        effects=effects("x", "out"),
    ),
    Case(
        "raising",
        raising,
        lambda rng: (dyadic(rng, 83), np.full(83, -9, np.float32)),
        line(0, 32),
        _silent,
        features=uses("exception"),
        effects=effects("x", "out"),
    ),
    Case(
        "divide_by_zero",
        divide_by_zero,
        lambda rng: (
            rng.integers(-2, 3, 83).astype(np.float64),
            rng.integers(-1, 2, 83).astype(np.float64),
            np.zeros(83),
        ),
        line(0, 32),
        _quotients,
        effects=effects("x y", "out"),
    ),
    Case(
        "complex_functions",
        complex_functions,
        lambda rng: (
            rng.uniform(0.5, 2, 45) * np.exp(1j * rng.uniform(-3, 3, 45)),
            np.zeros((7, 45), np.complex128),
        ),
        line(0, 32),
        _complex_rows,
        # Parts that cancel are small against the modulus, which the absolute part covers.
        rtol=1e-13,
        atol=1e-13,
        features=uses("complex math"),
        effects=effects("z", "out"),
    ),
    Case(
        "borrowed_functions",
        borrowed_functions,
        lambda rng: (dyadic(rng, 83), np.zeros(83, np.float32)),
        line(0, 32),
        lambda a: {1: 2 * a[0] + 1 - np.abs(a[0])},
        features=uses("device_function"),
        effects=effects("x", "out"),
    ),
    Case(
        "with_options",
        with_options,
        lambda rng: (dyadic(rng, 203), np.zeros(203, np.float32)),
        line(0, 128),
        lambda a: {1: a[0] ** 2 - 1},
        effects=effects("x", "out"),
    ),
    Case(
        "aligned_arrays",
        aligned_arrays,
        lambda rng: (dyadic(rng, 64), np.zeros(64, np.float32)),
        fixed(1, 64),
        lambda a: {1: (a[0] + np.arange(64) % 3)[::-1]},
        features=uses("barrier static_shared local"),
        effects=effects("x", "out"),
    ),
    Case(
        "cache_hints",
        cache_hints,
        lambda rng: (dyadic(rng, 83), dyadic(rng, 83), np.zeros((2, 83), np.float32)),
        line(0, 32),
        _cached,
        features=uses("cache_hint"),
        effects=effects("x y", "out"),
    ),
    Case(
        "sleeping",
        sleeping,
        lambda rng: (dyadic(rng, 83),),
        line(0, 32),
        lambda a: {0: a[0] + 1},
        features=uses("sleep"),
        effects=effects("x", "x"),
    ),
    Case(
        "choose_array",
        choose_array,
        lambda rng: (np.zeros(45), np.zeros(45), np.array([-1]), dyadic(rng, 45, np.float64)),
        line(3, 32),
        lambda a: {1: a[3]},
        effects=effects("which x", "a b"),
    ),
    *(
        Case(
            f"ping_pong_{rounds}",
            ping_pong,
            lambda rng, rounds=rounds: (  # type: ignore[misc]
                dyadic(rng, 27),
                dyadic(rng, 27),
                rounds,
            ),
            fixed(1, 27),
            _bounced,
            features=uses("barrier"),
            effects=effects("a b", "a b"),
        )
        for rounds in (0, 3, 4)
    ),
]
