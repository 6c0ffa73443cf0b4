"""Memory that anybody still uses is never reused: threads, cycles of garbage, finalisers."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from numba import cuda

import graphjit as gj

from .programs import grid, increment, scale

pytestmark = pytest.mark.usefixtures("cpu")
B = 64


@gj.graphed
def scaled(x, k):
    out = gj.empty_like(x)
    scale[grid(x.size, B), B](x, out, k)
    return out


@cuda.jit
def slow_sums(x, out, rounds):
    i = cuda.grid(1)
    n = x.size // cuda.gridsize(1)
    total = 0.0
    for _ in range(rounds):
        for j in range(n):
            total += x[i * n + j]
    out[i] = total


@pytest.mark.parametrize("how", ["closed", "donated"])
def test_a_running_call_keeps_what_another_thread_gives_away(how):
    @gj.graphed
    def sums(x, rounds):
        out = gj.empty(256)
        slow_sums[4, 64](x, out, rounds)
        return out

    give_away = gj.graphed(donate_argnames="x")(lambda x: scaled(x[:1], 1.0))
    size, rounds = 1 << 20, 60
    sums(gj.ones(size), 1), give_away(gj.ones(size))
    for _ in range(3):
        x = gj.ones(size)
        results: list = []

        def work(x=x, results=results):
            results.append(sums(x, rounds))

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.01)
        x.close() if how == "closed" else give_away(x)
        others = [gj.full(size, 7.0) for _ in range(3)]
        thread.join()
        assert (results[0].copy_to_host() == rounds * size / 256).all()
        with pytest.raises(gj.ClosedError):
            x.copy_to_host()
        del others


def test_closing_and_donating_free_the_memory():
    x = gj.ones(5000)
    address = x._start
    x.close()
    assert address in {gj.empty(5000)._start for _ in range(2)}
    step = gj.graphed(donate_argnames="u")(lambda u: scaled(u, 2.0))
    u, seen = gj.ones(7000), set()
    for _ in range(20):
        u = step(u)
        seen.add(u._start)
    assert len(seen) <= 3


def test_garbage_that_comes_back_to_life_has_its_values():
    saved = []

    class Holder:
        def __del__(self):
            saved.append(self.array)

    holder = Holder()
    holder.me, holder.array = holder, scaled(gj.ones(1000), 3.0)
    del holder
    gc.collect()
    others = [scaled(gj.ones(1000), 10.0 + k) for k in range(3)]
    assert (saved[0].copy_to_host() == 3).all()
    del others


def test_a_finaliser_can_use_the_arrays_of_its_cycle():
    saved = []

    class User:
        def __del__(self):
            result = scaled(self.array, 2.0)
            saved.append((self.array.copy_to_host(), result.copy_to_host()))

    user = User()
    user.me, user.array = user, scaled(gj.ones(1000), 3.0)
    del user
    gc.collect()
    array, result = saved[0]
    assert (array == 3).all() and (result == 6).all()


def test_finalisers_that_the_collector_runs_are_no_part_of_a_trace():
    counted = gj.zeros(100)
    bump = gj.graphed(lambda x: increment[grid(x.size, B), B](x))
    bump(counted)

    class Finalised:
        def __init__(self):
            self.me = self

        def __del__(self):
            bump(counted)

    @gj.graphed
    def f(x):
        garbage = [[] for _ in range(5000)]
        assert len(garbage) == 5000
        return scaled(x, 2.0)

    Finalised()
    for _ in range(3):
        f(gj.ones(10))
    assert gc.isenabled()
    gc.collect()
    assert (counted.copy_to_host() == 2).all()


def test_a_kernel_goes_with_its_last_reference():
    def use():
        @cuda.jit
        def kernel(x):
            x[0] += 1

        gj.graphed(lambda x: kernel[1, 1](x))(gj.ones(1))
        kernel[1, 1](gj.ones(1))
        return weakref.ref(kernel)

    gone = [use() for _ in range(3)]
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3


def test_views_handed_to_and_fro_do_not_pile_up():
    half = gj.graphed(lambda u: u[:])
    u = np.arange(4.0)
    for _ in range(5):
        u = np.asarray(half(u))
    depth, base = 0, u
    while base is not None:
        depth, base = depth + 1, getattr(base, "base", None)
    assert depth < 5
    np.testing.assert_array_equal(u, np.arange(4.0))
