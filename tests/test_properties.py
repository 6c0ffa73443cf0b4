"""Random programs of launches, copies, fills and views: replays equal eager order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphjit as gj

from .programs import add, grid, increment, scale, shift

N = 24


class Eager:
    """The same operations on NumPy arrays, in order."""

    @staticmethod
    def scale(x, out, k):
        out[...] = k * x[: out.size]

    @staticmethod
    def add(x, y, out):
        out[...] = x[: out.size] + y[: out.size]

    @staticmethod
    def increment(x):
        x += 1

    @staticmethod
    def shift(x, out):
        out[...] = np.resize(np.roll(x, -1), out.size) + 1

    @staticmethod
    def copy(x, out):
        # NumPy 2.4 copies x[:n] to x[::2] front to back, over what it has not read yet.
        out[...] = x.copy()

    empty = staticmethod(np.zeros)


class Traced:
    """The operations as launches."""

    @staticmethod
    def scale(x, out, k):
        scale[grid(out.size, 8), 8](x, out, k)

    @staticmethod
    def add(x, y, out):
        add[grid(out.size, 8), 8](x, y, out)

    @staticmethod
    def increment(x):
        increment[grid(x.size, 8), 8](x)

    @staticmethod
    def shift(x, out):
        shift[grid(out.size, 8), 8](x, out)

    @staticmethod
    def copy(x, out):
        out[...] = x

    empty = staticmethod(gj.zeros)


def run(ops: Any, program: list[tuple[Any, ...]], arrays: list[Any], k: Any) -> list[Any]:
    """Run a program; operations that a single launch would make racy are skipped alike."""
    arrays = list(arrays)
    for op, *operands in program:
        a, b, c = (arrays[i % len(arrays)] for i in operands[:3])
        if op == "view":
            start, step = operands[3]
            arrays.append(a[start % a.size :: step] if step > 0 else a[::step])
        elif op == "new":
            arrays.append(ops.empty(operands[3][0] + 3))
        elif op == "scale" and _elementwise(a, c):
            ops.scale(a, c, k)
        elif op == "add" and _elementwise(a, c) and _elementwise(b, c):
            ops.add(a, b, c)
        elif op == "increment":
            ops.increment(a)
        elif op == "shift" and not _shared(a, c):
            ops.shift(a, c)
        elif op == "copy":
            n = min(a.size, b.size)
            ops.copy(b[:n], a[:n])
        elif op == "fill":
            a[...] = k
    return arrays


def _position(array: Any) -> tuple[Any, int, int, int]:
    """Base, first element, stride and size, for NumPy arrays and for tracers."""
    if isinstance(array, np.ndarray):
        base = array
        while base.base is not None:
            base = base.base
        start = (array.ctypes.data - base.ctypes.data) // 8
        return id(base), start, array.strides[0] // 8, array.size
    view = array._view
    return view.buffer, view.offset // 8, array.strides[0] // 8, array.size


def _cells(array: Any) -> set[tuple[Any, int]]:
    base, start, stride, size = _position(array)
    return {(base, start + stride * i) for i in range(size)}


def _shared(a: Any, b: Any) -> bool:
    return bool(_cells(a) & _cells(b))


def _elementwise(source: Any, target: Any) -> bool:
    """Whether each thread reads only its own element of what the launch writes."""
    if source.size < target.size:
        return False
    return not _shared(source, target) or _position(source)[:3] == _position(target)[:3]


INDEX = st.integers(0, 50)
OP = st.sampled_from(["view", "new", "scale", "add", "increment", "shift", "copy", "fill"])
STEP = st.tuples(
    OP, INDEX, INDEX, INDEX, st.tuples(st.integers(0, N), st.sampled_from([1, 1, 2, 3, -1]))
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, min_size=1, max_size=16), st.integers(-2, 3), st.booleans())
def test_replay_equals_eager_order(backend, program, k, alias):
    rng = np.random.default_rng(len(program))
    expected = [rng.integers(-4, 5, N).astype(float) for _ in range(2)]
    mine = [gj.array(a) for a in expected]

    def traced(x, y, k):
        # Which operations are racy depends on what aliases, which a trace can't know.
        return run(Traced, program, [x, x if alias else y], k)

    f = gj.graphed(traced)
    for value in (float(k), float(k) + 1):
        wants = run(Eager, program, [expected[0], expected[0 if alias else 1]], value)
        gots = f(*mine, value)
        for got, want in zip(gots, wants, strict=True):
            np.testing.assert_array_equal(got.copy_to_host(), want)
        for got, want in zip(mine, expected, strict=True):
            np.testing.assert_array_equal(got.copy_to_host(), want)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["increment", "copy", "fill"]), INDEX, INDEX, INDEX, st.just((0, 1))
        ),
        min_size=1,
        max_size=10,
    ),
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
)
def test_replay_equals_eager_order_on_overlapping_arguments(backend, program, starts):
    def traced(x, y, z, k):
        run(Traced, program, [x, y, z], k)

    f = gj.graphed(traced)
    for offsets in (starts, (0, 12, 24)):
        want = np.arange(40.0)
        mine = gj.array(want)
        run(Eager, program, [want[s : s + 12] for s in offsets], 7.0)
        f(*(mine[s : s + 12] for s in offsets), 7.0)
        np.testing.assert_array_equal(mine.copy_to_host(), want)
