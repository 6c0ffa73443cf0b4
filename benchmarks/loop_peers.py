"""Other libraries' loops: u + k (1 - u), a thousand times.

Imports and what may fail without a library are inside the functions.
"""

# No `from __future__ import annotations`: Warp reads its kernels' annotations.

from collections.abc import Callable
from typing import Any

import numpy as np

ITERATIONS = 1000
Call = Callable[[], Any]


def expected(host: Any, k: Any) -> Any:
    """The result, in float64."""
    u = host.astype(np.float64)
    for _ in range(ITERATIONS):
        u = u + k * (1 - u)
    return u


def jax_peer(host: Any, k: Any, device: str) -> Call:
    """`jax.lax.fori_loop` of the same update, without unrolling."""
    import jax

    u = jax.device_put(host, jax.devices(device)[0])
    update = jax.jit(lambda u: jax.lax.fori_loop(0, ITERATIONS, lambda i, u: u + k * (1 - u), u))
    np.testing.assert_allclose(np.asarray(update(u)), expected(host, k), rtol=1e-4)
    return lambda: update(u).block_until_ready()


def jax_while(host: Any, k: Any, device: str) -> Call:
    """`jax.lax.while_loop` of the same update and count."""
    import jax

    u = jax.device_put(host, jax.devices(device)[0])

    @jax.jit
    def update(u: Any) -> Any:
        return jax.lax.while_loop(
            lambda c: c[1] < ITERATIONS, lambda c: (c[0] + k * (1 - c[0]), c[1] + 1), (u, 0)
        )[0]

    np.testing.assert_allclose(np.asarray(update(u)), expected(host, k), rtol=1e-4)
    return lambda: update(u).block_until_ready()


def warp_while(host: Any, k: Any) -> Call:
    """Warp's `capture_while` of the same update, in place, and a kernel for its condition."""
    import warp

    warp.config.quiet = True
    warp.init()
    floats, integers = warp.array(dtype=float), warp.array(dtype=int)

    @warp.kernel
    def warp_relax(u: floats, k: float):
        i = warp.tid()
        u[i] = u[i] + k * (1.0 - u[i])

    @warp.kernel
    def warp_count(done: integers, goes_on: integers):
        done[0] = done[0] + 1
        if done[0] >= ITERATIONS:
            goes_on[0] = 0

    given = warp.array(host, dtype=float, device="cuda")
    u, done = warp.zeros_like(given), warp.zeros(1, dtype=int, device="cuda")
    goes_on = warp.zeros(1, dtype=int, device="cuda")

    def body() -> None:
        warp.launch(warp_relax, dim=len(host), inputs=[u, float(k)], device="cuda")
        warp.launch(warp_count, dim=1, inputs=[done, goes_on], device="cuda")

    warp.load_module(device="cuda")
    with warp.ScopedCapture(device="cuda") as capture:
        warp.copy(u, given)
        done.zero_()
        goes_on.fill_(1)
        warp.capture_while(goes_on, body)
    warp.capture_launch(capture.graph)
    np.testing.assert_allclose(u.numpy(), expected(host, k), rtol=1e-4)

    def call() -> None:
        warp.capture_launch(capture.graph)
        warp.synchronize()

    return call
