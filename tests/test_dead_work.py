"""Work that nobody sees is left out, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda

import graphjit as gj

from .outcomes import assert_same, left_by
from .programs import add_2d, axpy, grid, increment, scale, shift
from .test_properties import _elementwise, _shared

pytestmark = pytest.mark.usefixtures("cpu")
N, B = 100, 64
G = grid(N, B)


def kinds(function, *args):
    """What is left of a function's nodes; what it leaves behind is what it left before."""
    lowered = gj.graphed(function, optimize="dead_work").lower(*map(copied, args))
    assert_same(*(left_by(gj.graphed(function, optimize=o), *args) for o in ("dead_work", False)))
    left = lowered.schedule.nodes
    assert len(left) + len(lowered.removed) == len(gj.make_graph(function)(*args).nodes)
    return [node.kernel.name if hasattr(node, "kernel") else type(node).__name__ for node in left]


def copied(value):
    return gj.array(value) if isinstance(value, np.ndarray) else value


def values(*shape):
    return np.random.default_rng(0).uniform(-2, 2, shape or (N,))


def test_a_launch_whose_result_is_dropped():
    def f(x):
        unused = gj.empty_like(x)
        scale[G, B](x, unused, 2.0)
        increment[G, B](unused)
        out = gj.empty_like(x)
        scale[G, B](x, out, 3.0)
        return out

    assert kinds(f, values()) == ["scale"]
    lowered = gj.graphed(f).lower(gj.zeros(N))
    assert [str(each) for each in lowered.removed] == [
        "removed scale[2, 64](x@0, t0->@1, 2.0)  # test_dead_work.py:42: "
        "nothing reads what it writes",
        "removed increment[2, 64](t0@1->@2)  # test_dead_work.py:43: nothing reads what it writes",
    ]


def test_fills_and_copies_that_are_overwritten():
    def f(x):
        out = gj.zeros_like(x)
        out[...] = 7
        out[...] = x
        return out

    assert kinds(f, values()) == ["Copy"]


def test_a_fill_of_which_something_is_left():
    def f(x):
        out = gj.zeros_like(x)
        out[1:] = x[1:]
        return out

    def g(x):
        out = gj.zeros_like(x)
        out[::2] = x[::2]
        return out

    assert kinds(f, values()) == ["Fill", "Copy"]
    assert kinds(g, values()) == ["Fill", "Copy"]


def test_a_fill_that_a_launch_overwrites():
    def f(x):
        out = gj.zeros_like(x)
        scale[G, B](x, out, 2.0)
        return out

    assert kinds(f, values()) == ["scale"]


def test_a_fill_of_an_argument_that_is_overwritten():
    def f(x):
        x[...] = 0
        x[...] = 1

    assert kinds(f, values()) == ["Fill"]


@cuda.jit
def inner(x, out):
    i = cuda.grid(1)
    if 0 < i < out.size - 1:
        out[i] = x[i]


@cuda.jit
def sometimes(x, out):
    i = cuda.grid(1)
    if i < out.size:
        if x[i] > 0:
            out[i] = x[i]


@cuda.jit
def either(x, out):
    i = cuda.grid(1)
    if i < out.size:
        if x[i] > 0:
            out[i] = 1.0
        else:
            out[i] = 2.0


@cuda.jit
def first_of_block(x, out):
    i = cuda.grid(1)
    if i < out.size and cuda.threadIdx.x < 3:
        out[i] = x[i]


@cuda.jit
def returns_early(x, out):
    i = cuda.grid(1)
    if i >= out.size or x[i] > 0:
        return
    out[i] = x[i]


@cuda.jit
def less_than_x(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i]


@pytest.mark.parametrize("kernel", [inner, sometimes, first_of_block, returns_early, axpy])
def test_fills_that_launches_overwrite_in_part(kernel):
    def f(x):
        out = gj.zeros_like(x)
        if kernel is axpy:
            axpy[G, B](2.0, x, out)
        else:
            kernel[G, B](x, out)
        return out

    assert kinds(f, values()) == ["Fill", kernel.py_func.__name__]


def test_fills_that_too_few_threads_overwrite():
    def f(x):
        out = gj.zeros_like(x)
        scale[G - 1, B](x, out, 2.0)
        return out

    def g(x):
        out = gj.zeros_like(x)
        less_than_x[G, B](x[:-1], out)
        return out

    assert kinds(f, values()) == ["Fill", "scale"]
    assert kinds(g, values()) == ["Fill", "less_than_x"]


@pytest.mark.parametrize("shape", [(16, 16), (13, 17), (1, 40)])
def test_planes(shape):
    def f(x):
        out = gj.zeros_like(x)
        add_2d[(grid(shape[0], 8), grid(shape[1], 8)), (8, 8)](x, x, out)
        return out

    def g(x):
        out = gj.zeros_like(x)
        add_2d[(grid(shape[0], 8), max(1, grid(shape[1], 8) - 1)), (8, 8)](x, x, out)
        return out

    assert kinds(f, values(*shape)) == ["add_2d"]
    assert kinds(g, values(*shape)) == ["Fill", "add_2d"]


def test_what_prints_or_stops_stays():
    @cuda.jit
    def prints(x):
        if cuda.grid(1) == 0:
            print(x.size)

    def f(x):
        unused = gj.zeros_like(x)
        prints[1, 1](unused)

    assert len(gj.graphed(f).lower(gj.zeros(N)).schedule.nodes) >= 1


def test_arguments_that_may_share_memory():
    def f(x, y):
        x[...] = 1
        scale[G, B](y, y, 2.0)
        x[...] = 2

    assert kinds(f, values(), values()) == ["Fill", "scale", "Fill"]
    results = []
    for optimize in (True, False):
        base = gj.array(values())
        gj.graphed(f, optimize=optimize)(base[:60], base[40:])
        results.append(base.copy_to_host())
    np.testing.assert_array_equal(*results)


def test_closed_over_arrays_are_seen():
    closed = gj.zeros(N)

    def f(x):
        scale[G, B](x, closed, 2.0)

    assert kinds(f, values()) == ["scale"]


def test_loops_keep_what_they_read():
    def f(x, n):
        table = gj.zeros_like(x)
        scale[G, B](x, table, 2.0)
        unused = gj.zeros_like(x)
        increment[G, B](unused)

        def body(i, x):
            out = gj.empty_like(x)
            scale[G, B](table, out, 0.5)
            axpy[G, B](1.0, x, out)
            return out

        return gj.fori_loop(0, n[0].item(), body, x)

    x, n = gj.array(values()), gj.array([3])
    outcomes = [gj.graphed(f, optimize=o)(x, n).copy_to_host() for o in (True, False)]
    np.testing.assert_array_equal(*outcomes)
    assert len(gj.graphed(f).lower(x, n).removed) == 3


def test_callbacks_see_what_they_are_given():
    seen = []

    def f(x):
        once = gj.empty_like(x)
        scale[G, B](x, once, 2.0)
        gj.host_callback(lambda a: seen.append(a.copy()), once)
        return x

    gj.graphed(f)(gj.array(values()))
    np.testing.assert_array_equal(seen[0], 2 * values())


STEP = st.tuples(st.integers(0, 5), *[st.integers(0, 9)] * 3, st.integers(1, 40))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=2, max_size=10), st.integers(0, 9))
def test_random_programs_give_the_same(backend, program, returned):
    def f(x, y, k):
        arrays = [x, y]
        for what, a, b, threads, start in program:
            source, target = arrays[a % len(arrays)], arrays[b % len(arrays)]
            if what == 0:
                arrays.append(gj.zeros_like(x))
            elif what == 1:
                target[start % 32 :] = k
            elif what == 2 and source is not target:
                n = min(start, source.size, target.size)
                target[:n] = source[:n]
            elif what == 3 and not _shared(source, target):
                shift[2, 16](source, target)
            elif what == 4 and _elementwise(source, target):
                scale[2, 4 * (1 + threads)](source, target, k)
            elif what == 5:
                arrays.append(target[start % 16 :][:16])
                arrays.append(gj.empty(32))
                arrays[-1][...] = 1
        return arrays[returned % len(arrays)]

    outcomes = []
    for optimize in (True, False):
        given = gj.arange(32.0), gj.ones(32)
        result = gj.graphed(f, optimize=optimize)(*given, 0.5)
        outcomes.append([a.copy_to_host() for a in (*given, result)])
    for mine, plain in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(mine, plain)
