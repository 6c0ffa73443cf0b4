"""Work that depends on nothing that changes is computed once, and no other work is."""

from __future__ import annotations

import gc
import threading
import weakref

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


@cuda.jit
def ramp(out, step):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = i * step


@cuda.jit
def says(out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = i
    if i == 0:
        print("here")


@pytest.fixture(autouse=True)
def _each(backend):
    """On every backend."""


def weights(n=N, step=0.5):
    out = gj.empty(n)
    ramp[grid(n, B), B](out, step)
    return out


def once(function, *args):
    """How many nodes are computed once; every call leaves what it left before."""
    run, plain = gj.graphed(function, optimize="constants"), gj.graphed(function, optimize=False)
    for call in range(3):
        changed = [arg + call for arg in args]
        assert_same(left_by(run, *changed), left_by(plain, *changed))
    lowered = run.lower(*(gj.array(a) if isinstance(a, np.ndarray) else a for a in args))
    nodes = len(gj.make_graph(function)(*args).nodes)
    assert len(lowered.schedule.nodes) + len(lowered.removed) == nodes
    return len(lowered.removed)


def x():
    return np.random.default_rng(0).uniform(-2, 2, N)


def scaled(w, k):
    out = gj.empty_like(w)
    scale[G, B](w, out, k)
    return out


def summed(x, y):
    out = gj.empty_like(x)
    add[G, B](x, y, out)
    return out


def test_a_chain_of_launches_on_nothing():
    def f(x):
        return summed(x, scaled(weights(), 2.0))

    assert once(f, x()) == 2
    lowered = gj.graphed(f).lower(gj.zeros(N))
    assert str(lowered.removed[0]).endswith(
        "it depends on nothing that changes, and was computed once"
    )
    assert "ramp" in str(lowered.removed[0]) and "ramp" not in lowered.as_text()
    assert lowered.memory_analysis().closures == 8 * N


def test_fills_and_copies():
    def f(x):
        a = gj.full(N, 3.0)
        b = a[::-1].copy()
        b[2:5] = 7
        return summed(summed(x, b), a)

    assert once(f, x()) == 3


def test_parts_written_by_several():
    def f(x):
        w = gj.zeros(N)
        ramp[G, B](w[: N // 2], 2.0)
        increment[G, B](w[10:])
        return summed(x, w)

    assert once(f, x()) == 3


@pytest.mark.parametrize("late", [False, True])
def test_what_is_written_later_is_not_constant(late):
    def f(x):
        w = weights()
        y = summed(x, w)
        if late:
            # The second call would find what the first one left.
            increment[G, B](w)
            return summed(y, w)
        scale[G, B](x, w, 2.0)
        return summed(y, w)

    assert once(f, x()) == 0


def test_written_later_by_what_depends_on_arguments():
    def f(x):
        w = weights()
        v = scaled(w, 3.0)
        y = summed(x, v)
        add[G, B](w, x, w)
        return summed(y, w)

    # What made v reads a w that is written later.
    assert once(f, x()) == 0


def test_results_are_fresh():
    def f(x):
        w = weights()
        v = scaled(w, 2.0)
        return w, v[3:], summed(x, v)

    assert once(f, x()) == 0
    run = gj.graphed(f)
    first, second = run(gj.zeros(N)), run(gj.zeros(N))
    first[0][...] = 5
    assert (second[0].copy_to_host() == 0.5 * np.arange(N)).all()


def test_numbers_that_change():
    def f(x, k):
        return summed(x, scaled(weights(), k))

    assert once(f, x(), 2.0) == 1

    def g(x, k):
        return summed(x, gj.full(N, k))

    assert once(g, x(), 2.0) == 0


def test_arguments_and_arrays_closed_over():
    outside = gj.array(np.arange(N, dtype=float))

    def f(x):
        return summed(x, scaled(outside, 2.0))

    assert once(f, x()) == 0


def test_memory_that_nobody_has_written():
    def f(x):
        w = gj.empty(N)
        increment[G, B](w)
        w[...] = 1
        return summed(x, w)

    # What is in w to begin with may differ; the fill doesn't depend on it, but is on one memory.
    assert once(f, x()) == 0


def test_prints_stay(capfd, backend):
    if backend == "sycl":
        pytest.skip("kernels don't print there")

    def f(x):
        w = gj.empty(N)
        says[G, B](w)
        return summed(x, w)

    run = gj.graphed(f)
    for _ in range(2):
        run(gj.zeros(N))
    gj.synchronize()
    assert capfd.readouterr().out.count("here") == 2


def test_in_loops_and_branches():
    def f(x, n):
        w = weights()
        first = gj.full(N, 2.0)

        def body(i, carry):
            y, v = carry
            inner = weights(step=0.25)
            return summed(y, summed(w, inner)), summed(v, first)

        y, v = gj.fori_loop(0, n, body, (x, first))
        return summed(y, v)

    def run(function):
        return [function(gj.array(x()), n).copy_to_host() for n in (3, 0, 4)]

    for n in (3, np.int64(3)):
        graphs = [gj.graphed(f, optimize=o) for o in (True, "constants", False)]
        assert_same(*(left_by(g, x(), n) for g in graphs))
    assert_same(run(gj.graphed(f)), run(gj.graphed(f, optimize=False)))


def test_carried_memory_is_not_shared_between_calls():
    def f(x, n):
        w = gj.zeros(N)

        def body(i, w):
            increment[G, B](w)
            return w

        return summed(x, gj.fori_loop(0, n, body, w))

    for optimize in (True, False):
        run = gj.graphed(f, optimize=optimize)
        for n in (5, 2, 5000, 3):
            assert (run(gj.zeros(N), n).copy_to_host() == n).all()


def test_with_options_that_treat_memory_otherwise():
    def f(x):
        return summed(x, weights())

    want = x() + 0.5 * np.arange(N)
    for options in ({"outputs": "static"}, {"inputs": "copy"}, {"donate_argnames": "x"}):
        run = gj.graphed(f, **options)
        for _ in range(3):
            np.testing.assert_array_equal(run(gj.array(x())).copy_to_host(), want)


def test_they_go_with_the_compiled_function():
    def f(x):
        return summed(x, weights())

    compiled = gj.graphed(f).lower(gj.zeros(N)).compile()
    compiled(gj.zeros(N))
    assert compiled.nbytes >= 8 * N
    memory = weakref.ref(next(iter(compiled._constants.values()))._memory)
    del compiled
    gc.collect()
    assert memory() is None


def test_nothing_but_constants():
    def f():
        w = weights()
        return summed(w, w)

    run = gj.graphed(f)
    for _ in range(3):
        np.testing.assert_array_equal(run().copy_to_host(), np.arange(N))


def test_several_threads():
    run = gj.graphed(lambda x: summed(x, scaled(weights(), 4.0)))
    failed = []

    def work(k):
        for n in (N, N + 1, N + 2):
            given = gj.array(np.full(n, float(k)))
            got = run(given).copy_to_host()
            if not (got[:N] == k + 2.0 * np.arange(N)).all():
                failed.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


OPERATION = st.tuples(
    st.sampled_from(["ramp", "scale", "add", "shift", "increment", "fill", "copy", "new"]),
    *[st.integers(0, 50)] * 3,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OPERATION, min_size=2, max_size=14), st.lists(st.integers(0, 50), max_size=3))
def test_random_programs(program, results):
    def f(x, k):
        arrays = [x, gj.full(N, 2.0), gj.zeros(N)]
        for name, *places in program:
            a, b, c = (arrays[place % len(arrays)] for place in places)
            if name == "ramp":
                ramp[G, B](c, 0.25)
            elif name == "scale" and a is not c:
                scale[G, B](a, c, k if places[1] % 3 == 0 else 3.0)
            elif name == "add":
                add[G, B](a, b, c)
            elif name == "shift" and a is not c:
                shift[G, B](a, c)
            elif name == "increment":
                increment[G, B](c)
            elif name == "fill":
                c[5:50] = 4
            elif name == "copy":
                c[...] = a
            elif name == "new":
                arrays.append(gj.zeros(N))
        return tuple(arrays[place % len(arrays)] for place in results)

    runs = [gj.graphed(f, optimize=o) for o in (True, "constants", False)]
    for call in range(2):
        given = np.arange(N) + float(call)
        assert_same(*(left_by(run, given, 1.5 + call) for run in runs))
