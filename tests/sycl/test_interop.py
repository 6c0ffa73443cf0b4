"""dpnp and dpctl: their arrays, queues and devices."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numba import cuda

import graphjit as gj
from graphjit.backends.sycl import runtime

pytestmark = [pytest.mark.sycl, pytest.mark.usefixtures("sycl")]

N = 50_000


@pytest.fixture
def sycl():
    """The SYCL backend as the default one."""
    with gj.use_backend("sycl"):
        yield


@pytest.fixture
def dpnp(sycl):
    gj.zeros(1)  # finds the device before dpctl is first imported
    return pytest.importorskip("dpnp")


@cuda.jit
def add(x, out, k):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + k


@gj.graphed
def added(x, k):
    out = gj.empty_like(x)
    add[-(-N // 256), 256](x, out, k)
    return out


@gj.graphed
def increment(x, k):
    add[-(-N // 256), 256](x, x, k)
    return x


def test_arrays_in_and_out_without_a_copy(dpnp):
    x = dpnp.arange(N, dtype="f8")
    adopted = gj.asarray(x)
    assert adopted.__sycl_usm_array_interface__["data"][0] == x.get_array()._pointer
    back = dpnp.asarray(added(x, 1.0))
    assert back.sycl_queue == x.sycl_queue
    np.testing.assert_array_equal(dpnp.asnumpy(back), np.arange(N) + 1.0)
    increment(x, 2.0)
    np.testing.assert_array_equal(dpnp.asnumpy(x), np.arange(N) + 2.0)


def test_views_and_strides(dpnp):
    x = dpnp.arange(4 * N, dtype="f8").reshape(N, 4)
    column = x[:, 1]
    np.testing.assert_array_equal(added(column, 1.0).copy_to_host(), np.arange(N) * 4 + 2.0)
    increment(x[:, 2], 10.0)
    want = np.arange(4.0 * N).reshape(N, 4)
    want[:, 2] += 10
    np.testing.assert_array_equal(dpnp.asnumpy(x), want)
    np.testing.assert_array_equal(dpnp.asnumpy(dpnp.asarray(gj.array(want)[:, 2])), want[:, 2])


def test_order_with_dpnp(dpnp):
    for k in range(50):
        x = dpnp.arange(N, dtype="f8") * 2.0 + k
        y = dpnp.asarray(added(x, 1.0)) * 3.0
        increment(y, 2.0)
        y += 1
        np.testing.assert_array_equal(
            added(y, 0.0).copy_to_host(), (np.arange(N) * 2.0 + k + 1) * 3 + 3
        )


def test_order_with_another_queue_of_the_context(dpnp):
    import dpctl

    own = dpnp.arange(3).sycl_queue
    for properties in ((), "in_order"):
        queue = dpctl.SyclQueue(own.sycl_context, own.sycl_device, property=properties)
        for _ in range(30):
            x = dpnp.arange(N, dtype="f8", sycl_queue=queue) * 2.0
            increment(x, 1.0)
            x += 1
            increment(x, 1.0)
            np.testing.assert_array_equal(dpnp.asnumpy(x * 2.0), (np.arange(N) * 2.0 + 3) * 2)
        with gj.stream(queue):
            x = dpnp.arange(N, dtype="f8", sycl_queue=queue) * 2.0
            y = added(added(x, 1.0), 1.0)
            np.testing.assert_array_equal(y.copy_to_host(), np.arange(N) * 2.0 + 2)


def test_memory_of_another_context_is_refused(dpnp):
    import dpctl

    part, *_ = dpnp.arange(3).sycl_device.create_sub_devices(partition=1)
    queue = dpctl.SyclQueue(part)
    with pytest.raises(gj.DeviceError, match="a SYCL context of its own"):
        added(dpnp.ones(N, sycl_queue=queue), 1.0)


def test_dlpack_both_ways(dpnp):
    from dpnp import tensor

    x = added(gj.zeros(N), 3.0)
    assert x.__dlpack_device__()[0] == 14
    theirs = tensor.from_dlpack(x)
    assert theirs._pointer == x._address
    np.testing.assert_array_equal(tensor.asnumpy(theirs), np.full(N, 3.0))

    class Foreign:
        def __dlpack__(self, **options):
            return theirs.__dlpack__(**options)

        def __dlpack_device__(self):
            return theirs.__dlpack_device__()

    np.testing.assert_array_equal(added(Foreign(), 1.0).copy_to_host(), np.full(N, 4.0))


def test_dpnp_in_a_graphed_function_is_refused(dpnp):
    @gj.graphed
    def f(x):
        return dpnp.sum(x)

    with pytest.raises(gj.TraceError, match="only Numba kernels become part of a graph") as info:
        f(gj.ones(3))
    assert "test_interop.py" in str(info.value)


def test_devices_and_filter_strings(dpnp):
    (first, *_) = gj.devices("sycl")
    assert first.backend == "sycl" and str(first) == "sycl:0" and first in gj.devices()
    with gj.use_backend("sycl:opencl:cpu") as device:
        assert device.backend == "sycl"
        assert gj.ones(3).device == device
    with pytest.raises(gj.DeviceError, match="no SYCL device is 'cuda:gpu:7'; there are opencl"):
        gj.use_backend("sycl:cuda:gpu:7")
    with pytest.raises(gj.DeviceError, match="only one device"):
        gj.use_backend("cpu:0")


def test_arrays_of_other_devices_are_refused(dpnp):
    with gj.use_backend("cpu"):
        x = gj.ones(N)
    with pytest.raises(gj.DeviceError, match=r"cpu:0.*sycl:0|sycl:0.*cpu:0"):

        @gj.graphed
        def f(x, y):
            add[1, 32](x, y, 1.0)

        f(x, gj.ones(N))


def test_no_capture_by_the_interfaces_of_others():
    x = gj.ones(3)
    with pytest.raises(AttributeError, match="__cuda_array_interface__"):
        x.__cuda_array_interface__  # noqa: B018
    with gj.use_backend("cpu"), pytest.raises(AttributeError, match="__sycl_usm"):
        gj.ones(3).__sycl_usm_array_interface__  # noqa: B018


ENDING = """
    import warnings
    import graphjit as gj
    from numba import cuda
    warnings.simplefilter("ignore")
    gj.use_backend("sycl")

    @cuda.jit
    def add(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + 1

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        add[4000, 256](x, out)
        return gj.while_loop(lambda u: u[0].item() < 5, step, out)

    def step(u):
        v = gj.empty_like(u)
        add[4000, 256](u, v)
        return v

    x = gj.ones(1000000)
    kept = [f(x) for _ in range(3)]
    assert kept[-1].copy_to_host()[7] == 5
    f(x)
"""


def test_the_end_of_the_process_is_quiet():
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ENDING)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


INTERRUPTED = """
    import os, signal, threading, time
    import graphjit as gj
    from numba import cuda
    gj.use_backend("sycl")

    @cuda.jit
    def keep(x):
        x[0] = 1

    @gj.graphed
    def for_ever(x):
        def body(x):
            keep[1, 1](x)
            return x
        return gj.while_loop(lambda x: x[0].item() > 0, body, x)

    x = gj.ones(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        for_ever(x)
    except KeyboardInterrupt:
        print("interrupted", x.copy_to_host()[0])
"""


def test_a_loop_that_never_ends_is_interrupted():
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stdout == "interrupted 1.0\n", result.stderr


FORKED = """
    import gc, os
    import graphjit as gj
    from numba import cuda
    gj.use_backend("sycl")

    @cuda.jit
    def add(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + 1

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        add[4, 256](x, out)
        return out

    x = gj.ones(1000)
    y = f(x)
    pid = os.fork()
    if pid == 0:
        try:
            f(x)
        except gj.DeviceError as error:
            print(error, flush=True)
        del x, y
        f.cache_clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert f(y).copy_to_host()[0] == 3
"""


def test_a_forked_child_is_told():
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("SYCL was used before this process was forked")


def test_no_device_says_what_brings_one(monkeypatch):
    monkeypatch.setattr(runtime, "devices", lambda: ())
    with pytest.raises(gj.DeviceError, match=r"no device here; pip install 'graphjit\[sycl\]'"):
        gj.use_backend("sycl")
    assert gj.devices("sycl") == ()


def test_without_dpctl_there_are_no_devices(monkeypatch):
    monkeypatch.setattr(runtime, "is_installed", lambda: False)
    assert runtime.devices.__wrapped__() == ()
    with pytest.raises(gj.DeviceError, match=r"needs dpctl, which isn't installed"):
        runtime.dpctl.__wrapped__()


def test_the_environment_chooses_it():
    result = subprocess.run(
        [sys.executable, "-c", "import graphjit as gj; print(gj.default_device().backend)"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "GRAPHJIT_BACKEND": "sycl:opencl:cpu"},
    )
    assert result.stdout == "sycl\n", result.stderr


def test_nothing_leaks():
    def use(count):
        x = gj.zeros(N)
        for k in range(count):
            x = added(x, float(k))
            gj.graphed(lambda x: x.copy())(x)
        gj.synchronize()
        gc.collect()

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    use(30)
    before = resident()
    use(100)
    assert resident() - before < 8 * 2**20  # of an array's 400 kB a call it would be 80 MB


def test_threads():
    x = gj.zeros(N)

    def work(k):
        for _ in range(50):
            np.testing.assert_array_equal(added(x, float(k)).copy_to_host(), np.full(N, float(k)))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


def test_empty_and_reversed_arrays(dpnp):
    assert dpnp.asarray(gj.zeros(0)).shape == (0,)
    assert dpnp.asarray(gj.zeros((3, 0, 5))).shape == (3, 0, 5)
    x = gj.array(np.arange(10.0))
    np.testing.assert_array_equal(dpnp.asnumpy(dpnp.from_dlpack(x[2::3])), [2, 5, 8])
    with pytest.raises(ValueError, match=r"doesn't take negative strides; hand it a copy\(\)"):
        dpnp.asarray(x[::-1])


@pytest.mark.parametrize("name", ["asarray", "array"])
def test_dpnp_arrays_of_traced_ones_are_refused(dpnp, name):
    with pytest.raises(gj.TraceError, match="another library asked for the memory"):
        gj.graphed(lambda x: getattr(dpnp, name)(x))(gj.zeros(10))


BROKEN = """
    import sys
    from pathlib import Path

    folder = Path(sys.argv[1])
    (folder / "dpctl.py").write_text("raise ImportError('libsycl.so: not found')")
    sys.path.insert(0, str(folder))
    import graphjit as gj

    print(len(gj.devices("sycl")), len(gj.devices("cpu")))
    try:
        with gj.use_backend("sycl"):
            gj.zeros(1)
    except gj.DeviceError as error:
        print(error)
"""


def test_a_dpctl_that_cannot_be_imported(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BROKEN), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("0 1\n")
    assert "libsycl.so: not found" in result.stdout


def test_dpnp_first_finds_the_device():
    code = "import graphjit, dpnp; print(dpnp.arange(3.0).sum())"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stdout) == (0, "3.\n"), result.stderr
