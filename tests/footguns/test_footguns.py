"""What users of graph replay trip over elsewhere, each kind with what graphjit does instead."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from numba import cuda
from numba.cuda.random import (
    init_xoroshiro128p_states_cpu,
    xoroshiro128p_dtype,
    xoroshiro128p_uniform_float64,
)

import graphjit as gj

from ..programs import add, grid, increment, scale

N = 513
B = 64


@gj.graphed
def scaled(x, k):
    out = gj.empty_like(x)
    scale[grid(x.size), B](x, out, k)
    return out


def test_an_output_kept_from_one_call_does_not_change_under_the_next(backend):
    x = gj.ones(N)
    first = scaled(x, 1.0)
    view = scaled(x, 2.0)[3:5]
    host = np.asarray(scaled(x, 3.0))
    for k in range(4, 20):
        scaled(x, float(k))
    gc.collect()
    for k in range(4, 20):
        scaled(x, float(k))
    assert (first.copy_to_host() == 1).all()
    assert (view.copy_to_host() == 2).all()
    assert (host == 3).all()


def test_arrays_nested_in_containers_are_refreshed_at_every_call(backend):
    @gj.graphed
    def f(state):
        out = gj.empty_like(state["layers"][0]["w"])
        add[grid(N), B](state["layers"][0]["w"], state["layers"][1][0], out)
        return out

    for k in range(3):
        state = {"layers": [{"w": gj.full(N, float(k))}, (gj.full(N, 10.0 * k),)]}
        assert (f(state).copy_to_host() == 11 * k).all()


def test_state_captured_by_the_function_is_never_stale(backend):
    state = gj.zeros(N)

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        add[grid(N), B](x, state, out)
        increment[grid(N), B](state)
        return out

    x = gj.ones(N)
    assert [f(x).copy_to_host()[0] for _ in range(3)] == [1, 2, 3]
    state[...] = 50.0
    assert f(x).copy_to_host()[0] == 51
    state = gj.full(N, 100.0)
    assert [f(x).copy_to_host()[0] for _ in range(2)] == [101, 102]


def test_side_effects_of_tracing_happen_once_and_a_leaked_tracer_says_so(backend):
    seen = []

    @gj.graphed
    def f(x):
        seen.append(x)
        increment[grid(N), B](x)

    f(gj.zeros(N))
    f(gj.zeros(N))
    assert len(seen) == 1
    with pytest.raises(gj.LeakedTracerError, match=r"traced array x.*f was traced"):
        scaled(seen[0], 2.0)


def test_every_feedback_pattern_is_right(backend):
    @gj.graphed
    def step(a, b):
        c, d = gj.empty_like(a), gj.empty_like(a)
        add[grid(N), B](a, b, c)
        scale[grid(N), B](c, d, 0.5)
        return d, c, a

    a, b = 1.0, 2.0
    x, y = gj.full(N, a), gj.full(N, b)
    for n in range(24):
        d, c, kept = step(x, y)
        assert kept is x
        want_d, want_c = (a + b) / 2, a + b
        if n % 3 == 0:
            x, y, a, b = d, x, want_d, a
        elif n % 3 == 1:
            x, y, a, b = y, d, b, want_d
        else:
            x, y, a, b = d, d, want_d, want_d
        assert (d.copy_to_host() == want_d).all() and (c.copy_to_host() == want_c).all()


def test_the_same_array_passed_twice_is_right(backend):
    @gj.graphed
    def f(x, y, z):
        increment[grid(N), B](x)
        increment[grid(N), B](y)
        add[grid(N), B](x, y, z)

    x = gj.zeros(N)
    f(x, x, x)
    assert (x.copy_to_host() == 4).all()


def test_a_mutated_input_is_mutated_exactly_once_by_the_first_call_too(backend):
    for make in (gj.zeros, np.zeros):
        x = make(N)
        f = gj.graphed(lambda x: increment[grid(N), B](x))
        f(x)
        assert (np.asarray(x) == 1).all()
        f(x)
        assert (np.asarray(x) == 2).all()


def test_a_refusal_names_the_argument_the_launch_and_the_line(backend):
    def f(x, steps):
        for _ in range(steps):
            increment[grid(N), B](x)

    with pytest.raises(gj.ConcretizationError) as info:
        gj.graphed(f)(gj.zeros(N), 3)
    text = str(info.value)
    assert "traced int steps" in text and "for _ in range(steps):" in text
    assert "test_footguns.py" in text and "static_argnames" in text


def test_thousands_of_shapes_stay_within_bounds(backend):
    @gj.graphed(cache_size=8)
    def f(x):
        out = gj.empty_like(x)
        increment[grid(x.size), B](out)
        return out

    alive = []
    with pytest.warns(RuntimeWarning, match="f keeps being traced anew.*raise cache_size"):
        for n in range(1, 200):
            f(gj.zeros(n))
            alive.append(weakref.ref(next(reversed(f._cache.values()))))
    gc.collect()
    assert sum(ref() is not None for ref in alive) == 8


def test_everything_that_changes_the_result_is_in_the_key(backend):
    @gj.graphed(static_argnames="static")
    def f(x, k, static=0):
        traces.append(1)
        out = gj.empty(x.shape)
        return out, static

    traces = []
    host = np.zeros((4, 6))
    frozen = host.copy()
    frozen.flags.writeable = False
    variants = [
        ((host, 1), {}),
        ((host[:, :3], 1), {}),
        ((host[:, ::2], 1), {}),
        ((host.T, 1), {}),
        ((np.asfortranarray(host), 1), {}),
        ((host.astype("f4"), 1), {}),
        ((frozen, 1), {}),
        ((host, 1.0), {}),
        ((host, True), {}),
        ((host, np.int32(1)), {}),
        ((host, 1 + 0j), {}),
        ((host, 1), {"static": 1}),
        ((host, 1), {"static": 1.0}),
        ((host, 1), {"static": True}),
        ((host, 1), {"static": "1"}),
    ]
    for count, (args, kwargs) in enumerate(variants, 1):
        for _ in range(2):
            f(*args, **kwargs)
            assert len(traces) == count
    with gj.use_backend("cpu"):
        f(host, 1)
    assert len(traces) == len(variants) + (backend != "cpu")


def test_deleting_a_function_frees_its_buffers(backend):
    held = gj.zeros(N)
    ref = weakref.ref(held)

    def make(table):
        return gj.graphed(lambda x: add[grid(N), B](x, table, x))

    f = make(held)
    f(gj.zeros(N))
    del held
    gc.collect()
    assert ref() is not None
    del f
    gc.collect()
    assert ref() is None


def test_temporaries_that_never_overlap_in_time_take_the_peak_not_the_sum(backend):
    def f(x):
        total = gj.zeros_like(x)
        for _ in range(5):
            t = gj.empty_like(x)
            scale[grid(N), B](x, t, 2.0)
            add[grid(N), B](total, t, total)
        return total

    lowered = gj.graphed(f).lower(gj.ones(N))
    # Scaling does not wait for the addition before it, so two schedules are right: one buffer
    # where the order is forced, five where they may run at once.
    assert lowered.schedule.arena.nbytes <= 5 * 4352

    def chained(x):
        for _ in range(9):
            t = gj.empty_like(x)
            scale[grid(N), B](x, t, 2.0)
            x = t
        increment[grid(N), B](x)
        out = gj.empty_like(x)
        scale[grid(N), B](x, out, 1.0)
        return out

    assert gj.graphed(chained).lower(gj.ones(N)).schedule.arena.nbytes <= 2 * 4352


def test_evicting_one_signature_leaves_the_others_alone(backend):
    @gj.graphed(cache_size=1)
    def f(x, k):
        t, out = gj.empty_like(x), gj.empty_like(x)
        scale[grid(x.size), B](x, t, k)
        scale[grid(x.size), B](t, out, 2.0)
        return out

    compiled = f.lower(gj.ones(N), 3.0).compile()
    kept = f(gj.ones(N), 1.0)
    f(gj.ones(N + 1), 1.0)
    gc.collect()
    assert (compiled(gj.ones(N), 3.0).copy_to_host() == 6).all()
    assert (kept.copy_to_host() == 2).all()


def test_reading_a_value_inside_is_an_error_with_its_line(backend):
    def f(x):
        if x.copy_to_host()[0] > 0:
            increment[grid(N), B](x)

    with pytest.raises(gj.ConcretizationError, match=r"copy_to_host\(\) needs the value"):
        gj.graphed(f)(gj.zeros(N))


def test_what_a_graph_uses_lives_as_long_as_the_graph(backend):
    def make():
        table = gj.full(N, 5.0)
        host = np.full(N, 7.0)

        @cuda.jit
        def mine(x, t, h, out):
            i = cuda.grid(1)
            if i < out.size:
                out[i] = x[i] + t[i] + h[i]

        @gj.graphed
        def f(x):
            out = gj.empty_like(x)
            mine[grid(N), B](x, table, host, out)
            return out

        return f

    f = make()
    for _ in range(3):
        gc.collect()
        assert (f(gj.ones(N)).copy_to_host() == 13).all()


def test_a_scalar_is_the_one_of_this_call(backend):
    x = gj.ones(N)
    assert [scaled(x, k).copy_to_host()[-1] for k in (1.0, 2.5, -3.0)] == [1, 2.5, -3]


def test_the_device_comes_from_the_arguments(backend):
    x = gj.ones(N)
    with gj.use_backend("cpu"):
        result = scaled(x, 2.0)
    assert result.device == x.device and (result.copy_to_host() == 2).all()


def test_random_numbers_follow_an_explicit_state(backend):
    @cuda.jit
    def draw(states, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = xoroshiro128p_uniform_float64(states, i)

    @gj.graphed
    def f(states):
        out = gj.empty(states.shape)
        draw[grid(states.size), B](states, out)
        return out

    def states(seed):
        host = np.zeros(N, xoroshiro128p_dtype)
        init_xoroshiro128p_states_cpu(host, np.uint64(seed), np.uint64(0))
        return gj.array(host)

    mine = states(1)
    first, second = f(mine).copy_to_host(), f(mine).copy_to_host()
    assert (first != second).any()
    np.testing.assert_array_equal(f(states(1)).copy_to_host(), first)
    assert (f(states(2)).copy_to_host() != first).any()


def test_a_python_branch_on_a_traced_value_is_refused(backend):
    def f(x, k):
        if k > 0:
            increment[grid(N), B](x)

    with pytest.raises(gj.ConcretizationError, match="would freeze one side"):
        gj.graphed(f)(gj.zeros(N), 1.0)


def test_a_traced_number_as_the_grid_is_refused_unless_static(backend):
    def f(x, blocks):
        increment[blocks, B](x)

    with pytest.raises(gj.ConcretizationError, match=r"grid of a launch.*\n.*\n.*\n.*static"):
        gj.graphed(f)(gj.zeros(N), 9)
    x = gj.zeros(N)
    gj.graphed(static_argnames="blocks")(f)(x, 9)
    assert (x.copy_to_host() == 1).all()


def test_keyword_and_positional_spellings_share_one_trace(backend):
    traces = []

    @gj.graphed
    def f(x, y=2.0, *, z=3.0):
        traces.append(1)
        return x

    x = gj.zeros(N)
    f(x)
    f(x, 2.0)
    f(x=x, y=2.0)
    f(y=2.0, x=x, z=3.0)
    assert len(traces) == 1


def test_instances_that_share_a_decorated_method_keep_their_own_self(backend):
    class Scaler:
        def __init__(self, k):
            self.k = k

        @gj.graphed
        def __call__(self, x):
            out = gj.empty_like(x)
            scale[grid(N), B](x, out, self.k)
            return out

    x = gj.ones(N)
    two, three = Scaler(2.0), Scaler(3.0)
    assert [s(x).copy_to_host()[0] for s in (two, three, two, three)] == [2, 3, 2, 3]


def test_zero_size_arrays_and_views_are_as_in_eager_code(backend):
    @gj.graphed
    def f(x):
        increment[1, B](x)
        out = gj.empty_like(x)
        out[...] = x
        return out, x[:0], x[0:0:2]

    for shape in ((0,), (0, 3)):
        x = gj.zeros(shape)
        if len(shape) == 1:
            assert [r.shape for r in f(x)] == [(0,)] * 3
    assert scaled(gj.zeros(0), 2.0).shape == (0,)


def test_an_exception_while_tracing_leaves_nothing_on(backend):
    def f(x, fail):
        increment[grid(N), B](x)
        if fail:
            raise KeyError("mine")

    f = gj.graphed(static_argnames="fail")(f)
    x = gj.zeros(N)
    with pytest.raises(KeyError, match="mine"):
        f(x, True)
    assert (x.copy_to_host() == 0).all()
    f(x, False)
    assert (x.copy_to_host() == 1).all()


def test_a_graphed_function_calls_another(backend):
    @gj.graphed
    def outer(x, k):
        y = scaled(x, k)
        return scaled(y, k), y

    twice, once = outer(gj.ones(N), 3.0)
    assert (twice.copy_to_host() == 9).all() and (once.copy_to_host() == 3).all()
