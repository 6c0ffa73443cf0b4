"""Array forms: strides, slices, views, empty arrays."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from .case import Args, Case, Expected, dyadic, effects, fixed, line, uses


@cuda.jit
def scale_1d(x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = 2 * x[i]


@cuda.jit
def scale_2d(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[i, j] = 2 * x[i, j] + i - j


@cuda.jit
def permute_4d(x, out):
    flat = cuda.grid(1)
    b, c, d = x.shape[1:]
    if flat < x.size:
        m = flat % d
        k = flat // d % c
        j = flat // (d * c) % b
        i = flat // (d * c * b)
        out[m, j, i, k] = x[i, j, k, m] + out[m, j, i, k]


@cuda.jit
def zero_dimensional(x, out):
    if cuda.grid(1) == 0:
        out[()] = x[()] + 1


@cuda.jit
def rows_as_slices(x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        row = x[i]
        middle = row[2:-1]
        every_other = row[::2]
        backwards = row[::-1]
        total = 0.0
        for k in range(middle.size):
            total += middle[k]
        out[i, 0] = total
        out[i, 1] = every_other[every_other.size - 1]
        out[i, 2] = backwards[0]
        out[i, 3] = x[:, 1][i]


@cuda.jit
def assign_through_views(x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        column = out[:, i]
        for k in range(x.shape[1]):
            column[k] = x[i, k]
        border = out[-1]
        border[i] = i


@cuda.jit
def transposed_inside(x, out):
    i, j = cuda.grid(2)
    turned = x.T
    if i < turned.shape[0] and j < turned.shape[1]:
        out[i, j] = turned[i, j]


@cuda.jit
def reshaped_inside(x, out):
    i = cuda.grid(1)
    flat = x.reshape(x.size)
    square = out.reshape((out.size // 6, 6))
    if i < flat.size:
        square[i // 6, i % 6] = flat[i] + 1


@cuda.jit
def fill_slice(out, value):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i, 1:-1] = value + i


@cuda.jit
def fill_if_any(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i % out.size] = 1


def _scaled(args: Args) -> Expected:
    x = args[0]
    return {1: 2 * x + np.arange(x.shape[0])[:, None] - np.arange(x.shape[1])}


def _plane_case(name: str, view: Any, out: Any) -> Case:
    return Case(
        f"scale_2d_{name}",
        scale_2d,
        lambda rng: (view(dyadic(rng, (46, 62))), out()),
        fixed((3, 4), (8, 8)),
        _scaled,
        features=uses("strided"),
        effects=effects("x", "out"),
    )


def _new(shape: tuple[int, ...] = (23, 31)) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _rows(args: Args) -> Expected:
    x = args[0]
    last = x.shape[1] - 1
    columns = (x[:, 2:-1].sum(axis=1), x[:, last - last % 2], x[:, last], x[:, 1])
    return {1: np.stack(columns, axis=1)}


def _through_views(args: Args) -> Expected:
    x, out = args
    out[: x.shape[1]] = x.T
    out[-1] = np.arange(x.shape[0])
    return {1: out}


def _filled(args: Args) -> Expected:
    out, value = args
    out[:, 1:-1] = value + np.arange(out.shape[0])[:, None]
    return {0: out}


CASES = [
    Case(
        "scale_1d_strided",
        scale_1d,
        lambda rng: (dyadic(rng, 303)[1::3], np.zeros(202, np.float32)[::2]),
        line(0),
        lambda a: {1: 2 * a[0]},
        features=uses("strided"),
        effects=effects("x", "out"),
    ),
    Case(
        "scale_1d_backwards",
        scale_1d,
        lambda rng: (dyadic(rng, 101)[::-1], np.zeros(303)[::-3]),
        line(0),
        lambda a: {1: 2 * a[0]},
        features=uses("strided"),
        effects=effects("x", "out"),
    ),
    Case(
        "scale_1d_broadcast",
        scale_1d,
        # A read-only array whose elements are all the same one.
        lambda rng: (np.broadcast_to(dyadic(rng, 1), 77), np.zeros(77, np.float32)),
        line(0, 32),
        lambda a: {1: 2 * a[0]},
        features=uses("strided"),
        effects=effects("x", "out"),
    ),
    _plane_case("contiguous", lambda x: x[:23, :31].copy(), _new),
    _plane_case("sliced", lambda x: x[::2, 1::2], _new),
    _plane_case("transposed", lambda x: x.T[5:28, :31], _new),
    _plane_case("fortran", lambda x: np.asfortranarray(x[:23, :31]), lambda: _new().copy("F")),
    _plane_case("reversed", lambda x: x[22::-1, ::-2], lambda: _new((31, 23)).T[::-1]),
    Case(
        "scale_2d_overlapping_rows",
        scale_2d,
        # Windows of one array: rows that share elements, read only.
        lambda rng: (
            np.lib.stride_tricks.sliding_window_view(dyadic(rng, 53), 31)[:23],
            _new(),
        ),
        fixed((3, 4), (8, 8)),
        _scaled,
        features=uses("strided"),
        effects=effects("x", "out"),
    ),
    Case(
        "permute_4d",
        permute_4d,
        lambda rng: (dyadic(rng, (3, 5, 4, 7)), np.ones((7, 5, 3, 4), np.float32)),
        line(0),
        lambda a: {1: a[1] + np.transpose(a[0], (3, 1, 0, 2))},
        effects=effects("x out", "out"),
    ),
    Case(
        "zero_dimensional",
        zero_dimensional,
        lambda rng: (np.array(4.5), np.array(0.0)),
        fixed(1, 3),
        lambda a: {1: a[0] + 1},
        effects=effects("x", "out"),
    ),
    Case(
        "rows_as_slices",
        rows_as_slices,
        lambda rng: (dyadic(rng, (43, 12), np.float64), np.zeros((43, 4))),
        line(0, 512),
        _rows,
        features=uses("strided"),
        effects=effects("x", "out"),
    ),
    Case(
        "assign_through_views",
        assign_through_views,
        lambda rng: (dyadic(rng, (43, 5)), np.zeros((7, 43), np.float32)),
        fixed(2, 32),
        _through_views,
        features=uses("strided"),
        effects=effects("x", "out"),
    ),
    Case(
        "transposed_inside",
        transposed_inside,
        lambda rng: (dyadic(rng, (13, 22)), np.zeros((22, 13), np.float32)),
        fixed((3, 2), (8, 8)),
        lambda a: {1: a[0].T},
        features=uses("strided"),
        effects=effects("x", "out"),
    ),
    Case(
        "reshaped_inside",
        reshaped_inside,
        lambda rng: (dyadic(rng, (9, 4)), np.zeros((3, 4, 3), np.float32)),
        fixed(2, 32),
        lambda a: {1: a[0].reshape(3, 4, 3) + 1},
        features=uses("reshape"),
        effects=effects("x", "out"),
    ),
    Case(
        "fill_slice",
        fill_slice,
        lambda rng: (np.zeros((37, 6)), 2.5),
        fixed(2, 32),
        _filled,
        features=uses("strided"),
        effects=effects("", "out"),
    ),
    Case(
        "empty_input",
        fill_if_any,
        lambda rng: (np.zeros(0, np.float32), np.zeros(5, np.float32)),
        fixed(2, 32),
        lambda a: {},
        features=uses("empty"),
        effects=effects("", "out"),
    ),
    Case(
        "empty_everything",
        scale_1d,
        lambda rng: (np.zeros(0), np.zeros(0)),
        line(0, 32),
        lambda a: {},
        features=uses("empty"),
        effects=effects("x", "out"),
    ),
    Case(
        "empty_plane",
        scale_2d,
        lambda rng: (np.zeros((0, 5), np.float32), np.zeros((0, 5), np.float32)),
        fixed((1, 1), (8, 8)),
        lambda a: {},
        features=uses("empty"),
        effects=effects("x", "out"),
    ),
]
