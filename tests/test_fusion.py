"""Launches that become one: which do, which must not, and that results are the same to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import cuda, float64

import graphjit as gj

from .outcomes import assert_same, left_by
from .programs import add, add_2d, grid, increment, scale, shift

pytestmark = pytest.mark.usefixtures("cpu")
N, B = 100, 64
G = grid(N, B)


def values(*shape, dtype=np.float64, seed=0):
    made = np.random.default_rng(seed).uniform(-2, 2, shape or (N,))
    return made.astype(dtype)


def fused(function, *args, **options):
    """The lowered function, which leaves the same in arguments and results as without fusion."""
    f = gj.graphed(function, optimize="fusion", **options)
    plain = gj.graphed(function, optimize=False, **options)
    assert_same(left_by(f, *args), left_by(plain, *args))
    return f.lower(*(gj.array(a) if isinstance(a, np.ndarray) else a for a in args))


def reasons(lowered):
    assert not lowered.fusion_report().fused
    return [each.reason for each in lowered.fusion_report().apart]


def scaled(x, k, block=B):
    out = gj.empty_like(x)
    scale[grid(x.size, block), block](x, out, k)
    return out


def test_a_chain_is_one_launch_without_memory_in_between():
    def chain(x, y, k):
        for _ in range(10):
            out = gj.empty_like(x)
            add[G, B](x, y, out)
            x = scaled(out, k)
        return x

    lowered = fused(chain, values(), values(seed=1), 0.5)
    assert len(lowered.schedule.nodes) == 1
    assert lowered.memory_analysis().arena == 0
    (found,) = lowered.fusion_report().fused
    assert found.names == ("add", "scale") * 10
    assert len(found.in_registers) == 19
    assert "fused 20 launches: add, scale" in str(lowered.fusion_report())


def test_branches_that_meet_again_are_one_launch():
    def diamond(x):
        out = gj.empty_like(x)
        add[G, B](scaled(x, 2.0), scaled(x, 3.0), out)
        return out

    assert len(fused(diamond, values()).schedule.nodes) == 1


def test_what_others_need_stays_in_memory():
    def f(x):
        first = scaled(x, 2.0)
        second = scaled(first, 3.0)
        out = gj.empty_like(x)
        shift[G, B](second, out)
        return first, out

    lowered = fused(f, values())
    assert [node.kernel.name for node in lowered.schedule.nodes] == ["scale_and_scale", "shift"]
    assert lowered.memory_analysis().arena == 1024
    assert lowered.fusion_report().fused[0].in_registers == ()


def test_in_place_chains_on_arguments():
    def f(x, y):
        increment[G, B](x)
        add[G, B](x, y, y)
        increment[G, B](x)

    assert len(fused(f, values(), values(seed=1)).schedule.nodes) == 1


def test_neighbours_are_never_fused():
    def f(x):
        out = gj.empty_like(x)
        shift[G, B](scaled(x, 2.0), out)
        return out

    (reason,) = reasons(fused(f, values()))
    assert reason == "which elements of t1 each thread of shift uses isn't proved"

    @cuda.jit
    def left(x, out):
        i = cuda.grid(1)
        if 0 < i < out.size:
            out[i] = x[i - 1]

    def g(x):
        out = gj.zeros_like(x)
        left[G, B](scaled(x, 2.0), out)
        return out

    (reason,) = reasons(fused(g, values()))
    assert reason == "a thread uses elements of t1 that others write"


def test_a_write_after_a_neighbours_read_is_never_fused():
    def f(x):
        out = gj.empty_like(x)
        shift[G, B](x, out)
        increment[G, B](x)
        return out

    assert "isn't proved" in reasons(fused(f, values()))[0]


def test_elements_that_threads_share_are_never_fused():
    @cuda.jit
    def total(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0] = i

    @cuda.jit
    def spread(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[0]

    def f(x):
        one, out = gj.zeros(1), gj.zeros_like(x)
        total[1, 1](x, one)
        spread[G, B](one, out)
        return out

    def g(x):
        one, out = gj.zeros(1), gj.zeros_like(x)
        total[G, B](x[:1], one)
        spread[G, B](one, out)
        return out

    assert reasons(fused(f, values())) == ["they have different grids or blocks"]
    assert reasons(fused(g, values())) == ["several threads may use the same element of t0"]


@cuda.jit
def unguarded(x, out):
    i, j = cuda.grid(2)
    out[i, j] = 2 * x[i, j]


@pytest.mark.parametrize("shape", [(16, 16), (13, 17), (17, 13), (1, 40), (40, 1)])
def test_planes_whose_grid_is_larger(shape):
    def f(x, y):
        first = gj.empty_like(x)
        launch = (grid(shape[0], 8), grid(shape[1], 8)), (8, 8)
        add_2d[launch](x, y, first)
        second = gj.empty_like(x)
        add_2d[launch](first, y, second)
        return second

    assert len(fused(f, values(*shape), values(*shape, seed=1)).schedule.nodes) == 1


def test_rows_that_run_into_each_other_are_not_fused():
    @cuda.jit
    def skewed(x, out):
        i, j = cuda.grid(2)
        if i < 4:
            out[i, j] = x[i, j] + 1

    # Four rows of 16, of which threads with j from 8 to 15 use the second half: rows of 8 would
    # overlap.
    def f(x):
        first, second = gj.zeros((5, 8)), gj.zeros((5, 8))
        skewed[(1, 1), (4, 16)](x, first)
        skewed[(1, 1), (4, 16)](first, second)
        return second

    assert reasons(gj.graphed(f).lower(gj.zeros((5, 8)))) == [
        "several threads may use the same element of t0"
    ]


TABLE = (1.5, -2.0, 0.25, 3.0, -1.0, 0.5, 7.0, 2.5, -0.75, 4.0)


@cuda.jit
def weigh_planes(planes, out):
    i = cuda.grid(1)
    if i < out.size:
        total = 0.0
        for k in range(planes.shape[0]):
            total += TABLE[k] * planes[k, i]
        out[i] = total


def test_tables_that_kernels_bring_along_are_nobodys():
    def f(planes):
        out = gj.empty(planes.shape[1])
        weigh_planes[G, B](planes, out)
        return scaled(out, 2.0)

    assert len(fused(f, values(10, N)).schedule.nodes) == 1


def test_exact_grids_need_no_guard():
    def f(x):
        first, second = gj.empty_like(x), gj.empty_like(x)
        unguarded[(2, 3), (8, 8)](x, first)
        unguarded[(2, 3), (8, 8)](first, second)
        return second

    assert len(fused(f, values(16, 24)).schedule.nodes) == 1


def test_views_count_by_their_elements():
    def f(x):
        increment[grid(50, B), B](x[::2])
        scale[grid(50, B), B](x[::2], x[::2], 3.0)

    def g(x):
        increment[grid(50, B), B](x[::2])
        scale[grid(50, B), B](x[1::2], x[1::2], 3.0)

    def h(x):
        increment[grid(50, B), B](x[:50])
        scale[grid(50, B), B](x[1:51], x[1:51], 3.0)

    assert len(fused(f, values()).schedule.nodes) == 1
    assert len(fused(g, values()).schedule.nodes) == 2  # independent: nothing to gain
    assert reasons(fused(h, values())) == ["a thread uses elements of x that others write"]


def test_a_node_in_between_keeps_launches_apart():
    def f(x):
        first = scaled(x, 2.0)
        second = scaled(first, 3.0)
        moved = gj.empty_like(x)
        shift[grid(N, 32), 32](first, moved)
        out = gj.empty_like(x)
        add[G, B](second, moved, out)
        return out

    report = fused(f, values()).fusion_report()
    assert [each.names for each in report.fused] == [("scale", "scale")]
    assert "what runs between them needs the first, and the second needs it" in str(report)


def test_unrelated_work_in_between_does_not():
    def f(x, y):
        first = scaled(x, 2.0)
        other = gj.empty_like(y)
        shift[G, B](y, other)
        return scaled(first, 3.0), other

    lowered = fused(f, values(), values(seed=1))
    assert [len(each.names) for each in lowered.fusion_report().fused] == [2]
    assert len(lowered.schedule.nodes) == 2


def test_groups_never_wait_for_each_other():
    def f(x, y):
        a, b = scaled(x, 2.0), scaled(y, 2.0, 32)
        c, d = gj.empty_like(x), gj.empty_like(x)
        shift[G, B](a, c)
        shift[grid(N, 32), 32](b, d)
        e, f = gj.empty_like(x), gj.empty_like(x)
        add[grid(N, 32), 32](b, c, e)
        add[G, B](a, d, f)
        return e, f

    fused(f, values(), values(seed=1))


@pytest.mark.parametrize("start", [0, 1, 40])
def test_overlapping_arguments_give_what_eager_launches_give(start):
    def f(x, y):
        scale[grid(50, B), B](x, y, 2.0)
        increment[grid(50, B), B](x)
        add[grid(50, B), B](x, y, y)

    results = []
    for options in ({}, {"optimize": False}):
        base = gj.array(values())
        g = gj.graphed(f, **options)
        g(gj.zeros(50), gj.zeros(50))  # where they don't, it is fused
        g(base[start : start + 50], base[:50])
        results.append(base.copy_to_host())
    np.testing.assert_array_equal(*results)


def test_unrolled_iterations_fuse():
    def f(x, k):
        return gj.fori_loop(0, 6, lambda i, x: scaled(scaled(x, k), 0.5), x)

    lowered = fused(f, values(), 1.5)
    assert len(lowered.schedule.nodes) == 1
    assert lowered.memory_analysis().arena == 0


def test_bodies_of_device_loops_fuse():
    def f(x, n):
        return gj.fori_loop(0, n[0].item(), lambda i, x: scaled(scaled(x, 2.0), 0.75), x)

    lowered = fused(f, values(), np.array([5]))
    assert lowered.fusion_report().fused
    assert all(each.in_registers for each in lowered.fusion_report().fused)


@cuda.jit
def write_every_other(out, i):
    k = cuda.grid(1)
    if k < out.size and k % 2 == i % 2:
        out[k] += i + 1


def test_what_an_iteration_leaves_for_the_next_is_kept():
    def f(x, n):
        kept = gj.empty_like(x)
        kept[...] = x

        def body(i, x):
            write_every_other[G, B](kept, i)
            out = gj.empty_like(x)
            add[G, B](kept, x, out)
            return out

        return gj.fori_loop(0, n[0].item(), body, x)

    fused(f, values(), np.array([7]))


@cuda.jit
def if_positive(x, out):
    i = cuda.grid(1)
    if i >= out.size:
        return
    if x[i] > 0:
        out[i] = math.sqrt(x[i])


def test_what_is_written_only_sometimes():
    def f(x):
        out = gj.zeros_like(x)
        if_positive[G, B](x, out)
        return scaled(out, 2.0)

    assert len(fused(f, values()).schedule.nodes) == 2  # the fill, and one launch


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "f2", "f4", "c8", "c16", "?"])
def test_elements_of_all_types(dtype):
    @cuda.jit
    def pick(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            if i % 3:
                out[i] = x[i]
            else:
                out[i] = y[i]

    def f(x, y):
        first, second = gj.empty_like(x), gj.empty_like(x)
        pick[G, B](x, y, first)
        pick[G, B](y, first, second)
        return second

    fused(f, values(dtype=dtype), values(dtype=dtype, seed=1))


def test_other_precision_in_between_rounds_the_same():
    def f(x):
        low = gj.empty(x.shape, np.float32)
        scale[G, B](x, low, 1 / 3)
        out = gj.empty_like(x)
        scale[G, B](low, out, 3.0)
        return out

    lowered = fused(f, values())
    assert len(lowered.schedule.nodes) == 1


@cuda.jit
def counts(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


@cuda.jit
def sums(x, out):
    shared = cuda.shared.array(B, float64)
    i = cuda.grid(1)
    shared[cuda.threadIdx.x] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    if i < out.size:
        out[i] = shared[B - 1 - cuda.threadIdx.x]


@cuda.jit
def strided(x, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = x[i] + 1


@cuda.jit
def prints(x, out):
    i = cuda.grid(1)
    if i == 0:
        print(x[i])
    if i < out.size:
        out[i] = x[i]


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (counts, "counts: it has atomic operations"),
        (strided, "which elements of t1 each thread of strided uses isn't proved"),
        (prints, "prints: it calls vprintf"),
    ],
)
def test_kernels_that_are_left_alone(kernel, reason):
    def f(x):
        out = gj.zeros_like(x)
        kernel[G, B](scaled(x, 2.0), out)
        return out

    assert reason in reasons(gj.graphed(f).lower(gj.zeros(N)))


def test_kernels_that_wait_are_left_alone():
    def f(x):
        out = gj.zeros_like(x)
        sums[G, B](scaled(x, 2.0), out)
        return out

    (reason,) = {*reasons(fused(f, values())), ""} - {""}
    assert reason.startswith("sums: ")


def test_declared_effects_count():
    @cuda.jit
    def own(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i]

    gj.declare_effects(own, reads=("x",), writes=("out",))

    def f(x):
        out = gj.empty_like(x)
        own[G, B](scaled(x, 2.0), out)
        return out

    assert len(fused(f, values()).schedule.nodes) == 1


def test_kernels_with_options_of_their_own_are_left_alone():
    @cuda.jit(launch_bounds=B)
    def own(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i]

    def f(x):
        out = gj.empty_like(x)
        own[G, B](scaled(x, 2.0), out)
        return out

    assert reasons(fused(f, values())) == ["own: it has explicit signatures, or options of its own"]


def test_fast_maths_are_not_mixed():
    @cuda.jit(fastmath=True)
    def fast(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = math.sin(x[i])

    def f(x):
        out = gj.empty_like(x)
        fast[G, B](scaled(x, 2.0), out)
        return out

    assert reasons(gj.graphed(f).lower(gj.zeros(N))) == ["one of them is compiled with fastmath"]


def test_very_long_chains_are_several_launches():
    def f(x):
        for n in range(300):
            x = scaled(x, 1.0 + n / 1000)
        return x

    assert len(fused(f, values()).schedule.nodes) == 3


def test_fusion_is_an_option():
    def f(x):
        return scaled(scaled(x, 2.0), 3.0)

    x = gj.zeros(N)
    assert len(gj.graphed(f, optimize=False).lower(x).schedule.nodes) == 2
    assert len(gj.graphed(f, optimize=("fusion",)).lower(x).schedule.nodes) == 1
    assert str(gj.graphed(f, optimize=False).lower(x).fusion_report()) == "nothing to fuse"
    message = (
        "optimize is True, False or some of copies, dead_work, constants, fusion, "
        "programmatic_launch, not 'magic'"
    )
    with pytest.raises(ValueError, match=message):
        gj.graphed(f, optimize=("fusion", "magic"))


def test_other_sizes_compile_nothing_anew(monkeypatch):
    from graphjit.kernel import frontend

    f = gj.graphed(lambda x: scaled(scaled(x, 2.0), 3.0))
    f(gj.zeros(N))
    compiled = []
    original = frontend._compile
    monkeypatch.setattr(frontend, "_compile", lambda *a: compiled.append(a) or original(*a))
    f(gj.zeros(N + 1))
    assert not compiled


@cuda.jit
def blend(x, y, out, k):
    i = cuda.grid(1)
    if i < out.size and i < x.size:
        out[i] = k * x[i] - y[i]


@cuda.jit
def blend_backwards(x, y, out, k):
    i = out.size - 1 - cuda.grid(1)
    if i >= 0:
        out[i] = k * x[i] + y[i]


KERNELS = [blend, blend_backwards, blend, shift]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.integers(0, 3), *[st.integers(0, 9)] * 3, st.booleans()),
        min_size=2,
        max_size=8,
    )
)
def test_random_programs_give_the_same(backend, program):
    """Kernels that run forwards, backwards and sideways, on new arrays and in place."""

    def f(x, y, k):
        arrays = [x, y]
        for which, a, b, c, new in program:
            a, b, c = (n % len(arrays) for n in (a, b, c))
            if new:
                c = len(arrays)
                arrays.append(gj.empty_like(x))
            if KERNELS[which] is shift and c != a:
                shift[2, 16](arrays[a], arrays[c])
            elif KERNELS[which] is not shift:
                KERNELS[which][2, 16](arrays[a], arrays[b], arrays[c], k)
        return tuple(arrays[2:])

    x, y = np.arange(32.0), np.arange(32.0)[::-1].copy()
    assert_same(*(left_by(gj.graphed(f, optimize=o), x, y, 0.5) for o in (True, False)))
