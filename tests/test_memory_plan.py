"""Where temporaries are: how much memory plans take, and that nothing is overwritten too early."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphjit as gj
from graphjit.schedule.hazards import Hazards
from graphjit.schedule.packing import Packing, heaviest

pytestmark = pytest.mark.usefixtures("cpu")
GIB = 1 << 30


@cuda.jit
def fold(out, x):
    """Each element of `out` from all of x, modulo a prime, so that nothing overflows or cancels."""
    i = cuda.grid(1)
    if i < out.size:
        total = i
        for j in range(x.size):
            total = (total * 31 + x[j]) % 999983
        out[i] = total


@cuda.jit
def accumulate(out, x):
    i = cuda.grid(1)
    if i < out.size:
        total = out[i]
        for j in range(x.size):
            total = (total * 37 + x[j]) % 999983
        out[i] = total


def series_parallel(rng, count, new, read):
    """A random program in series and in parallel, as calls of `new(sources)`."""

    def block(source, budget):
        if budget <= 1:
            return new([source])
        if rng.random() < 0.5:
            first = rng.randint(1, budget - 1)
            return block(block(source, first), budget - first)
        branches = rng.randint(2, 4)
        sizes = [max(1, budget // branches)] * branches
        return new([block(source, size) for size in sizes])

    return read(block(None, count))


def traced(seed):
    """A random series-parallel program, traced: nodes of one kernel over arrays of many sizes."""
    rng = random.Random(seed)

    def program(x):
        def new(sources):
            size = rng.choice([rng.randint(1, 500), rng.randint(1, 20_000)])
            out = gj.zeros(size, np.int64)
            for source in sources:
                accumulate[1, 32](out, x if source is None else source)
            return out

        def read(last):
            result = gj.empty(3, np.int64)
            fold[1, 32](result, last)
            return result

        return series_parallel(rng, rng.randint(3, 30), new, read)

    return gj.graphed(program).lower(gj.arange(5))


def test_series_parallel_programs_take_little_more_than_they_must():
    ratios = []
    for seed in range(1000):
        found = traced(seed).memory_analysis()
        assert found.least <= found.arena <= found.unplanned
        ratios.append(found.arena / found.least)
    assert statistics.median(ratios) <= 1.1
    assert max(ratios) <= 1.3


def node_orders(count):
    """Hazards in which each node waits for some earlier ones."""

    def build(waits):
        edges = [(a % b, b) for b, some in enumerate(waits) if b for a in some]
        return Hazards((), (0,) * count).with_edges(edges)

    few = st.lists(st.integers(0, count), max_size=3)
    return st.lists(few, min_size=count, max_size=count).map(build)


@st.composite
def blocks(draw):
    hazards = draw(node_orders(draw(st.integers(1, 9))))
    nodes = st.integers(0, len(hazards.ancestors) - 1)
    users = draw(st.lists(st.lists(nodes, min_size=1, max_size=3), min_size=1, max_size=7))
    sizes = draw(st.lists(st.integers(1, 2000), min_size=len(users), max_size=len(users)))
    users = {n: sorted(set(each)) for n, each in enumerate(users)}
    return users, dict(enumerate(sizes)), hazards


def comes_before(earlier, later, hazards):
    return all(hazards.ancestors[b] >> a & 1 for a in earlier for b in later)


@settings(max_examples=300, deadline=None)
@given(blocks(), st.sampled_from([0, 500, 1 << 40]))
def test_blocks_that_meet_are_ordered(given, reuse_from):
    users, sizes, hazards = given
    offsets, nbytes, edges = Packing(reuse_from).pack(users, sizes, hazards)
    assert all(a < b for a, b in edges)
    if reuse_from > 2000:
        assert edges == []
    after = hazards.with_edges(edges)
    for a in users:
        assert offsets[a] % 256 == 0 and offsets[a] + sizes[a] <= nbytes
        for b in users:
            meet = offsets[a] < offsets[b] + sizes[b] and offsets[b] < offsets[a] + sizes[a]
            if a < b and meet:
                first, second = users[a], users[b]
                assert comes_before(first, second, after) or comes_before(second, first, after)


@settings(max_examples=200, deadline=None)
@given(blocks())
def test_the_bound_is_that_of_all_sets(given):
    users, sizes, hazards = given
    heavy = 0
    for chosen in range(1 << len(users)):
        members = [n for n in users if chosen >> n & 1]
        if all(
            not comes_before(users[a], users[b], hazards)
            for a in members
            for b in members
            if a != b
        ):
            heavy = max(heavy, sum(-(-sizes[n] // 256) * 256 for n in members))
    assert heaviest(users, sizes, hazards)[1] == heavy


def one_after_another(results, size):
    """Temporaries that nothing orders but the program."""
    for result in results:
        temporary = gj.empty(size, np.int8)
        fold[1, 32](temporary[:10], result)
        fold[1, 32](result, temporary[:10])


def test_three_large_temporaries_one_after_another_take_the_memory_of_one():
    arrays = [gj.zeros(4, np.int64) for _ in range(3)]
    lowered = gj.graphed(one_after_another, static_argnames="size").lower(arrays, GIB)
    assert lowered.memory_analysis().arena == GIB
    assert set(lowered.schedule.hazards.edges) == {(n, n + 1) for n in range(5)}


def test_small_temporaries_wait_for_nothing():
    arrays = [gj.zeros(4, np.int64) for _ in range(3)]
    lowered = gj.graphed(one_after_another, static_argnames="size").lower(arrays, 1000)
    assert lowered.memory_analysis().arena == 3 * 1024
    assert set(lowered.schedule.hazards.edges) == {(0, 1), (2, 3), (4, 5)}


def test_from_how_many_bytes_they_wait_is_an_option():
    arrays = [gj.zeros(4, np.int64) for _ in range(3)]
    f = gj.graphed(one_after_another, static_argnames="size", reuse_from=1000)
    assert f.lower(arrays, 1000).memory_analysis().arena == 1024
    with pytest.raises(ValueError, match="reuse_from is a number of bytes, not -1"):
        gj.graphed(one_after_another, reuse_from=-1)


@pytest.mark.parametrize("reuse_from", [0, 1 << 24])
def test_what_plans_share_is_not_overwritten(backend, reuse_from):
    def program(x):
        sums = []
        for n in range(6):
            first = gj.empty(100 + 37 * n, np.int64)
            fold[1, 256 + 64](first, x)
            second = gj.empty(300 - 31 * n, np.int64)
            fold[1, 256 + 64](second, first)
            out = gj.empty(2, np.int64)
            fold[1, 32](out, second)
            sums.append(out)
        return sums

    x = gj.arange(50)
    for got, want in zip(gj.graphed(program, reuse_from=reuse_from)(x), program(x), strict=True):
        np.testing.assert_array_equal(got.copy_to_host(), want.copy_to_host())


def test_memory_analysis_counts_what_a_call_uses():
    closed = gj.zeros(100, np.float32)

    def f(x, k):
        y = gj.empty_like(x)
        fold[1, 32](y, x)
        z = gj.empty_like(x)
        fold[1, 32](z, y)
        fold[1, 32](z, closed)
        return z

    found = gj.graphed(f).lower(gj.zeros(50, np.int64), 1).memory_analysis()
    assert (found.arguments, found.closures, found.results) == (400, 400, 400)
    assert (found.arena, found.least, found.unplanned) == (512, 512, 512)


def test_loops_count_what_one_iteration_needs():
    def f(x):
        def body(i, x):
            y = gj.empty(1000, np.int8)
            fold[1, 32](y, x)
            z = gj.empty(1000, np.int8)
            fold[1, 32](z, y)
            fold[1, 32](x, z)
            return x

        return gj.fori_loop(0, x[0].item(), body, x)

    found = gj.graphed(f).lower(gj.ones(5, np.int64)).memory_analysis()
    assert found.least == 2048 and found.arena == 2048
