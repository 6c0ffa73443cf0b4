"""Graphs with control lowered, and their schedules: pools, hazards, memory, updates."""

from __future__ import annotations

import numpy as np
import pytest

import graphjit as gj
from graphjit._device_control import Choose, Switch, Update, While, every
from graphjit._nodes import Launch
from graphjit.kernel.packing import Address, Relocation, indirect_image, pack_launch

from .programs import add, increment, scale

N = 1000
B = 32
BYTES = 8 * N
GRID = -(-N // B)


def added(x, y):
    out = gj.empty_like(x)
    add[GRID, B](x, y, out)
    return out


def scheduled(function, *arguments):
    return gj.graphed(function).trace(*arguments).lower().schedule


def loops(plan):
    return [node for node in every(plan.nodes) if isinstance(node, While)]


def test_one_update_an_iteration(cpu):
    plan = scheduled(lambda x, n: gj.fori_loop(0, n, lambda i, u: added(u, x), x), gj.zeros(N), 5)
    for loop in loops(plan):
        assert [type(node) for node in loop.nodes].count(Update) == 1
    plan = scheduled(
        lambda x: gj.while_loop(lambda u: u[0].item() < 3, lambda u: added(u, x), x), gj.zeros(N)
    )
    (loop,) = loops(plan)
    assert [type(node) for node in loop.nodes] == [Launch, Update]


def test_swaps_copy_nothing(cpu):
    plan = scheduled(
        lambda x, n: gj.fori_loop(0, n, lambda i, c: (added(c[1], c[0]), c[0]), (x, x)),
        gj.zeros(N),
        5,
    )
    for loop in loops(plan):
        assert {type(node) for node in loop.nodes} == {Launch, Update}


@pytest.mark.parametrize("carried", [1, 2, 3])
def test_pools_have_a_part_more_than_pointers(cpu, carried):
    def f(x, n):
        def body(i, c):
            return (added(c[-1], c[0]), *c[:-1])

        return gj.while_loop(lambda c: c[0][0].item() < n, lambda c: body(0, c), (x,) * carried)

    plan = scheduled(f, gj.ones(N), 5)
    chosen = {
        each.target: each
        for node in every(plan.nodes)
        if isinstance(node, Update)
        for each in node.all
        if isinstance(each, Choose)
    }
    (choose,) = chosen.values()
    assert choose.count == carried + 1 and len(choose.held) == carried
    assert plan.graph.buffers[choose.pool].nbytes == choose.stride * choose.count


def test_independent_work_in_a_body_is_not_ordered(cpu):
    def f(x, y, n):
        def body(c):
            return added(c[0], c[0]), added(c[1], c[1])

        return gj.while_loop(lambda c: c[0][0].item() < n, body, (x, y))

    plan = scheduled(f, gj.ones(N), gj.ones(N), 5)
    index = next(i for i, node in enumerate(plan.nodes) if isinstance(node, While))
    (body,) = plan.order.bodies[index]
    launches = [i for i, node in enumerate(body.nodes) if isinstance(node, Launch)]
    assert len(launches) == 2
    assert all(tuple(launches) != edge for edge in body.hazards.edges)


def test_temporaries_of_a_body_share_memory(cpu):
    def f(x, n):
        def body(u):
            for _ in range(10):
                u = added(u, x)
            return u

        return gj.while_loop(lambda u: u[0].item() < n, body, x)

    plan = scheduled(f, gj.ones(N), 5)
    # Two in turns inside an iteration, and two parts of the pool.
    assert plan.arena.nbytes <= 4 * (BYTES + 256)


def test_memory_from_outside_outlives_an_iteration(cpu):
    """What a body writes at one iteration it may read at the next, without naming it a carry."""

    @gj.graphed
    def f(x, n):
        total = gj.zeros_like(x)

        def body(i, u):
            scratch = added(u, u)
            other = added(scratch, u)
            increment[GRID, B](total)
            return added(other, total)

        return gj.fori_loop(0, n, body, x), total

    last, total = f(gj.zeros(N), 13)
    assert (total.copy_to_host() == 13).all()
    u = 0.0
    for i in range(13):
        u = 3 * u + i + 1
    assert (last.copy_to_host() == u).all()


def test_what_lowered_programs_print(cpu):
    def f(x, n):
        x = gj.while_loop(lambda u: u[0].item() < n, lambda u: added(u, u), x)
        return gj.cond(x[1].item() > 2, lambda: added(x, x), lambda: x)

    graphed = gj.graphed(f)
    traced = graphed.trace(gj.ones(N), 5)
    assert "while" in str(traced.graph) and "switch" in str(traced.graph)
    assert str(traced.graph) == str(graphed.trace(gj.ones(N), 5).graph)
    text = traced.lower().as_text()
    assert "while state" in text and "switch state" in text and "add[" in text
    assert any(isinstance(node, Switch) for node in traced.lower().schedule.nodes)


def test_an_indirect_image(cpu):
    def f(x, k):
        out = gj.empty_like(x)
        scale[1, B](x, out, k)
        return out

    (node,) = gj.make_graph(f)(gj.ones(3), 2.5).nodes
    image = pack_launch(
        node.kernel, node.operands, lambda view: Address(view.buffer, 40), lambda ref, type_: 7
    )
    made, loaded = indirect_image(image, 0x1000, fixed=1)
    x, out, k = node.kernel.leaves
    assert loaded == {x.data, k.first}  # where out is doesn't change: it is in slot 1
    words = [int.from_bytes(made.data[offset : offset + 8], "little") for offset in made.offsets]
    assert words[x.data : x.data + 2] == [0x1000, 40]
    assert words[-1] == 0x1000 + 8 * 7
    assert made.relocations == (Relocation(made.offsets[out.data + 1], 1, 40, 8),)


def test_updates_are_compiled_once_for_loops_alike(cpu):
    from graphjit.schedule import update_kernel

    def f(x, n):
        return gj.while_loop(lambda u: u[0].item() < n, lambda u: added(u, u), x)

    gj.graphed(f)(gj.ones(N), 5)
    before = update_kernel._kernel.cache_info().misses
    gj.graphed(lambda x, n: f(x, n))(gj.ones(N), 7)
    assert update_kernel._kernel.cache_info().misses == before


def test_indices_of_long_loops_are_checked_before(cpu):
    xs = gj.zeros((4000, 2))
    f = gj.graphed(lambda xs: gj.fori_loop(0, 4001, lambda i, u: xs[i], xs[0]))
    with pytest.raises(IndexError, match="index 4000"):
        f(xs)
    assert np.shape(
        gj.graphed(lambda xs: gj.fori_loop(0, 4000, lambda i, u: xs[i], xs[0]))(xs)
    ) == (2,)
