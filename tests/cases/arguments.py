"""Tuples, records, constant memory and printing."""

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
]
