"""Records: arrays of them, as arguments, in shared memory, and atomics on their fields."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, from_dtype

from .case import Args, Case, Expected, dyadic, effects, fixed, line, uses

PARTICLE = np.dtype(
    [("position", np.float32, 3), ("mass", np.float64), ("kind", np.int16), ("alive", np.bool_)],
    align=True,
)
PADDED = np.dtype([("flag", np.uint8), ("value", np.float64), ("count", np.int16)], align=True)
PAIR = from_dtype(np.dtype([("key", np.int16), ("value", np.float64)], align=True))
SETTINGS = np.dtype([("scale", np.float64), ("offset", np.int32), ("runs", np.int32)], align=True)


@cuda.jit
def atomic_on_fields(particles, index, mass):
    i = cuda.grid(1)
    if i < index.size:
        cuda.atomic.add(particles["mass"], index[i], mass)
        cuda.atomic.max(particles.position, (index[i], 1), np.float32(i))


@cuda.jit
def records_in_shared_memory(x, out):
    tile = cuda.shared.array(32, PAIR)
    t = cuda.threadIdx.x
    tile[t].key = 31 - t
    tile[t].value = x[t]
    cuda.syncthreads()
    other = tile[31 - t]
    out[t] = other.value + other.key


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


def _particles(rng: np.random.Generator, n: int) -> np.ndarray:
    particles = np.zeros(n, PARTICLE)
    particles["position"] = dyadic(rng, (n, 3))
    particles["mass"] = dyadic(rng, n, np.float64)
    particles["kind"] = rng.integers(-300, 300, n)
    particles["alive"] = rng.random(n) < 0.6
    return particles


def _collected(args: Args) -> Expected:
    particles, index, mass = args
    np.add.at(particles["mass"], index, mass)
    np.maximum.at(particles["position"], (index, 1), np.arange(index.size, dtype=np.float32))
    return {0: particles}


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


CASES = [
    Case(
        "atomic_on_fields",
        atomic_on_fields,
        lambda rng: (_particles(rng, 31), rng.integers(0, 31, 150), 0.25),
        line(1, 32),
        _collected,
        features=uses("record atomic"),
        effects=effects("particles index", "particles"),
    ),
    Case(
        "records_in_shared_memory",
        records_in_shared_memory,
        lambda rng: (dyadic(rng, 32, np.float64), np.zeros(32)),
        fixed(1, 32),
        lambda a: {1: a[0][::-1] + np.arange(32)},
        features=uses("record barrier static_shared"),
        effects=effects("x", "out"),
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
]
