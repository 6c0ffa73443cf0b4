"""The call options: how arguments are bound, static results, donated arguments, closed arrays."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda

import graphjit as gj

from .programs import add, add_2d, grid, increment, scale, shift

N = 205
B = 64
INPUTS = pytest.mark.parametrize("inputs", ["auto", "copy", "rebind"])


def _random(shape: Any = N, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(float)


def _poison(*sizes: int) -> None:
    """Leave memory that isn't a number for the next arrays of these sizes."""
    kept = [gj.full(size, np.nan) for size in sizes for _ in range(3)]
    del kept


def _same(got: Any, want: Any) -> None:
    got = got.copy_to_host() if isinstance(got, gj.Array) else got
    np.testing.assert_array_equal(got, want)


def _address(array: gj.Array) -> int:
    return array._start


@gj.graphed
def added(x, y):
    out = gj.empty_like(x)
    add[grid(x.size), B](x, y, out)
    return out


def _writing(x, y):
    """Writes both arguments, one after the other, and reads them."""
    increment[grid(x.size), B](x)
    scale[grid(y.size), B](y, y, 3.0)
    out = gj.empty(x.size)
    add[grid(x.size), B](x, y, out)
    return out


def _writing_eagerly(x, y):
    x += 1
    y *= 3.0
    return x + y


PLACES = {
    "apart": lambda a: (a[:N], a[N : 2 * N]),
    "strided": lambda a: (a[1 : 2 * N : 2], a[2 * N + 1 : 4 * N : 2]),
    "interleaved": lambda a: (a[: 2 * N : 2], a[1 : 2 * N : 2]),
    "reversed": lambda a: (a[2 * N - 1 : N - 1 : -1], a[3 * N : 2 * N : -1]),
    "overlapping": lambda a: (a[:N], a[N // 2 : N // 2 + N]),
    "reversed and overlapping": lambda a: (a[N - 1 :: -1], a[5 : N + 5]),
    "twice": lambda a: (a[3 : N + 3], a[3 : N + 3]),
    "empty": lambda a: (a[:0], a[7:7]),
}


@INPUTS
@pytest.mark.parametrize("kind", ["array", "numpy", "mixed"])
@pytest.mark.parametrize("where", PLACES)
def test_writes_reach_the_arguments_exactly_once(backend, inputs, kind, where):
    f = gj.graphed(inputs=inputs)(_writing)
    place = PLACES[where]
    wants = [_random(4 * N, seed) for seed in range(3)]
    if kind == "mixed":
        # The second argument is a host array of its own.
        others = [_random(4 * N, 9 + seed) for seed in range(3)]
    mine = [want.copy() if kind == "numpy" else gj.array(want) for want in wants]
    mine_too = [want.copy() for want in others] if kind == "mixed" else mine
    wants_too = others if kind == "mixed" else wants
    kept = []
    for number in (0, 0, 0, 1, 0, 1, 2, 2, 1, 0):
        _poison(N)
        want = _writing_eagerly(place(wants[number])[0], place(wants_too[number])[1])
        got = f(place(mine[number])[0], place(mine_too[number])[1])
        kept.append((got, want))
        for array, expected in zip(mine + mine_too, wants + wants_too, strict=True):
            _same(array, expected)
    for got, want in kept:
        _same(got, want)


@INPUTS
def test_a_written_argument_that_comes_back(backend, inputs):
    @gj.graphed(inputs=inputs)
    def f(u):
        increment[grid(u.size), B](u)
        return u

    @gj.graphed(inputs=inputs)
    def tail(u):
        increment[grid(u.size), B](u)
        return u[1:]

    want = _random()
    first = u = gj.array(want)
    for count in range(1, 40):
        u = f(u)
        assert u is first
        _same(u, want + count)
    v = u
    for count in range(1, 10):
        v = tail(v)
        assert v.size == N - count
    expected = want + 39
    for count in range(9):
        expected[count:] += 1
    _same(u, expected)
    _same(v, expected[9:])


@INPUTS
def test_arguments_that_are_swapped(backend, inputs):
    @gj.graphed(inputs=inputs)
    def f(u, v):
        add[grid(u.size), B](u, v, u)
        return v, u

    a, b = _random(), _random(seed=1)
    u, v = gj.array(a), gj.array(b)
    for _ in range(24):
        u, v = f(u, v)
        a += b
        a, b = b, a
        _same(u, a)
        _same(v, b)


@INPUTS
@pytest.mark.parametrize("outputs", ["fresh", "static"])
def test_results_that_become_arguments(backend, inputs, outputs):
    @gj.graphed(inputs=inputs, outputs=outputs)
    def step(u, v):
        out = gj.empty_like(u)
        add[grid(u.size), B](u, v, out)
        return out

    @gj.graphed(inputs=inputs, outputs=outputs)
    def swap(u, v):
        out = gj.empty_like(u)
        add[grid(u.size), B](u, v, out)
        return v, out

    one = gj.ones(N)
    u = one
    for count in range(2, 80):
        _poison(N)
        u = step(u, one)
        _same(u, np.full(N, float(count)))
    first, second = gj.ones(N), gj.ones(N)
    a = b = 1.0
    for _ in range(30):
        first, second = swap(first, second)
        a, b = b, a + b
        _same(first, np.full(N, a))
        _same(second, np.full(N, b))
    doubled = gj.ones(N)
    for count in range(20):
        doubled = step(doubled, doubled)
        _same(doubled, np.full(N, 2.0 ** (count + 1)))


@INPUTS
def test_contents_that_change_between_calls(backend, inputs):
    @gj.graphed(inputs=inputs)
    def f(x, y, k):
        out = gj.empty(x.size)
        add[grid(x.size), B](x, y, out)
        scale[grid(x.size), B](out, out, k)
        return out, k + 1

    base, host = gj.array(_random(2 * N)), _random(2 * N, 1)
    for view in (np.s_[:N], np.s_[: 2 * N : 2], np.s_[N - 1 :: -1], np.s_[4:4]):
        for number in range(5):
            base[...] = _random(2 * N, number + 5)
            host += number
            _poison(N)
            got, scalar = f(base[view], host[view], float(number))
            _same(got, (base.copy_to_host()[view] + host[view]) * number)
            assert scalar == number + 1
            # Reading only: both in one memory.
            got, _ = f(base[view], base[view], 2.0)
            _same(got, 4.0 * base.copy_to_host()[view])


@INPUTS
def test_two_dimensional_views(backend, inputs):
    @gj.graphed(inputs=inputs)
    def f(x, y):
        add_2d[(2, 2), (32, 32)](x, y, y)

    for view in (np.s_[:, ::2], np.s_[::-1, 3:], np.s_[5:20, 10:30]):
        want, other = _random((40, 50)), _random((40, 50), 1)
        x, y = gj.array(other), gj.array(want)
        for _ in range(3):
            want[view] += other[view]
            f(x[view], y[view])
            _same(y, want)
            _same(x, other)


@INPUTS
def test_zero_dimensional_arguments(backend, inputs):
    @gj.graphed(inputs=inputs)
    def f(x, k):
        out = gj.empty(())
        out[...] = x
        x[...] = k
        return out

    want = _random(3)
    base = gj.array(want)
    for k in range(3):
        for index in range(3):
            _same(f(base[index], float(k)), want[index])
            want[index] = k
    _same(base, want)


@INPUTS
def test_closed_over_arrays(backend, inputs):
    weights, log, host = gj.array(_random(seed=3)), gj.zeros(N), _random(seed=4)

    @gj.graphed(inputs=inputs)
    def f(x):
        out = gj.empty_like(x)
        add[grid(x.size), B](x, weights, out)
        add[grid(x.size), B](log, host, log)
        increment[grid(x.size), B](x)
        return out, log

    total = np.zeros(N)
    for seed in range(4):
        weights[...] = _random(seed=20 + seed)
        host += 1
        want = _random(seed=seed)
        x = gj.array(want)
        out, returned = f(x)
        total += host
        _same(out, want + weights.copy_to_host())
        _same(x, want + 1)
        _same(log, total)
        _same(returned, total)
    # The closure as the argument: one memory, written and read.
    before = log.copy_to_host()
    f(log)
    _same(log, before + host + 1)


@INPUTS
def test_wrong_arguments_of_a_compiled_function_change_nothing(backend, inputs):
    f = gj.graphed(inputs=inputs)(_writing)
    wants = _random(), _random(seed=1)
    x, y = map(gj.array, wants)
    compiled = f.lower(x, y).compile()
    compiled(x, y)
    want = _writing_eagerly(*wants)
    stats = compiled.binding_stats()
    for args, name in (
        ((x, gj.ones(3)), "y"),
        ((x[::2], y), "x"),
        ((x, y.astype(np.float32)), "y"),
    ):
        with pytest.raises(
            gj.ArgumentError, match=rf"argument {name} was .*\n  called at .*test_b"
        ):
            compiled(*args)
    with pytest.raises(gj.ArgumentError, match=r"argument y was .* and is a list of length 1"):
        compiled(x, [y])
    assert compiled.binding_stats() == stats
    _same(x, wants[0])
    _same(y, wants[1])
    want = _writing_eagerly(*wants)
    _same(compiled(x, y), want)


MANY = 40


@pytest.mark.parametrize("written", [False, True])
def test_an_argument_that_very_many_nodes_use(backend, written):
    @gj.graphed
    def f(x):
        out = x if written else gj.zeros((4, 50))
        for _ in range(MANY):
            add_2d[(1, 2), (32, 32)](out, x, out)
        return out

    def eager(x):
        out = x if written else np.zeros((4, 50))
        for _ in range(MANY):
            out += x
        return out

    kept = []
    wants = [_random((4, 50), seed) for seed in range(6)]
    for want in wants:  # new arrays
        kept.append((x := gj.array(want), f(x), eager(want), want))
    for x, result, expected, want in kept:
        _same(result, expected)
        _same(x, want)
    stats = f.binding_stats()
    if backend == "cuda":
        assert (stats.copied == 0) if written else (stats.copied >= len(wants) - 1)
    x = gj.zeros((4, 50))
    for seed in range(6):  # one array, with new contents
        x[...] = want = _random((4, 50), seed)
        _same(f(x), eager(want))
        _same(x, want)
    for seed in range(40):  # in turns
        x = kept[seed % 2][0]
        want = x.copy_to_host()
        _same(f(x), eager(want))
        x[...] = _random((4, 50), seed)


@INPUTS
def test_static_results(backend, inputs):
    @gj.graphed(inputs=inputs, outputs="static")
    def f(x):
        out, other = gj.empty_like(x), gj.empty(3)
        scale[grid(x.size), B](x, out, 2.0)
        scale[1, B](x, other, -1.0)
        return {"all": out, "some": (out[2:5], other), "size": x.size, "given": x}

    want = _random()
    results = [f(gj.array(want + k)) for k in range(5)]
    for result in results:  # all are the last one
        _same(result["all"], 2 * (want + 4))
        _same(result["some"][0], 2 * (want + 4)[2:5])
        _same(result["some"][1], -(want + 4)[:3])
        assert result["size"] == N
        assert _address(result["all"]) == _address(results[0]["all"])
        assert _address(result["some"][0]) == _address(results[0]["all"]) + 16
    for k, result in enumerate(results):  # but arguments are themselves
        _same(result["given"], want + k)


def test_static_results_of_different_shapes_are_apart(backend):
    @gj.graphed(outputs="static")
    def f(x):
        return x.copy()

    first, second = f(gj.ones(5)), f(gj.zeros(6))
    assert (first.copy_to_host() == 1).all()
    f.cache_clear()
    third = f(gj.full(5, 7.0))
    assert (first.copy_to_host() == 1).all() and (third.copy_to_host() == 7).all()
    assert (second.copy_to_host() == 0).all()


@INPUTS
def test_slices_of_a_static_result_as_arguments(backend, inputs):
    @gj.graphed(inputs=inputs, outputs="static")
    def f(x, y):
        out = gj.empty(N + 7)
        scale[grid(N), B](x, out[:N], 2.0)
        add[grid(N), B](x, y, out[7:])
        return out, x, y[1:]

    def eager(x, y):
        out = np.empty(N + 7)
        out[:N] = 2.0 * x
        out[7:] = x + y
        return out, x.copy(), y[1:].copy()

    result = gj.array(_random(N + 7))
    want = result.copy_to_host()
    for start, other in ((0, 7), (7, 0), (3, 3), (5, 1)):
        want, x, y = eager(want[start : start + N], want[other : other + N])
        result, got_x, got_y = f(result[start : start + N], result[other : other + N])
        _same(result, want)
        _same(got_x, x)
        _same(got_y, y)
    want, _, _ = eager(want[N - 1 :: -1], want[:N])
    result, _, _ = f(result[N - 1 :: -1], result[:N])
    _same(result, want)


@INPUTS
@pytest.mark.parametrize("spelling", ["array", "numpy"])
def test_a_written_argument_in_its_own_static_result_is_refused(backend, inputs, spelling):
    @gj.graphed(inputs=inputs, outputs="static")
    def f(x, u):
        out = gj.empty(2 * u.size)
        increment[grid(u.size), B](u)
        add[grid(u.size), B](x, u, out)
        scale[grid(u.size), B](u, out[u.size :], 1.0)
        return out

    x, u = _random(), _random(seed=1)
    result = f(gj.array(x), gj.array(u))
    want = np.concatenate([x + u + 1, u + 1])
    if spelling == "numpy" and backend == "cpu":
        result = np.asarray(result)
    elif spelling == "numpy":
        pytest.skip("a copy on this backend")
    mine = gj.array(x)
    for _ in range(2):
        for view in (np.s_[:N], np.s_[5 : N + 5]):
            with pytest.raises(
                gj.ArgumentError, match=r"f\(\) writes its argument u.*\n  called at"
            ):
                f(mine, result[view])
    _same(result, want)
    _same(mine, x)
    # An empty one lies nowhere.
    f(mine[:0], result[3:3])
    f(mine, gj.array(u + 1))
    want = np.concatenate([x + u + 2, u + 2])
    _same(result, want)


def test_a_closure_over_an_earlier_static_result(backend):
    kept = [gj.ones(N)]

    @gj.graphed(outputs="static")
    def f(x):
        out = gj.empty_like(x)
        add[grid(x.size), B](x, kept[0], out)
        return out

    # Each is a new trace, whose result is apart from the one it closes over.
    for count in range(2, 6):
        kept[0] = f(gj.ones(N))
        _same(kept[0], np.full(N, float(count)))


def test_a_static_result_that_was_closed_or_donated_is_made_anew(backend):
    @gj.graphed(outputs="static")
    def f(x):
        return x.copy()

    @gj.graphed(donate_argnames="x")
    def g(x):
        return added(x, x)

    for lose in (lambda r: r.close(), g):
        result = f(gj.ones(N))
        lose(result)
        with pytest.raises(gj.ClosedError):
            f(result)
        others = [gj.full(N, 9.0) for _ in range(4)]
        again = f(gj.full(N, 2.0))
        assert (again.copy_to_host() == 2).all()
        assert all((other.copy_to_host() == 9).all() for other in others)
        with pytest.raises(gj.ClosedError):
            result.copy_to_host()


USES = {
    "copy_to_host": lambda x: x.copy_to_host(),
    "repr": repr,
    "slicing": lambda x: x[1:],
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "setitem from": lambda x: gj.ones(x.size).__setitem__(np.s_[:], x),
    "copy_to_device": lambda x: x.copy_to_device(1.0),
    "copy": lambda x: x.copy(),
    "deepcopy": copy.deepcopy,
    "shallow copy": copy.copy,
    "astype": lambda x: x.astype(np.float32),
    "reshape": lambda x: x.reshape(1, -1),
    "transpose": lambda x: x.T,
    "item": lambda x: x[:1].item(),
    "iteration": list,
    "asarray": np.asarray,
    "dlpack": lambda x: x.__dlpack__(),
    "pickle": pickle.dumps,
    "block": lambda x: x.block_until_ready(),
    "gj.array": gj.array,
    "graphed": lambda x: added(x, gj.ones(x.size)),
    "graphed by name": lambda x: added(x=gj.ones(x.size), y=x),
    "graphed twice": lambda x: added(x, x),
    "launch": lambda x: increment[1, B](x),
    "closure": lambda x: gj.graphed(lambda: increment[1, B](x))(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("how", ["donated", "closed"])
def test_arrays_that_are_gone_say_so(backend, use, how):
    @gj.graphed(donate_argnames="x")
    def take(x):
        increment[grid(x.size), B](x)

    x = gj.array(_random())
    view = x[3:]
    part = view[::2]
    if how == "donated":
        take(x)
    else:
        part.close()
    for array in (x, view, part):
        match = ("donated to take" if how == "donated" else "was closed") + "\n  called at"
        with pytest.raises(gj.ClosedError, match=match):
            USES[use](array)
    assert (x.shape, x.dtype, view.size) == ((N,), np.dtype(float), N - 3)


def test_the_argument_that_is_gone_is_named(backend):
    x, y = gj.ones(N), gj.ones(N)
    y.close()
    f = gj.graphed(lambda state: added(state["u"], state["v"][0]))
    with pytest.raises(gj.ClosedError, match=r"added\(\): argument y: .* was closed\n  called at"):
        added(x, y)
    with pytest.raises(gj.ClosedError, match=r"argument state\['v'\]\[0\]: this array was closed"):
        f({"u": x, "v": [y]})


@INPUTS
@pytest.mark.parametrize("outputs", ["fresh", "static"])
def test_donated_arguments_that_are_returned(backend, inputs, outputs):
    @gj.graphed(inputs=inputs, outputs=outputs, donate_argnames=("u", "v"))
    def f(u, v, k):
        increment[grid(u.size), B](u)
        out = gj.empty_like(u)
        scale[grid(u.size), B](v, out, k)
        return u, u[2:5], {"v": v[::-1], "out": out}

    want, other = _random(), _random(seed=1)
    u, v = gj.array(want), gj.array(other)
    for k in range(1, 12):
        _poison(N)
        address, was = _address(u), (u, v)
        u, part, rest = f(u, v, float(k))
        v = rest["v"]
        assert _address(u) == address and _address(part) == address + 16
        for array in was:
            with pytest.raises(gj.ClosedError, match="donated to f"):
                array.copy_to_host()
        want = want + 1
        _same(u, want)
        _same(part, want[2:5])
        _same(rest["out"], other * k)
        other = other[::-1]
        _same(v, other)
    part.close()
    with pytest.raises(gj.ClosedError, match="closed"):
        u.copy_to_host()


def test_donated_memory_is_used_again(backend):
    @gj.graphed(donate_argnames="x")
    def f(x):
        return added(x, x)

    kept, results, addresses = [], [], set()
    size = 54321
    for k in range(30):
        kept.append(x := gj.full(size, float(k)))
        results.append(f(x))
        addresses |= {_address(x)}
        _same(results[-1][:3], np.full(3, 2.0 * k))
    # What each call gave away, the next array took: only results need memory of their own.
    assert len(addresses | set(map(_address, results))) <= len(results) + 1
    u, seen = gj.ones(size), set()
    holder = []
    for _ in range(10):
        holder.append(u)
        u = f(u)
        seen.add(_address(u))
    assert len(seen) == 2
    assert (u.copy_to_host() == 2.0**10).all()


@dataclasses.dataclass
class State:
    u: Any
    v: Any
    t: float


def test_donated_pytrees_and_methods(backend):
    @gj.graphed(donate_argnames="state")
    def step(state, k=1.0):
        out = gj.empty_like(state.u)
        scale[grid(out.size), B](state.u, out, k)
        return State(out, state.v, state.t + k)

    class Model:
        @gj.graphed(donate_argnames=["x"])
        def run(self, x, y):
            return added(x, y)

        @gj.graphed(donate_argnames="rest")
        def all(self, *rest, **named):
            return added(rest[0], rest[1]), named["y"]

    u, v = gj.ones(N), gj.zeros(N)
    first = State(u, v, 0.0)
    second = step(first)
    third = step(state=second, k=3.0)
    _same(third.u, np.full(N, 3.0))
    _same(third.v, np.zeros(N))
    assert third.t == 4.0
    for gone in (u, v, second.u, second.v):
        with pytest.raises(gj.ClosedError, match="donated to step"):
            gone.copy_to_host()
    shared = gj.ones(N)
    with pytest.raises(gj.ArgumentError, match=r"donated argument state\.u shares") as info:
        step(State(shared, shared[1:], 0.0))
    assert "called at" in str(info.value)
    _same(shared, np.ones(N))
    for model in (Model(), Model()):
        for _ in range(2):
            x, y = gj.ones(N), gj.ones(N)
            _same(model.run(x, y), np.full(N, 2.0))
            with pytest.raises(gj.ClosedError, match="donated to run"):
                model.run(y=y, x=x)
            _same(model.run(y=y.copy(), x=y), np.full(N, 2.0))
            with pytest.raises(gj.ClosedError, match="donated to run"):
                y.copy_to_host()
        a, b, c = gj.ones(N), gj.ones(N), gj.ones(N)
        total, kept = model.all(a, b, y=c)
        assert kept is c and (total.copy_to_host() == 2).all()
        for gone in (a, b):
            with pytest.raises(gj.ClosedError):
                gone.copy_to_host()


def test_donating_a_view_gives_all_of_its_memory(backend):
    f = gj.graphed(donate_argnames="x")(lambda x: x[::-1])
    base = gj.array(_random())
    want = base.copy_to_host()
    got = f(base[2:7])
    _same(got, want[6:1:-1])
    with pytest.raises(gj.ClosedError, match="donated to <lambda>"):
        base.copy_to_host()
    _same(f(got), want[2:7])


def test_donated_numbers_and_empty_arrays(backend):
    @gj.graphed(donate_argnames=["k", "x"])
    def f(x, k):
        out = gj.empty_like(x)
        scale[grid(x.size), B](x, out, k)
        return out, k

    for _ in range(2):
        out, k = f(gj.ones(N), 3.0)
        assert k == 3.0 and (out.copy_to_host() == 3).all()
        empty = gj.ones(0)
        assert f(empty, 3.0)[0].size == 0
        with pytest.raises(gj.ClosedError):
            empty.copy_to_host()


class Foreign:
    """Another library's array on a CUDA GPU; elsewhere one with DLPack."""

    def __init__(self, array: gj.Array) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        if self.array.device.backend != "cuda":
            raise AttributeError
        return self.array.__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_memory_that_is_not_the_callers_to_donate(backend):
    weights = gj.full(N, 2.0)

    @gj.graphed(donate_argnames="x")
    def f(x, y):
        out = gj.empty_like(x)
        add[grid(x.size), B](x, y, out)
        add[grid(x.size), B](weights, out, out)
        return out

    y, host = gj.ones(N), np.ones(N)
    exported = gj.ones(N)
    capsule = exported.__dlpack__()
    base = gj.ones(N + 5)
    cases = [
        (host, y, "x is a ndarray, whose memory graphjit doesn't own"),
        (Foreign(gj.ones(N)), y, "x is a Foreign, whose memory graphjit doesn't own"),
        (exported, y, "x is memory that another library has"),
        (y, y, "x shares its memory with another argument"),
        (base[:N], base[5:], "x shares its memory with another argument"),
        (weights, y, "x shares its memory with an array that the function closes over"),
    ]
    if backend == "cpu":
        seen = gj.ones(N)
        view = np.asarray(seen)
        cases.append((seen, y, "x is memory that another library has"))
        cases.append((gj.asarray(host), y, "x is memory that another library has"))
    for _ in range(2):
        for x, other, match in cases:
            with pytest.raises(
                gj.ArgumentError, match=rf"f\(\): the donated argument {match}"
            ) as info:
                f(x, other)
            assert "\n  called at" in str(info.value) and "test_binding.py" in str(info.value)
    for array in (y, exported, weights[:N], base):
        assert set(array.copy_to_host()) <= {1.0, 2.0}
    del capsule
    if backend == "cpu":
        assert (view == 1).all() and (host == 1).all()
    x = gj.ones(N)
    assert (f(x, y).copy_to_host() == 4).all()
    with pytest.raises(gj.ClosedError, match="donated to f"):
        f(x, y)


def test_names_that_can_not_be_donated():
    def f(x, n):
        return x

    for name in ("y", "n", ""):
        with pytest.raises(ValueError, match=f"f has no parameter '{name}' to be donated"):
            gj.graphed(donate_argnames=name, static_argnames="n")(f)
    with pytest.raises(ValueError, match="'n' to be donated"):
        gj.graphed(donate_argnames=["x", "n"], static_argnums=1)(f)
    for option in ("inputs", "outputs"):
        with pytest.raises(ValueError, match=f"{option} is one of .*, not 'fast'"):
            gj.graphed(**{option: "fast"})


@pytest.mark.parametrize("outputs", ["fresh", "static"])
def test_a_call_that_fails_takes_nothing(backend, outputs):
    @gj.graphed(donate_argnames="x", outputs=outputs)
    def f(x, y, k):
        increment[grid(x.size), B](x)
        out = gj.empty_like(x)
        scale[grid(x.size), B](y, out, k)
        return out

    want = _random()
    x, y, gone = gj.array(want), gj.ones(N), gj.ones(N)
    gone.close()
    f(gj.ones(N), y, 2)
    for call in (
        lambda: f(x, y, 2**70),
        lambda: f(x, gone, 2),
        lambda: f(gone, y, 2),
        lambda: f(x, y, "two"),
        lambda: f(x, y),
        lambda: f(x, y[::2], k=lambda: 0),
        lambda: f(x, x, 2),
        lambda: f(x, y[None], 2),
    ):
        for _ in range(2):
            stats = f.binding_stats()
            with pytest.raises((gj.GraphjitError, TypeError)):
                call()
            assert f.binding_stats() == stats
            _same(x, want)
            _same(y, np.ones(N))
    assert (f(x, y, 3).copy_to_host() == 3).all()
    with pytest.raises(gj.ClosedError, match=r"f\(\): argument x: this array was donated to f"):
        f(x, y, 3)
    _same(y, np.ones(N))
    # An integer beyond int64 is another signature, found out when the call is under way.
    assert (f(gj.array(want), y, 2**63 + 2**20).copy_to_host() == 2**63 + 2**20).all()
    assert (f(gj.array(want), y, 4).copy_to_host() == 4).all()


def test_donating_inside_a_trace_is_part_of_the_outer_graph(backend):
    @gj.graphed(donate_argnames="x")
    def inner(x):
        return added(x, x)

    outer = gj.graphed(lambda x: (inner(x), x))
    x = gj.ones(N)
    for _ in range(2):
        out, same = outer(x)
        assert same is x and (out.copy_to_host() == 2).all()


def test_closing(backend):
    x = gj.array(_random())
    want = x.copy_to_host()
    view, result, kept = x[1:], added(x, x), x.copy()
    x.close()
    x.close()
    view.close()
    for array in (x, view):
        with pytest.raises(gj.ClosedError, match="this array was closed"):
            added(array, kept)
    others = [gj.full(N, 9.0) for _ in range(3)]
    _same(result, 2 * want)
    _same(kept, want)
    assert all((other.copy_to_host() == 9).all() for other in others)
    f = gj.graphed(lambda a, b: (a, b[1:]))
    passed, part = f(kept, result)
    result.close()
    with pytest.raises(gj.ClosedError):
        part.copy_to_host()
    _same(passed, want)
    empty = gj.empty(0)
    empty.close()
    with pytest.raises(gj.ClosedError):
        empty.copy_to_host()


def test_closed_memory_is_used_again(backend):
    arrays, addresses = [], set()
    for _ in range(20):
        arrays.append(gj.full(43210, 1.0))
        addresses.add(_address(arrays[-1]))
        arrays[-1].close()
    assert len(addresses) == 1


def test_closing_what_numpy_looks_at(cpu):
    x = gj.array(_random())
    want = x.copy_to_host()
    view = np.asarray(x)[3:]
    x.close()
    del x
    others = [gj.full(N, 9.0) for _ in range(5)]
    np.testing.assert_array_equal(view, want[3:])
    view[...] = 4.0
    assert all((other.copy_to_host() == 9).all() for other in others)
    host = _random()
    over = gj.asarray(host)
    over.close()
    with pytest.raises(gj.ClosedError):
        over.copy_to_host()
    np.testing.assert_array_equal(host, _random())
    added(host, host)


@pytest.mark.gpu
def test_closing_what_numba_looks_at():
    with gj.use_backend("cuda"):
        x = gj.full(N, 3.0)
        view = cuda.as_cuda_array(x)
        x.close()
        del x
        others = [gj.full(N, 9.0) for _ in range(5)]
        assert (view.copy_to_host() == 3).all()
        assert all((other.copy_to_host() == 9).all() for other in others)


def test_closing_an_array_that_a_function_closes_over(backend):
    weights = gj.ones(N)

    @gj.graphed
    def f(x):
        increment[grid(x.size), B](x)
        return added(x, weights)

    x = gj.ones(N)
    f(x)
    weights.close()
    with pytest.raises(gj.ClosedError, match="this array was closed\n  called at"):
        f(x)
    _same(x, np.full(N, 2.0))


def _calls(stats: gj.BindingStats) -> int:
    return stats.same + stats.recalled + stats.rebound


def test_binding_stats(backend):
    f = gj.graphed(added._function)
    assert f.binding_stats() == gj.BindingStats()
    size = 8 * N + 3  # no other test's, whose arrays the garbage collector may free here
    x = gj.ones(size)
    f(x, x)
    assert (f.binding_stats().rebound, f.binding_stats().instances) == (1, 1)
    for _ in range(9):  # the result's memory comes again as well
        f(x, x)
    stats = f.binding_stats()
    assert stats.same == 9 and _calls(stats) == 10 and stats.copied == 0

    compiled = f.lower(x, x).compile()
    assert _calls(compiled.binding_stats()) == 0
    u = x
    for _ in range(200):
        u = compiled(u, x)
    stats = compiled.binding_stats()
    assert _calls(stats) == 200 and stats.copied == 0 and stats.same <= 1
    if backend == "cuda":
        assert stats.recalled > 50 and stats.instances > 1

    compiled = f.lower(x, x).compile()
    kept = [gj.ones(size) for _ in range(20)]
    for array in kept:
        compiled(array, array)
    stats = compiled.binding_stats()
    assert (stats.rebound, stats.same, stats.recalled) == (20, 0, 0)

    copying = gj.graphed(inputs="copy")(added._function)
    for array in kept:
        copying(array, x)
    stats = copying.binding_stats()
    assert (stats.copied, stats.same, stats.rebound) == (20, 19, 1)

    static = gj.graphed(outputs="static")(added._function)
    for _ in range(5):
        static(x, kept[0])
    assert static.binding_stats().same == 4
    # Signatures are added up.
    static(x[1:], x[1:])
    assert _calls(static.binding_stats()) == 6


@INPUTS
@pytest.mark.parametrize("donate", [False, True])
def test_threads_with_arrays_of_their_own(backend, inputs, donate):
    @gj.graphed(inputs=inputs, donate_argnames="u" if donate else ())
    def f(u, v, k):
        out = gj.empty_like(u)
        scale[grid(u.size), B](u, out, k)
        add[grid(u.size), B](out, v, v)
        return out, v

    size, failed = 20_011, []

    def work(number: int) -> None:
        try:
            with gj.use_backend(backend):
                want, other = np.full(size, number + 1.0), np.full(size, -1.0)
                u, v = gj.array(want), gj.array(other)
                for call in range(60):
                    k = (1.0, -1.0, 2.0, 0.5)[(call + number) % 4]
                    u, v = f(u, v, k)
                    want = k * want
                    other += want
                    _same(u, want)
                    _same(v, other)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


# Random sequences of calls.

SIZE = 12
LENGTH = 40
# Few places, so that most arguments overlap.
SPEC = st.tuples(st.integers(0, 1), st.integers(0, 8), st.sampled_from([1, 1, 2, -1]))
OPERAND = st.integers(0, 4)
STEP = st.tuples(st.sampled_from(["increment", "scale", "add", "shift"]), OPERAND, OPERAND, OPERAND)


def _view(base: Any, spec: tuple[int, int, int]) -> Any:
    _, start, step = spec
    if step > 0:
        return base[start : start + SIZE * step : step]
    return base[start + SIZE - 1 : start - 1 if start else None : -1]


def _indices(spec: tuple[int, int, int]) -> list[int]:
    return list(_view(np.arange(LENGTH), spec))


def _step_is_safe(step: Any, places: list[Any]) -> bool:
    """Whether each thread reads only its own element of what the launch writes."""
    op, a, b, c = step
    if op == "increment":
        return len(set(places[a])) == SIZE
    for source in (a, b) if op == "add" else (a,):
        shared = set(places[source]) & set(places[c])
        if shared and (op == "shift" or places[source] != places[c]):
            return False
    return True


def _program(steps: Any, returned: Any, launches: Any, arrays: Any, empty: Any, k: Any) -> Any:
    """Three arguments and two temporaries, and what is done to them."""
    arrays = [*arrays, empty(SIZE), empty(SIZE)]
    scaled, total, bump, moved = launches
    scaled(arrays[0], arrays[3], k)
    scaled(arrays[0], arrays[4], -1.0)
    for op, a, b, c in steps:
        if op == "increment":
            bump(arrays[a])
        elif op == "scale":
            scaled(arrays[a], arrays[c], k)
        elif op == "add":
            total(arrays[a], arrays[b], arrays[c])
        else:
            moved(arrays[a], arrays[c])
    total(arrays[1], arrays[2], arrays[4])
    return [arrays[place] for place in returned], arrays[4][::2], k * 2


def _assign(target: Any, value: Any) -> None:
    target[...] = value


EAGER = (
    lambda x, out, k: _assign(out, k * x),
    lambda x, y, out: _assign(out, x + y),
    lambda x: _assign(x, x + 1),
    lambda x, out: _assign(out, np.roll(x, -1) + 1),
)
LAUNCHES = (
    lambda x, out, k: scale[2, 8](x, out, k),
    lambda x, y, out: add[2, 8](x, y, out),
    lambda x: increment[2, 8](x),
    lambda x, out: shift[2, 8](x, out),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(STEP, min_size=1, max_size=4),
    calls=st.lists(st.tuples(SPEC, SPEC, SPEC), min_size=1, max_size=5),
    inputs=st.sampled_from(["auto", "copy", "rebind"]),
    outputs=st.sampled_from(["fresh", "static"]),
    donate=st.booleans(),
    hosts=st.booleans(),
    returned=st.lists(st.sampled_from([3, 4, 3, 0, 1]), min_size=1, max_size=3),
    seed=st.integers(0, 2**16),
)
def test_sequences_of_calls_equal_eager_order(
    backend, steps, calls, inputs, outputs, donate, hosts, returned, seed
):
    temporaries = [[-1 - k for k in range(SIZE)], [-101 - k for k in range(SIZE)]]
    for call in calls:
        places: list[Any] = [[1000 * spec[0] + i for i in _indices(spec)] for spec in call]
        if donate:
            places[0] = [-1001 - k for k in range(SIZE)]  # a copy
        places += temporaries
        steps = [step for step in steps if _step_is_safe(step, places)]

    @gj.graphed(inputs=inputs, outputs=outputs, donate_argnames="x" if donate else ())
    def f(x, y, z, k):
        return _program(steps, returned, LAUNCHES, (x, y, z), gj.empty, k)

    rng = np.random.default_rng(seed)
    wants = [rng.integers(-4, 5, LENGTH).astype(float) for _ in range(2)]
    mine = [want.copy() if hosts and i == 1 else gj.array(want) for i, want in enumerate(wants)]
    for number, call in enumerate(calls):
        k = float(number - 1)
        want_args = [_view(wants[spec[0]], spec) for spec in call]
        args = [_view(mine[spec[0]], spec) for spec in call]
        if donate:
            want_args[0] = want_args[0].copy()
            args[0] = gj.array(want_args[0])
        want = _program(steps, returned, EAGER, want_args, lambda n: np.full(n, np.nan), k)
        _poison(SIZE)
        got = f(*args, k)
        for one, expected in zip(got[0], want[0], strict=True):
            _same(one, expected)
        _same(got[1], want[1])
        assert got[2] == want[2]
        for array, expected in zip(mine, wants, strict=True):
            _same(array, expected)
        if donate:
            with pytest.raises(gj.ClosedError):
                args[0].copy_to_host()
        if 3 in returned and outputs == "static":
            # The result as an argument of the next call, where it isn't written.
            result = got[0][returned.index(3)]
            before = result.copy_to_host()
            try:
                again = f(gj.array(before) if donate else result, *args[1:], k)
            except gj.ArgumentError as error:
                assert "lies in its own static result" in str(error)
                _same(result, before)
            else:
                want_args[0] = before.copy()
                want = _program(steps, returned, EAGER, want_args, np.zeros, k)
                for one, expected in zip(again[0], want[0], strict=True):
                    _same(one, expected)
            for array, expected in zip(mine, wants, strict=True):
                _same(array, expected)
