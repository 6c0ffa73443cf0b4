"""graphjit.kernels against NumPy, graphed and eager."""

import doctest
import importlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

import graphjit as gj
from graphjit import kernels

FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# One block, a whole one, several, and more elements than one run of each block.
SIZES = (1, 2, 255, 256, 257, 4096, 4097, 70_001)


def random_array(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -1000), min(info.max, 1000), shape, dtype, endpoint=True)


def both_ways(function, *args):
    """The result of a function called eagerly, checked to be the same bits when graphed."""
    eager = np.asarray(function(*args)).copy()
    graphed = gj.graphed(function)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(graphed(*args)), eager, strict=True)
    return eager


@pytest.mark.parametrize("module", ["elementwise", "reductions", "transpose"])
def test_examples_in_docstrings(module):
    failed, attempted = doctest.testmod(importlib.import_module(f"graphjit.kernels.{module}"))
    assert attempted and not failed


def add(x, y):
    return x + y


def axpy(a, x, y):
    return a * x + y


def hypotenuse(x, y):
    return math.sqrt(x * x + y * y)


@pytest.mark.parametrize("shape", [(), (1,), (1000,), (7, 33), (3, 4, 5), (2, 3, 2, 5)])
def test_map_of_any_shape(shape):
    x, y = random_array("f8", shape, 1), random_array("f8", shape, 2)
    result = both_ways(kernels.map(hypotenuse), gj.array(x), gj.array(y))
    np.testing.assert_allclose(result, np.hypot(x, y), rtol=1e-14)


def test_map_takes_scalars_among_arrays():
    x, y = random_array("f4", 100, 1), random_array("f4", 100, 2)
    result = both_ways(kernels.map(axpy), 2.5, gj.array(x), gj.array(y))
    np.testing.assert_allclose(result, 2.5 * x + y, rtol=1e-5)
    assert result.dtype == np.float32


def test_map_scalar_is_rebound():
    scale = gj.graphed(lambda a, x: kernels.map(axpy)(a, x, x))
    x = gj.ones(4)
    assert [scale(a, x).copy_to_host()[0] for a in (1.0, 2.0, 3.0)] == [2, 3, 4]


@pytest.mark.parametrize("order", ["C", "F"])
def test_map_of_strided_views(order):
    x = np.asarray(random_array("f8", (20, 30)), order=order)
    for view in (lambda a: a[::2, 1::3], lambda a: a.T, lambda a: a[::-1], lambda a: a[3]):
        argument = view(gj.array(x))
        result = both_ways(kernels.map(add), argument, argument)
        np.testing.assert_array_equal(result, 2 * view(x))


def test_map_dtypes():
    floats, integers = gj.ones(3, dtype="f4"), gj.ones(3, dtype="i4")
    assert kernels.map(add)(floats, floats).dtype == np.float32
    assert kernels.map(add)(floats, gj.ones(3)).dtype == np.float64
    assert kernels.map(add)(integers, integers).dtype.kind == "i"
    assert kernels.map(hypotenuse)(integers, integers).dtype == np.float64
    assert kernels.map(add, dtype="f2")(integers, integers).dtype == np.float16


def test_map_keeps_its_kernels():
    assert kernels.map(add) is kernels.map(add)


def test_map_takes_device_functions():
    @cuda.jit(device=True)
    def twice(x):
        return 2 * x

    x = random_array("f8", 10)
    np.testing.assert_array_equal(both_ways(kernels.map(twice), gj.array(x)), 2 * x)


def test_map_of_nothing():
    assert both_ways(kernels.map(add), gj.zeros((0, 3)), gj.zeros((0, 3))).shape == (0, 3)


def test_map_refuses():
    with pytest.raises(ValueError, match="one shape"):
        kernels.map(add)(gj.ones(3), gj.ones(4))
    with pytest.raises(TypeError, match="at least one array"):
        kernels.map(add)(1, 2)
    with pytest.raises(TypeError, match="takes 2 arguments, 3 given"):
        kernels.map(add)(gj.ones(3), gj.ones(3), gj.ones(3))
    with pytest.raises(TypeError, match="dtype="):
        kernels.map(lambda x: x.nothing)(gj.ones(3, dtype="i4"))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_fill(dtype):
    def filled(a):
        kernels.fill(a[1:, ::2], 1)
        return a

    expected = np.zeros((3, 4), dtype)
    expected[1:, ::2] = 1
    result = filled(gj.zeros((3, 4), dtype=dtype))
    np.testing.assert_array_equal(result.copy_to_host(), expected, strict=True)
    result = gj.graphed(filled)(gj.zeros((3, 4), dtype=dtype))
    np.testing.assert_array_equal(result.copy_to_host(), expected, strict=True)


@pytest.mark.parametrize("size", SIZES)
def test_reduce_sum_sizes(size):
    x = random_array("f8", size)
    result = both_ways(kernels.reduce_sum, gj.array(x))
    np.testing.assert_allclose(result, math.fsum(x), rtol=1e-13, atol=1e-13)
    assert result.shape == ()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_reduce_sum_dtypes(dtype):
    x = random_array(dtype, 5000)
    result = both_ways(kernels.reduce_sum, gj.array(x))
    expected = x.sum()
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-4 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_reduce_max_sizes(size):
    x = random_array("f8", size)
    result = both_ways(kernels.reduce_max, gj.array(x))
    assert result == x.max() and result.shape == ()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_reduce_max_dtypes(dtype):
    x = random_array(dtype, 5000)
    result = both_ways(kernels.reduce_max, gj.array(x))
    np.testing.assert_array_equal(result, x.max(), strict=True)


def test_reduce_max_of_the_lowest_values():
    for value in (-np.inf, np.finfo("f8").min):
        assert kernels.reduce_max(gj.full(300, value)).item() == value
    assert kernels.reduce_max(gj.full(300, -128, dtype="i1")).item() == -128


@pytest.mark.parametrize("place", [0, 1, 4999])
def test_reduce_max_with_a_nan(place):
    x = random_array("f8", 5000)
    x[place] = np.nan
    assert np.isnan(kernels.reduce_max(gj.array(x)).item())


def test_reductions_of_views():
    x = random_array("f8", (40, 50))
    for view in (lambda a: a[::3, 1::2], lambda a: a.T, lambda a: a[:, 7]):
        argument = view(gj.array(x))
        np.testing.assert_allclose(both_ways(kernels.reduce_sum, argument), view(x).sum())
        assert both_ways(kernels.reduce_max, argument) == view(x).max()


def test_reductions_of_nothing():
    empty = gj.zeros((0, 4), dtype="f4")
    total = both_ways(kernels.reduce_sum, empty)
    assert total == 0 and total.dtype == np.float32 and total.shape == ()
    assert both_ways(kernels.dot, gj.zeros(0), gj.zeros(0)) == 0
    with pytest.raises(ValueError, match="empty"):
        kernels.reduce_max(empty)


@pytest.mark.parametrize("size", SIZES)
def test_dot(size):
    x, y = random_array("f8", size, 1), random_array("f8", size, 2)
    result = both_ways(kernels.dot, gj.array(x), gj.array(y))
    np.testing.assert_allclose(result, math.fsum(x * y), rtol=1e-12, atol=1e-12)


def test_dot_of_mixed_dtypes_and_strides():
    x, y = random_array("i4", 100, 1), random_array("f4", 300, 2)
    result = both_ways(kernels.dot, gj.array(x), gj.array(y)[::3])
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, x @ y[::3].astype("f8"), rtol=1e-6)


def test_dot_refuses():
    with pytest.raises(ValueError, match="one length"):
        kernels.dot(gj.ones(3), gj.ones(4))
    with pytest.raises(ValueError, match="vectors"):
        kernels.dot(gj.ones((2, 2)), gj.ones((2, 2)))


def test_reductions_refuse_complex():
    x = gj.zeros(3, dtype="c16")
    for reduction in (kernels.reduce_sum, kernels.reduce_max):
        with pytest.raises(TypeError, match="complex128"):
            reduction(x)


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=600))
def test_reductions_of_integers_are_exact(values):
    x = gj.array(np.array(values, np.int64))
    assert kernels.reduce_sum(x).item() == sum(values)
    assert kernels.reduce_max(x).item() == max(values)


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 100), (100, 1), (32, 32), (31, 33), (64, 96), (100, 37), (0, 5)]
)
def test_transpose_shapes(shape):
    x = random_array("f4", shape)
    result = both_ways(kernels.transpose, gj.array(x))
    np.testing.assert_array_equal(result, x.T, strict=True)
    assert result.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16", "bool", "complex64"])
def test_transpose_dtypes(dtype):
    x = random_array("f8", (45, 70)).astype(dtype)
    np.testing.assert_array_equal(both_ways(kernels.transpose, gj.array(x)), x.T, strict=True)


def test_transpose_of_views():
    x = random_array("f8", (60, 80))
    a = gj.array(x)
    np.testing.assert_array_equal(both_ways(kernels.transpose, a[::2, 5:50:3]), x[::2, 5:50:3].T)
    np.testing.assert_array_equal(both_ways(kernels.transpose, a.T), x)


def test_transpose_refuses_vectors():
    with pytest.raises(ValueError, match="matrix"):
        kernels.transpose(gj.ones(3))


def test_library_functions_compose_in_one_graph():
    square = kernels.map(lambda x: x * x)

    @gj.graphed
    def norm(a):
        return kernels.reduce_sum(square(kernels.transpose(a)))

    x = random_array("f8", (50, 60))
    np.testing.assert_allclose(np.asarray(norm(gj.array(x))), (x * x).sum())
