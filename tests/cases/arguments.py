"""Tuples and scalars of every type as arguments; constant memory, printing."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from .case import Args, Case, dyadic, effects, fixed, line, ragged, uses

CONSTANT = np.array([[1.0, 2.0, 4.0], [-1.0, 0.5, 8.0]], np.float32)
_SCALARS = (
    np.int8(-100),
    np.uint8(200),
    np.int16(-30000),
    np.uint16(60000),
    np.int32(-(2**31)),
    np.uint32(2**32 - 1),
    np.int64(-(2**53)),
    np.uint64((2**31 + 5) << 32),
    np.float16(0.5),
    np.float32(-1.5),
    np.float64(0.1),
    np.bool_(True),
    np.complex64(2 - 3j),
    np.complex128(4.25 + 1e300j),
)


class Field(NamedTuple):
    """What `named_tuple` is given."""

    values: Any
    scale: Any
    marks: Any
    shape: tuple[int, int]


@cuda.jit
def sum_of_tuple(arrays, out):
    i = cuda.grid(1)
    if i < out.size:
        total = np.float32(0)
        for k in range(len(arrays)):
            total += arrays[k][i]
        out[i] = total


@cuda.jit
def mixed_tuple(inputs, outputs):
    i = cuda.grid(1)
    x, factor, matrix = inputs
    doubled, rows = outputs
    if i < x.size:
        doubled[i] = factor * x[i]
    if i < matrix.shape[0]:
        rows[i] = matrix[i, 0] + matrix[i, 1]


@cuda.jit
def nested_tuple(pairs, shift, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = pairs[0][0][i] * pairs[0][1] + pairs[1][0][i] * pairs[1][1] + shift[1]
        pairs[1][0][i] = shift[0]


@cuda.jit
def named_tuple(field, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = field.values[i] * field.scale + field.shape[1]
        field.marks[i] = True


@cuda.jit
def scalar_types(a, b, c, d, e, f, g, h, i, j, k, m, n, p, out):
    if cuda.grid(1) == 0:
        out[0] = a
        out[1] = b
        out[2] = c
        out[3] = d
        out[4] = e
        out[5] = f
        out[6] = g
        out[7] = h >> np.uint64(32)
        out[8] = np.float32(i)
        out[9] = j
        out[10] = k
        out[11] = m
        out[12] = n.real
        out[13] = n.imag
        out[14] = p.real
        out[15] = p.imag


@cuda.jit
def constant_memory(x, out):
    table = cuda.const.array_like(CONSTANT)
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * table[i % 2, i % 3]


@cuda.jit
def print_some(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + 1
        if i == 3:
            print("element", i, x[i])


def _tuple_args(rng: np.random.Generator) -> Args:
    n = ragged(rng, 70, 120)
    inputs = dyadic(rng, n), 3, dyadic(rng, (19, 2), np.float64)
    return inputs, (np.zeros(n, np.float32), np.zeros(19))


def _nested_args(rng: np.random.Generator) -> Args:
    pairs = (dyadic(rng, 45), np.float32(2)), (dyadic(rng, 45), np.float32(0.5))
    return pairs, (np.float32(7), np.float32(-1)), np.zeros(45, np.float32)


CASES = [
    Case(
        "sum_of_tuple",
        sum_of_tuple,
        lambda rng: (tuple(dyadic(rng, 75) for _ in range(3)), np.zeros(75, np.float32)),
        line(1),
        lambda a: {1: np.sum(a[0], axis=0)},
        features=uses("tuple"),
        effects=effects("arrays[0] arrays[1] arrays[2]", "out"),
    ),
    Case(
        "mixed_tuple",
        mixed_tuple,
        _tuple_args,
        fixed(2, 64),
        lambda a: {(1, 0): 3 * a[0][0], (1, 1): a[0][2].sum(axis=1)},
        features=uses("tuple"),
        effects=effects("inputs[0] inputs[2]", "outputs[0] outputs[1]"),
    ),
    Case(
        "nested_tuple",
        nested_tuple,
        _nested_args,
        line(2, 32),
        lambda a: {(0, 1, 0): np.full(45, 7), 2: 2 * a[0][0][0] + a[0][1][0] / 2 - 1},
        features=uses("tuple"),
        effects=effects("pairs[0][0] pairs[1][0]", "pairs[1][0] out"),
    ),
    Case(
        "named_tuple",
        named_tuple,
        lambda rng: (
            Field(dyadic(rng, 45), np.float32(0.5), np.zeros(45, np.bool_), (4, 9)),
            np.zeros(45, np.float32),
        ),
        line(1, 32),
        lambda a: {1: a[0].values / 2 + 9, (0, 2): np.ones(45, np.bool_)},
        features=uses("tuple bool"),
        effects=effects("field[0]", "field[2] out"),
    ),
    Case(
        "scalar_types",
        scalar_types,
        lambda rng: (*_SCALARS, np.zeros(16)),
        fixed(1, 3),
        lambda a: {
            14: [
                *(-100, 200, -30000, 60000, -(2**31), 2**32 - 1, -(2**53), 2**31 + 5),
                *(0.5, -1.5, 0.1, 1, 2, -3, 4.25, 1e300),
            ]
        },
        features=uses("small_int float16 bool complex"),
        effects=effects("", "out"),
    ),
    Case(
        "constant_memory",
        constant_memory,
        lambda rng: (dyadic(rng, 83), np.zeros(83, np.float32)),
        line(0, 32),
        lambda a: {1: a[0] * np.resize([1.0, 0.5, 4.0, -1.0, 2.0, 8.0], 83)},
        features=uses("constant"),
        effects=effects("x", "out"),
    ),
    Case(
        "print_some",
        print_some,
        lambda rng: (dyadic(rng, 40), np.zeros(40, np.float32)),
        line(0, 32),
        lambda a: {1: a[0] + 1},
        features=uses("print"),
        effects=effects("x", "out"),
    ),
]
