"""Control that the device decides, against the same Python code run eagerly."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from numba import cuda

import graphjit as gj
from graphjit._device_control import Update, every
from graphjit.transforms.control import lower_control

from .control_programs import program
from .programs import add, increment
from .test_loops import B, N, added, flat, gj_leaves, ramp, scaled_sum


@cuda.jit
def store(x, i, f, b, c):
    x[0] = x[0] + i + f + (1 if b else 0) + c.real


def host(value):
    """A number that the device computed comes as an array without axes."""
    return np.asarray(value.copy_to_host() if isinstance(value, gj.Array) else value)


def same(function, *make, **options):
    """Results and arguments of a graphed call, twice, are those of the eager one."""
    graphed = gj.graphed(function, **options)
    for _ in range(2):
        mine, eager = ([m() if callable(m) else m for m in make] for _ in range(2))
        kept = [gj.full(n, np.nan) for n in (N, 2 * N) for _ in range(6)]
        del kept  # fresh memory is no number
        compared(gj_leaves((graphed(*mine), mine)), gj_leaves((function(*eager), eager)))
    return graphed


def compared(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        if other is None:
            assert one is None
            continue
        one, other = host(one), host(other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def one(value, dtype=None):
    return lambda: gj.array(np.array([value], dtype))


def table(rows=4):
    return gj.array(np.arange(float(rows * N)).reshape(rows, N))


# -- ranges that only the run knows ---------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 21, -3])
def test_a_range_given_as_a_number(backend, n):
    same(lambda x, n: gj.fori_loop(0, n, lambda i, u: scaled_sum(u, i, x), x), ramp, n)


def test_one_trace_serves_all_ranges(backend):
    def f(x, lower, upper):
        return gj.fori_loop(lower, upper, lambda i, c: (c[1], scaled_sum(c[0], i, c[1])), (x, x))

    graphed = gj.graphed(f)
    for lower, upper in [(0, 0), (-2, 9), (3, 4), (5, 2), (1, 18)]:
        compared(gj_leaves(graphed(ramp(), lower, upper)), gj_leaves(f(ramp(), lower, upper)))
    assert graphed.cache_info().misses == 1


def test_ranges_from_arrays_items_and_outer_indices(backend):
    def f(x, n):
        def body(i, c):
            inner = gj.fori_loop(i, n.item(), lambda j, t: t + i * j, c[1])
            return added(c[0], x), inner

        u, t = gj.fori_loop(0, n, body, (x, 0))
        return u, t

    same(f, ramp, one(4))


def test_swaps_kept_arrays_and_writes_through_the_carry(backend):
    def f(x, y, z, n):
        def body(i, c):
            a, b, kept = c
            increment[1, B](kept)
            increment[1, B](a)
            return b, a, kept

        return gj.fori_loop(0, n, body, (x, y, z))

    same(f, ramp, lambda: ramp(first=3), ramp, 5)
    shared = ramp()
    graphed, n = gj.graphed(f), 4
    graphed(shared, shared, shared, n)
    eager = ramp()
    f(eager, eager, eager, n)
    np.testing.assert_array_equal(host(shared), host(eager))


def test_temporaries_in_another_order(backend):
    def f(x, y, n):
        def body(i, c):
            a, b, old = c
            s = added(a, b)
            t = scaled_sum(s, i, old)
            scrap = added(t, t)
            increment[1, B](s)
            return t, added(scrap, s), s

        return gj.fori_loop(0, n, body, (x, y, x))

    same(f, ramp, ramp, 11)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::-1],
        lambda x: x[::2],
        lambda x: x[1:4],
        lambda x: x[:0],
        lambda x: x[::-3],
    ],
)
def test_strided_and_empty_arrays(backend, view):
    def f(x, y, n):
        def body(i, c):
            a, b = c
            increment[1, B](a)
            return b, a

        return gj.fori_loop(0, n, body, (view(x), view(y)))

    same(f, ramp, lambda: ramp(first=2), 3)


def test_two_dimensions_and_overlapping_arrays(backend):
    def f(x, n):
        def body(i, c):
            flat(c[0])
            return c[1], c[0]

        return gj.fori_loop(0, n, body, (x[:3], x[1:]))

    same(f, lambda: gj.array(np.arange(12.0).reshape(4, 3)), 3)
    same(f, lambda: gj.array(np.arange(12.0).reshape(3, 4)).T, 3)


def test_outer_arrays_and_views_as_results(backend):
    weights = ramp(first=4)

    def f(xs, n):
        def body(i, c):
            u, row = c
            add[1, B](u, weights, weights)
            return added(u, row), xs[i]

        return gj.fori_loop(0, n, body, (xs[0], xs[1])), xs[n * 0 + gj.asarray([2]).item()]

    before = host(weights).copy()
    got = [host(v) for v in gj_leaves(gj.graphed(lambda xs, n: f(xs, n)[0])(table(), 3))]
    mine, weights[...] = host(weights).copy(), before
    expected = [host(v) for v in gj_leaves(f(table(), 3)[0])]
    compared([*got, mine], [*expected, host(weights)])


def test_options(backend):
    def f(x, y, n):
        def body(i, c):
            increment[1, B](c[0])
            return c[1], c[0]

        return gj.fori_loop(0, n, body, (x, y))

    same(f, ramp, ramp, 3, inputs="copy")
    same(f, ramp, ramp, 3, outputs="static")

    def g(x, y, n):
        return gj.fori_loop(0, n, lambda i, c: (c[1], added(c[0], c[1])), (x, y))

    donated = gj.graphed(g, donate_argnames="x")
    for n in (0, 1, 4):
        compared(gj_leaves(donated(ramp(), ramp(), n)), gj_leaves(g(ramp(), ramp(), n)))


def _in_place(x, n):
    def body(i, u):
        increment[1, B](u)
        return u

    return gj.fori_loop(0, n, body, x)


def _in_place_if(x, n):
    gj.cond(n > 2, lambda: increment[1, B](x), lambda: None)
    return n


@pytest.mark.parametrize("f", [_in_place, _in_place_if])
def test_what_is_written_in_place_is_copied_back(cpu, f):
    same(f, ramp, 5, inputs="copy")


@pytest.mark.parametrize("f", [_in_place, _in_place_if])
def test_what_is_written_in_place_is_known(cpu, f):
    graph = gj.graphed(f).lower(ramp(), 5).schedule.graph
    assert graph.mutated == {graph.inputs[0].buffer}


# -- long ranges ----------------------------------------------------------------------------------


def test_a_long_static_range(backend):
    def f(x):
        return gj.fori_loop(0, 2_501, lambda i, c: (c[1], scaled_sum(c[0], i % 2, x)), (x, x))

    same(f, ramp)


def test_ten_million_iterations(backend):
    f = gj.graphed(lambda k: gj.fori_loop(0, 10**7, lambda i, t: t + 1, k.item()))
    assert host(f(gj.array([3]))) == 10**7 + 3
    start = time.perf_counter()
    assert host(f(gj.array([4]))) == 10**7 + 4
    assert backend != "cpu" or time.perf_counter() - start < 5


def test_long_loops_over_rows_have_small_updates(cpu):
    def f(xs):
        return gj.fori_loop(0, 5_000, lambda i, u: added(u, xs[i]), xs[0])

    nodes = lower_control(gj.make_graph(f)(gj.zeros((5_000, 2)))).nodes
    assert max(len(node.all) for node in every(nodes) if isinstance(node, Update)) < 40


def test_nested_ranges_do_not_multiply(cpu):
    def f(x, n):
        def nest(depth, u):
            if not depth:
                return added(u, x)
            return gj.fori_loop(0, n, lambda i, v: nest(depth - 1, v), u)

        return nest(3, x)

    assert len(list(every(lower_control(gj.make_graph(f)(ramp(), 2)).nodes))) < 500


# -- while_loop -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 3, 50])
def test_while(backend, limit):
    def f(x, limit):
        def body(c):
            return added(c[0], x), c[1] + 1, c[2] * 0.5

        return gj.while_loop(lambda c: c[1] < limit, body, (x, 0, 1.0))

    same(f, ramp, limit)


@pytest.mark.parametrize("every_, limit", [(1, None), (1, 0), (1, 3), (4, None), (4, 8), (4, 100)])
def test_limits_of_while(backend, every_, limit):
    def f(x, n):
        return gj.while_loop(
            lambda c: c[1] < n,
            lambda c: (added(c[0], x), c[1] + 1),
            (x, 0),
            max_iterations=limit,
            check_every=every_,
        )

    same(f, ramp, 6)


@pytest.mark.parametrize("holds", [False, 0, 0.0, True])
def test_conditions_that_are_known(backend, holds):
    same(lambda x: gj.while_loop(lambda u: holds, lambda u: added(u, x), x, max_iterations=3), ramp)


def test_a_condition_from_a_kernel(backend):
    def f(x):
        def holds(u):
            doubled = added(u, u)
            return doubled[1:2].item() < 20

        return gj.while_loop(holds, lambda u: added(u, x), x)

    same(f, ramp)


def test_an_empty_body(backend):
    same(lambda x, n: gj.fori_loop(0, n, lambda i, c: c, (x, 3)), ramp, 4)
    same(lambda x, n: gj.fori_loop(0, n, lambda i, c: None, None), ramp, 4)
    same(lambda x: gj.while_loop(lambda u: u[0].item() > 5, lambda u: u, x), ramp)


def test_the_condition_is_not_evaluated_beyond_the_limit(cpu):
    def f(xs):
        return gj.while_loop(
            lambda c: xs[c[1]][0].item() < 1000,
            lambda c: (added(c[0], c[0]), c[1] + 1),
            (xs[1], 0),
            max_iterations=xs.shape[0],
        )

    same(f, table)


def test_writes_of_the_condition_beyond_the_limit(cpu):
    def f(x, y):
        def holds(u):
            increment[1, B](y)
            return True

        return gj.while_loop(holds, lambda u: added(u, x), x, max_iterations=3)

    same(f, ramp, ramp)


# -- branches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 5])
def test_cond_gives_arguments_temporaries_or_outer_arrays(backend, k):
    outer = ramp(first=9)

    def f(x, y, k):
        a = gj.cond(k > 2, lambda u: u, lambda u: added(u, y), x)
        b = gj.cond(k > 2, lambda: outer, lambda: x)
        c, t = gj.cond(k > 2, lambda: (x[1:3], 1), lambda: (y[2:4], k * 2))
        increment[1, B](a)
        increment[1, B](c)
        return a, b, c, t

    same(f, ramp, ramp, k)


@pytest.mark.parametrize("k", [-5, 0, 1, 2, 99])
def test_switch(backend, k):
    branches = [lambda u: added(u, u), lambda u: u, lambda u: scaled_sum(u, 3.0, u)]
    same(lambda x, k: gj.switch(k, branches, x), ramp, k)
    same(lambda x, k: gj.switch(k.item(), branches, x), ramp, one(k))
    same(lambda x, k: gj.switch(k, branches, x), ramp, one(k, np.int8))


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, np.nan, True, False, 3, 2j])
def test_arrays_as_predicates(backend, value):
    same(lambda x, p: gj.cond(p, lambda: added(x, x), lambda: x), ramp, one(value))
    same(lambda x, p: gj.cond(p.item(), lambda: 1, lambda: 2), ramp, one(value))


def test_a_branch_in_a_loop_in_a_loop(backend):
    def f(x, y, n):
        def outer(carry):
            i, c = carry

            def inner(j, c):
                a, b = c
                return gj.cond(
                    (a[1].item() + i + j) % 2 < 1,
                    lambda: (b, scaled_sum(a, j, b)),
                    lambda: (added(a, y), a),
                )

            return i + 1, gj.fori_loop(0, i + 1, inner, c)

        return gj.while_loop(lambda c: c[0] < n, outer, (0, (x, y)))

    same(f, ramp, lambda: ramp(first=1), 4)


def test_while_in_scan_and_scan_in_while(backend):
    def f(xs):
        def body(u, x):
            v, k = gj.while_loop(lambda c: c[1] < 2, lambda c: (added(c[0], x), c[1] + 1), (u, 0))
            return v, (u, k)

        def again(c):
            u, (us, ks) = gj.scan(body, c[0], xs)
            return added(u, us[1]), c[1] + ks[0].item()

        return gj.while_loop(lambda c: c[1] < 5, again, (xs[0], 0))

    same(f, table)


def test_deep_nesting(backend):
    def f(x, k):
        def nest(depth, u):
            if not depth:
                return added(u, x)
            return gj.cond(
                k.item() > depth, lambda v: nest(depth - 1, v), lambda v: scaled_sum(v, depth, v), u
            )

        return nest(7, x)

    same(f, ramp, one(9))
    same(f, ramp, one(3))

    def loops(x):
        def nest(depth, u):
            if not depth:
                return added(u, x)
            body = lambda c: (nest(depth - 1, c[0]), c[1] + 1)  # noqa: E731
            return gj.while_loop(lambda c: c[1] < 1 + depth % 2, body, (u, 0))[0]

        return nest(3, x)

    same(loops, ramp)


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", "?"])
def test_items(backend, dtype):
    same(lambda x: (x.item(), x.item() * 2 + 1, x.item() == 1), one(1, dtype))


def test_items_as_arguments_and_elements(backend):
    def f(x, i, t, b, c):
        store[1, 1](x, i.item(), t.item(), b.item(), c.item())
        x[1:3] = t.item()
        x[4] = i.item()
        return x

    same(f, ramp, one(3), one(0.5), one(True), one(2 + 1j))


@pytest.mark.parametrize("k", [0, 2, -1, -4])
def test_items_as_first_indices(backend, k):
    def f(xs, k):
        xs[k.item(), 1:] = xs[1][1:]
        increment[1, B](xs[k.item() * 0 - 1])
        return added(xs[k.item()], xs[::-1][k.item()]), xs[k.item()]

    same(f, table, one(k))


@pytest.mark.parametrize("k", [4, -5, 10**12])
def test_an_item_out_of_bounds(backend, k):
    f = gj.graphed(lambda xs, k: added(xs[k.item()], xs[0]))
    what = rf"index {k} .* 4 elements in <lambda> \(at .*test_control\.py:\d+"
    with pytest.raises(IndexError, match=what):
        # A GPU computes it later: whatever waits for it says so.
        f(table(), gj.array([k])).block_until_ready()
    gj.synchronize()
    compared([f(table(), gj.array([1]))], [added(table()[1], table()[0])])


def test_arithmetic(backend):
    def f(x, y):
        a, b = x.item(), y.item()
        return [a // b, a % b, a / b, -a, abs(a), round(a), round(b, 1), a**2, a < b, a != b,
                np.minimum(a, b)]  # fmt: skip

    same(f, one(-7.5), one(2.25))
    same(lambda x, y: f(x, y)[:2], one(-7), one(2))
    same(lambda x: (math.floor(x.item()), math.ceil(x.item())), one(-2.5))


@pytest.mark.parametrize("function", [np.multiply, np.add, np.subtract, np.floor_divide])
def test_arithmetic_with_numpy_numbers(cpu, function):
    same(lambda x: function(np.float64(2), x.item()), one(-7.5))


def test_roots_of_numpy(cpu):
    same(lambda x: np.sqrt(x.item()), one(7.5))


def test_large_unsigned_items(cpu):
    for f in (lambda x: x.item(), lambda x: gj.cond(x, lambda: 1, lambda: 2)):
        with pytest.raises(gj.TraceError, match=r"uint64 can't be read as a number .*test_control"):
            gj.graphed(f)(one(5, np.uint64)())


def test_inverted_booleans(cpu):
    same(lambda x: ~x.item(), one(True))


def test_negative_exponents(cpu):
    for f in (lambda x: x.item() ** -2, lambda x: 7 ** x.item(), lambda x: pow(x.item(), -1)):
        with pytest.raises(gj.TraceError, match=r"use a float"):
            gj.graphed(f)(one(2)())
    same(lambda x: (x.item() ** 2, x.item() ** -2.0, 2.0 ** x.item()), one(-3))


def test_float32_beside_python_floats(cpu):
    def f(k):
        return gj.while_loop(lambda t: t != 0.1, lambda t: t + np.float32(1), k, max_iterations=3)

    same(f, np.float32(0.1))


def test_functions_of_math_without_a_number_argument(cpu):
    same(lambda x: math.sqrt(x.item()), one(7.5))
    same(lambda: gj.fori_loop(0, 3, lambda i, t: t + math.sqrt(i), 0.0))


def test_numbers_of_the_same_bits(cpu):
    f = gj.graphed(
        lambda x: gj.while_loop(lambda h: h < 10, lambda h: np.minimum(h * x.item(), 100.0), 1.0)
    )
    assert host(f(one(2.0)())) == 16.0
    g = gj.graphed(lambda x: gj.cond(x, lambda: np.float64(1), lambda: 2.0))
    assert host(g(one(True)())) == 1.0 and host(g(one(False)())) == 2.0


def test_messages_of_a_loop_with_a_limit(cpu):
    body = lambda c: (c[0], 1.0)  # noqa: E731
    with pytest.raises(gj.TraceError, match=r"changes carry\[1\] from int to float"):
        gj.graphed(lambda x: gj.while_loop(lambda c: True, body, (x, 0), max_iterations=5))(
            one(1)()
        )


@pytest.mark.parametrize("k", ["2**63 + 5", "np.uint64(2**63 + 5)"])
def test_large_indices_of_switch(cpu, k):
    code = f"""
import numpy as np, graphjit as gj
f = gj.graphed(lambda x, k: gj.switch(k, [lambda: x.copy(), lambda: x], ))
with gj.use_backend("cpu"):
    assert (f(gj.ones(3), {k}).copy_to_host() == 1).all()
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_an_axis_of_no_elements(cpu):
    code = """
import numpy as np, graphjit as gj
from tests.programs import increment
memory = np.zeros((60, 7))
f = gj.graphed(lambda xs, k: increment[1, 32](xs[3:3][k.item()]))
with gj.use_backend("cpu"):
    try:
        f(gj.asarray(memory)[10:20], gj.array([0]))
    except IndexError:
        assert not memory.any()
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, message",
    [
        (lambda i, c: (c[0][1:], c[1]), r"changes carry\[0\] from float64\[7\] to float64\[6\]"),
        (lambda i, c: (c[0], c[1] / 2), r"changes carry\[1\] from int to float"),
        (lambda i, c: (gj.zeros(N, np.float32), 1), r"from float64\[7\] to float32\[7\]"),
        (lambda i, c: (c[0][::-1], c[1]), r"changes the strides of carry\[0\] from .*x\.copy"),
        (lambda i, c: [*c], r"returned a carry of"),
    ],
)
def test_a_carry_that_changes(cpu, body, message):
    loops = [
        lambda x, n: gj.fori_loop(0, n, body, (x, 1)),
        lambda x, n: gj.while_loop(lambda c: n > 0, lambda c: body(0, c), (x, 1)),
    ]
    for loop in loops:
        f = gj.graphed(loop)
        with pytest.raises(gj.TraceError, match=rf"(?s){message}") as raised:
            f(ramp(), 3)
        assert "test_control.py:" in str(raised.value)
        assert f.cache_info().size == 0


@pytest.mark.parametrize(
    "other, message",
    [
        (lambda x: x[1:], "float64"),
        (lambda x: gj.zeros(N, np.int32), "int32"),
        (lambda x: x[::-1], "strides"),
        pytest.param(
            lambda x: (x, x),
            "structure",
        ),
        (lambda x: 1.0, "float"),
    ],
)
def test_branches_that_differ(cpu, other, message):
    f = gj.graphed(lambda x, k: gj.cond(k > 0, lambda: x, lambda: other(x)))
    with pytest.raises(gj.TraceError, match=rf"(?s){message}.*test_control\.py:\d+"):
        f(ramp(), 1)
    f = gj.graphed(lambda x, k: gj.switch(k, [lambda: x, lambda: x, lambda: other(x)]))
    with pytest.raises(gj.TraceError, match=rf"(?s){message}.*test_control\.py:\d+"):
        f(ramp(), 1)


@pytest.mark.parametrize("kind", ["fori", "while", "condition", "cond", "switch"])
@pytest.mark.parametrize(
    "leak", [lambda u: gj.zeros(N), lambda u: u[0].item(), lambda u: added(u, u)]
)
def test_leaks(cpu, kind, leak):
    def f(x, n):
        kept = []

        def keep(u):
            kept.append(leak(u))
            return u

        if kind == "fori":
            gj.fori_loop(0, n, lambda i, u: keep(u), x)
        elif kind == "while":
            gj.while_loop(lambda u: u[0].item() > 9, keep, x)
        elif kind == "condition":
            gj.while_loop(lambda u: keep(u)[0].item() > 9, lambda u: u, x)
        elif kind == "cond":
            gj.cond(n > 9, keep, lambda u: u, x)
        else:
            gj.switch(n, [lambda u: u, keep], x)
        return kept[0]

    with pytest.raises(gj.LeakedTracerError, match=r"test_control\.py:\d+"):
        gj.graphed(f)(ramp(), 2)


def test_bad_arguments(cpu):
    x = ramp()
    with pytest.raises(TypeError, match="integer"):
        gj.graphed(lambda x, t: gj.fori_loop(0, t, lambda i, u: u, x))(x, 2.5)
    with pytest.raises(TypeError, match="integer"):
        gj.graphed(lambda x: gj.switch(x[0].item(), [lambda: x]))(x)
    with pytest.raises((TypeError, ValueError, gj.TraceError), match=r"shape|one element"):
        gj.graphed(lambda x: gj.cond(x, lambda: x, lambda: x))(x)
    with pytest.raises((TypeError, ValueError, gj.TraceError), match=r"shape|one element"):
        gj.graphed(lambda x: gj.while_loop(lambda u: u, lambda u: u, x))(x)
    with pytest.raises(ValueError, match="one element"):
        gj.graphed(lambda x: x.item())(x)
    with pytest.raises(ValueError, match="no branches"):
        gj.graphed(lambda k: gj.switch(k, []))(1)
    for limit, each in [(-1, 1), (3, 2), (None, 0), (4, -2)]:

        def f(x, limit=limit, each=each):
            return gj.while_loop(
                lambda u: False, lambda u: u, x, max_iterations=limit, check_every=each
            )

        for run in (f, gj.graphed(f, static_argnames=("limit", "each"))):
            with pytest.raises(ValueError, match="max_iterations"):
                run(x)
    with pytest.raises(TypeError):
        gj.while_loop(lambda u: False, lambda u: u, x, max_iterations=1.5)


def test_functions_that_no_device_computes(cpu):
    f = gj.graphed(lambda k: np.gcd(k.item(), 4))
    with pytest.raises(gj.TraceError, match=r"gcd can't be computed .*test_control\.py:\d+"):
        f(gj.array([6]))
    assert f.cache_info().size == 0


def test_calls_after_errors(cpu):
    def f(x, fails):
        def body(i, u):
            if fails:
                raise KeyError("no")
            return added(u, x)

        return gj.fori_loop(0, x[1].item() > 0, body, x)

    graphed = gj.graphed(f, static_argnames="fails")
    with pytest.raises(KeyError):
        graphed(ramp(), True)
    compared([graphed(ramp(), False)], [f(ramp(), False)])


# -- interruptions and threads --------------------------------------------------------------------


def _loops_if(xs, k, n):
    increment[1, B](xs[k.item()])
    return gj.while_loop(lambda u: n.item() > 0, lambda u: u, xs)


def _interrupted(f, *args):
    # What a shell starts in the background ignores interruptions.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            f(*args)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


def test_an_endless_loop_is_interrupted(cpu):
    f = gj.graphed(_loops_if)
    f(table(), gj.array([0]), gj.array([0]))
    _interrupted(f, table(), gj.array([1]), gj.array([1]))
    same(_loops_if, table, one(1), one(0))
    compared([f(table(), gj.array([1]), gj.array([0]))], [_loops_if(table(), one(1)(), one(0)())])


def test_errors_of_a_call_that_was_interrupted(cpu):
    f = gj.graphed(_loops_if)
    f(table(), gj.array([0]), gj.array([0]))
    _interrupted(f, table(), gj.array([9]), gj.array([1]))
    f(table(), gj.array([1]), gj.array([0]))


def test_threads(backend):
    def f(x, n):
        return gj.fori_loop(0, n, lambda i, c: (c[1], added(c[0], x)), (x, x))[0]

    graphed, wrong = gj.graphed(f), []
    expected = {n: host(f(ramp(), n)) for n in range(6)}

    def work(first):
        for n in range(60):
            n = (n + first) % 6
            if not (host(graphed(ramp(), n)) == expected[n]).all():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- any program ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_any_program(backend, seed):
    make = [lambda n=n: gj.array((np.arange(float(N)) * 3 + n) % 10) for n in range(3)]
    same(program(random.Random(seed), 2, 3), *make, table, one(5), 2, 1)
