"""What only the CUDA backend has: streams, its graph, arrays of other libraries."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest
from cuda.bindings import driver
from numba import cuda

import graphjit as gj

from ..programs import add, grid, increment, scale, shift

pytestmark = pytest.mark.gpu
N = 10_007
B = 128


@pytest.fixture(autouse=True)
def _cuda():
    with gj.use_backend("cuda"):
        yield


@gj.graphed
def scaled(x, k):
    out = gj.empty_like(x)
    scale[grid(x.size, B), B](x, out, k)
    return out


def test_arrays_of_other_libraries():
    host = np.random.default_rng(0).standard_normal(N)
    numba_array = cuda.to_device(host)
    np.testing.assert_array_equal(scaled(numba_array, 2.0).copy_to_host(), 2 * host)
    cupy = pytest.importorskip("cupy")
    np.testing.assert_array_equal(scaled(cupy.asarray(host), 2.0).copy_to_host(), 2 * host)
    back = cupy.asarray(scaled(cupy.asarray(host), 2.0))
    np.testing.assert_array_equal(cupy.asnumpy(back), 2 * host)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(gj.array(host))), host)
    torch = pytest.importorskip("torch")
    shared = gj.array(host)[::3]
    alias = torch.from_dlpack(shared)
    alias += 1
    np.testing.assert_array_equal(shared.copy_to_host(), host[::3] + 1)
    tensor = torch.from_numpy(host).cuda()
    np.testing.assert_array_equal(scaled(tensor, 2.0).copy_to_host(), 2 * host)
    bump = gj.graphed(lambda x: increment[grid(N, B), B](x))
    bump(tensor)
    np.testing.assert_array_equal(tensor.cpu().numpy(), host + 1)


def test_arrays_go_to_eager_numba_kernels():
    x = gj.ones(N)
    increment[grid(N, B), B](x)
    assert (x.copy_to_host() == 2).all()
    assert (cuda.as_cuda_array(x).copy_to_host() == 2).all()


def test_streams():
    x = gj.ones(N)
    mine = cuda.stream()
    with gj.stream(mine):
        y = scaled(x, 3.0)
        z = scaled(y, 2.0)
    mine.synchronize()
    assert (z.copy_to_host() == 6).all()


def test_changing_streams_keeps_the_arena_in_order():
    @gj.graphed
    def f(x):
        a = gj.empty_like(x)
        scale[grid(x.size, B), B](x, a, 2.0)
        for _ in range(30):
            b = gj.empty_like(x)
            scale[grid(x.size, B), B](a, b, 1.0)
            a = b
        out = gj.empty_like(x)
        scale[grid(x.size, B), B](a, out, 1.0)
        return out

    streams = [cuda.stream() for _ in range(4)]
    inputs = [gj.full(1 << 20, float(k)) for k in range(16)]
    cuda.synchronize()
    results = []
    for k, x in enumerate(inputs):
        with gj.stream(streams[k % 4]):
            results.append(f(x))
    cuda.synchronize()
    for k, result in enumerate(results):
        assert (result.copy_to_host() == 2.0 * k).all()


def test_a_stream_that_is_gone():
    x = gj.ones(N)
    with gj.stream(cuda.stream()):
        scaled(x, 2.0)
    cuda.synchronize()
    assert (scaled(x, 4.0).copy_to_host() == 4).all()


def test_threads_on_their_own_streams():
    x = [gj.full(N, float(k)) for k in range(8)]
    cuda.synchronize()
    wrong = []

    def work(k):
        with gj.use_backend("cuda"), gj.stream(cuda.stream()):
            for n in range(40):
                if not (scaled(x[k], float(n)).copy_to_host() == k * float(n)).all():
                    wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_graph_has_exactly_the_hazards_as_edges():
    @gj.graphed
    def f(x, y):
        a, b = gj.empty_like(x), gj.empty_like(x)
        scale[grid(x.size, B), B](x, a, 2.0)
        scale[grid(x.size, B), B](y, b, 3.0)
        add[grid(x.size, B), B](a, b, a)
        return a

    x = gj.ones(N)
    assert (f(x, x).copy_to_host() == 5).all()
    compiled = next(iter(f._cache.values()))
    graph = compiled._executable(())._instances._graph
    assert driver.cuGraphGetNodes(graph)[2] == 3
    assert driver.cuGraphGetEdges(graph)[4] == 2


def test_much_dynamic_shared_memory():
    @cuda.jit
    def reverse(x, out):
        s = cuda.shared.array(0, np.float64)
        for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
            s[i] = x[i]
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
            out[i] = s[x.size - 1 - i]

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        reverse[1, 256, 0, x.nbytes](x, out)
        return out

    host = np.arange(20_000.0)
    np.testing.assert_array_equal(f(gj.array(host)).copy_to_host(), host[::-1])


def test_a_cooperative_kernel():
    @cuda.jit
    def shift_twice(x, y):
        i = cuda.grid(1)
        g = cuda.cg.this_grid()
        y[i] = x[(i + 1) % x.size]
        g.sync()
        x[i] = y[(i + 1) % x.size]

    f = gj.graphed(lambda x, y: shift_twice[32, 64](x, y))
    x = gj.arange(2048)
    f(x, gj.zeros(2048, np.int64))
    np.testing.assert_array_equal(x.copy_to_host(), np.roll(np.arange(2048), -2))


def test_linked_cuda_c():
    source = cuda.CUSource(
        'extern "C" __device__ int thrice(int *result, int x) { *result = 3 * x; return 0; }'
    )
    thrice = cuda.declare_device("thrice", "int32(int32)", link=source)

    @cuda.jit
    def apply(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = thrice(x[i])

    x = gj.arange(100, dtype=np.int32)
    gj.graphed(lambda x: apply[1, 128](x))(x)
    np.testing.assert_array_equal(x.copy_to_host(), 3 * np.arange(100))
    with gj.use_backend("cpu"):
        f = gj.graphed(lambda x: apply[1, 128](x))
        with pytest.raises(gj.UnsupportedKernelError, match=r"apply.*CUDA C"):
            f(gj.arange(100, dtype=np.int32))


def test_mixed_devices():
    with gj.use_backend("cpu"):
        host = gj.ones(N)
    f = gj.graphed(lambda x, y: add[grid(N, B), B](x, y, x))
    with pytest.raises(gj.DeviceError, match="x is on cuda:0 and y on cpu:0"):
        f(gj.ones(N), host)


def test_out_of_memory():
    with pytest.raises(gj.DeviceMemoryError, match="cuda:0 has no"):
        gj.empty(2**50, np.int8)
    f = gj.graphed(lambda x: [gj.empty((2**40,)), x][1])
    with pytest.raises(MemoryError):
        gj.graphed(lambda x: _huge(x))(gj.ones(4))
    x = gj.ones(4)
    assert f(x) is x


def _huge(x):
    out = gj.empty(2**45, np.int8)
    increment[1, 32](out[:32])
    return out


def test_copies_of_every_kind():
    rng = np.random.default_rng(0)
    for dtype in ("i1", "f2", "f4", "f8", "c16", [("a", "i4"), ("b", "u1", 3)]):
        x = np.zeros((9, 11, 5), dtype)
        x.view("u1")[...] = rng.integers(0, 100, x.view("u1").shape)
        a = gj.array(x)
        for key in (np.s_[:], np.s_[::2, ::-1], np.s_[3], np.s_[:, 2:5, ::2]):
            np.testing.assert_array_equal(a[key].copy().copy_to_host(), x[key])
            np.testing.assert_array_equal(a[key].copy_to_host(), x[key])
    y = gj.array(np.arange(100))
    y[1:] = y[:-1]
    np.testing.assert_array_equal(y.copy_to_host()[1:], np.arange(99))


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16", "M8[s]", "i4,f8"])
def test_filled_arrays(dtype):
    for order in "CF":
        for value in (0, 3):
            got = gj.full((5, 700), np.array(value).astype(dtype)[()], dtype, order=order)
            want = np.full((5, 700), np.array(value).astype(dtype)[()], dtype, order=order)
            np.testing.assert_array_equal(got.copy_to_host(), want)
            assert got.strides == want.strides
            got[1:3, ::-2] = want[0, 0] if value else np.zeros(1, dtype)[0]
            np.testing.assert_array_equal(got.copy_to_host(), want)
    assert gj.zeros((0, 3), dtype).copy_to_host().shape == (0, 3)


def test_arrays_in_a_new_thread():
    x = gj.zeros(N)
    made = []

    def work():
        x[...] = np.arange(N)
        made.append(gj.ones(N))
        made[0][1:] = 2

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(x.copy_to_host(), np.arange(N))
    np.testing.assert_array_equal(made[0].copy_to_host(), np.r_[1, np.full(N - 1, 2)])


def test_arrays_of_another_gpu_are_refused(monkeypatch):
    from graphjit import backends
    from graphjit.backends.cuda import memory

    cupy = pytest.importorskip("cupy")
    x = cupy.ones(N)
    monkeypatch.setitem(backends.get("cuda").__dict__, "_has_others", True)
    assert (scaled(x, 2.0).copy_to_host() == 2).all()
    monkeypatch.setattr(memory, "gpu_of", lambda address: 1)
    with pytest.raises(gj.DeviceError, match="on GPU 1"):
        scaled(x, 2.0)
    assert gj.devices("cuda")[0].index == 0 and len(gj.devices("cuda")) == 1


def test_capture_by_others_is_not_disturbed():
    """Nothing of graphjit's captures, so another thread's synchronisation can't break it."""
    stop = threading.Event()
    cupy = pytest.importorskip("cupy")
    failed = []

    def noise():
        try:
            while not stop.is_set():
                assert cupy.ones(1000).sum().item() == 1000
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=noise)
    thread.start()
    try:
        for k in range(20):

            @gj.graphed
            def f(x):
                out = gj.empty_like(x)
                shift[grid(N, B), B](x, out)
                return out

            assert (f(gj.full(N, float(k))).copy_to_host() == k + 1).all()
    finally:
        stop.set()
        thread.join()
    assert not failed


def test_cupy_raw_kernels_and_cuda_ufuncs_are_refused_by_name():
    cupy = pytest.importorskip("cupy")
    from numba import vectorize

    raw = cupy.RawKernel('extern "C" __global__ void nothing(float *x) {}', "nothing")

    @vectorize(["float64(float64)"], target="cuda")
    def double(x):
        return 2 * x

    for call in (lambda x: raw((1,), (1,), (x,)), lambda x: double(x), lambda x: cupy.sum(x)):

        def f(x, call):
            return call(x)

        with pytest.raises(gj.GraphjitError, match=r"test_cuda\.py"):
            gj.graphed(static_argnames="call")(f)(gj.ones(4), call)
    assert (scaled(gj.ones(N), 2.0).copy_to_host() == 2).all()


def test_kernels_with_signatures_convert_their_scalars():
    @cuda.jit("void(float32[::1], float32)")
    def put(out, value):
        out[0] = value

    f = gj.graphed(lambda out, value: put[1, 1](out, value))
    out = gj.zeros(1, np.float32)
    for value in (1.5, 2, np.int8(3), True):
        f(out, value)
        assert out.item() == float(value)
    with pytest.raises(gj.KernelCompileError, match="no signature for"):
        f(gj.zeros(1), 1.0)


def _calls(x, count):
    for n in range(count):
        scaled(x, float(n))


def _signatures(x, count):
    for n in range(count):
        scaled(x[n:], 1.0)
        scaled(x[: n + 1], 1.0)


def _functions(x, count):
    for _ in range(count):
        gj.graphed(lambda x: scaled(x, 1.0))(x)


@pytest.mark.filterwarnings("ignore:scaled keeps being traced anew")
@pytest.mark.parametrize(
    "work, warm, count, kept",
    # Layouts are remembered, 2048 of them, by some objects each.
    [(_calls, 1000, 100_000, 100), (_signatures, 2100, 1000, 500), (_functions, 100, 1000, 100)],
)
def test_no_memory_is_lost(work, warm, count, kept):
    def used():
        gc.collect()
        gj.synchronize()
        free, total = driver.cuMemGetInfo()[1:]
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return np.array((total - free, resident, len(gc.get_objects())))

    x = gj.ones(1 << 16)
    work(x, warm)
    before = used()
    work(x, count)
    device, host, objects = used() - before
    # The driver takes device memory by blocks of 2 MiB, and frees graphs when it likes.
    assert device <= 8 * 2**20 and host < 32 * 2**20 and objects < kept


def test_pointers_that_come_back_have_an_instance_of_their_own():
    from graphjit.backends.cuda import instances

    @gj.graphed
    def twice(x, k):
        return scaled(scaled(x, k), 1.0)

    x = gj.ones(N)
    for _ in range(200):
        x = twice(x, 1.0)
    stats = twice.binding_stats()
    assert 2 <= stats.instances <= instances._MAX_INSTANCES + 1
    assert stats.recalled > 50
    kept = [gj.full(N, float(k)) for k in range(40)]
    for _ in range(8):
        for k, array in enumerate(kept):
            assert (twice(array, 2.0).copy_to_host() == 2.0 * k).all()
    assert twice.binding_stats().instances <= instances._MAX_INSTANCES + 1
    for k in range(30):
        assert (twice(kept[3], float(k)).copy_to_host() == 3.0 * k).all()
    # Two in turns, three in turns, and one that goes while it is remembered.
    for count in (2, 3, 12):
        for turn in range(400):
            array = kept[turn % count]
            result = twice(array, 3.0)
            if turn % 37 == 0:
                assert (result.copy_to_host() == 3.0 * (turn % count)).all()


def test_the_first_call_of_a_thread_may_be_a_replay():
    x = gj.ones(N)
    for k in range(50):
        y = gj.full(N, float(k))
        assert (scaled(y, 2.0).copy_to_host() == 2 * k).all()
        assert (scaled(x, float(k)).copy_to_host() == k).all()
    compiled = scaled.lower(x, 2.0).compile()
    compiled.close()
    with pytest.raises(gj.ClosedError):
        compiled(x, 2.0)

    def work(wrong):
        # A thread without a context.
        with gj.use_backend("cuda"):
            if not (scaled(x, 7.0).copy_to_host() == 7).all():
                wrong.append(1)

    wrong: list[int] = []
    thread = threading.Thread(target=work, args=(wrong,))
    thread.start()
    thread.join()
    assert not wrong


def test_a_context_that_another_library_made_current():
    @gj.graphed
    def scaled(x, k):
        out = gj.empty_like(x)
        scale[4, 64](x, out, k)
        return out

    x = gj.ones(100)
    assert (scaled(x, 3.0).copy_to_host() == 3).all()
    mine = driver.cuCtxGetCurrent()[1]
    for other in (None, driver.cuCtxCreate(None, 0, driver.cuDeviceGet(0)[1])[1]):
        driver.cuCtxSetCurrent(other or driver.CUcontext(0))
        kept = [scaled(x, 5.0) for _ in range(50)]  # some of it from the driver
        assert int(driver.cuCtxGetCurrent()[1]) == int(mine)
        driver.cuCtxSetCurrent(other or driver.CUcontext(0))
        kept.append(gj.full(12_345, 5.0))
        assert int(driver.cuCtxGetCurrent()[1]) == int(mine)
        if other is not None:
            driver.cuCtxDestroy(other)
        assert all((y.copy_to_host() == 5).all() for y in kept)


def test_an_eager_launch_and_a_replay_of_one_kernel():
    # A replay's kernel has its parameters in another order; an eager launch's has Numba's.
    @cuda.jit
    def weighted(x, k, y, z, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] * k + y[i, 1] * z.real - z.imag

    @gj.graphed
    def f(x, k, y, z):
        out = gj.empty_like(x)
        weighted[4, 64](x, k, y, z, out)
        return out

    rng = np.random.default_rng(3)
    hosts = rng.random(200), rng.random((200, 3))[::-1]
    x, y = (gj.array(host) for host in hosts)
    for k, z in ((2, 1 + 2j), (-7, 0.5 - 3j)):
        expected = hosts[0] * k + hosts[1][:, 1] * z.real - z.imag
        np.testing.assert_allclose(f(x, k, y, z).copy_to_host(), expected)
        out = cuda.device_array(200)
        weighted[4, 64](cuda.to_device(hosts[0]), k, cuda.to_device(hosts[1].copy()), z, out)
        np.testing.assert_allclose(out.copy_to_host(), expected)
        np.testing.assert_allclose(f(x, k, y, z).copy_to_host(), expected)
