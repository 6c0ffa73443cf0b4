"""Work of graphs and of dpnp on the same memory, on the same queue and on others, in order."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from numba import cuda

import graphjit as gj

pytestmark = [pytest.mark.sycl, pytest.mark.usefixtures("sycl")]

# Large enough that what comes next is submitted long before it is done.
N = 2_000_000
GRID = -(-N // 256), 256


@pytest.fixture
def sycl():
    """The SYCL backend as the default one."""
    with gj.use_backend("sycl"):
        yield


@pytest.fixture
def dpnp(sycl):
    return pytest.importorskip("dpnp")


@cuda.jit
def copy(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i]


@cuda.jit
def slow(x, out):
    """out = x + 1, after a while."""
    i = cuda.grid(1)
    if i < x.size:
        v = x[i] * 0
        for k in range(60):
            v = (v * 3 + k) % 7
        out[i] = x[i] + 1 + v * 0


@gj.graphed
def copied(x, out):
    copy[GRID](x, out)


@gj.graphed
def slowly(x, out):
    slow[GRID](x, out)


def through_graph(array):
    out = gj.empty(N)
    copied(array, out)
    return out.copy_to_host()


def through_launch(array):
    out = gj.empty(N)
    copy[GRID](array, out)
    return out.copy_to_host()


READS = {
    "host": lambda array: array.copy_to_host(),
    "graph": through_graph,
    "eager": through_launch,
    "copy": lambda array: array.copy().copy_to_host(),
}


def shared(dpnp, whose):
    """The same memory as an array of ours and one of dpnp's, which know nothing of each other."""
    if whose == "theirs":
        theirs = dpnp.zeros(N)
        return gj.asarray(theirs), theirs
    ours = gj.zeros(N)
    return ours, dpnp.from_dlpack(ours)


@pytest.mark.parametrize("whose", ["theirs", "ours"])
@pytest.mark.parametrize("read", READS)
def test_ours_after_theirs(dpnp, whose, read):
    ours, theirs = shared(dpnp, whose)
    ones, want = dpnp.ones(N), np.arange(N) + 1.0
    for _ in range(4):
        theirs[:] = 0
        theirs.sycl_queue.wait()
        dpnp.cumsum(ones, out=theirs)
        np.testing.assert_array_equal(READS[read](ours), want)


@pytest.mark.parametrize("whose", ["theirs", "ours"])
@pytest.mark.parametrize("value", [0.0, 3.0, np.arange(N) * 2.0])
def test_our_writes_after_theirs(dpnp, whose, value):
    ours, theirs = shared(dpnp, whose)
    ones = dpnp.ones(N)
    for _ in range(4):
        dpnp.cumsum(ones, out=theirs)
        ours[:] = value
        assert (dpnp.asnumpy(theirs) == value).all()


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_theirs_after_ours(dpnp, whose):
    ours, theirs = shared(dpnp, whose)
    zeros = gj.zeros(N)
    for _ in range(4):
        ours[:] = 0.0
        slowly(zeros, ours)
        assert (dpnp.asnumpy(theirs + 0) == 1).all()


@pytest.mark.parametrize("properties", [(), "in_order"])
def test_another_queue_waits_for_assignments(dpnp, properties):
    import dpctl

    own = dpnp.ones(1).sycl_queue
    queue = dpctl.SyclQueue(own.sycl_context, own.sycl_device, property=properties)
    theirs = dpnp.zeros(N, sycl_queue=queue)
    ours, zeros, made = gj.asarray(theirs), gj.zeros(N), gj.zeros(N)
    for _ in range(3):
        theirs[:] = 0
        queue.wait()
        made[:] = 0.0
        slowly(zeros, made)
        ours[:] = made
        assert (dpnp.asnumpy(theirs + 0) == 1).all()


def test_synchronize_waits_for_every_queue(dpnp):
    import dpctl

    own = dpnp.ones(1).sycl_queue
    queue = dpctl.SyclQueue(own.sycl_context, own.sycl_device)
    zeros, out = gj.zeros(N), gj.zeros(N)
    slowly(zeros, out)
    gj.synchronize()
    with gj.stream(queue):
        for _ in range(5):
            slowly(zeros, out)
    gj.synchronize()
    start = time.perf_counter()
    queue.wait()
    waited = time.perf_counter() - start
    start = time.perf_counter()
    slowly(zeros, out)
    gj.synchronize()
    assert waited < (time.perf_counter() - start) / 2


MANY_THREADS = """
    import threading
    import graphjit as gj
    from numba import cuda

    gj.use_backend("sycl")

    @cuda.jit
    def add(x, out, k):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + k

    @gj.graphed
    def loop(x, n):
        def body(state):
            u, i = state
            out = gj.empty_like(u)
            add[200, 256](u, out, 1.0)
            return out, i + 1

        return gj.while_loop(lambda state: state[1] < n, body, (x, 0))[0]

    @gj.graphed
    def once(x, k):
        out = gj.empty_like(x)
        add[200, 256](x, out, k)
        return out

    wrong = []

    def work(t):
        for k in range(40):
            n = (10, 1000, 50000)[(t + k) % 3]
            if k % 3 == 0:
                result, want = loop(gj.zeros(n), 5 + t), 5 + t
            elif k % 3 == 1:  # a function of its own, which is gone before it has run
                anew = gj.graphed(lambda x, k: once(once(x, k), 1.0), optimize=False)
                result, want = anew(gj.zeros(n), 2.0 + t), 3 + t
            else:
                result, want = once(gj.zeros(n), 3.0 + t), 3 + t
            if not (result.copy_to_host() == want).all():
                wrong.append((t, k))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(wrong))
"""


def test_threads_that_build_and_drop_graphs():
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MANY_THREADS)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr


def test_one_call_after_another_from_threads():
    x = gj.zeros(N)
    wrong = []

    def work():
        for _ in range(10):
            out = gj.empty_like(x)
            slowly(x, out)
            if not (out.copy_to_host() == 1).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_replays_of_one_launch_keep_no_memory():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    @gj.graphed
    def f(x):
        out = gj.empty_like(x)
        slow[1, 64](x, out)
        return out

    x = gj.zeros(64)
    for count in (2000, 10_000):
        before = resident()
        for k in range(count):
            f(x)
            if k % 500 == 0:
                gj.synchronize()
    assert resident() - before < 4 * 2**20
