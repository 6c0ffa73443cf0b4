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

from .loop_peers import ITERATIONS, Call, expected, jax_peer, jax_while, warp_while
from .report import Row, finish, interleaved, machine

BLOCK = 256
# So few elements on the CPU that an iteration is nearly all overhead.
SIZES = {"cpu": 16, "cuda": 65536}


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


@cuda.jit
def relax_counted(u, k, done, out, out_done):
    """`relax`, which also counts."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = u[i] + k * (np.float32(1.0) - u[i])
    if i == 0:
        out_done[0] = done[0] + 1


def counted_step(carry: Any, k: Any) -> Any:
    u, done = carry
    out, out_done = gj.empty_like(u), gj.empty_like(done)
    relax_counted[-(-u.size // BLOCK), BLOCK](u, k, done, out, out_done)
    return out, out_done


def converged(check_every: int) -> Any:
    """A loop that ends when an array that its kernel writes says so."""

    @gj.graphed
    def loop(u: Any, k: Any, done: Any) -> Any:
        return gj.while_loop(
            lambda carry: carry[1].item() < ITERATIONS,
            lambda carry: counted_step(carry, k),
            (u, done),
            check_every=check_every,
        )[0]

    return loop


def measure(backend: str) -> list[Row]:
    """The rows of one backend."""
    host = np.random.default_rng(0).random(SIZES[backend], np.float32)
    k = np.float32(1e-3)
    u, done = gj.array(host), gj.zeros(1, np.int64)

    def call(function: Any, *more: Any) -> Any:
        result = function(u, k, *more)
        gj.synchronize()
        return result

    ours = {
        "looped": functools.partial(call, looped),
        "written out": functools.partial(call, written_out),
        "while": functools.partial(call, converged(1), done),
        "while, every 10th": functools.partial(call, converged(10), done),
        "while, every 50th": functools.partial(call, converged(50), done),
    }
    for function in ours.values():
        np.testing.assert_allclose(function().copy_to_host(), expected(host, k), rtol=1e-4)
    contestants: dict[str, Call] = dict(ours)
    peers: dict[str, Callable[[], Call]] = {
        "jax": lambda: jax_peer(host, k, backend),
        "jax while": lambda: jax_while(host, k, backend),
    }
    if backend == "cuda":
        peers["warp while"] = lambda: warp_while(host, k)
    for name, make in peers.items():
        try:
            contestants[name] = make()
        except Exception as error:
            print(f"skipped: {name} on {backend}: {type(error).__name__}: {error}", flush=True)
    times = {
        name: time * (1e6 / ITERATIONS)
        for name, time in interleaved(contestants, rounds=15, calls=5).items()
    }
    return [*_fixed_rows(backend, times), *_while_rows(backend, times)]


def _fixed_rows(backend: str, times: dict[str, Any]) -> list[Row]:
    """The loops of so many iterations."""
    name, mine = f"{backend}, an iteration of fori_loop", times["looped"]
    rows = [Row(name, mine, "us", times["written out"], "the launches written out", 1.05)]
    if backend == "cpu":
        rows.append(Row(name, mine, "us", None, "with its kernel, of 16 elements", 1.0))
    if "jax" in times:
        against = "jax.lax.fori_loop, not unrolled"
        faster_by = 5 if backend == "cuda" else None
        rows.append(Row(name, mine, "us", times["jax"], against, faster_by=faster_by))
    return rows


def _while_rows(backend: str, times: dict[str, Any]) -> list[Row]:
    """The loops that end when an array says so."""
    name, mine = f"{backend}, an iteration of while_loop", times["while"]
    rows = []
    if backend == "cpu":
        rows.append(Row(name, mine, "us", None, "with its kernel, of 16 elements", 1.0))
    for peer, against in (
        ("jax while", "jax.lax.while_loop"),
        ("warp while", "warp.capture_while"),
    ):
        if peer in times:
            faster_by = 1 if backend == "cuda" else None
            rows.append(Row(name, mine, "us", times[peer], against, faster_by=faster_by))
    limit = 2 if backend == "cuda" else None
    for every in (10, 50):
        rows.append(
            Row(
                f"{name}, check_every={every}",
                times[f"while, every {every}th"],
                "us",
                times["written out"],
                "the launches written out",
                limit,
            )
        )
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
