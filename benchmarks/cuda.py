"""The CUDA backend against Numba alone: `python -m benchmarks.cuda [--check] [--json PATH]`.

The same Numba kernels, float32[65536] with 256 threads a block, are replayed by graphjit, captured
from one stream with cuda-bindings, and launched eagerly, in turns in one run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver
from numba import cuda

import graphjit as gj

from .report import Row, finish, interleaved, machine

SIZE, BLOCK, LAUNCHES = 65536, 256, 100
GRID = SIZE // BLOCK
SCALE = np.float32(1e-3)


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@gj.graphed
def chain(a: Any, x: Any, y: Any) -> None:
    for _ in range(LAUNCHES):
        axpy[GRID, BLOCK](a, x, y)


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call; raises if it failed."""
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {status!r}")
    return values[0] if values else None


def captured(enqueue: Callable[[Any], None], launch_on: int | None = None) -> Callable[[], Any]:
    """What `enqueue` launches on a stream, as one bare `cuGraphLaunch` there or on another."""
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = checked(driver.cuStreamCreate(flags))
    numba_stream = cuda.external_stream(int(stream))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(driver.cuStreamBeginCapture(stream, mode))
    enqueue(numba_stream)
    graph = checked(driver.cuStreamEndCapture(stream))
    executable = checked(driver.cuGraphInstantiate(graph, 0))
    if launch_on is not None:
        stream = driver.CUstream(launch_on)
    return lambda: driver.cuGraphLaunch(executable, stream)


def measure_chain() -> list[Row]:
    host = np.random.default_rng(0).random(SIZE, np.float32)
    x, y = gj.array(host), gj.zeros(SIZE, dtype=np.float32)
    dx, dy = cuda.to_device(host), cuda.to_device(np.zeros(SIZE, np.float32))

    def launch_all(stream: Any = 0) -> None:
        configured = axpy[GRID, BLOCK, stream]
        for _ in range(LAUNCHES):
            configured(SCALE, dx, dy)

    eager = chain.__wrapped__
    launch_all()
    chain(SCALE, x, y)
    np.testing.assert_array_equal(y.copy_to_host(), dy.copy_to_host())
    bare = captured(launch_all)
    times = interleaved(
        {
            "gj": lambda: chain(SCALE, x, y),
            "captured": bare,
            "eager": lambda: eager(SCALE, dx, dy),
            "configured": launch_all,
        },
        rounds=15,
        calls=50,
        sync=synchronize,
    )
    mine = times["gj"] * 1e6
    name = f"chain of {LAUNCHES} kernels, device time"
    return [
        Row(name, mine, "us", times["captured"] * 1e6, "Numba, captured", limit=1.1),
        Row(name, mine, "us", times["eager"] * 1e6, "the same function, eager", faster_by=20),
        Row(name, mine, "us", times["configured"] * 1e6, "Numba, eager, configured once"),
    ]


def synchronize() -> None:
    checked(driver.cuCtxSynchronize())


def gpu() -> dict[str, Any]:
    """The GPU and its driver."""
    index = checked(driver.cuDeviceGet(0))
    version = checked(driver.cuDriverGetVersion())
    return {
        "gpu": checked(driver.cuDeviceGetName(64, index)).decode().rstrip("\0"),
        "cuda": f"{version // 1000}.{version % 1000 // 10}",
    }


def main() -> int:
    where = machine()
    with gj.use_backend("cuda"):
        rows = measure_chain()
    return finish(rows, {**gpu(), **where})


if __name__ == "__main__":
    sys.exit(main())
