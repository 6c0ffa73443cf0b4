"""Fused launches round as single ones do, though NVIDIA's compiler contracts products and sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda

import graphjit as gj

from ..programs import add, grid, increment, scale, shift

pytestmark = pytest.mark.gpu
N, B = 1003, 128
G = grid(N, B)


@pytest.fixture(autouse=True)
def _cuda():
    with gj.use_backend("cuda"):
        yield


@cuda.jit
def multiply(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] * y[i]


@cuda.jit
def subtract(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] - y[i]


@cuda.jit
def multiply_add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] * y[i] + x[i]


@cuda.jit
def accumulate(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] += x[i] * y[i]


@cuda.jit
def backwards(x, y, out):
    i = out.size - 1 - cuda.grid(1)
    if i >= 0:
        out[i] = x[i] - y[i] * x[i]


@cuda.jit
def sometimes(x, y, out):
    i = cuda.grid(1)
    if i < out.size and x[i].real > y[i].real:
        out[i] = x[i] * y[i]


KERNELS = [multiply, subtract, add, multiply_add, accumulate, backwards, sometimes, shift]


def outcomes(function, *args):
    """What a function leaves fused, unfused and eagerly, each a list of arrays."""
    for run in (
        gj.graphed(function),
        gj.graphed(function, optimize=("dead_work", "fusion")),
        gj.graphed(function, optimize=False),
        function,
    ):
        given = [gj.array(a) if isinstance(a, np.ndarray) else a for a in args]
        result = run(*given)
        results = result if isinstance(result, tuple) else (result,)
        yield [a.copy_to_host() for a in (*given, *results) if isinstance(a, gj.Array)]


def assert_the_same(function, *args):
    fused, *others = outcomes(function, *args)
    for other in others:
        for mine, plain in zip(fused, other, strict=True):
            assert mine.dtype == plain.dtype
            np.testing.assert_array_equal(mine.view("u1"), plain.view("u1"))


def values(dtype, seed, n=N):
    made = np.random.default_rng(seed).uniform(-2, 2, (2, n))
    made = made[0] + 1j * made[1] if np.dtype(dtype).kind == "c" else made[0]
    return made.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64, np.complex128])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.integers(0, 7), *[st.integers(0, 9)] * 3, st.booleans()),
        min_size=2,
        max_size=9,
    )
)
def test_random_programs_round_as_eager_launches(dtype, program):
    if dtype == np.float16:
        program = [(k % 3, *rest) for k, *rest in program]

    def f(x, y):
        arrays = [x, y]
        for which, a, b, c, new in program:
            a, b, c = (n % len(arrays) for n in (a, b, c))
            if new:
                c = len(arrays)
                arrays.append(gj.zeros(N, dtype))
            if KERNELS[which] is not shift:
                KERNELS[which][G, B](arrays[a], arrays[b], arrays[c])
            elif c != a:
                shift[G, B](arrays[a], arrays[c])
        return tuple(arrays[2:])

    assert_the_same(f, values(dtype, 1), values(dtype, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_a_product_and_the_sum_after_it(dtype):
    def f(x, y):
        product, out = gj.empty_like(x), gj.empty_like(x)
        multiply[G, B](x, y, product)
        subtract[G, B](product, x, out)
        return out

    x, y = values(dtype, 3), values(dtype, 4)
    assert len(gj.graphed(f).lower(gj.array(x), gj.array(y)).schedule.nodes) == 1
    assert_the_same(f, x, y)
    result = gj.graphed(f)(gj.array(x), gj.array(y)).copy_to_host()
    if np.dtype(dtype).kind == "f":
        np.testing.assert_array_equal(result, x * y - x)


def test_a_chain_is_one_kernel_that_uses_no_memory():
    def f(x):
        for _ in range(50):
            out = gj.empty_like(x)
            scale[G, B](x, out, np.float32(1.01))
            increment[G, B](out)
            x = out
        return x

    x = values(np.float32, 5)
    lowered = gj.graphed(f).lower(gj.array(x))
    assert len(lowered.schedule.nodes) == 1
    assert lowered.memory_analysis().arena == 0
    assert_the_same(f, x)


def chain_of_hazards(kind, x):
    """Launches of which each waits for the one before: its result, its reads, or its writes."""
    y, z = gj.zeros(N, x.dtype), gj.zeros(N, x.dtype)
    for step in range(40):
        if kind == "read after write":
            shift[G, B](x, y)
            x, y = y, x
        elif kind == "write after read":
            # Reads neighbours in x, which the next launch overwrites at once.
            shift[G, B](x, y)
            scale[G, B](z, x, np.float32(step))
            scale[G, B](y, z, np.float32(0.5))
        else:
            scale[G, B](x, y, np.float32(step))
            shift[G, B](z, y)
            scale[G, B](y, z, np.float32(0.25))
    return x, y, z


@pytest.mark.parametrize("kind", ["read after write", "write after read", "write after write"])
@pytest.mark.parametrize("n", [N, 1_000_003])
def test_chains_of_each_hazard(kind, n, monkeypatch):
    monkeypatch.setitem(globals(), "N", n)
    monkeypatch.setitem(globals(), "G", grid(n, B))
    x = values(np.float32, 6, n)
    expected = None
    for optimize in (("programmatic_launch",), True, False):
        f = gj.graphed(chain_of_hazards, static_argnames="kind", optimize=optimize)
        for _ in range(5):
            result = [a.copy_to_host() for a in f(kind, gj.array(x))]
            expected = expected or result
            for mine, first in zip(result, expected, strict=True):
                np.testing.assert_array_equal(mine, first)
    eager = chain_of_hazards(kind, gj.array(x))
    for mine, first in zip(eager, expected, strict=True):
        np.testing.assert_array_equal(mine.copy_to_host(), first)


def programmatic_edges(f, *args):
    """How many edges of the replayed graph are programmatic."""
    from cuda.bindings import driver

    from graphjit.backends.cuda.builder import GraphBuilder
    from graphjit.backends.cuda.driver import check

    lowered = f.lower(*args)
    device = args[0].device
    from graphjit import backends

    backend = backends.get("cuda")
    arena = backend.allocate(device, lowered.schedule.arena.nbytes)
    early = "programmatic_launch" in f.lower(*args).traced.options.optimize
    built = GraphBuilder(
        lowered.schedule, arena, lambda nbytes: backend.allocate(device, nbytes), early
    )
    _, _, _, count = check(driver.cuGraphGetEdges(built.graph, 0), "counting edges")
    _, _, data, _ = check(driver.cuGraphGetEdges(built.graph, count), "reading edges")
    kinds = [int(each.type) for each in data]
    driver.cuGraphDestroy(built.graph)
    return kinds.count(1)


def test_programmatic_launch_is_an_option():
    x = gj.array(values(np.float32, 7))
    chain = gj.graphed(chain_of_hazards, static_argnames="kind", optimize="programmatic_launch")
    plain = gj.graphed(chain_of_hazards, static_argnames="kind", optimize=False)
    if cuda.get_current_device().compute_capability >= (9, 0):
        assert edges_of(chain, x) > 30
    assert edges_of(plain, x) == 0


def edges_of(f, x):
    whole = gj.graphed(lambda x: f("read after write", x), optimize=f._options.optimize)
    return programmatic_edges(whole, x)
