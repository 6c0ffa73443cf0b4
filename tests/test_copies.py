"""Copies that nobody would miss are left out, and all others are made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda

import graphjit as gj

from .outcomes import assert_same, left_by
from .programs import add, grid, increment, scale, shift

N, B = 100, 64
G = grid(N, B)


def values(n=N):
    return np.random.default_rng(3).uniform(-2, 2, n)


def lowered(function, *args):
    """The function lowered, which leaves the same in arguments and results as without the pass."""
    f = gj.graphed(function, optimize="copies")
    assert_same(left_by(f, *args), left_by(gj.graphed(function, optimize=False), *args))
    return f.lower(*map(gj.array, args))


def scaled(x, k):
    out = gj.empty_like(x)
    scale[G, B](x, out, k)
    return out


@pytest.mark.usefixtures("cpu")
class TestLeftOut:
    def test_a_copy_of_an_argument(self):
        found = lowered(lambda x: scaled(x.copy(), 2.0), values())
        assert len(found.schedule.nodes) == 1
        (removed,) = found.removed
        assert str(removed).startswith("removed copy(x@0 -> ")
        assert "test_copies.py" in str(removed)
        assert str(removed).endswith("read the original, which stays as it is meanwhile")
        assert found.memory_analysis().arena == 0

    def test_a_copy_of_a_copy(self):
        found = lowered(lambda x: scaled(x.copy().copy().copy(), 2.0), values())
        assert len(found.schedule.nodes) == 1 and len(found.removed) == 3

    def test_a_copy_of_a_part_and_parts_of_it(self):
        def f(x):
            part = x[20:80].copy()
            out = gj.zeros_like(part[10:50])
            add[G, B](part[10:50], part[50:10:-1], out)
            return out

        assert [type(node).__name__ for node in lowered(f, values()).schedule.nodes] == [
            "Fill",
            "Launch",
        ]

    def test_a_copy_of_a_temporary_that_changes_later(self):
        def f(x):
            y = scaled(x, 2.0)
            out = scaled(y.copy(), 3.0)
            increment[G, B](y)
            return out, y

        assert len(lowered(f, values()).removed) == 1

    def test_a_copy_that_is_copied_into_another_array(self):
        def f(x):
            y = gj.empty_like(x)
            y[...] = x.copy()
            return y

        assert len(lowered(f, values()).schedule.nodes) == 1

    def test_a_copy_that_a_loop_reads_which_is_written_out(self):
        def f(x):
            y = x.copy()
            return gj.fori_loop(0, 10, lambda i, c: scaled(y, 2.0), x)

        assert len(lowered(f, values()).removed) == 1


@pytest.mark.usefixtures("cpu")
class TestMade:
    def test_results(self):
        assert not lowered(lambda x: x.copy(), values()).removed

    def test_what_is_changed_itself(self):
        def f(x):
            y = x.copy()
            increment[G, B](y)
            return scaled(y, 2.0)

        assert not lowered(f, values()).removed

    def test_what_is_partly_overwritten_before(self):
        def f(x):
            y = gj.zeros(N)
            y[: N // 2] = x[: N // 2]
            return scaled(y, 2.0)

        assert not lowered(f, values()).removed

    def test_the_original_changes_in_the_very_launch(self):
        def f(x):
            shift[G, B](x.copy(), x)
            return scaled(x, 1.0)

        assert not lowered(f, values()).removed

    def test_the_original_changes_in_between(self):
        def f(x):
            y = x.copy()
            increment[G, B](x)
            return scaled(y, 2.0)

        assert not lowered(f, values()).removed

    def test_other_arguments_may_be_the_original(self):
        def f(x, y):
            kept = x.copy()
            increment[G, B](y)
            return scaled(kept, 2.0)

        assert not lowered(f, values(), values()).removed
        x = gj.array(values())
        result = gj.graphed(f)(x, x).copy_to_host()
        np.testing.assert_array_equal(result, 2 * values())

    def test_other_layouts(self):
        def f(x):
            out = gj.zeros(N // 2)
            add[G, B](x[::2].copy(), x[1::2].copy(), out)
            return out

        assert not lowered(f, values()).removed

    def test_loops_that_the_device_ends_keep_theirs(self):
        def f(x, n):
            y = x.copy()
            return gj.fori_loop(0, n[0].item(), lambda i, c: scaled(y, 2.0), x)

        assert not lowered(f, values(), np.array([3])).removed


def test_it_is_an_option():
    with gj.use_backend("cpu"):
        x = gj.zeros(N)
        f = gj.graphed(lambda x: scaled(x.copy(), 2.0), optimize="dead_work")
        assert not f.lower(x).removed


@cuda.jit
def blend(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] - 0.5 * y[i]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(0, 5), *[st.integers(0, 9)] * 3), min_size=2, max_size=10),
    st.booleans(),
)
def test_random_programs_give_the_same(backend, program, overlapping):
    """Copies, writes in place and reads of neighbours, of arguments that are or aren't the same."""

    def f(x, y):
        arrays = [x, y]
        for kind, a, b, c in program:
            a, b, c = (n % len(arrays) for n in (a, b, c))
            if kind < 2:
                arrays.append(arrays[a].copy())
            elif kind == 2:
                arrays[c][...] = arrays[a]
            elif kind == 3 and a != c:
                shift[2, 16](arrays[a], arrays[c])
            elif kind == 4:
                increment[2, 16](arrays[c])
            elif a != c and b != c:
                blend[2, 16](arrays[a], arrays[b], arrays[c])
        total = gj.zeros(32)
        for each in arrays[2:-1]:
            add[2, 16](total, each, total)
        return total, arrays[-1].copy()

    if overlapping:
        # What reads a neighbour in memory that it writes depends on the order of threads.
        program = [(4 if kind in (3, 5) else kind, *rest) for kind, *rest in program]
    outcomes = []
    for optimize in (True, ("copies",), False):
        x = gj.array(np.arange(32.0))
        y = x if overlapping else gj.array(np.arange(32.0)[::-1].copy())
        result = gj.graphed(f, optimize=optimize)(x, y)
        outcomes.append([a.copy_to_host() for a in (x, y, *result)])
    for other in outcomes[:-1]:
        for mine, plain in zip(other, outcomes[-1], strict=True):
            np.testing.assert_array_equal(mine, plain)
