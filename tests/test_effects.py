"""Effects of every case that states its true ones: never too small, and how often exact."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

from graphjit.kernel.frontend import kernel_ir, type_of

from .cases import CASES

STATED = [case for case in CASES if case.effects is not None]


def _inferred(kernel, args):
    return kernel_ir(kernel, tuple(type_of(kernel, a) for a in args)).effects


@pytest.mark.parametrize("case", STATED, ids=lambda case: case.name)
def test_effects_are_never_too_small(case):
    reads, writes = case.effects
    effects = _inferred(case.kernel, case.make(np.random.default_rng(3)))
    assert reads <= effects.reads
    assert writes <= effects.writes


def test_most_effects_are_exact():
    exact = 0
    for case in STATED:
        effects = _inferred(case.kernel, case.make(np.random.default_rng(3)))
        exact += (effects.reads, effects.writes) == case.effects
    assert exact >= 0.9 * len(STATED)


@cuda.jit
def scale(x, y, k):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        y[i, j] = k * x[i, j]


@cuda.jit
def pingpong(a, b, n, which):
    i = cuda.grid(1)
    for _ in range(n):
        b[i] = a[i + 1] * 0.5
        a, b = b, a
    c = a if which else b
    c[0] = 1


@cuda.jit
def atomics(x, y, seen):
    i = cuda.grid(1)
    cuda.atomic.add(y, int(x[i]), 1.0)
    seen[0] = y.shape[0]


def test_effects_on_strided_arrays():
    strided = np.zeros((8, 8))[::2, ::2]
    effects = _inferred(scale, (strided, strided, 2.0))
    assert (effects.reads, effects.writes) == ({"x"}, {"y"})


def test_effects_through_swapped_and_chosen_names():
    for x in (np.zeros(8), np.zeros(16)[::2]):
        effects = _inferred(pingpong, (x, x, 3, True))
        assert (effects.reads, effects.writes) == ({"a", "b"}, {"a", "b"})


def test_effects_of_atomics():
    for x in (np.zeros(8), np.zeros(16)[::2]):
        effects = _inferred(atomics, (x, x, np.zeros(1)))
        assert (effects.reads, effects.writes) == ({"x", "y"}, {"y", "seen"})
