"""What the trace records: versions, views, scalars, text, equality; no device is touched."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import graphjit as gj
from graphjit._nodes import Copy, Fill, Launch

from .programs import add, grid, increment, scale

pytestmark = pytest.mark.usefixtures("cpu")


def _program(x, y, k):
    t = gj.empty_like(x)
    scale[1, 64](x, t, k * 2)
    add[1, 64](t, y, t)
    increment[1, 64](y)
    y[1:3] = t[:2]
    t[0] = k
    return t[1:], y


def test_versions():
    graph = gj.make_graph(_program)(gj.zeros(8), gj.zeros(8), 0.5)
    launches = graph.nodes
    x, y, t = 0, 1, 2
    assert [type(n) for n in launches] == [Launch, Launch, Launch, Copy, Fill]

    def touched(accesses):
        return {(a.view.buffer, a.version) for a in accesses}

    assert touched(launches[0].reads) == {(x, 0)} and touched(launches[0].writes) == {(t, 1)}
    assert touched(launches[1].reads) == {(t, 1), (y, 0)} and touched(launches[1].writes) == {
        (t, 2)
    }
    assert touched(launches[2].reads) == {(y, 0)} and touched(launches[2].writes) == {(y, 1)}
    assert touched(launches[3].reads) == {(t, 2)} and touched(launches[3].writes) == {(y, 2)}
    assert touched(launches[4].writes) == {(t, 3)}
    assert touched(graph.outputs) == {(t, 3), (y, 2)}
    assert graph.mutated == {y} and graph.results == (t,)


def test_graphs_compare_hash_and_print():
    args = gj.zeros(8), gj.zeros(8), 0.5
    one, two = gj.make_graph(_program)(*args), gj.make_graph(_program)(*args)
    assert one == two and hash(one) == hash(two)
    assert one != gj.make_graph(_program)(gj.zeros(9), gj.zeros(9), 0.5)
    assert one != gj.make_graph(lambda x: x)(gj.zeros(8))
    text = str(one)
    assert "graph _program(x: float64[8], y: float64[8], k: float)" in text
    assert "add[1, 64](t0@1->@2, y@0, t0@1->@2)  # test_trace.py:" in text
    assert "%1: float = mul(k, 2)" in text
    assert "return t0+8:float64[7]@3, y@2" in text


def test_constants_compare_by_bits():
    def graph(value):
        return gj.make_graph(lambda x: scale[1, 32](x, x, value))(gj.zeros(2))

    assert graph(0.0) == graph(0.0)
    assert graph(0.0) != graph(-0.0)
    assert graph(1.0) != graph(1)


def test_views_follow_numpy():
    host = np.arange(2.0 * 3 * 4).reshape(2, 3, 4)
    keys = [
        (1,),
        (slice(None), 2),
        (Ellipsis, slice(None, None, -1)),
        (0, None, slice(1, 3), slice(0, 4, 3)),
        (-1, -2, -3),
        (slice(5, 9),),
    ]
    for key in keys:
        traced = gj.graphed(static_argnames="key")(lambda x, key: x[key.value])
        output = traced.trace(gj.array(host), _Key(key)).graph.outputs[0].view
        want = host[key]
        assert output.layout.shape == want.shape
        if want.size:
            assert (
                output.layout.strides
                == np.asarray(host[(*key, ...)] if ... not in key else want).strides
            )
            assert host.ravel()[output.offset // 8] == want.ravel()[0]


class _Key:
    """A static value with a hash, for indices that have none before Python 3.12."""

    def __init__(self, value):
        self.value = value


def test_an_index_that_needs_contents_is_refused():
    for key in ([0, 1], np.array([True, False]), 1.5, "name"):
        with pytest.raises((TypeError, IndexError)):
            gj.graphed(static_argnames="key")(lambda x, key: x[key.value]).trace(
                gj.zeros(2), _Key(key)
            )


def test_stream_and_synchronize_leave_no_trace():
    def f(x):
        stream = cuda.stream()
        increment[1, 64, stream](x)
        with stream.auto_synchronize():
            increment[1, 64, stream](x)
        cuda.synchronize()
        return x

    assert len(gj.make_graph(f)(gj.zeros(3)).nodes) == 2


def test_unused_results_and_shape_only_arguments():
    @cuda.jit
    def shape_of(x, out):
        out[0] = x.shape[0]

    graph = gj.make_graph(lambda x, out: shape_of[1, 1](x, out))(gj.zeros(5), gj.zeros(1))
    assert graph.nodes[0].reads == () and graph.mutated == {1}


def test_declared_effects_override():
    @cuda.jit
    def opaque(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] += x[i]

    def nodes():
        return gj.make_graph(lambda x, y: opaque[1, 8](x, y))(gj.zeros(8), gj.zeros(8)).nodes[0]

    assert {a.view.buffer for a in nodes().reads} == {0, 1}
    gj.declare_effects(opaque, reads=("x",), writes=("out",))
    assert {a.view.buffer for a in nodes().reads} == {0}
    assert not nodes().kernel.effects.traps
    gj.declare_effects(opaque, reads=("x",), writes=("out",), traps=True)
    assert nodes().kernel.effects.traps
    with pytest.raises(ValueError, match="no argument 'z'"):
        gj.declare_effects(opaque, reads=("z",))


def test_printing_is_an_effect():
    @cuda.jit
    def speaks(x):
        print(x[0])

    kernel = gj.make_graph(lambda x: speaks[1, 1](x))(gj.zeros(1)).nodes[0].kernel
    assert kernel.effects.prints and not kernel.effects.writes


def test_tracing_needs_no_device_to_run():
    graph = gj.make_graph(lambda x: increment[grid(x.size), 64](x))(gj.zeros(1000))
    assert graph.nodes[0].grid == (16, 1, 1) and graph.nodes[0].block == (64, 1, 1)


def test_make_graph_takes_graphed_functions():
    f = gj.graphed(lambda x: x[1:])
    assert gj.make_graph(f)(gj.zeros(3)) == f.trace(gj.zeros(3)).graph
