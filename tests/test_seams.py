"""What a contracting compiler must not see of launches that became one."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import cuda, float32, float64

import graphjit as gj
from graphjit.kernel import effects
from graphjit.kernel.frontend import kernel_ir
from graphjit.kernel.parameters import with_unaliased
from graphjit.transforms.fusion import fuse

from .programs import add, grid, multiply_add, scale

pytestmark = pytest.mark.usefixtures("cpu")
N, B = 100, 64
G = grid(N, B)


@cuda.jit
def multiply(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] * y[i] * out[i]


@cuda.jit
def whole(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = int(x[i])


@cuda.jit
def negate(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = -x[i] if x[i] > 0 else x[i]


@cuda.jit
def squared_sum(x, out):
    i = cuda.grid(1)
    if i < out.size:
        square = x[i] * x[i]
        out[i] = square + square


@cuda.jit
def stored_product(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        product = x[i] * y[i]
        y[i] = product
        out[i] = product + x[i]


@cuda.jit
def product_used_in_a_branch(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        product = x[i] * y[i]
        out[i] = product + 1 if y[i] > 0 else product


def contracting(function, *args):
    """What becomes of a function where the compiler contracts."""
    lowered = gj.graphed(function, optimize=False).lower(*args)
    return fuse(lowered.graph, (), True)


def fused_kernel(function, *args):
    graph, report = contracting(function, *args)
    (node,) = graph.nodes
    assert len(report.fused) == 1
    return node.kernel


def optimised(kernel):
    with effects._lock:
        return str(effects.optimised(kernel.llvm, kernel.entry))


def hidden(kernel):
    """How many numbers are hidden in registers, and in memory."""
    body = optimised(kernel)
    return len(re.findall(r"= xor i(?:32|64) ", body))


def like(x):
    return gj.empty_like(x)


def arrays(count, dtype=np.float64):
    return [gj.ones(N, dtype) for _ in range(count)]


@pytest.mark.parametrize(
    ("kernel", "count"),
    [
        (multiply_add, 1),
        (multiply, 0),
        (squared_sum, 1),
        (stored_product, 0),
        (product_used_in_a_branch, 0),
        (add, 0),
    ],
)
def test_sums_that_may_be_contracted(kernel, count):
    array = float64[::1]
    types = (array,) * len(
        kernel.py_func.__code__.co_varnames[: kernel.py_func.__code__.co_argcount]
    )
    assert kernel_ir(kernel, types).elements.contractions == count


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_that_is_added_across_the_seam_is_hidden(dtype):
    def f(x, y):
        product, total = like(x), like(x)
        scale[G, B](x, product, dtype(3))
        add[G, B](product, y, total)
        return total

    kernel = fused_kernel(f, *arrays(2, dtype))
    assert hidden(kernel) == 1


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_both_parts_of_complex_products_are_hidden(dtype):
    @cuda.jit
    def stretch(z, out, k):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = complex(k * z[i].real, k * z[i].imag)

    def f(x, y):
        product, total = like(x), like(x)
        stretch[G, B](x, product, dtype(3).real)
        add[G, B](product, y, total)
        return total

    assert hidden(fused_kernel(f, *arrays(2, dtype))) == 2


def test_a_product_that_is_kept_in_memory_is_hidden():
    def f(x, y):
        product, total = like(x), like(x)
        scale[G, B](x, product, 3.0)
        add[G, B](product, y, total)
        return product, total

    kernel = fused_kernel(f, *arrays(2))
    assert not hidden(kernel)
    # It is loaded again, from an address that a compiler doesn't know.
    assert optimised(kernel).count("load double") == 3


def test_what_is_no_product_or_not_added_is_not_hidden():
    def sum_then_product(x, y):
        total, product = like(x), like(x)
        add[G, B](x, y, total)
        scale[G, B](total, product, 3.0)
        return product

    def whole_then_sum(x, y):
        first, total = like(x), like(x)
        whole[G, B](x, first)
        add[G, B](first, y, total)
        return total

    def integers(x, y):
        product, total = like(x), like(x)
        scale[G, B](x, product, 3)
        add[G, B](product, y, total)
        return total

    assert not hidden(fused_kernel(sum_then_product, *arrays(2)))
    assert not hidden(fused_kernel(integers, *arrays(2, np.int64)))
    assert not hidden(fused_kernel(whole_then_sum, *arrays(2)))


def test_products_are_followed_through_what_keeps_them():
    def f(x, y):
        product, other, total = like(x), like(x), like(x)
        scale[G, B](x, product, 3.0)
        negate[G, B](product, other)
        add[G, B](other, y, total)
        return total

    assert hidden(fused_kernel(f, *arrays(2))) >= 1


def test_a_product_that_is_overwritten_is_forgotten():
    def f(x, y):
        product, total = like(x), like(x)
        scale[G, B](x, product, 3.0)
        whole[G, B](product, product)
        add[G, B](product, y, total)
        return total

    assert not hidden(fused_kernel(f, *arrays(2)))


def test_launches_that_would_round_differently_together_stay_apart():
    def f(x, y):
        out = like(x)
        multiply_add[G, B](x, y, out)
        multiply[G, B](x, y, out)
        return out

    graph, report = contracting(f, *arrays(2))
    assert len(graph.nodes) == 2
    assert [each.reason for each in report.apart] == ["compiled together they round differently"]
    assert "multiply_add" in report.apart[0].first and "multiply" in report.apart[0].second


def test_the_others_of_their_group_still_become_one():
    def f(x, y):
        for _ in range(2):
            out = like(x)
            scale[G, B](x, out, 2.0)
            x = out
        out = like(x)
        multiply_add[G, B](x, y, out)
        multiply[G, B](x, y, out)
        for _ in range(2):
            more = like(x)
            scale[G, B](out, more, 2.0)
            out = more
        return out

    graph, report = contracting(f, *arrays(2))
    assert [len(each.names) for each in report.fused] == [3, 3]
    assert len(graph.nodes) == 2


def test_fast_maths_may_contract():
    @cuda.jit(fastmath=True)
    def fast_scale(x, out, k):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = k * x[i]

    @cuda.jit(fastmath=True)
    def fast_add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    def f(x, y):
        product, total = like(x), like(x)
        fast_scale[G, B](x, product, 3.0)
        fast_add[G, B](product, y, total)
        return total

    assert not hidden(fused_kernel(f, *arrays(2)))


def test_written_memory_that_nothing_else_leads_to_is_unaliased():
    def f(x, y):
        first, second = like(x), like(x)
        add[G, B](x, y, first)
        add[G, B](first, y, second)
        return first, second

    kernel = fused_kernel(f, *arrays(2))
    definition = next(line for line in optimised(kernel).splitlines() if line.startswith("define"))
    assert definition.count("noalias") == 2
    # So that y is loaded once.
    assert optimised(kernel).count("load double") == 2


def test_two_views_of_one_array_are_not_unaliased():
    def f(x):
        out = gj.empty(2 * N)
        scale[G, B](x, out[:N], 2.0)
        add[G, B](out[:N], x, out[N:])
        return out

    kernel = fused_kernel(f, *arrays(1))
    definition = next(d for d in optimised(kernel).splitlines() if d.startswith("define"))
    assert "noalias" not in definition


@pytest.mark.parametrize("name", ["f", '"f"'])
def test_parameters_are_marked_by_their_places(name):
    text = f"define void @{name}(ptr %a, i64 %b, ptr nocapture %c) #0 {{\nentry:\n  ret void\n}}\n"
    marked = with_unaliased(text, "f", frozenset({2}))
    assert "(ptr %a, i64 %b, ptr nocapture noalias %c) #0 {" in marked
    assert with_unaliased(text, "g", frozenset({2})) == text
    assert with_unaliased(text, "f", frozenset()) == text


def test_lengths_are_taken_from_numbers():
    def f(x, y):
        first, second = like(x), like(x)
        add[G, B](x, y, first)
        add[G, B](first, y, second)
        return first, second

    body = optimised(fused_kernel(f, *arrays(2)))
    # One guard, since all the lengths are one number.
    assert len(re.findall(r"icmp s(?:lt|gt|le|ge)", body)) == 1


def test_results_are_the_same_where_everything_is_hidden(monkeypatch):
    from graphjit.backends.cpu.backend import CPUBackend

    monkeypatch.setattr(CPUBackend, "contracts", True)

    def f(x, y):
        for _ in range(4):
            product, total = like(x), like(x)
            scale[G, B](x, product, 1.1)
            add[G, B](product, y, total)
            multiply_add[G, B](total, y, product)
            x = product
        return x, total

    x, y = (np.random.default_rng(n).normal(size=N) for n in range(2))
    mine = gj.graphed(f)(gj.array(x), gj.array(y))
    plain = gj.graphed(f, optimize=False)(gj.array(x), gj.array(y))
    for one, other in zip(mine, plain, strict=True):
        np.testing.assert_array_equal(one.copy_to_host(), other.copy_to_host())
    assert len(gj.graphed(f).lower(gj.array(x), gj.array(y)).schedule.nodes) == 1


def test_blocks_of_many_threads_bound_the_registers():
    def f(x, y):
        first, second = like(x), like(x)
        add[1, 512](x, y, first)
        add[1, 512](first, y, second)
        return second

    kernel = fused_kernel(f, *arrays(2, np.float32))
    assert kernel.dispatcher.targetoptions["launch_bounds"] == 512
    assert kernel_ir(add, (float32[::1],) * 3).dispatcher is add
