"""What a graphed function keeps, counts and tells of: hits, misses, evictions and their reasons."""

from __future__ import annotations

import collections
import dataclasses
import gc
import inspect
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest
from numba import cuda

import graphjit as gj
from graphjit._aval import array_aval
from graphjit._differences import differences

from .programs import add, grid, increment, scale

Pair = collections.namedtuple("Pair", "u v")
GAIN = 2.0
settings = types.SimpleNamespace(gain=1.0)


@dataclasses.dataclass
class State:
    u: Any
    n: int = dataclasses.field(default=1, metadata={"static": True})

    @gj.graphed
    def doubled(self, k=2.0):
        out = gj.empty_like(self.u)
        scale[1, 64](self.u, out, k)
        return out


def counts(f):
    info = f.cache_info()
    return info.hits, info.misses, info.evictions, info.size


def reason(f, *args, **kwargs):
    """Why a call is traced: one sentence."""
    with gj.explain_misses() as misses:
        f(*args, **kwargs)
    (miss,) = misses
    assert miss.function == "f" and os.path.basename(miss.location.file) == "test_cache.py"
    (text,) = miss.reasons
    return text


def copies(**options):
    @gj.graphed(**options)
    def f(x, *rest, k=1, n=None, **named):
        return x.copy()

    return f


def read_only(x):
    host = x.copy_to_host()
    host.flags.writeable = False
    return host


def on_threads(work, count=4):
    """Run on several threads at once; what any of them raised is raised."""
    raised = []
    device = gj.default_device().backend

    def run(index):
        try:
            with gj.use_backend(device):
                work(index)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


# What is counted.


def test_the_figures(backend):
    f = copies(cache_size=2)
    assert f.cache_info() == gj.CacheInfo(0, 0, 0, 0, 2, 0)
    for n in (3, 3, 4, 3, 5, 5):
        f(gj.zeros(n))
    assert f.cache_info() == gj.CacheInfo(3, 3, 1, 2, 2, 0)
    f.cache_clear()
    assert f.cache_info() == gj.CacheInfo(3, 3, 1, 0, 2, 0)


def test_one_call_in_any_spelling_is_one_entry(backend):
    @gj.graphed(static_argnames="n")
    def f(x, k=2.0, n=1, *, scaled=True):
        out = gj.empty_like(x)
        scale[1, 64](x, out, k)
        return out

    x = gj.ones(3)
    spellings = [
        ((x,), {}),
        ((x, 2.0), {}),
        ((x, 2.0, 1), {}),
        ((), {"x": x}),
        ((), {"k": 2.0, "x": x}),
        ((x,), {"k": 2.0}),
        ((x,), {"n": 1}),
        ((x,), {"n": 1, "scaled": True, "k": 2.0}),
    ]
    for _ in range(3):
        for args, kwargs in spellings:
            assert (f(*args, **kwargs).copy_to_host() == 2).all()
    assert counts(f) == (3 * len(spellings) - 1, 1, 0, 1)


def test_hits_are_counted_however_a_call_is_found(backend):
    f = copies()
    x, host = gj.ones(3), np.ones(3)
    calls = [
        lambda: f(x),
        lambda: f(x=x),
        lambda: f(x, k=1.5),
        lambda: f(x, {"u": x}),
        lambda: f([x][0], None, x, 3),
        lambda: f(x, None, named=[x, (x, 1)]),
        lambda: f(host),
    ]
    for _ in range(3):
        for call in calls:
            call()
    info = f.cache_info()
    assert info.hits + info.misses == 3 * len(calls)
    assert info.misses == info.size == 5


def test_an_integer_beyond_int64_counts_once(backend):
    @gj.graphed
    def f(x, n):
        out = gj.empty_like(x)
        scale[1, 64](x, out, n)
        return out

    x = gj.ones(3)
    for n in (1, 2, 2**63, 2**63 + 4096, 3):
        assert f(x, n).copy_to_host()[0] == n
    assert counts(f) == (3, 2, 0, 2)


def test_equal_calls_are_remembered_once(backend):
    @gj.graphed(static_argnames="n")
    def f(x, n):
        return x.copy()

    x = gj.ones(3)
    for n in ((1, 2), 0.5, "a", None, frozenset((1,))):
        for _ in range(20):
            f(x, n)
            f(x=x, n=n)
    assert f.cache_info().misses == 5
    assert len(f._known) <= 2  # the last value's spellings: a trace forgets the others


def test_static_values_are_told_apart_on_the_short_path(backend):
    @gj.graphed(static_argnames="n")
    def f(x, n):
        return x.copy(), n

    x = gj.ones(3)
    values = [1, 1.0, True, 0.0, -0.0, (1, 2), (1.0, 2), (True, 2), ((0.0,),), ((-0.0,),)]
    for _ in range(3):
        for value in values:
            assert repr(f(x, value)[1]) == repr(value)
    assert counts(f) == (2 * len(values), len(values), 0, len(values))
    with pytest.raises(gj.ArgumentError, match="the static argument 'n' is a list"):
        f(x, [1])


# Containers.


def test_containers_are_looked_into_at_every_call(backend):
    @gj.graphed
    def f(state, more=None):
        u, v = state["u"], state["v"][0]
        out = gj.empty_like(u)
        add[1, 64](u, v, out)
        return {"out": out, "u": state["u"], "more": more}

    for n in range(6):
        u, v = gj.full(3, float(n)), gj.full(3, 10.0)
        result = f({"u": u, "v": [v, n]}, (1, n))
        assert (result["out"].copy_to_host() == n + 10).all()
        assert result["u"] is u and result["more"] == (1, n)
    assert counts(f) == (5, 1, 0, 1)
    # Its own order is part of a dict's structure; a key or a length more is another structure.
    assert f({"v": [v, 1], "u": u}, (1, 1))["u"] is u
    assert f({"u": u, "v": [v]}, (1, 1))["u"] is u
    assert f({"u": u, "v": (v, 1)}, (1, 1))["more"] == (1, 1)
    assert counts(f) == (5, 4, 0, 4)


@pytest.mark.parametrize("spelled", ["positional", "named", "mixed"])
def test_containers_in_any_place(backend, spelled):
    @gj.graphed(static_argnames="n")
    def f(a, b, c=(1.0, 2.0), n=(3, 4), *, d=None):
        out = gj.empty_like(a["x"])
        add[1, 64](a["x"], b.u, out)
        scale[1, 64](out, out, c[0] + n[0])
        return out, d

    for k in range(5):
        a, b = {"x": gj.full(3, float(k))}, Pair(gj.ones(3), k)
        if spelled == "positional":
            out, d = f(a, b, (float(k), 0.5), (3, 4))
        elif spelled == "named":
            out, d = f(n=(3, 4), c=(float(k), 0.5), b=b, a=a)
        else:
            out, d = f(a, d=[k, 2], n=(3, 4), b=b, c=(float(k), 0.5))
            assert d == [k, 2]
        assert (out.copy_to_host() == (k + 1) * (k + 3)).all()
    assert counts(f) == (4, 1, 0, 1)
    for k in range(3):
        out, d = f({"x": gj.full(3, float(k))}, Pair(gj.ones(3), k))
        assert d is None and (out.copy_to_host() == (k + 1) * 4).all()


def test_any_number_of_arguments(backend):
    @gj.graphed
    def f(first, *rest, last, **named):
        out = gj.zeros_like(first)
        for x in (first, *rest, last, *named.values()):
            add[1, 64](out, x, out)
        return out, list(named)

    arrays = [gj.full(3, float(10**k)) for k in range(6)]
    for _ in range(4):
        out, names = f(*arrays[:3], p=arrays[3], last=arrays[4], q=arrays[5])
        assert (out.copy_to_host() == 111111).all() and names == ["p", "q"]
        out, names = f(arrays[0], q=arrays[1], p=arrays[2], last=arrays[1])
        assert (out.copy_to_host() == 121).all() and names == ["q", "p"]
    assert counts(f) == (6, 2, 0, 2)

    @gj.graphed
    def g(a, /, **named):
        out = gj.empty_like(a)
        scale[1, 64](a, out, named["a"])
        return out

    for k in range(4):
        assert (g(gj.ones(3), a=float(k)).copy_to_host() == k).all()


def test_static_fields_and_classes_of_containers_are_told_apart(backend):
    @gj.graphed
    def f(state):
        return (state.n if isinstance(state, State) else type(state).__name__), 1

    u = gj.ones(3)
    values = [State(u, 1), State(u, True), State(u, 1.0), Pair(u, 2), State(u, 2)]
    expected = [1, True, 1.0, "Pair", 2]
    for _ in range(3):
        for value, what in zip(values, expected, strict=True):
            found = f(value)[0]
            assert found == what and type(found) is type(what)
    assert counts(f) == (10, 5, 0, 5)


def test_numpy_arrays_and_wide_integers_in_containers(backend):
    @gj.graphed
    def f(state):
        scale[1, 64](state["x"], state["x"], state["n"])

    for n in (1, 2, 3, 2**63, 2**63 + 4096, 4):
        host = np.ones(5)
        f({"x": host, "n": n})
        assert (host == n).all()
    assert f.cache_info().misses == 2
    frozen = np.zeros(5)
    frozen.flags.writeable = False
    with pytest.raises(gj.GraphjitError):
        f({"x": frozen, "n": 1})


def test_a_dataclass_met_inside_a_known_container(backend):
    @dataclasses.dataclass
    class Inner:
        x: Any

    @gj.graphed
    def f(items):
        x = items[0]
        x = x if hasattr(x, "size") else x.x
        out = gj.empty_like(x)
        scale[1, 64](x, out, 2.0)
        return out

    for _ in range(3):
        assert (f([gj.ones(3)]).copy_to_host() == 2).all()
    for k in range(4):
        assert (f([Inner(gj.full(3, float(k)))]).copy_to_host() == 2 * k).all()
    assert counts(f) == (5, 2, 0, 2)


def described(value):
    """The structure of an argument, with what a trace can see of its leaves."""
    if isinstance(value, State):
        return "State", repr(value.n), described(value.u)
    if isinstance(value, dict):
        return "dict", [(repr(key), described(item)) for key, item in value.items()]
    if isinstance(value, tuple | list):
        return type(value).__name__, [described(item) for item in value]
    if getattr(value, "strides", None):  # no number of NumPy
        return str(value.dtype), value.shape, value.strides
    return "None" if value is None else "number"


def leaves_of(value):
    if isinstance(value, State):
        return leaves_of(value.u)
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves_of(item)]
    return [] if value is None else [value]


def any_value(rng, arrays, depth=2):
    if depth == 0 or rng.random() < 0.4:
        return rng.choice([*arrays, 1, 2.5, True, np.float32(1), 2**63, None])
    items = [any_value(rng, arrays, depth - 1) for _ in range(rng.randrange(4))]
    make = rng.choice(
        [
            list,
            tuple,
            lambda items: dict(zip(rng.sample("abcd", len(items)), items, strict=True)),
            lambda items: Pair(items, 1),
            lambda items: State(items, rng.choice([1, True, 1.0, "a"])),
        ]
    )
    return make(items)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_arguments_a_call_finds_its_own_signature(backend, seed):
    @gj.graphed(static_argnames="s", cache_size=1000)
    def f(a, b=None, *rest, c=1.5, s=0, **named):
        given = [a, b, rest, c, named]
        return given, repr((described(given), s))

    rng = random.Random(seed)
    host = np.zeros((3, 4))
    arrays = [gj.ones(3), gj.ones(4, np.int32), gj.ones((4, 3)).T, host, host[:, ::2]]
    calls = []
    for _ in range(60):
        args = [any_value(rng, arrays) for _ in range(rng.randrange(1, 4))]
        kwargs = {
            name: any_value(rng, arrays)
            for name in rng.sample(["c", "x", "y"], rng.randrange(4))
            if rng.random() < 0.5
        }
        if rng.random() < 0.5:
            kwargs["s"] = rng.choice([0, True, 1.0, 0.0, (1,), (1.0,), "x", None])
        if len(args) == 1 and rng.random() < 0.3:
            kwargs["b"] = any_value(rng, arrays)
        if len(args) == 1 and rng.random() < 0.3:
            kwargs["a"] = args.pop()
        calls.append((args, kwargs))
    calls += rng.choices(calls, k=600)
    for args, kwargs in calls:
        given, text = f(*args, **kwargs)
        bound = inspect.signature(f.__wrapped__).bind(*args, **kwargs)
        bound.apply_defaults()
        *expected, s, named = (
            bound.arguments[name] for name in ("a", "b", "rest", "c", "s", "named")
        )
        expected = [*expected, named]
        assert text == repr((described(expected), s))
        for was, now in zip(leaves_of(expected), leaves_of(given), strict=True):
            assert now is was or (now == was and type(now) is type(was))
    info = f.cache_info()
    assert info.hits + info.misses == 660 and info.misses == info.size <= 60
    # The short way; on a GPU calls with host arrays, which are uploaded, go the long one.
    assert f._hits > (250 if backend == "cpu" else 100)


# What is kept.


def test_what_was_unused_for_longest_goes_first(backend):
    f = copies(cache_size=3)
    a, b, c, d, e = (gj.ones(n) for n in range(2, 7))
    for x in (a, b, c):
        f(x)
    for _ in range(50):
        f(b)  # the last call's signature: found without a look-up
        f(c)  # looked up
    for _ in range(3):
        f([a][0], *(), **{})
    f(d)  # instead of b
    with gj.explain_misses() as misses:
        f(c)
        f(a)
        f(d)
    assert not misses
    f(e)  # instead of c
    with gj.explain_misses() as misses:
        f(a)
        f(d)
        f(c)
    assert len(misses) == 1 and f.cache_info().evictions == 3


def test_calls_on_long_and_short_ways_share_a_clock(backend):
    f = copies(cache_size=2)
    x, y = gj.ones(2), gj.ones(3)
    for _ in range(100):
        f(x)
    for _ in range(3):
        f(y, signal.SIGINT)  # an enumeration's number is looked up anew at every call
    f(gj.ones(4))  # instead of x, which was called more but not later
    with gj.explain_misses() as misses:
        f(y, signal.SIGINT)
    assert not misses


def temporaries(**options):
    @gj.graphed(optimize=False, **options)
    def f(x):
        t, out = gj.empty_like(x), gj.empty_like(x)
        scale[grid(x.size), 64](x, t, 2.0)
        scale[grid(x.size), 64](t, out, 2.0)
        return out

    return f


def test_bytes_are_counted_and_the_last_signature_stays(backend):
    f = temporaries(cache_bytes=40_000)
    f(gj.ones(1000))
    one = f.cache_info().nbytes
    assert 8000 <= one <= 16_384
    f(gj.ones(1001))
    assert f.cache_info().evictions == 0
    assert reason(f, gj.ones(4000)) == "argument x was float64[1001] and is float64[4000]"
    info = f.cache_info()
    assert info.size <= 2 and info.nbytes <= 40_000 and info.evictions >= 1
    f(gj.ones(100_000))
    info = f.cache_info()
    assert info.size == 1 and info.nbytes > 40_000
    text = "it was compiled before, and evicted since cache_bytes=40000"
    assert reason(f, gj.ones(1000)) == text
    assert f.cache_info().nbytes == one


def test_threads_that_evict_each_others_signatures(backend):
    f = temporaries(cache_size=2)
    arrays = [gj.full(n, float(n)) for n in range(1, 7)]

    def work(index):
        for n in range(60):
            x = arrays[(n * (index + 1)) % len(arrays)]
            assert (f(x).copy_to_host() == 4 * x.size).all()

    with pytest.warns(RuntimeWarning, match="f keeps being traced anew"):
        on_threads(work)
    info = f.cache_info()
    assert info.size == 2 and info.evictions == info.misses - 2
    gc.collect()
    # No way that calls go holds what was evicted.
    kept = {id(compiled) for compiled in f._cache.values()}
    assert all(id(known.owner) in kept for known in f._known.values())


def test_an_evicted_signature_whose_call_is_under_way(backend):
    # Overlapping arguments need another executable, which the call of an evicted signature makes.
    @gj.graphed(cache_size=1)
    def f(x, y):
        increment[1, 64](x)
        increment[1, 64](y)

    x = gj.zeros(8)
    f(x[:4], x[4:])
    for _ in range(3):
        f(x[:4], x[4:])
    known = f._last
    f.cache_clear()
    gc.collect()
    known.replay.run((x[:4], x[2:6]), (x[:4], x[2:6]), None)
    assert (x.copy_to_host() == [5, 5, 6, 6, 5, 5, 4, 4]).all()


def test_clearing_while_other_threads_call(backend):
    f = temporaries()
    arrays = [gj.full(n, float(n)) for n in range(1, 4)]
    done = threading.Event()

    def clear():
        while not done.is_set():
            f.cache_clear()
            f.cache_info()

    def work(index):
        for n in range(80):
            x = arrays[(n + index) % len(arrays)]
            assert (f(x).copy_to_host() == 4 * x.size).all()

    clearing = threading.Thread(target=clear)
    clearing.start()
    try:
        on_threads(work, 3)
    finally:
        done.set()
        clearing.join()
    info = f.cache_info()
    assert info.hits + info.misses == 240
    refs = [weakref.ref(compiled) for compiled in f._cache.values()]
    f.cache_clear()
    gc.collect()
    assert f.cache_info().size == 0 and all(ref() is None for ref in refs)


# Why a call is traced.


def test_reasons_in_arrays(backend):
    f, x = copies(), gj.ones((3, 4))
    assert reason(f, x) == "nothing is compiled for it yet"
    assert reason(f, gj.ones((3, 5))) == "argument x was float64[3,4] and is float64[3,5]"
    assert reason(f, gj.ones(6)[::2]) == (
        "argument x was float64[3,5] and is float64[3] with strides (16,)"
    )
    assert reason(f, gj.ones(3)) == (
        "argument x was float64[3] with strides (16,) and is float64[3]"
    )
    assert reason(f, gj.ones(3, np.float32)) == "argument x was float64[3] and is float32[3]"
    assert reason(f, read_only(gj.ones(3, np.float32))) == (
        "argument x was float32[3] and is read-only float32[3]"
    )
    assert reason(f, gj.ones((4, 3)).T) == (
        "argument x was read-only float32[3] and is float64[3,4] with strides (8, 24)"
    )
    f.cache_clear()
    assert reason(f, x) == "nothing is compiled for it yet"


def test_reasons_in_numbers_and_static_values(backend):
    @gj.graphed(static_argnames="n")
    def f(x, k=1, n=0):
        return x.copy()

    x = gj.ones(3)
    f(x)
    assert reason(f, x, 1.0) == "argument k was int and is float"
    assert reason(f, x, np.float32(1)) == "argument k was float and is float32"
    assert reason(f, x, 2**63) == "argument k was float32 and is an int of 2**63 or more"
    assert reason(f, x, x) == "argument k was an int of 2**63 or more and is float64[3]"
    assert reason(f, x, x, n=1) == "static argument n was 0 and is 1"
    assert reason(f, x, x, n=True) == "static argument n was 1 and is True"
    long = reason(f, x, x, n="a" * 1000)
    assert long.startswith("static argument n was True and is 'aaaa") and len(long) < 100
    one, other = (type("Choice", (), {"__repr__": lambda self: "Choice()"})() for _ in range(2))
    assert reason(f, x, x, n=one).endswith("and is Choice()")
    f(x, x, n=other)
    with gj.explain_misses() as misses:
        f(gj.ones(4), x, n=one)
        f(gj.ones(4), x, n=other)
    assert misses[1].reasons in (
        ("static argument n was Choice() and is another one, which isn't equal to it",),
        ("argument x was float64[3] and is float64[4]",),
    )


def test_reasons_in_nested_arguments_name_them_as_users_do(backend):
    f, x, y = copies(), gj.ones(3), gj.ones(4)
    f(x, {"u": [x, 1]}, Pair(x, {0: x}))
    assert reason(f, x, {"u": [y, 1]}, Pair(x, {0: x})) == (
        "argument rest[0]['u'][0] was float64[3] and is float64[4]"
    )
    assert reason(f, x, {"u": [y, 1]}, Pair(x, {0: y})) == (
        "argument rest[1].v[0] was float64[3] and is float64[4]"
    )
    f = copies()
    f(x, state=State([x]))
    assert reason(f, x, state=State([y])) == (
        "argument named['state'].u[0] was float64[3] and is float64[4]"
    )
    assert reason(f, x, state=State([y], 2)) == "argument named['state'].n was 1 and is 2"


def test_reasons_in_structures(backend):
    @gj.graphed
    def f(state, x=None):
        return gj.zeros(3)

    x = gj.ones(3)
    f({"u": x})
    assert reason(f, {"u": x, "v": x}) == (
        "argument state had the keys 'u' and has the keys 'u', 'v'"
    )
    assert reason(f, {"v": x, "u": x}) == (
        "argument state had its keys in the order 'u', 'v' and has them in the order 'v', 'u'"
    )
    assert reason(f, {}) == "argument state had the keys 'v', 'u' and has no keys"
    assert reason(f, [x]) == ("argument state was a dict of length 0 and is a list of length 1")
    assert reason(f, [x, x]) == ("argument state was a list of length 1 and is a list of length 2")
    assert reason(f, x) == "argument state was a list of length 2 and is float64[3]"
    assert reason(f, x, x) == "argument x was None and is float64[3]"
    assert reason(f, State(x), x) == "argument state was float64[3] and is an instance of State"
    assert reason(f, [x, (x, 1)], x) == (
        "argument state was an instance of State and is a list of length 2"
    )
    assert reason(f, [x, (x, 1, 2)], x) == (
        "argument state[1] was a tuple of length 2 and is a tuple of length 3"
    )


def test_all_that_differs_is_told_beside_the_most_similar_call(backend):
    @gj.graphed(static_argnames="n")
    def f(x, y, n=0):
        return x.copy()

    a, b = gj.ones(3), gj.ones(4)
    f(a, a)
    f(b, b, 1)
    with gj.explain_misses() as misses:
        f(b, a)
        f(gj.ones(5), gj.ones(6), 2)
    assert misses[0].reasons == ("argument x was float64[3] and is float64[4]",)
    assert misses[1].reasons == (
        "static argument n was 0 and is 2",
        "argument x was float64[4] and is float64[5]",
        "argument y was float64[3] and is float64[6]",
    )
    assert str(misses[0]).startswith("f is traced at ")
    assert str(misses[0]).endswith(": argument x was float64[3] and is float64[4]")


def test_a_device_is_told_once(backend):
    f = copies()
    key = f.trace(gj.ones(3), gj.ones(4)).key
    other = dataclasses.replace(key.device, index=key.device.index + 1)
    avals = tuple(
        array_aval(aval.layout, other) if hasattr(aval, "layout") else aval for aval in key.avals
    )
    moved = dataclasses.replace(key, device=other, avals=avals)
    assert differences(key, moved) == [f"the device was {key.device} and is {other}"]


def test_reasons_outside_the_arguments(backend, monkeypatch):
    held, table = 1, {"gain": 1.0}

    kernel = cuda.jit(lambda out: None)

    @gj.graphed
    def f(x, k=3.0):
        kernel[1, 1](x)
        out = gj.empty_like(x)
        scale[1, 64](x, out, GAIN * settings.gain * held * k * table["gain"])
        return out

    x = gj.ones(3)
    f(x)
    monkeypatch.setitem(globals(), "GAIN", 4.0)
    assert reason(f, x) == "global 'GAIN' was rebound from 2.0 to 4.0 between calls"
    monkeypatch.setattr(settings, "gain", 3)
    assert reason(f, x) == (
        "attribute 'gain' of SimpleNamespace was rebound from 1.0 to 3 between calls"
    )
    held = 2
    assert reason(f, x) == "closed-over name 'held' was rebound from 1 to 2 between calls"
    table["gain"] = 2.0
    assert reason(f, x) == "the contents of a closed-over dict were changed between calls"

    kernel = cuda.jit(lambda out: None)
    assert reason(f, x) == "closed-over name 'kernel' was rebound between calls"
    f.__wrapped__.__defaults__ = (5.0,)
    assert reason(f, x) == "attribute '__defaults__' of f was rebound between calls"
    f.__wrapped__.__code__ = f.__wrapped__.__code__.replace(co_firstlineno=1)
    assert reason(f, x) == "attribute '__code__' of f was rebound between calls"
    monkeypatch.setitem(globals(), "GAIN", 2.0)
    assert f(x).copy_to_host()[1] == 2.0 * 3 * 2 * 5 * 2


def test_names_that_come_and_go(backend, monkeypatch):
    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        scale[1, 64](x, out, abs(-2.0))
        return out

    x = gj.ones(3)
    f(x)
    monkeypatch.setitem(globals(), "abs", lambda x: 5.0)
    assert reason(f, x) == "global 'abs' was defined between calls"
    assert f(x).copy_to_host()[0] == 5
    monkeypatch.delitem(globals(), "abs")
    assert reason(f, x) == "global 'abs' was deleted between calls"
    assert f(x).copy_to_host()[0] == 2


def test_an_evicted_signature_that_comes_again(backend):
    f = copies(cache_size=1)
    x, y = gj.ones(3), gj.ones(4)
    f(x)
    f(y)
    text = "it was compiled before, and evicted since cache_size=1"
    assert reason(f, x) == text
    assert reason(f, y) == text


def test_evicted_static_values_are_not_kept_alive(backend):
    class Choice:
        pass

    @gj.graphed(static_argnames="n", cache_size=1)
    def f(x, n):
        return x.copy()

    choice = Choice()
    ref = weakref.ref(choice)
    f(gj.ones(3), choice)
    f(gj.ones(3), 1)
    del choice
    gc.collect()
    assert ref() is None


def test_blocks_in_blocks_and_exceptions_inside(backend):
    f = copies()
    with gj.explain_misses() as outer:
        f(gj.ones(1))
        with pytest.raises(KeyError):
            with gj.explain_misses() as inner:
                f(gj.ones(2))
                raise KeyError
        f(gj.ones(3))
        with gj.explain_misses() as second:
            f(gj.ones(3))
    f(gj.ones(4))
    assert (len(outer), len(inner), len(second)) == (3, 1, 0)
    assert outer[1] is inner[0]


def test_blocks_of_several_threads_end_in_any_order(backend):
    f = copies()
    barrier = threading.Barrier(4)
    found: list[Any] = [None] * 4

    def work(index):
        with gj.explain_misses() as misses:
            barrier.wait()
            f(gj.ones(index + 1))
            barrier.wait()
        found[index] = misses

    on_threads(work)
    assert [len(misses) for misses in found] == [4] * 4
    f(gj.ones(9))
    assert [len(misses) for misses in found] == [4] * 4


def test_the_option_and_the_log(backend, caplog):
    f = copies(explain_misses=True)
    with caplog.at_level(logging.WARNING, logger="graphjit"):
        f(gj.ones(3))
        f(gj.ones(3))
        f(gj.ones(4))
        copies()(gj.ones(3))
    first, second = (record.getMessage() for record in caplog.records)
    assert first.endswith("in test_the_option_and_the_log: nothing is compiled for it yet")
    assert second.endswith(": argument x was float64[3] and is float64[4]")
    assert {record.name for record in caplog.records} == {"graphjit"}


@pytest.mark.parametrize("value, lines", [("1", 2), ("0", 0), ("", 0)])
def test_the_environment_variable(value, lines):
    code = """
import graphjit as gj
f = gj.graphed(lambda x: x.copy())
f(gj.ones(3)), f(gj.ones(3)), f(gj.ones(4))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "GRAPHJIT_BACKEND": "cpu", "GRAPHJIT_EXPLAIN_MISSES": value},
    )
    assert done.returncode == 0 and len(done.stderr.splitlines()) == lines, done.stderr
    if lines:
        assert done.stderr.endswith(
            "<lambda> is traced at <string>:4 in <module>: argument x was float64[3] and is "
            "float64[4]\n"
        )


# One warning where misses keep coming.


def test_one_warning_at_the_users_line_when_signatures_keep_coming(backend):
    f = copies(cache_size=4)
    with pytest.warns(RuntimeWarning) as caught:
        for n in range(1, 80):
            line = inspect.currentframe().f_lineno + 1
            f(gj.ones(n))
    (warning,) = caught
    assert str(warning.message) == (
        "f keeps being traced anew: more shapes, dtypes or static values come in turns than there "
        "is room for (cache_size=4); pad arguments, or raise cache_size"
    )
    assert warning.filename == __file__ and warning.lineno == line


def test_the_warning_when_bytes_run_out(backend):
    f = temporaries(cache_bytes=1)
    with pytest.warns(RuntimeWarning, match=r"\(cache_bytes=1\); pad arguments, or raise cache_b"):
        for n in range(1, 40):
            f(gj.ones(n))


def test_the_warning_when_a_name_keeps_being_rebound(backend):
    n = 0

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        scale[1, 64](x, out, n)
        return out

    x = gj.ones(3)
    with pytest.warns(RuntimeWarning) as caught:
        for n in range(40):
            assert f(x).copy_to_host()[0] == n
    (warning,) = caught
    assert str(warning.message) == (
        "f keeps being traced anew: closed-over name 'n' was rebound from 15 to 16 between calls; "
        "pass it as an argument"
    )
    assert warning.filename == __file__


def test_few_misses_are_no_cause_for_a_warning(backend):
    f = copies(cache_size=100)
    for _ in range(2):
        for n in range(1, 40):
            f(gj.ones(n))


# Methods.


def test_methods_of_instances_with_and_without_a_dict(backend):
    class Model:
        def __init__(self, gain):
            self.gain = gain

        @gj.graphed(cache_size=2)
        def f(self, x):
            out = gj.empty_like(x)
            scale[1, 64](x, out, self.gain)
            return out

    class Slotted(Model):
        __slots__ = ()

    class Bare:
        __slots__ = ("gain",)
        __init__ = Model.__init__
        f = gj.graphed(cache_size=2)(Model.f.__wrapped__)

    x = gj.ones(3)
    for cls in (Model, Slotted, Bare):
        one, other = cls(2.0), cls(3.0)
        for _ in range(3):
            assert one.f(x).copy_to_host()[0] == 2 and other.f(x).copy_to_host()[0] == 3
        assert counts(one.f) == counts(other.f) == (2, 1, 0, 1)
        one.gain = 4.0
        assert reason(one.f, x) == (
            f"attribute 'gain' of {cls.__name__} was rebound from 2.0 to 4.0 between calls"
        )
        assert reason(one.f, gj.ones(4)) == "argument x was float64[3] and is float64[4]"
        one.f(gj.ones(5))
        assert counts(one.f) == (2, 4, 1, 2) and counts(other.f) == (2, 1, 0, 1)
        one.f.cache_clear()
        assert one.f.cache_info().size == 0 and other.f.cache_info().size == 1
    ref = weakref.ref(one := Model(1.0))
    one.f(x)
    del one
    gc.collect()
    assert ref() is None


def test_a_method_called_first_by_several_threads_is_traced_once(backend):
    traced = []

    class Model:
        @gj.graphed
        def f(self, x):
            traced.append(1)
            return x.copy()

    for _ in range(5):
        model, x = Model(), gj.ones(3)
        barrier = threading.Barrier(4)

        def work(index, model=model, x=x, barrier=barrier):
            barrier.wait()
            model.f(x)

        traced.clear()
        on_threads(work)
        assert len(traced) == 1 and counts(model.f) == (3, 1, 0, 1)


def test_methods_of_dataclasses(backend):
    before = State.doubled.cache_info()
    for k in range(1, 5):
        state = State(gj.full(7, float(k)))
        assert (state.doubled().copy_to_host() == 2 * k).all()
        assert (state.doubled(k=3.0).copy_to_host() == 3 * k).all()
        assert (State.doubled(state, 4.0).copy_to_host() == 4 * k).all()
    info = state.doubled.cache_info()
    assert info == State.doubled.cache_info()
    assert (info.hits - before.hits, info.misses - before.misses) == (11, 1)
    with gj.explain_misses() as misses:
        State(gj.ones(8)).doubled()
    assert misses[0].reasons == ("argument self.u was float64[7] and is float64[8]",)
    assert "doubled" in repr(state.doubled) and state.doubled.binding_stats() is not None
    state.doubled.cache_clear()
    assert State.doubled.cache_info().size == 0


# Traces that fail, and traces in traces.


def test_a_failed_trace_is_not_kept_and_the_next_call_works(backend):
    fails = True

    @gj.graphed
    def f(x):
        if fails:
            raise ZeroDivisionError("on purpose")
        return x.copy()

    x = gj.ones(3)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            f(x)
    assert counts(f) == (0, 2, 0, 0)
    fails = False
    assert reason(f, x) == "nothing is compiled for it yet"
    f(x)
    assert counts(f) == (1, 3, 0, 1)


def test_a_failed_retrace_leaves_what_was_compiled(backend):
    n = 1.0

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        scale[1, 64](x, out, 1 / n)
        return out

    x = gj.ones(3)
    f(x)
    f(x)
    n = 0.0
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            f(x)
    assert counts(f) == (1, 4, 0, 1)
    n = 1.0  # as it was: what was compiled for it is still there
    assert f(x).copy_to_host()[0] == 1
    assert counts(f) == (2, 4, 0, 1)
    n = 0.5
    assert f(x).copy_to_host()[0] == 2
    assert counts(f) == (2, 5, 0, 1)


def test_a_graphed_function_called_by_another_is_part_of_it(backend):
    inner = temporaries()

    @gj.graphed
    def outer(x):
        return inner(inner(x))

    x = gj.ones(3)
    inner(x)
    with gj.explain_misses() as misses:
        assert (outer(x).copy_to_host() == 16).all()
    assert [miss.function for miss in misses] == ["outer"]
    outer(x)
    assert counts(inner) == (0, 1, 0, 1) and counts(outer) == (1, 1, 0, 1)
    assert (inner(x).copy_to_host() == 4).all()
    assert counts(inner) == (1, 1, 0, 1)


def test_the_cache_can_be_asked_and_cleared_while_tracing(backend):
    @gj.graphed
    def f(x):
        f.cache_clear()
        seen.append(f.cache_info().misses)
        return x.copy()

    seen = []
    for n in (1, 2, 2):
        f(gj.ones(n))
    assert seen == [1, 2] and counts(f) == (1, 2, 0, 1)
