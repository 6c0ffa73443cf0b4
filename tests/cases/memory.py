"""Argument and array forms: strides, slices, views, tuples, records, constants, empty arrays."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from .case import Args, Case, Expected, dyadic, effects, fixed, line, ragged, uses

PARTICLE = np.dtype(
    [("position", np.float32, 3), ("mass", np.float64), ("kind", np.int16), ("alive", np.bool_)],
    align=True,
)
PADDED = np.dtype([("flag", np.uint8), ("value", np.float64), ("count", np.int16)], align=True)
SETTINGS = np.dtype([("scale", np.float64), ("offset", np.int32), ("runs", np.int32)], align=True)
CONSTANT = np.array([[1.0, 2.0, 4.0], [-1.0, 0.5, 8.0]], np.float32)


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
def move_particles(particles, dt):
    i = cuda.grid(1)
    if i < particles.size:
        if particles[i].alive:
            for k in range(3):
                particles[i].position[k] += dt
            particles[i].mass *= 0.5
        else:
            particles[i]["kind"] = -1


@cuda.jit
def read_particles(particles, out):
    i = cuda.grid(1)
    if i < particles.size:
        p = particles[i]
        out[i] = p.mass + p.kind + p.position[2]


@cuda.jit
def padded_records(records, out):
    # numba-cuda refuses fields that aren't aligned, so these have gaps between them.
    i = cuda.grid(1)
    if i < records.size:
        records[i].count += records[i].flag
        out[i] = records[i].value
        records[i].value = i


@cuda.jit
def copy_records(source, index, target):
    i = cuda.grid(1)
    if i < target.size:
        target[i] = source[index[i]]


@cuda.jit
def record_argument(settings, x):
    i = cuda.grid(1)
    if i < x.size:
        for _ in range(settings.runs):
            x[i] = x[i] * settings.scale + settings.offset


@cuda.jit
def record_written(settings, x):
    if cuda.grid(1) == 0:
        settings.runs += 1
        settings.scale = x[0]


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


def _particles(rng: np.random.Generator, n: int) -> np.ndarray:
    particles = np.zeros(n, PARTICLE)
    particles["position"] = dyadic(rng, (n, 3))
    particles["mass"] = dyadic(rng, n, np.float64)
    particles["kind"] = rng.integers(-300, 300, n)
    particles["alive"] = rng.random(n) < 0.6
    return particles


def _moved(args: Args) -> Expected:
    particles, dt = args
    alive = particles["alive"]
    particles["position"][alive] += dt
    particles["mass"][alive] /= 2
    particles["kind"][~alive] = -1
    return {0: particles}


def _padded(rng: np.random.Generator) -> Args:
    records = np.zeros(47, PADDED)
    records["flag"] = rng.integers(0, 255, 47)
    records["value"] = rng.normal(size=47)
    records["count"] = rng.integers(-999, 999, 47)
    return records, np.zeros(47)


def _unpadded(args: Args) -> Expected:
    records = args[0]
    value = records["value"].copy()
    records["count"] += records["flag"]
    records["value"] = np.arange(records.size)
    return {0: records, 1: value}


def _settings() -> Any:
    return np.array([(0.5, 3, 4)], SETTINGS)[0]


def _settled(args: Args) -> Expected:
    settings, x = args
    for _ in range(settings["runs"]):
        x = x * settings["scale"] + settings["offset"]
    return {1: x}


def _written(args: Args) -> Expected:
    settings, x = args
    settings["runs"] += 1
    settings["scale"] = x[0]
    return {0: settings}


def _tuple_args(rng: np.random.Generator) -> Args:
    n = ragged(rng, 70, 120)
    inputs = dyadic(rng, n), 3, dyadic(rng, (19, 2), np.float64)
    return inputs, (np.zeros(n, np.float32), np.zeros(19))


def _nested_args(rng: np.random.Generator) -> Args:
    pairs = (dyadic(rng, 45), np.float32(2)), (dyadic(rng, 45), np.float32(0.5))
    return pairs, (np.float32(7), np.float32(-1)), np.zeros(45, np.float32)


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
        features=uses("strided"),
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
        "move_particles",
        move_particles,
        lambda rng: (_particles(rng, 77), np.float32(0.25)),
        line(0, 32),
        _moved,
        features=uses("record bool small_int"),
        effects=effects("particles", "particles"),
    ),
    Case(
        "read_particles",
        read_particles,
        lambda rng: (_particles(rng, 77), np.zeros(77)),
        line(0, 32),
        lambda a: {1: a[0]["mass"] + a[0]["kind"] + a[0]["position"][:, 2]},
        features=uses("record small_int"),
        effects=effects("particles", "out"),
    ),
    Case(
        "padded_records",
        padded_records,
        _padded,
        line(0, 32),
        _unpadded,
        features=uses("record small_int"),
        effects=effects("records", "records out"),
    ),
    Case(
        "copy_records",
        copy_records,
        lambda rng: (_particles(rng, 31), rng.integers(0, 31, 50), np.zeros(50, PARTICLE)),
        line(1, 32),
        lambda a: {2: a[0][a[1]]},
        features=uses("record"),
        effects=effects("source index", "target"),
    ),
    Case(
        "record_argument",
        record_argument,
        lambda rng: (_settings(), dyadic(rng, 45, np.float64)),
        line(1, 32),
        _settled,
        features=uses("record"),
        effects=effects("settings x", "x"),
    ),
    Case(
        "record_written",
        record_written,
        lambda rng: (_settings(), dyadic(rng, 4, np.float64)),
        fixed(2, 32),
        _written,
        features=uses("record"),
        effects=effects("settings x", "settings"),
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
