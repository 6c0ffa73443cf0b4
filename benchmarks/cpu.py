"""The CPU backend against hand-written Numba: `python -m benchmarks.cpu [--check] [--json PATH]`.

Each pair of figures is measured in turns in one run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, njit, prange

import graphjit as gj
from graphjit.backends.cpu.pool import default_num_threads

from .report import Row, Time, finish, interleaved, machine, summary

BLOCK = 256


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@njit(parallel=True)
def axpy_prange(a, x, y):
    for i in prange(x.size):
        y[i] += a * x[i]


@cuda.jit
def stencil(u, out):
    j, i = cuda.grid(2)
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        out[i, j] = float32(0.25) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


@njit(parallel=True)
def stencil_prange(u, out):
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            out[i, j] = float32(0.25) * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


@cuda.jit
def block_sums(x, sums):
    shared = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        sums[cuda.blockIdx.x] = shared[0]


@njit(parallel=True)
def block_sums_split(x, sums):
    """`block_sums` as one writes it by hand: a loop over the threads between two barriers."""
    for block in prange(sums.size):
        shared = np.empty(BLOCK, np.float32)
        for t in range(BLOCK):
            i = block * BLOCK + t
            shared[t] = x[i] if i < x.size else float32(0)
        half = BLOCK // 2
        while half > 0:
            for t in range(half):
                shared[t] += shared[t + half]
            half //= 2
        sums[block] = shared[0]


@cuda.jit
def increment(x):
    x[0] += 1


@cuda.jit
def halve(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= float32(0.5)


def measure_axpy() -> Row:
    x = np.random.default_rng(0).random(1_000_000, np.float32)
    a, y, mine = np.float32(2), np.zeros_like(x), gj.zeros(x.size, dtype=np.float32)
    given = gj.array(x)

    @gj.graphed
    def call(a: Any, x: Any, y: Any) -> None:
        axpy[-(-x.size // BLOCK), BLOCK](a, x, y)

    call(a, given, mine)
    np.testing.assert_allclose(mine.copy_to_host(), 2 * x, rtol=1e-6)
    times = interleaved(
        {"gj": lambda: call(a, given, mine), "prange": lambda: axpy_prange(a, x, y)},
        rounds=101,
        sync=gj.synchronize,
    )
    return _milliseconds("axpy, float32[1e6]", times, 1.5)


def measure_stencil() -> Row:
    u = np.random.default_rng(0).random((2048, 2048), np.float32)
    out, given, mine = np.zeros_like(u), gj.array(u), gj.zeros(u.shape, dtype=np.float32)

    @gj.graphed
    def call(u: Any, out: Any) -> None:
        stencil[(u.shape[1] // 32, u.shape[0] // 8), (32, 8)](u, out)

    call(given, mine)
    stencil_prange(u, out)
    np.testing.assert_allclose(mine.copy_to_host(), out, rtol=1e-6)
    times = interleaved(
        {"gj": lambda: call(given, mine), "prange": lambda: stencil_prange(u, out)},
        rounds=51,
        sync=gj.synchronize,
    )
    return _milliseconds("five-point stencil, float32[2048, 2048]", times, 1.5)


def measure_block_sums() -> Row:
    x = np.random.default_rng(0).random(1_000_000, np.float32)
    blocks = -(-x.size // BLOCK)
    sums, given, mine = (
        np.zeros(blocks, np.float32),
        gj.array(x),
        gj.zeros(blocks, dtype=np.float32),
    )

    @gj.graphed
    def call(x: Any, sums: Any) -> None:
        block_sums[sums.size, BLOCK](x, sums)

    call(given, mine)
    block_sums_split(x, sums)
    np.testing.assert_allclose(mine.copy_to_host(), sums, rtol=1e-6)
    times = interleaved(
        {"gj": lambda: call(given, mine), "split by hand": lambda: block_sums_split(x, sums)},
        rounds=31,
        sync=gj.synchronize,
    )
    return _milliseconds("block sums with 9 barriers, float32[1e6]", times, 3)


def measure_replay(launches: int = 100) -> Row:
    x = gj.zeros(1)

    def chain(x: Any, count: int) -> None:
        for _ in range(count):
            increment[1, 1](x)

    # Fused, they would be one launch.
    short = gj.graphed(lambda x: chain(x, 1), optimize=False)
    long = gj.graphed(lambda x: chain(x, launches + 1), optimize=False)
    samples = []
    for _ in range(11):
        times = interleaved(
            {"short": lambda: short(x), "long": lambda: long(x)},
            rounds=5,
            calls=20,
            sync=gj.synchronize,
        )
        samples.append((times["long"].least - times["short"].least) / launches)
    return Row(f"one more launch in a replay of {launches}", summary(samples) * 1e6, "us", limit=2)


def measure_chains(chains: int = 8, launches: int = 50) -> Row:
    """Independent chains, written one after another, against one of them."""

    @gj.graphed(optimize=False)
    def run(*arrays: Any) -> None:
        for x in arrays:
            for _ in range(launches):
                halve[-(-x.size // BLOCK), BLOCK](x)

    arrays = [gj.ones(4096, dtype=np.float32) for _ in range(chains)]
    run(*arrays)
    for x in arrays:
        np.testing.assert_array_equal(x.copy_to_host(), np.float32(0.5**launches))
    times = interleaved(
        {"chains": lambda: run(*arrays), "one chain": lambda: run(arrays[0])},
        rounds=101,
        sync=gj.synchronize,
    )
    name = f"{chains} chains of {launches} small launches, {default_num_threads()} threads"
    return _milliseconds(name, times, 1.4 * max(1, chains / default_num_threads()))


def new_kernel(step: int) -> Callable[[Any], None]:
    """A graphed function with a kernel of its own, whose code is no other's."""

    @cuda.jit
    def add(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += step

    return gj.graphed(lambda x: add[4, BLOCK](x))


def measure_first_call(samples: int = 5) -> Row:
    """Trace, compile and run a kernel that this process has not seen."""
    x = gj.zeros(1000)
    taken = []
    for k in range(samples + 1):
        call = new_kernel(k)
        start = time.perf_counter()
        call(x)
        gj.synchronize()
        taken.append(time.perf_counter() - start)
    return Row("first call of a new kernel", summary(taken[1:]), "s", limit=0.6)


def _milliseconds(name: str, times: dict[str, Time], limit: float) -> Row:
    (_, mine), (against, other) = times.items()
    return Row(name, mine * 1e3, "ms", other * 1e3, against, limit)


def main() -> int:
    where = machine()
    with gj.use_backend("cpu"):
        rows = [
            measure_axpy(),
            measure_stencil(),
            measure_block_sums(),
            measure_replay(),
            measure_chains(),
            measure_first_call(),
        ]
    return finish(rows, where)


if __name__ == "__main__":
    sys.exit(main())
