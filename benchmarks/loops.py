"""Loops beside the same launches written out: `python -m benchmarks.loops [--check] [--json F]`.

1000 iterations of one small kernel, each of which reads what the one before it wrote.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

import graphjit as gj

from .report import Row, finish, interleaved, machine

ITERATIONS = 1000
BLOCK = 256
# So few elements on the CPU that an iteration is nearly all overhead.
SIZES = {"cpu": 16, "cuda": 65536}
Call = Callable[[], Any]


@cuda.jit
def relax(u, k, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = u[i] + k * (np.float32(1.0) - u[i])


def step(u: Any, k: Any) -> Any:
    out = gj.empty_like(u)
    relax[-(-u.size // BLOCK), BLOCK](u, k, out)
    return out


@gj.graphed
def looped(u: Any, k: Any) -> Any:
    return gj.fori_loop(0, ITERATIONS, lambda i, u: step(u, k), u)


@gj.graphed
def written_out(u: Any, k: Any) -> Any:
    for _ in range(ITERATIONS):
        u = step(u, k)
    return u


def jax_peer(host: Any, k: Any, device: str) -> Call:
    """`jax.lax.fori_loop` of the same update, without unrolling."""
    import jax

    u = jax.device_put(host, jax.devices(device)[0])
    update = jax.jit(lambda u: jax.lax.fori_loop(0, ITERATIONS, lambda i, u: u + k * (1 - u), u))
    np.testing.assert_allclose(np.asarray(update(u)), _expected(host, k), rtol=1e-4)
    return lambda: update(u).block_until_ready()


def _expected(host: Any, k: Any) -> Any:
    u = host.astype(np.float64)
    for _ in range(ITERATIONS):
        u = u + k * (1 - u)
    return u


def measure(backend: str) -> list[Row]:
    """The rows of one backend."""
    host = np.random.default_rng(0).random(SIZES[backend], np.float32)
    k = np.float32(1e-3)
    u = gj.array(host)

    def call(function: Any) -> None:
        function(u, k)
        gj.synchronize()

    for function in (looped, written_out):
        found = function(u, k).copy_to_host()
        np.testing.assert_allclose(found, _expected(host, k), rtol=1e-4)
    contestants: dict[str, Call] = {
        "looped": functools.partial(call, looped),
        "written out": functools.partial(call, written_out),
    }
    try:
        contestants["jax"] = jax_peer(host, k, backend)
    except Exception as error:
        print(f"skipped: jax on {backend}: {type(error).__name__}: {error}", flush=True)
    times = {
        name: time * (1e6 / ITERATIONS)
        for name, time in interleaved(contestants, rounds=15, calls=5).items()
    }
    name = f"{backend}, an iteration of fori_loop"
    mine = times["looped"]
    rows = [Row(name, mine, "us", times["written out"], "the launches written out", 1.05)]
    if backend == "cpu":
        rows.append(Row(name, mine, "us", None, "with its kernel, of 16 elements", 1.0))
    if "jax" in times:
        against = "jax.lax.fori_loop, not unrolled"
        faster_by = 5 if backend == "cuda" else None
        rows.append(Row(name, mine, "us", times["jax"], against, faster_by=faster_by))
    return rows


def main() -> int:
    rows = []
    for backend in SIZES:
        if gj.devices(backend):
            with gj.use_backend(backend):
                rows += measure(backend)
    return finish(rows, machine())


if __name__ == "__main__":
    sys.exit(main())
