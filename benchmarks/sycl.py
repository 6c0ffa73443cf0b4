"""A SYCL graph against `dpctl`'s submissions: `python -m benchmarks.sycl [--check] [--json PATH]`.

100 launches of one small kernel, each of which reads what the one before it wrote, on the device
that dpctl finds first. Both sides run the same SPIR-V.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

import graphjit as gj
from graphjit.backends.sycl import runtime, shim
from graphjit.backends.sycl.codegen import compile_kernel

from .report import Row, Time, finish, interleaved, machine

N, BLOCK, LAUNCHES = 1024, 64, 100
PAIRS = 50


@cuda.jit
def axpy(out, x, y, a):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


def chain(x: Any, y: Any, a: Any) -> Any:
    for _ in range(LAUNCHES):
        out = gj.empty_like(x)
        axpy[-(-N // BLOCK), BLOCK](out, x, y, a)
        x = out
    return x


def one(x: Any, y: Any, a: Any) -> Any:
    out = gj.empty_like(x)
    axpy[-(-N // BLOCK), BLOCK](out, x, y, a)
    return out


def submissions(queue: Any, x: Any, y: Any, a: Any) -> Callable[[], Any]:
    """The chain, submitted kernel by kernel."""
    kernel_ir = gj.make_graph(one)(x, y, a).nodes[0].kernel
    kernel = runtime.load(compile_kernel(kernel_ir), 0, "axpy", shim.held)
    buffers = [gj.empty_like(x) for _ in range(2)]
    number = ctypes.c_int64

    def described(array: Any) -> list[Any]:
        size = array.dtype.itemsize
        head = [number(0), number(0), number(array.size), number(size), number(array._address)]
        return [*head, number(array.size), number(size)]

    def run() -> Any:
        source, before = x, []
        for k in range(LAUNCHES):
            out = buffers[k % 2]
            arguments = described(out) + described(source) + described(y) + [ctypes.c_float(a)]
            event = queue.submit_async(kernel, arguments, [N], [BLOCK], before)
            before = [] if queue.is_in_order else [event]
            source = out
        queue.wait()
        return source

    return run


def paired(ours: Callable[[], Any], theirs: Callable[[], Any]) -> Time:
    """Their time by ours, of calls in turn: median and least."""
    ratios = []
    for _ in range(PAIRS):
        times = []
        for call in (ours, theirs):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
    return Time(statistics.median(ratios), min(ratios))


def measure() -> list[Row]:
    """The rows of one device."""
    import dpctl

    host = np.random.default_rng(0).random(N, np.float32)
    a = np.float32(0.5)
    with gj.use_backend("sycl"):
        x, y = gj.array(host), gj.array(host[::-1].copy())
        f, single = gj.graphed(chain, optimize=False), gj.graphed(one)
        fused = gj.graphed(chain)

        def replay() -> Any:
            result = f(x, y, a)
            gj.synchronize()
            return result

        def replay_fused() -> Any:
            result = fused(x, y, a)
            gj.synchronize()
            return result

        def replay_one() -> Any:
            result = single(x, y, a)
            gj.synchronize()
            return result

        own = runtime.queue(0)
        by_events = dpctl.SyclQueue(own.sycl_context, own.sycl_device)
        peers = {
            "in order": submissions(own, x, y, a),
            "by events": submissions(by_events, x, y, a),
        }
        want = replay().copy_to_host()
        for peer in peers.values():
            np.testing.assert_array_equal(peer().copy_to_host(), want)
        ratio = paired(replay, peers["in order"])
    with gj.use_backend("cpu"):
        x_cpu, y_cpu = gj.array(host), gj.array(host[::-1].copy())
        on_cpu = gj.graphed(chain, optimize=False)
        np.testing.assert_allclose(on_cpu(x_cpu, y_cpu, a).copy_to_host(), want, rtol=1e-5)
    contestants = {"replay": replay, "fused": replay_fused, "one": replay_one, **peers}
    contestants["cpu"] = lambda: on_cpu(x_cpu, y_cpu, a)
    times = {
        name: found * 1e6 for name, found in interleaved(contestants, rounds=20, calls=3).items()
    }
    name = f"sycl, {LAUNCHES} launches"
    against = "dpctl submit_async, queue in order"
    return [
        Row(f"{name}, theirs over ours in {PAIRS} pairs", ratio, "x", None, against),
        Row(name, times["replay"], "us", times["in order"], against, faster_by=1.2),
        Row(name, times["replay"], "us", times["by events"], "dpctl submit_async, by events"),
        Row(name, times["replay"], "us", times["cpu"], "the cpu backend"),
        Row(f"{name}, fused", times["fused"], "us", times["replay"], "the same, not fused"),
        Row("sycl, one launch", times["one"], "us", None, "call and wait"),
    ]


def main() -> int:
    return finish(measure(), machine())


if __name__ == "__main__":
    sys.exit(main())
