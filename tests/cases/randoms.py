"""Random numbers of numba.cuda.random against xoroshiro128+ in Python's integers."""

# mypy: allow-untyped-defs, no-check-untyped-defs, allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np
from numba import cuda
from numba.cuda.random import (
    xoroshiro128p_dtype,
    xoroshiro128p_normal_float32,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
    xoroshiro128p_uniform_float64,
)

from .case import Args, Case, Expected, effects, line, uses

DRAWS = 5
_WORD = 2**64


def drawing(draw):
    """The kernel that fills each row with one state's numbers."""

    @cuda.jit
    def draws(states, out):
        i = cuda.grid(1)
        if i < out.shape[0]:
            for k in range(out.shape[1]):
                out[i, k] = draw(states, i)

    return draws


uniform_float32 = drawing(xoroshiro128p_uniform_float32)
uniform_float64 = drawing(xoroshiro128p_uniform_float64)
normal_float32 = drawing(xoroshiro128p_normal_float32)
normal_float64 = drawing(xoroshiro128p_normal_float64)


@cuda.jit
def estimate_pi(states, rounds, hits):
    i = cuda.grid(1)
    if i < states.size:
        inside = 0
        for _ in range(rounds):
            x = xoroshiro128p_uniform_float32(states, i)
            y = xoroshiro128p_uniform_float32(states, i)
            if x * x + y * y <= 1.0:
                inside += 1
        cuda.atomic.add(hits, 0, inside)


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) % _WORD


class _Generator:
    """xoroshiro128+ (Blackman and Vigna, 2018) with the constants 55, 14 and 36."""

    def __init__(self, s0: int, s1: int) -> None:
        self.s0, self.s1 = s0, s1

    def unit(self) -> float:
        word = (self.s0 + self.s1) % _WORD
        mixed = self.s0 ^ self.s1
        self.s0 = _rotated(self.s0, 55) ^ mixed ^ mixed << 14 & _WORD - 1
        self.s1 = _rotated(mixed, 36)
        return (word >> 11) / 2**53

    def normal(self) -> float:
        # Both precisions of numba-cuda draw two numbers in single precision.
        first, second = (float(np.float32(self.unit())) for _ in range(2))
        return math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)


def _generators(states: np.ndarray) -> list[_Generator]:
    return [_Generator(int(s["s0"]), int(s["s1"])) for s in states]


def _kept(generators: list[_Generator]) -> np.ndarray:
    return np.array([(g.s0, g.s1) for g in generators], xoroshiro128p_dtype)


def _states(rng: np.random.Generator, n: int) -> np.ndarray:
    states = np.empty(n, xoroshiro128p_dtype)
    for name in ("s0", "s1"):
        states[name] = rng.integers(0, _WORD, n, np.uint64)
    return states


def _uniform(args: Args) -> Expected:
    generators = _generators(args[0])
    out = np.array([[g.unit() for _ in range(DRAWS)] for g in generators])
    return {0: _kept(generators), 1: out.astype(args[1].dtype)}


def _normal(args: Args) -> Expected:
    generators = _generators(args[0])
    out = np.array([[g.normal() for _ in range(DRAWS)] for g in generators])
    return {0: _kept(generators), 1: out}


def _pi(args: Args) -> Expected:
    generators = _generators(args[0])
    hits = 0
    for g in generators:
        for _ in range(args[1]):
            x, y = (float(np.float32(g.unit())) for _ in range(2))
            hits += x * x + y * y <= 1
    return {0: _kept(generators), 2: [hits]}


CASES = [
    Case(
        "random_uniform_float32",
        uniform_float32,
        lambda rng: (_states(rng, 41), np.zeros((41, DRAWS), np.float32)),
        line(0, 32),
        _uniform,
        features=uses("random record"),
        effects=effects("states", "states out"),
    ),
    Case(
        "random_uniform_float64",
        uniform_float64,
        lambda rng: (_states(rng, 41), np.zeros((41, DRAWS))),
        line(0, 32),
        _uniform,
        features=uses("random record"),
        effects=effects("states", "states out"),
    ),
    Case(
        "random_normal_float32",
        normal_float32,
        lambda rng: (_states(rng, 41), np.zeros((41, DRAWS), np.float32)),
        line(0, 32),
        _normal,
        # The logarithm near 1 and the cosine's argument, 2 pi in single precision.
        rtol=1e-5,
        atol=4e-6,
        features=uses("random record math"),
        effects=effects("states", "states out"),
    ),
    Case(
        "random_normal_float64",
        normal_float64,
        lambda rng: (_states(rng, 41), np.zeros((41, DRAWS))),
        line(0, 32),
        _normal,
        # The logarithm is that of a number in single precision.
        rtol=1e-6,
        atol=1e-7,
        features=uses("random record math"),
        effects=effects("states", "states out"),
    ),
    Case(
        "random_estimate_pi",
        estimate_pi,
        lambda rng: (_states(rng, 41), 20, np.zeros(1, np.int64)),
        line(0, 32),
        _pi,
        features=uses("random record atomic"),
        effects=effects("states hits", "states hits"),
    ),
]
