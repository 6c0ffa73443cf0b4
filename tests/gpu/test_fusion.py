"""Fused launches round as single ones do, though NVIDIA's compiler contracts products and sums."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from cuda.bindings import driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda

import graphjit as gj
from graphjit import backends
from graphjit._options import passes
from graphjit.backends.cuda.driver import check

from ..outcomes import assert_same, left_by
from ..programs import add, grid, increment, multiply_add, scale, shift

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


def assert_the_same(function, *args):
    """Fused, with full edges, unfused and eager: the same bits."""
    runs = [gj.graphed(function, optimize=o) for o in (True, ("dead_work", "fusion"), False)]
    fused, *others = (left_by(run, *args) for run in (*runs, function))
    for other in others:
        assert [each.dtype for each in fused] == [each.dtype for each in other]
        assert_same(*([each.view("u1") for each in arrays] for arrays in (fused, other)))


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
    y, z = gj.zeros_like(x), gj.zeros_like(x)
    blocks = grid(x.size, B)
    for step in range(40):
        if kind == "read after write":
            shift[blocks, B](x, y)
            x, y = y, x
        elif kind == "write after read":
            # Reads neighbours in x, which the next launch overwrites at once.
            shift[blocks, B](x, y)
            scale[blocks, B](z, x, np.float32(step))
            scale[blocks, B](y, z, np.float32(0.5))
        else:
            scale[blocks, B](x, y, np.float32(step))
            shift[blocks, B](z, y)
            scale[blocks, B](y, z, np.float32(0.25))
    return x, y, z


@pytest.mark.parametrize("kind", ["read after write", "write after read", "write after write"])
@pytest.mark.parametrize("n", [N, 1_000_003])
def test_chains_of_each_hazard(kind, n):
    x = values(np.float32, 6, n)
    expected = left_by(chain_of_hazards, kind, x)
    for optimize in ("programmatic_launch", True, False):
        f = gj.graphed(chain_of_hazards, static_argnames="kind", optimize=optimize)
        for _ in range(5):
            assert_same(left_by(f, kind, x), expected)


def programmatic_edges(optimize):
    """How many edges of a chain's graph are programmatic."""
    from graphjit.backends.cuda.builder import GraphBuilder

    x = gj.array(values(np.float32, 7))
    f = gj.graphed(chain_of_hazards, static_argnames="kind", optimize=optimize)
    schedule = f.lower("read after write", x).schedule
    allocate = functools.partial(backends.get("cuda").allocate, x.device)
    early = "programmatic_launch" in passes(optimize)
    built = GraphBuilder(schedule, allocate(schedule.arena.nbytes), allocate, early)
    try:
        *_, count = check(driver.cuGraphGetEdges(built.graph, 0), "counting edges")
        _, _, edges, _ = check(driver.cuGraphGetEdges(built.graph, count), "reading edges")
    finally:
        driver.cuGraphDestroy(built.graph)
    return sum(int(edge.type) for edge in edges)


def test_programmatic_launch_is_an_option():
    if cuda.get_current_device().compute_capability >= (9, 0):
        assert programmatic_edges("programmatic_launch") > 30
    assert programmatic_edges(False) == 0
