"""Bad input: its own message, with the user's line, before anything ran; then all works again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.cuda.vectorizers import CUDAUFuncDispatcher

import graphjit as gj
from graphjit._aval import array_aval

from .programs import add, grid, increment, scale

N = 100


@gj.graphed
def bump(x):
    increment[grid(x.size), 64](x)
    return x


@pytest.fixture(autouse=True)
def _still_works(cpu):
    """After any error the same function still works, and so does tracing another."""
    yield
    x = gj.zeros(N)
    bump(x)
    assert (x.copy_to_host() == 1).all()
    assert len(gj.make_graph(lambda x: increment[1, 1](x))(x).nodes) == 1


def refused(error: type, match: str, function: Any, *args: Any) -> pytest.ExceptionInfo[Any]:
    """Check that a graphed call raises, with the arguments' contents as they were."""
    before = [a.copy_to_host() for a in args if isinstance(a, gj.Array)]
    with pytest.raises(error, match=match) as info:
        gj.graphed(function)(*args)
    for array, old in zip((a for a in args if isinstance(a, gj.Array)), before, strict=True):
        np.testing.assert_array_equal(array.copy_to_host(), old)
    assert isinstance(info.value, gj.GraphjitError | ValueError)
    return info


def test_wrong_argument_count():
    with pytest.raises(gj.ArgumentError, match=r"bump\(\): missing a required argument: 'x'"):
        bump()
    with pytest.raises(TypeError, match="too many positional arguments"):
        bump(1, 2)
    with pytest.raises(gj.ArgumentError, match="unexpected keyword argument 'y'"):
        bump(gj.zeros(1), y=2)


def test_a_non_array():
    for value, name in (("text", "str"), (object(), "object"), ([{"a": "b"}], "str")):
        with pytest.raises(gj.ArgumentError, match=rf"argument x.* is a {name}.*static_argnames"):
            bump(value)
    with pytest.raises(gj.ArgumentError, match="x has dtype object"):
        bump(np.array([None]))


def test_a_kernel_given_a_non_array():
    refused(gj.TraceError, "str.*test_errors.py", lambda x: scale[1, 1](x, x, "three"), gj.zeros(1))
    refused(gj.TraceError, "list", lambda x: scale[1, 1](x, [1, 2], 3.0), gj.zeros(1))
    refused(
        gj.KernelCompileError,
        "takes 1 arguments.*2 given",
        lambda x: increment[1, 1](x, x),
        gj.zeros(1),
    )


def test_a_dtype_that_numba_lacks():
    with pytest.raises(gj.DTypeError, match=r"float128|longdouble"):
        gj.zeros(3, np.longdouble)
    with pytest.raises(gj.DTypeError):
        bump(np.zeros(3, np.longdouble))


def test_errors_about_arguments_name_the_call():
    calls = (
        lambda: bump(),
        lambda: bump("text"),
        lambda: bump.trace(np.array([None])),
    )
    for call in calls:
        line = call.__code__.co_firstlineno
        with pytest.raises(gj.ArgumentError, match=rf"called at .*test_errors\.py:{line}\b"):
            call()


def test_mixed_devices():
    elsewhere = gj.Device("cuda", 0, "pretended")
    x = gj.zeros(3)
    y = gj.Array(x._memory, x._address, array_aval(x._layout, elsewhere))

    @gj.graphed
    def f(x, tree):
        add[1, 32](x, tree["y"], x)

    with pytest.raises(
        gj.DeviceError,
        match=r"(?s)argument x is on cpu:0 and tree\['y'\] on cuda:0.*test_errors\.py:\d+",
    ):
        f(x, {"y": y})
    refused(gj.DeviceError, "closes over an array on cuda:0", lambda x: add[1, 32](x, y, x), x)
    with pytest.raises(gj.DeviceError, match="no backend 'tpu'"):
        gj.use_backend("tpu")


@pytest.mark.parametrize(
    "config",
    [
        (0, 32),
        (1, 0),
        (-1, 32),
        ((1, 70000), 32),
        (2**31, 1),
        (1, 1025),
        (1, (32, 64)),
        (1, (1, 1, 65)),
        (1, 32, 0, 300_000),
        (1, 32, 0, -1),
    ],
    ids=str,
)
def test_a_bad_grid(config):
    info = refused(
        gj.LaunchError, "increment was launched at", lambda x: increment[config](x), gj.zeros(3)
    )
    assert "test_errors.py" in str(info.value)
    with pytest.raises(gj.LaunchError):
        increment[config](gj.zeros(3))


def test_a_kernel_that_numba_cannot_type():
    @cuda.jit
    def bad(x):
        x[0] = x.no_such_attribute

    info = refused(gj.KernelCompileError, "no_such_attribute", lambda x: bad[1, 1](x), gj.zeros(1))
    assert "test_errors.py" in str(info.value) and isinstance(info.value, TypeError)


@pytest.mark.parametrize(
    "use",
    [
        lambda k, x: int(k),
        lambda k, x: float(k),
        lambda k, x: bool(k > 0),
        lambda k, x: 1 if k else 2,
        lambda k, x: complex(k),
        lambda k, x: str(k),
        lambda k, x: f"{k:.2f}",
        lambda k, x: range(k),
        lambda k, x: np.zeros(3)[k],
        lambda k, x: np.asarray(k),
        lambda k, x: {k: 1},
        lambda k, x: gj.empty(k),
        lambda k, x: gj.arange(k),
        lambda k, x: increment[k, 1](x),
        lambda k, x: increment[1, (1, k)](x),
        lambda k, x: increment.forall(k)(x),
        lambda k, x: x[k],
        lambda k, x: x.copy_to_host(),
        lambda k, x: float(x[0]),
        lambda k, x: bool(x),
        lambda k, x: np.sum(x),
        lambda k, x: np.asarray(x),
        lambda k, x: f"{x}",
    ],
)
def test_concretization(use):
    info = refused(
        gj.ConcretizationError,
        "only exists when the graph runs",
        lambda k, x: use(k, x),
        3,
        gj.zeros(3),
    )
    assert "test_errors.py" in str(info.value)
    assert isinstance(info.value, TypeError)


def test_the_remedy_is_named():
    info = refused(gj.ConcretizationError, "needs the value of <traced int k>", lambda k: int(k), 3)
    assert "make k static (static_argnames)" in str(info.value)


def test_repr_of_a_tracer_never_raises():
    seen = []
    gj.make_graph(lambda x, k: seen.append((repr(x), repr(k), repr(k + 1))))(gj.zeros((2, 3)), 1.5)
    assert seen == [("<traced array x: float64[2,3]>", "<traced float k>", "<traced float %1>")]


def test_a_tracer_used_after_its_trace():
    kept = []
    gj.make_graph(lambda x, k: kept.extend((x, k)))(gj.zeros(3), 2.0)
    x, k = kept
    for use in (
        lambda: x[0],
        lambda: k + 1,
        lambda: increment[1, 1](x),
        lambda: bump(x),
        lambda: gj.make_graph(lambda y: add[1, 1](x, y, y))(gj.zeros(3)),
        lambda: float(k),
        lambda: x.copy(),
    ):
        with pytest.raises(gj.LeakedTracerError, match=r"made at .*test_errors.py"):
            use()
    assert "x" in repr(x) and "x" in str(x)


def test_cuda_ufuncs_are_refused():
    # What @vectorize(target="cuda") returns; making one in earnest needs a driver.
    ufunc = CUDAUFuncDispatcher.__new__(CUDAUFuncDispatcher)
    refused(gj.TraceError, "vectorize.*test_errors.py", lambda x: ufunc(x), gj.zeros(3))


def test_foreign_libraries_are_refused_by_name():
    class RawKernel:
        """Asks for the memory of its arguments as CuPy's raw kernels do."""

        def __call__(self, grid, block, args):
            for arg in args:
                hasattr(arg, "__cuda_array_interface__")

    raw = RawKernel()
    info = refused(gj.TraceError, "CuPy raw kernels", lambda x: raw((1,), (1,), (x,)), gj.zeros(3))
    assert "hasattr(arg" in str(info.value)
    refused(gj.TraceError, "another library", lambda x: x.__dlpack__(), gj.zeros(3))

    def strict(value):
        raise TypeError(f"Unsupported type {type(value)}")

    info = refused(gj.TraceError, "another library refused", lambda x: strict(x), gj.zeros(3))
    assert isinstance(info.value.__cause__, TypeError)


def test_events_and_timing_are_refused():
    for call in (lambda: cuda.event(), lambda: cuda.mapped_array(3), lambda: cuda.managed_array(3)):

        def f(x, call=call):
            call()

        f = gj.graphed(static_argnames="call")(f)
        with pytest.raises(gj.TraceError, match="outside the graphed function"):
            f(gj.zeros(3))


def test_an_exception_inside_the_function_ends_the_trace():
    class Mine(Exception):
        pass

    def f(x):
        increment[1, 1](x)
        raise Mine

    with pytest.raises(Mine):
        gj.graphed(f)(gj.zeros(3))


def test_copies_that_do_not_fit():
    refused(ValueError, "broadcast", lambda x, y: x.__setitem__(..., y), gj.zeros(3), gj.zeros(4))
    refused(
        gj.TraceError,
        "float32.*float64",
        lambda x, y: x.__setitem__(..., y),
        gj.zeros(3),
        gj.zeros(3, "f4"),
    )
    refused(ValueError, "without a copy", lambda x: x.T.reshape(6), gj.zeros((2, 3)))


def test_an_unhashable_static_argument():
    f = gj.graphed(lambda x, n: x, static_argnames="n")
    with pytest.raises(gj.ArgumentError, match="static argument 'n' is a list"):
        f(gj.zeros(1), [1])
    with pytest.raises(ValueError, match="no parameter 'm'"):
        gj.graphed(lambda x: x, static_argnames="m")


def test_an_integer_beyond_64_bits():
    with pytest.raises(gj.ArgumentError, match="64 bits"):
        gj.graphed(lambda x, k: scale[1, 1](x, x, k))(gj.zeros(1), 2**70)


def test_a_scalar_whose_class_changes():
    f = gj.graphed(lambda k: k**0.5)
    assert f(4.0) == 2.0
    with pytest.raises(gj.ArgumentError, match="complex now and was float"):
        f(-4.0)


def test_debug_kernels_are_refused():
    @cuda.jit(debug=True, opt=False)
    def careful(x):
        x[0] = 1

    refused(gj.UnsupportedKernelError, "debug=True", lambda x: careful[1, 1](x), gj.zeros(1))


def test_what_the_cpu_cannot_run_is_refused_by_lower():
    @cuda.jit
    def whole_grid(x):
        cuda.cg.this_grid().sync()
        x[0] = 1

    f = gj.graphed(lambda x: whole_grid[1, 1](x))
    traced = f.trace(gj.zeros(1))
    with pytest.raises(gj.UnsupportedKernelError, match=r"whole_grid.*grid.*cuda"):
        traced.lower()


def test_numba_kernels_without_arrays_and_without_a_device():
    if gj.devices("cuda"):
        pytest.skip("there is a CUDA device")
    with pytest.raises(gj.DeviceError, match="increment was launched without graphjit Arrays"):
        increment[1, 1](np.zeros(3))


def test_the_simulator_is_refused():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    result = subprocess.run(
        [sys.executable, "-c", "import graphjit"], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "NUMBA_ENABLE_CUDASIM=1 replaces Numba's compiler" in result.stderr


def test_errors_are_python_errors_too():
    assert issubclass(gj.ConcretizationError, TypeError)
    assert issubclass(gj.TraceError, RuntimeError)
    assert issubclass(gj.DeviceError, ValueError)
    assert issubclass(gj.LaunchError, ValueError)
    assert issubclass(gj.DeviceMemoryError, MemoryError)
    assert issubclass(gj.UnsupportedKernelError, RuntimeError)


def test_not_a_function():
    with pytest.raises(TypeError, match="takes a function"):
        gj.graphed(3)


def test_memory_that_is_not_there():
    with pytest.raises(MemoryError):
        gj.empty(2**58)
