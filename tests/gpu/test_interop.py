"""Streams, and arrays of other libraries: no copy, no stale value, no race."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import cuda

import graphjit as gj

from ..programs import grid, increment, scale

pytestmark = pytest.mark.gpu
N = 1 << 20
B = 256


@pytest.fixture(autouse=True)
def _cuda():
    with gj.use_backend("cuda"):
        yield


@cuda.jit
def delayed_fill(x, value, milliseconds):
    """Writes so late that whoever doesn't wait reads what was there before."""
    i = cuda.grid(1)
    for _ in range(milliseconds):
        cuda.nanosleep(1_000_000)
    if i < x.size:
        x[i] = value


LATE = 2


def streams(count):
    from cuda.core import Device

    Device(0).set_current()
    # Not blocking: the default stream doesn't order them among each other.
    return [Device().create_stream() for _ in range(count)]


@gj.graphed
def late(x, value):
    out = gj.empty_like(x)
    delayed_fill[grid(x.size, B), B](out, value, LATE)
    return out


@gj.graphed
def scaled(x, k):
    out = gj.empty_like(x)
    scale[grid(x.size, B), B](x, out, k)
    return out


@gj.graphed
def overwrite(x, value):
    delayed_fill[grid(x.size, B), B](x, value, 0)


@gj.graphed
def slowly_read(x):
    out = gj.empty_like(x)
    delayed_fill[grid(x.size, B), B](out, 0.0, LATE)
    scale[grid(x.size, B), B](x, out, 1.0)
    return out


def test_a_call_on_another_stream_waits_for_the_producer():
    one, two = streams(2)
    x = gj.zeros(N)
    late(x, 0.0), scaled(x, 1.0)
    gj.synchronize()
    for value in (1.0, 2.0, 3.0):
        with gj.stream(one):
            y = late(x, value)
        with gj.stream(two):
            z = scaled(y, 10.0)
        assert (z.copy_to_host() == 10 * value).all()


def test_a_write_on_another_stream_waits_for_the_readers():
    one, two = streams(2)
    x = gj.full(N, 5.0)
    slowly_read(x), overwrite(gj.zeros(N), 0.0)
    gj.synchronize()
    for value in (6.0, 7.0):
        before = x.copy_to_host()[0]
        with gj.stream(one):
            read = slowly_read(x)
        with gj.stream(two):
            overwrite(x, value)
        assert (read.copy_to_host() == before).all()
        assert (x.copy_to_host() == value).all()


def test_assignments_and_copies_follow_the_streams():
    one, two = streams(2)
    x = gj.zeros(N)
    with gj.stream(one):
        y = late(x, 4.0)
    with gj.stream(two):
        z = y.copy()
        x[...] = y
    assert (z.copy_to_host() == 4).all() and (x.copy_to_host() == 4).all()


def test_an_eager_launch_waits_for_a_graph_on_another_stream():
    one = streams(1)[0]
    theirs = cuda.stream()
    for value in (1.0, 2.0):
        with gj.stream(one):
            y = late(gj.zeros(N), value)
        increment[grid(N, B), B, theirs](y)
        with gj.stream(one):
            z = scaled(y, 1.0)
        assert (z.copy_to_host() == value + 1).all()
    assert not y._memory.exported


def test_the_stream_that_an_array_interface_names_is_waited_for():
    one = streams(1)[0]
    with gj.stream(one):
        y = late(gj.zeros(N), 3.0)
    assert y.__cuda_array_interface__["stream"] == int(one.handle)

    class Foreign:
        __cuda_array_interface__ = y.__cuda_array_interface__
        owner = y

    assert (scaled(Foreign(), 2.0).copy_to_host() == 6).all()
    assert gj.zeros(3).__cuda_array_interface__["stream"] == 1


def test_cupy_on_a_stream_of_its_own():
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    for value in range(3):
        with stream:
            a = cupy.zeros(N)
            for _ in range(50):
                a += value
        with stream:
            interface = a.__cuda_array_interface__
        assert interface["stream"] == stream.ptr
        with gj.stream(stream):
            result = scaled(a, 2.0)
        assert (result.copy_to_host() == 100 * value).all()
    with stream:
        back = cupy.from_dlpack(result)
        assert float((back + 1).sum()) == (200 + 1) * N


def test_pytorch_tensors():
    torch = pytest.importorskip("torch")
    host = np.random.default_rng(0).standard_normal((64, 96))
    for dtype in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"):
        tensor = torch.from_numpy(host.astype(dtype)).cuda()
        for view in (tensor, tensor.T, tensor[::2, 3:], tensor[5]):
            np.testing.assert_array_equal(
                gj.asarray(view).copy_to_host(), view.cpu().numpy(), strict=True
            )
    bump = gj.graphed(lambda x: increment[grid(x.size, B), B](x))
    tensor = torch.zeros(N, device="cuda", dtype=torch.float64)
    for count in range(5):
        assert (tensor.cpu().numpy() == count).all()
        bump(tensor)
    returned = gj.graphed(lambda x: x)(tensor)
    assert returned is tensor


def test_pytorch_tensors_on_a_side_stream_are_waited_for():
    torch = pytest.importorskip("torch")
    side = torch.cuda.Stream()
    for value in (1.0, 2.0, 3.0):
        with torch.cuda.stream(side):
            a = torch.zeros(N, device="cuda", dtype=torch.float64)
            for _ in range(100):
                a += value
            result = scaled(a, 2.0)
        assert (result.copy_to_host() == 200 * value).all()


def test_pytorch_tensors_that_are_no_arrays():
    torch = pytest.importorskip("torch")
    needs_grad = torch.ones(4, device="cuda", requires_grad=True)
    conjugate = torch.ones(4, device="cuda", dtype=torch.complex64).conj()
    brain = torch.ones(4, device="cuda", dtype=torch.bfloat16)
    sparse = torch.eye(3, device="cuda").to_sparse()
    for tensor, error, words in (
        (needs_grad, gj.ArgumentError, "detach"),
        (conjugate, gj.ArgumentError, "resolve_conj"),
        (brain, gj.DTypeError, "bfloat16"),
        (sparse, gj.ArgumentError, "strided"),
    ):
        with pytest.raises(error, match=f"(?s){words}.*test_interop"):
            scaled(tensor, 2.0)
    on_host = torch.ones(8, dtype=torch.float64)
    assert (scaled(on_host, 3.0).copy_to_host() == 3).all()


def test_jax_arrays_both_ways():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    host = np.random.default_rng(1).standard_normal(N)
    x = jax.device_put(host, jax.devices("gpu")[0])
    for k in (2.0, 3.0):
        result = scaled(x * k, 2.0)
        np.testing.assert_array_equal(result.copy_to_host(), 2 * (host * k))
        back = jax.dlpack.from_dlpack(result)
        np.testing.assert_array_equal(np.asarray(back + 1), 2 * (host * k) + 1)


def test_exported_memory_is_never_recycled():
    cupy = pytest.importorskip("cupy")
    for export in (cupy.asarray, cupy.from_dlpack):
        x = gj.full(N, 1.0)
        theirs = export(x)
        del x
        others = [gj.full(N, 9.0) for _ in range(20)]
        assert float(theirs.sum()) == N
        del others


def test_eight_threads_give_what_one_gives():
    xs = [gj.full(N, float(k)) for k in range(8)]
    expected = [[k * n for n in range(30)] for k in range(8)]
    got: list[list[float]] = [[] for _ in range(8)]
    shared = streams(8)

    def work(k):
        with gj.use_backend("cuda"), gj.stream(shared[k]):
            x = xs[k]
            for n in range(30):
                y = scaled(x, float(n))
                z = scaled(y, 1.0)
                if n % 7 == 0:
                    x = x.copy()
                got[k].append(float(z[k].item()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


@pytest.mark.parametrize("inputs", ["auto", "copy", "rebind"])
def test_a_long_graph_with_new_arrays_at_every_call(inputs):
    @gj.graphed(inputs=inputs)
    def f(x, y):
        for _ in range(40):
            scale[grid(x.size, B), B](x, y, 2.0)
        increment[grid(y.size, B), B](y)

    host = np.random.default_rng(2).standard_normal(1000)
    y = gj.zeros(1000)
    for k in range(30):
        x = gj.array(host + k)
        f(x, y)
        x[...] = -1.0  # what the graph reads is what was there
        np.testing.assert_array_equal(y.copy_to_host(), 2 * (host + k) + 1)
    stats = f.binding_stats()
    assert (stats.copied >= 25) == (inputs != "rebind")
    for k in range(5):  # the same array, other contents
        x[...] = host * k
        f(x, y)
        np.testing.assert_array_equal(y.copy_to_host(), 2 * (host * k) + 1)


def test_static_results_on_changing_streams():
    @gj.graphed(outputs="static")
    def f(x, value):
        out = gj.empty_like(x)
        delayed_fill[grid(x.size, B), B](out, value, LATE)
        return out

    x = gj.zeros(N)
    first = f(x, 0.0)
    for k, stream in enumerate(streams(4)):
        with gj.stream(stream):
            y = f(x, float(k))
            z = scaled(y, 1.0)
        assert y._start == first._start
        assert (z.copy_to_host() == k).all()


def test_donated_memory_on_another_stream():
    step = gj.graphed(donate_argnames="u")(lambda u: scaled.__wrapped__(u, 2.0))
    one, two = streams(2)
    with gj.stream(one):
        u = late(gj.zeros(N), 1.0)
    with gj.stream(two):
        v = step(u)
    reused = [gj.full(N, -1.0) for _ in range(4)]
    assert (v.copy_to_host() == 2).all()
    with pytest.raises(gj.ClosedError, match="donated"):
        u.copy_to_host()
    del reused


def test_closed_memory_is_there_for_what_was_queued():
    x = gj.full(N, 3.0)
    one = streams(1)[0]
    with gj.stream(one):
        y = slowly_read(x)
    x.close()
    reused = [gj.full(N, -1.0) for _ in range(4)]
    assert (y.copy_to_host() == 3).all()
    with pytest.raises(gj.ClosedError, match="closed"):
        scaled(x, 1.0)
    del reused
