"""Edges are exactly the hazards, transitively reduced; the arena never mixes live buffers."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphjit as gj
from graphjit._layout import contiguous, layout_of, overlap
from graphjit.schedule.schedule import schedule

from .programs import add, increment, scale

pytestmark = pytest.mark.usefixtures("cpu")


def edges(function, *args):
    return set(schedule(gj.make_graph(function)(*args)).hazards.edges)


def test_independent_launches_have_no_edges():
    def f(x, y):
        increment[1, 64](x)
        increment[1, 64](y)

    assert edges(f, gj.zeros(8), gj.zeros(8)) == set()


def test_disjoint_slices_do_not_conflict():
    def f(x):
        increment[1, 64](x[:4])
        increment[1, 64](x[4:])
        increment[1, 64](x[3:5])

    assert edges(f, gj.zeros(8)) == {(0, 2), (1, 2)}


def test_interleaved_slices_do_not_conflict():
    def f(x):
        increment[1, 64](x[::2])
        increment[1, 64](x[1::2])
        increment[1, 64](x[::3])

    assert edges(f, gj.zeros(12)) == {(0, 2), (1, 2)}


def test_columns_do_not_conflict():
    def f(x):
        x[:, :3] = 1
        x[:, 3:] = 2
        x[2] = 3

    assert edges(f, gj.zeros((6, 6))) == {(0, 2), (1, 2)}


def test_reads_do_not_order_each_other():
    def f(x, a, b):
        scale[1, 64](x, a, 2.0)
        scale[1, 64](x, b, 3.0)
        increment[1, 64](x)

    assert edges(f, gj.zeros(8), gj.zeros(8), gj.zeros(8)) == {(0, 2), (1, 2)}


def test_edges_are_transitively_reduced():
    def f(x, y):
        increment[1, 64](x)
        increment[1, 64](x)
        add[1, 64](x, x, y)
        increment[1, 64](x)

    assert edges(f, gj.zeros(8), gj.zeros(8)) == {(0, 1), (1, 2), (2, 3)}


def test_arguments_that_overlap_conflict():
    def f(x, y):
        increment[1, 64](x)
        increment[1, 64](y)

    graph = gj.make_graph(f)(gj.zeros(8), gj.zeros(8))
    assert set(schedule(graph, ((0, 1),)).hazards.edges) == {(0, 1)}


def test_captured_arrays_conflict():
    from numba import cuda

    table = gj.zeros(8)

    @cuda.jit
    def uses(out):
        out[0] = table[0]

    def f(x, y):
        uses[1, 1](x)
        uses[1, 1](y)

    assert edges(f, gj.zeros(1), gj.zeros(1)) == {(0, 1)}
    gj.declare_effects(uses, writes=("out",), captured=False)
    assert edges(f, gj.zeros(1), gj.zeros(1)) == set()


def test_launches_that_print_do_so_in_order():
    from numba import cuda

    @cuda.jit
    def speaks(x):
        print(x[0])

    def f(x, y, z):
        speaks[1, 1](x)
        increment[1, 1](y)
        speaks[1, 1](z)

    assert edges(f, gj.zeros(1), gj.zeros(1), gj.zeros(1)) == {(0, 2)}
    gj.declare_effects(speaks, reads=("x",), prints=False)
    assert edges(f, gj.zeros(1), gj.zeros(1), gj.zeros(1)) == set()


def test_a_chain_of_temporaries_takes_the_memory_of_two():
    def f(x):
        for _ in range(10):
            y = gj.empty_like(x)
            scale[1, 64](x, y, 2.0)
            x = y
        return x

    plan = schedule(gj.make_graph(f)(gj.zeros(1000)))
    assert plan.arena.nbytes <= 2 * 8192
    assert len(plan.arena.offsets) == 9  # the tenth is the result


def _random_program(seed, x, y):
    rng = random.Random(seed)
    arrays = [x, y]
    for _ in range(rng.randrange(2, 14)):
        kind = rng.randrange(5)
        source = rng.choice(arrays)
        if kind == 0:
            target = gj.zeros_like(source)
            scale[1, 64](source, target, 2.0)
            arrays.append(target)
        elif kind == 1:
            increment[1, 64](source)
        elif kind == 2:
            n = source.shape[0]
            start = rng.randrange(n)
            arrays.append(source[start : n : rng.choice([1, 2, 3])])
        elif kind == 3:
            target = rng.choice(arrays)
            n = min(source.shape[0], target.shape[0])
            target[:n] = source[:n]
        else:
            add[1, 64](
                source, source, rng.choice([a for a in arrays if a.shape[0] <= source.shape[0]])
            )
    return arrays[-1]


@pytest.mark.parametrize("seed", range(60))
def test_hazards_against_brute_force(seed):
    graph = gj.make_graph(lambda x, y: _random_program(seed, x, y))(gj.zeros(12), gj.zeros(12))
    plan = schedule(graph)

    def cells(access):
        flat = np.zeros(graph.buffers[access.view.buffer].nbytes, bool)
        layout = access.view.layout
        for index in itertools.product(*map(range, layout.shape)):
            start = access.view.offset + sum(
                i * s for i, s in zip(index, layout.strides, strict=True)
            )
            flat[start : start + layout.dtype.itemsize] = True
        return {(access.view.buffer, i) for i in np.flatnonzero(flat)}

    reads = [set().union(*map(cells, n.reads)) for n in graph.nodes]
    writes = [set().union(*map(cells, n.writes)) for n in graph.nodes]
    count = len(graph.nodes)
    needed = {
        (a, b)
        for a in range(count)
        for b in range(a + 1, count)
        if writes[a] & (reads[b] | writes[b]) or reads[a] & writes[b]
    }
    closure = set(needed)
    for middle in range(count):
        closure |= {
            (a, b)
            for a in range(count)
            for b in range(count)
            if {(a, middle), (middle, b)} <= closure
        }
    reduced = {
        (a, b) for a, b in closure if not any({(a, m), (m, b)} <= closure for m in range(count))
    }
    assert set(plan.hazards.edges) == reduced
    # Temporaries whose users aren't ordered lie apart.
    places = dict(plan.arena.offsets)
    users = {
        b: {
            i
            for i, n in enumerate(graph.nodes)
            for a in (*n.reads, *n.writes)
            if a.view.buffer == b
        }
        for b in places
    }
    for one, two in itertools.combinations(places, 2):
        ordered = all((a, b) in closure for a in users[one] for b in users[two]) or all(
            (b, a) in closure for a in users[one] for b in users[two]
        )
        apart = (
            places[one] + graph.buffers[one].nbytes <= places[two]
            or places[two] + graph.buffers[two].nbytes <= places[one]
        )
        assert ordered or apart


@settings(deadline=None)
@given(st.data())
def test_overlap_against_numpy(data):
    base = np.zeros((6, 8), np.int16)

    def view():
        result = base
        for _ in range(data.draw(st.integers(0, 2))):
            key = tuple(
                slice(
                    data.draw(st.integers(0, n)),
                    data.draw(st.integers(0, n)),
                    data.draw(st.sampled_from([1, 2, 3])),
                )
                for n in result.shape
            )
            result = result[key].T
        return result[..., ::-1] if data.draw(st.booleans()) else result

    a, b = view(), view()
    offsets = [v.ctypes.data - base.ctypes.data for v in (a, b)]
    got = overlap(layout_of(a), offsets[0], layout_of(b), offsets[1])
    assert got == (np.shares_memory(a, b) and a.size > 0 and b.size > 0)


def test_contiguous_layouts_match_numpy():
    for shape in ((), (0,), (3,), (2, 0, 4), (2, 3, 4)):
        for order in "CF":
            want = np.empty(shape, "f4", order=order)
            got = contiguous(shape, "f4", order)
            assert got.shape == want.shape and got.nbytes == want.nbytes
            if want.size:
                assert got.strides == want.strides
