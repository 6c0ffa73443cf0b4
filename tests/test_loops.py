"""Loops recorded as one node and unrolled, against the same Python code run eagerly."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from numba import cuda

import graphjit as gj
from graphjit._control import Loop

from .programs import add, increment

N = 7
B = 32


@cuda.jit
def axpy(x, k, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + k * y[i]


@cuda.jit
def increment_2d(x):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        x[i, j] += 1


def added(x, y):
    out = gj.empty_like(x)
    add[1, B](x, y, out)
    return out


def scaled_sum(x, k, y):
    out = gj.empty_like(x)
    axpy[1, B](x, k, y, out)
    return out


def ramp(count=N, first=0.0):
    return gj.array(np.arange(count, dtype=float) + first)


def host(value):
    return value.copy_to_host() if isinstance(value, gj.Array) else value


def same(function, *make):
    """Results and arguments of a graphed call, twice, are those of the eager one."""
    graphed = gj.graphed(function)
    for _ in range(2):
        mine, eager = ([m() if callable(m) else m for m in make] for _ in range(2))
        got, expected = graphed(*mine), function(*eager)
        got, expected = (gj_leaves(value) for value in ((got, mine), (expected, eager)))
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert type(one) is type(other)
            np.testing.assert_array_equal(host(one), host(other))
    return graphed


def gj_leaves(value):
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in gj_leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in gj_leaves(item)]
    return [value]


# -- fori_loop ------------------------------------------------------------------------------------


def test_fresh_arrays(backend):
    same(lambda x, y: gj.fori_loop(0, 5, lambda i, u: added(u, y), x), ramp, ramp)


@pytest.mark.parametrize("bounds", [(0, 0), (3, 2), (0, 1), (-2, 3), (np.int8(1), 4)])
def test_ranges(backend, bounds):
    same(lambda x: gj.fori_loop(*bounds, lambda i, u: scaled_sum(u, i, x), x), ramp)


def test_the_index_in_arithmetic(backend):
    def f(x, dt):
        return gj.fori_loop(0, 6, lambda i, u: scaled_sum(u, (i + 1) * dt, x), x)

    graphed = same(f, ramp, 0.5)
    x = ramp()
    assert (graphed(x, 2.0).copy_to_host() == f(x, 2.0).copy_to_host()).all()
    assert graphed.cache_info().misses == 1


def test_writes_in_place_reach_the_array_given_first(backend):
    def f(x, y):
        def body(i, u):
            increment[1, B](u)
            increment[1, B](y)
            return added(u, y)

        return gj.fori_loop(0, 4, body, x)

    same(f, ramp, ramp)


def test_swaps_and_arrays_that_are_kept(backend):
    def f(x, y, z):
        def body(i, carry):
            a, b, kept = carry
            increment[1, B](kept)
            return b, added(a, b), kept

        return gj.fori_loop(0, 7, body, (x, y, z))

    same(f, ramp, ramp, ramp)
    lowered = gj.graphed(f, optimize=False).lower(ramp(), ramp(), ramp())
    kernels = [node.kernel.name for node in lowered.schedule.nodes]
    assert kernels == ["increment", "add"] * 7  # nothing is copied


def test_an_array_carried_twice(backend):
    def f(x):
        def body(i, carry):
            a, b = carry
            increment[1, B](a)
            return b, added(a, b)

        return gj.fori_loop(0, 5, body, (x, x))

    same(f, ramp)


def test_numbers_are_carried(backend):
    def f(x, k):
        def body(i, carry):
            u, t, n = carry
            return scaled_sum(u, t, x), t * k, n + i

        return gj.fori_loop(0, 5, body, (x, 1.5, 0))

    same(f, ramp, 0.5)
    same(lambda k: gj.fori_loop(0, 5, lambda i, t: t * k + i, 1.0), 3.0)


def test_numbers_that_take_very_many_steps(cpu):
    # Each step uses the one before twice, and there are more than Python's stack is deep.
    def f(x, k):
        def body(i, c):
            u, t = c
            for _ in range(60):
                t = t + t
            return u, t * 2.0**-60 + i

        _, t = gj.fori_loop(0, 3, body, (x, k))
        for _ in range(3000):
            t = (t + t) * 0.5
        return t, scaled_sum(x, t, x)

    same(f, ramp, 0.75)


def test_a_number_that_depends_on_no_argument(backend):
    f = gj.graphed(lambda x: gj.fori_loop(0, 3, lambda i, c: (c[0], c[1] + i), (x, 10)))
    _, t = f(ramp())
    assert t == 13 and type(t) is int


@dataclass
class State:
    u: object
    t: object


def test_pytrees(backend):
    def f(state, extra):
        def body(i, state):
            return State(
                {"a": added(state.u["a"], state.u["b"][0]), "b": state.u["b"]}, state.t + 1
            )

        result = gj.fori_loop(0, 3, body, state)
        return result.u, result.t

    same(lambda x, y: f(State({"a": x, "b": [y]}, 0), None), ramp, ramp)


def test_loops_in_loops(backend):
    def f(x, y):
        def outer(i, carry):
            u, v = carry
            first = gj.fori_loop(0, 3, lambda j, w: scaled_sum(w, i * 10 + j, v), u)
            second = gj.fori_loop(0, 2, lambda j, w: added(w, first), v)
            return second, first

        return gj.fori_loop(0, 4, outer, (x, y))

    same(f, ramp, ramp)


def test_the_index_of_a_view(backend):
    def f(xs, out):
        def body(i, total):
            u = added(total, xs[i])
            out[i, 1:] = u[1:]
            increment[1, B](out[i - 1])
            out[i][0] = i
            return u

        return gj.fori_loop(0, 4, body, gj.zeros(N))

    make = [lambda: gj.array(np.arange(5.0 * N).reshape(5, N)), lambda: gj.zeros((5, N))]
    same(f, *make)


def test_indices_of_numpy_classes(backend):
    def f(xs):
        def body(i, u):
            return added(added(u, xs[np.int64(1) + i]), xs[np.minimum(i, 2)])

        return gj.fori_loop(0, 4, body, xs[0])

    same(f, lambda: gj.array(np.arange(5.0 * N).reshape(5, N)))


def test_an_index_out_of_bounds(backend):
    f = gj.graphed(lambda xs: gj.fori_loop(0, 4, lambda i, u: added(u, xs[i + 2]), xs[0]))
    xs = gj.zeros((5, N))
    with pytest.raises(IndexError, match=r"index 5 .* 5 elements \(at .*test_loops.py:\d+"):
        f(xs)
    assert f.cache_info().size == 0


def test_arrays_from_outside_and_graphed_functions_inside(backend):
    weights = ramp(first=2.0)

    @gj.graphed
    def step(u, k):
        return scaled_sum(u, k, weights)

    def f(x):
        def body(i, u):
            return added(step(u, i), weights)

        return gj.fori_loop(0, 4, body, x)

    same(f, ramp)
    weights[...] = 5.0
    same(f, ramp)


def square(order="C"):
    return gj.array(np.array(np.arange(9.0).reshape(3, 3), order=order))


def flat(x):
    increment_2d[(1, 1), (8, 8)](x)


def test_strides_that_change(backend):
    same(lambda x: gj.fori_loop(0, 4, lambda i, u: added(u, u), x[::2]), lambda: ramp(2 * N))
    same(lambda x: gj.fori_loop(0, 0, lambda i, u: u.T, x), square)
    same(lambda x: gj.fori_loop(0, 3, lambda i, u: u.T, x), square)

    def reversed_in_place(x):
        def body(i, u):
            increment[1, B](u)
            return u[::-1]

        return gj.fori_loop(0, 4, body, x)

    same(reversed_in_place, ramp)

    def from_another(x, y):
        def body(i, u):
            flat(u)
            return y.T

        result = gj.fori_loop(0, 5, body, x)
        flat(result)
        return result

    same(from_another, square, square)

    def slices(x):
        def body(i, c):
            a, b = c
            increment[1, B](a)
            return b, added(a, b)

        return gj.fori_loop(0, 5, body, (x[0:8:2], x[4:8]))

    same(slices, lambda: ramp(8))
    with pytest.raises(gj.TraceError, match=r"other strides at every iteration .*test_loops"):
        gj.graphed(lambda x: gj.fori_loop(0, 9, lambda i, u: u.T, x))(square())


def test_swaps_of_different_strides(backend):
    def swap(x, y):
        def body(i, c):
            flat(c[0])
            return c[1], c[0]

        return gj.fori_loop(0, 3, body, (x, y))

    same(swap, square, lambda: square("F"))
    # Strides along axes of one element make no difference.
    same(swap, lambda: gj.zeros((7, 1)).T, lambda: gj.zeros((1, 7)))
    same(lambda x, y: swap(x, y[0][None]), lambda: gj.zeros((1, 7)), lambda: gj.zeros((4, 7)))


def test_scan_stacks_while_strides_change(backend):
    def f(xs):
        def body(u, x):
            flat(u)
            return x.T, u

        return gj.scan(body, xs[0], xs)

    same(f, lambda: gj.array(np.arange(36.0).reshape(4, 3, 3)))


def test_read_only_arrays(backend):
    def read_only():
        host = np.arange(float(N))
        host.flags.writeable = False
        return gj.asarray(host)

    if backend != "cpu":
        pytest.skip("uploaded, and then writeable")

    def written_later(x, y):
        def body(i, u):
            increment[1, B](u)
            return y

        return gj.fori_loop(0, 2, body, x)

    for run in (written_later, gj.graphed(written_later)):
        with pytest.raises(gj.KernelCompileError, match=r"[Cc]annot (modify|assign)|read-?only"):
            run(ramp(), read_only())

    def fresh_later(x, y):
        result = gj.fori_loop(0, 3, lambda i, u: added(u, y), x)
        increment[1, B](result)
        return result

    same(fresh_later, read_only, ramp)


def test_dicts_in_another_order(backend):
    def f(x, y):
        result = gj.fori_loop(
            0, 3, lambda i, c: {"b": c["a"], "a": added(c["a"], c["b"])}, {"a": x, "b": y}
        )
        return result["a"], result["b"]

    same(f, ramp, ramp)


def test_memory_does_not_grow_with_the_iterations(backend):
    def f(x):
        def body(i, carry):
            a, b = carry
            return added(added(a, b), b), a

        return gj.fori_loop(0, 100, body, (x, x))

    x = ramp()
    lowered = gj.graphed(f, optimize=False).lower(x)
    assert len(lowered.schedule.graph.nodes) == 200
    assert lowered.schedule.arena.nbytes <= 5 * 256
    # A result is written by the last iterations only: binding a new one is cheap.
    results = set(lowered.schedule.graph.results)
    users = [
        k
        for k, node in enumerate(lowered.schedule.graph.nodes)
        if any(access.view.buffer in results for access in (*node.reads, *node.writes))
    ]
    assert min(users) >= 196


def test_the_body_is_traced_once(backend):
    traced = []

    @gj.graphed
    def f(x):
        def body(i, u):
            traced.append(i)
            return added(u, u)

        return gj.fori_loop(0, 50, body, x)

    assert (f(gj.ones(2)).copy_to_host() == 2.0**50).all()
    f(gj.ones(2))
    assert len(traced) == 1
    graph = f.trace(gj.ones(2)).graph
    (loop,) = graph.nodes
    assert isinstance(loop, Loop) and len(loop.body.nodes) == 1
    assert "for 0 <= i < 50 (carry = x)" in str(graph)
    assert str(graph) == str(f.trace(gj.ones(2)).graph)
    assert graph == f.trace(gj.ones(2)).graph


# -- scan -----------------------------------------------------------------------------------------


def test_scan_stacks(backend):
    def f(xs, ks):
        def body(carry, x):
            u, t = carry
            new = added(u, x["a"])
            return (new, t + 1.0), {"new": new, "old": u, "t": t * 2}

        return gj.scan(body, (gj.zeros(N), 0.5), {"a": xs, "b": ks})

    def compared(xs, ks):
        (u, t), ys = f(xs, ks)
        return u, t, ys["new"], ys["old"], ys["t"]

    make = [lambda: gj.array(np.arange(4.0 * N).reshape(4, N)), lambda: gj.zeros((4, 2, 3))]
    same(compared, *make)


def test_scan_without_arrays(backend):
    def f(x):
        def body(u, nothing):
            assert nothing is None
            u = added(u, x)
            return u, u

        return gj.scan(body, x, length=5)[1]

    same(f, ramp)


def test_scan_over_nothing(backend):
    f = gj.graphed(lambda xs: gj.scan(lambda u, x: (added(u, x), u), gj.full(3, 2.0), xs))
    carry, ys = f(gj.zeros((0, 3)))
    assert (carry.copy_to_host() == 2).all() and ys.shape == (0, 3)
    with pytest.raises(ValueError, match="no y tells"):
        gj.scan(lambda u, x: (u, u), gj.zeros(3), gj.zeros((0, 3)))


def test_scan_in_a_loop_and_a_loop_in_scan(backend):
    def f(xs):
        def outer(i, u):
            def body(v, x):
                w = gj.fori_loop(0, 2, lambda j, w: scaled_sum(w, j + i, x), v)
                return w, w

            last, ys = gj.scan(body, u, xs)
            return added(last, ys[1])

        return gj.fori_loop(0, 3, outer, xs[0])

    same(f, lambda: gj.array(np.arange(3.0 * N).reshape(3, N) / 8))


@pytest.mark.parametrize(
    "xs, length", [(lambda: (gj.zeros(3), gj.zeros(4)), None), (lambda: None, None),
                   (lambda: gj.zeros(3), 4), (lambda: gj.zeros(()), None), (lambda: None, -2)]
)  # fmt: skip
def test_scan_needs_one_length(backend, xs, length):
    with pytest.raises(ValueError, match=r"scan needs one length|can't be negative"):
        gj.scan(lambda c, x: (c, x), 0.0, xs(), length)
    with pytest.raises(ValueError, match=r"scan needs one length|can't be negative"):
        gj.graphed(lambda x: gj.scan(lambda c, x: (c, x), x, xs(), length))(gj.zeros(3))


# -- bodies that are refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, message",
    [
        (lambda i, c: (c[0][1:], c[1]), r"changes carry\[0\] from float64\[7\] to float64\[6\]"),
        (lambda i, c: (c[0], 0.5), r"changes carry\[1\] from int to float"),
        (lambda i, c: (c[0], c[1] / 2), r"changes carry\[1\] from int to float"),
        (lambda i, c: (c[1], c[1]), r"changes carry\[0\] from float64\[7\] to int"),
        (lambda i, c: (gj.zeros(N, np.float32), 1), r"from float64\[7\] to float32\[7\]"),
        (
            lambda i, c: [c[0], c[1]],
            r"returned a carry of .* it was given one of",
        ),
        (lambda i, c: c[0], r"of the structure"),
    ],
)
def test_a_carry_that_changes(cpu, body, message):
    f = gj.graphed(lambda x: gj.fori_loop(0, 3, body, (x, 1)))
    with pytest.raises(gj.TraceError, match=rf"fori_loop's body.*{message}.*test_loops\.py:\d+"):
        f(ramp())
    assert f.cache_info().size == 0


def test_other_uses_of_the_index(cpu):
    with pytest.raises(gj.ConcretizationError, match="the first one only"):
        gj.graphed(lambda xs: gj.fori_loop(0, 2, lambda i, u: xs[:, i], xs[0]))(gj.zeros((3, 2)))
    with pytest.raises(IndexError, match="0-d"):
        gj.graphed(lambda x: gj.fori_loop(0, 2, lambda i, u: x[i], x))(gj.zeros(()))
    with pytest.raises(gj.ConcretizationError, match=r"int\(\)") as raised:
        gj.graphed(lambda x: gj.fori_loop(0, 2, lambda i, u: [u][int(i)], x))(ramp())
    assert "static_argnames" not in str(raised.value)
    with pytest.raises(gj.ConcretizationError):
        gj.graphed(lambda x: gj.fori_loop(0, 3, lambda i, u: u if i else added(u, u), x))(ramp())
    with pytest.raises(gj.ConcretizationError, match="index"):
        gj.graphed(lambda xs, n: xs[n])(gj.zeros((3, 2)), 1)
    leaked = []
    f = gj.graphed(lambda x: gj.fori_loop(0, 3, lambda i, u: leaked.append(i) or u, x))
    f(ramp())
    with pytest.raises(gj.LeakedTracerError):
        leaked[0] + 1


@pytest.mark.parametrize(
    "leak",
    [
        lambda i, u, t, xs: gj.zeros(N),
        lambda i, u, t, xs: added(u, u),
        lambda i, u, t, xs: u,
        lambda i, u, t, xs: u[1:],
        lambda i, u, t, xs: i,
        lambda i, u, t, xs: t * 2,
        lambda i, u, t, xs: xs[i],
        lambda i, u, t, xs: gj.fori_loop(0, 2, lambda j, v: added(v, v), u),
    ],
)
@pytest.mark.parametrize("use", ["return", "kernel", "write", "loop", "index"])
def test_values_of_a_body_that_has_ended(cpu, leak, use):
    def f(xs):
        kept = []

        def body(i, c):
            kept.append(leak(i, *c, xs))
            return c

        gj.fori_loop(0, 3, body, (xs[0], 1.0))
        if use == "return":
            return kept[0]
        if use == "kernel":
            scaled_sum(xs[0], 1.0, xs[1]), axpy[1, B](xs[0], kept[0], xs[0], xs[0])
        elif use == "write":
            xs[0] = kept[0]
        elif use == "loop":
            gj.fori_loop(0, 2, lambda i, c: kept[0], kept[0])
        elif isinstance(kept[0], type(xs)):
            kept[0][...] = 1.0
        else:
            return xs[kept[0]]
        return xs

    if use == "index":
        same_use = leak(1, ramp(), 1.0, [ramp(), ramp()])
        if isinstance(same_use, float):
            return  # no index at all
    with pytest.raises(gj.LeakedTracerError, match=r"test_loops.py:\d+.*return it from the body"):
        gj.graphed(f)(gj.zeros((4, N)))


def test_what_a_body_makes_of_nothing_that_changes_may_be_kept(backend):
    def f(x, k):
        kept = []

        def body(i, u):
            kept.append(k * 2)
            return added(u, weights)

        weights = x[::-1]
        return scaled_sum(gj.fori_loop(0, 3, body, x), kept[-1], weights)

    same(f, ramp, 0.5)


def test_scan_bodies_return_a_pair(cpu):
    with pytest.raises(gj.TraceError, match="return carry, y"):
        gj.graphed(lambda x: gj.scan(lambda c, _: c, x, length=3))(ramp())


def test_too_many_nodes(cpu, monkeypatch):
    monkeypatch.setattr("graphjit.transforms.control._MAX_NODES", 200)

    def f(x):
        # Numbers that no device computes, so that each iteration has nodes of its own.
        return gj.fori_loop(0, 101, lambda i, u: added(u, gj.full_like(u, np.gcd(i, 2))), x)

    with pytest.raises(gj.TraceError, match=r"more than 200 nodes \(at .*test_loops"):
        gj.graphed(f)(ramp())


def test_an_error_in_a_body_that_is_caught(cpu):
    def f(x, caught):
        def bad(i, u):
            increment[1, B](u)
            raise KeyError("no")

        try:
            gj.fori_loop(0, 3, bad, x)
        except caught:
            pass
        return added(x, x)

    graphed = gj.graphed(f, static_argnames="caught")
    with pytest.raises(gj.TraceError, match="a loop or branch raised KeyError: 'no'"):
        graphed(gj.ones(N), KeyError)
    with pytest.raises(KeyError):
        graphed(gj.ones(N), ZeroDivisionError)
    assert graphed.cache_info().size == 0


# -- any program ----------------------------------------------------------------------------------


def program(rng):
    """A function of three arrays with loops whose bodies write, swap, keep and nest at random."""

    def block(depth):
        steps = []
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice(
                ["new", "new", "write", "copy", "fill", "outside"] + ["loop"] * (depth < 2)
            )
            detail = (rng.randrange(99), rng.randrange(99), rng.randrange(1, 4))
            steps.append((kind, detail, block(depth + 1) if kind == "loop" else None))
        order = [rng.randrange(99) for _ in range(3)]
        return steps, order

    plan = block(0)

    def run(steps_and_order, arrays, outside, k):
        steps, order = steps_and_order
        arrays = list(arrays)
        for kind, (a, b, count), inner in steps:
            x, y = arrays[a % len(arrays)], arrays[b % len(arrays)]
            if kind == "new":
                arrays.append(scaled_sum(x, k, y))
            elif kind == "write":
                increment[1, B](x)
            elif kind == "copy":
                x[...] = y
            elif kind == "fill":
                x[1:3] = k
            elif kind == "outside":
                add[1, B](x, outside, outside)
            else:
                arrays[:3] = gj.fori_loop(
                    0, count, lambda i, c, inner=inner: run(inner, c, outside, i + k), arrays[:3]
                )
        return [arrays[index % len(arrays)] for index in order]

    return lambda x, y, z, k: run(plan, [x, y, z], y, k)


@pytest.mark.parametrize("seed", range(60))
def test_any_program(backend, seed):
    same(program(random.Random(seed)), *[lambda n=n: ramp(first=n) for n in range(3)], 0.25)
