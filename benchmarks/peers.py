"""Other libraries doing the same: x + y of two float32 arrays, called again and again.

Each is called in its best case: with the same arrays, and a result that is there already where the
library allows it. Imports and what may fail without a library are inside the functions.
"""

# No `from __future__ import annotations`: Warp and Quadrants read their kernels' annotations.

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from .calls import BLOCK, add

Host = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Peer:
    """Another library's call.

    Parameters
    ----------
    name : str
        What is called.
    call : callable
        Enqueues it once.
    sync : callable
        Waits for it.
    result : callable
        The last call's result, as a NumPy array.
    binds : bool
        Whether it takes at least one array at the call; otherwise it is there for orientation.
    """

    name: str
    call: Callable[[], Any]
    sync: Callable[[], Any]
    result: Callable[[], Host]
    binds: bool = True


def torch_peers(x: Host, y: Host) -> Iterator[Peer]:
    import torch

    # Without gradients, a call is cheaper.
    torch.set_grad_enabled(False)
    sync = torch.cuda.synchronize
    new, a, b = (torch.from_numpy(host).cuda() for host in (x, x, y))
    kept = [torch.add(a, b)]
    graphed = torch.cuda.make_graphed_callables(lambda p, q: torch.add(p, q), (a, b))

    def graphed_call() -> None:
        kept[0] = graphed(a, b)

    name = "PyTorch, make_graphed_callables, 2 inputs"
    yield Peer(name, graphed_call, sync, lambda: kept[0].cpu().numpy())
    static, graph = torch.zeros_like(a), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.add(static, b)

    def copy_and_replay() -> None:
        static.copy_(new)
        graph.replay()

    name = "PyTorch, copy_ of 1 input + CUDAGraph.replay"
    yield Peer(name, copy_and_replay, sync, lambda: out.cpu().numpy())


def cupy_peers(x: Host, y: Host) -> Iterator[Peer]:
    import cupy

    a, b = cupy.asarray(x), cupy.asarray(y)
    out = cupy.add(a, b)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        cupy.add(a, b, out=out)
        stream.synchronize()
        stream.begin_capture()
        cupy.add(a, b, out=out)
        graph = stream.end_capture()
    out.fill(0)
    sync = cupy.cuda.runtime.deviceSynchronize
    sync()
    name = "CuPy, Graph.launch, binds nothing"
    yield Peer(name, lambda: graph.launch(stream), sync, lambda: cupy.asnumpy(out), binds=False)


def warp_peers(x: Host, y: Host) -> Iterator[Peer]:
    import warp

    warp.config.quiet = True
    warp.init()
    floats = warp.array(dtype=float)

    @warp.kernel
    def warp_add(x: floats, y: floats, out: floats):
        i = warp.tid()
        out[i] = x[i] + y[i]

    new, b = (warp.array(host, dtype=float, device="cuda") for host in (x, y))
    a, out = warp.zeros_like(b), warp.zeros_like(b)

    def launch() -> None:
        inputs = [a, b, out]
        warp.launch(warp_add, dim=x.size, inputs=inputs, device="cuda", block_dim=BLOCK)

    launch()
    warp.synchronize()
    with warp.ScopedCapture(device="cuda") as capture:
        launch()

    def copy_and_launch() -> None:
        warp.copy(a, new)
        warp.capture_launch(capture.graph)

    name = "Warp, copy of 1 input + capture_launch"
    yield Peer(name, copy_and_launch, warp.synchronize, lambda: out.numpy())


def quadrants_peers(x: Host, y: Host) -> Iterator[Peer]:
    import quadrants

    quadrants.init(arch=quadrants.cuda)
    floats = quadrants.types.ndarray(quadrants.f32, ndim=1)

    # A kernel of a single loop is launched as it is: that is what graph=True does with it.
    @quadrants.kernel(graph=True)
    def quadrants_add(x: floats, y: floats, out: floats):
        for i in range(x.shape[0]):
            out[i] = x[i] + y[i]

    a, b, out = (quadrants.ndarray(quadrants.f32, shape=x.shape) for _ in range(3))
    a.from_numpy(x)
    b.from_numpy(y)
    name = "Quadrants, kernel(graph=True), 3 arrays"
    yield Peer(name, lambda: quadrants_add(a, b, out), quadrants.sync, lambda: out.to_numpy())


def jax_peers(x: Host, y: Host) -> Iterator[Peer]:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    # Named, so that a JAX without its GPU plugin is no contestant.
    device = jax.devices("gpu")[0]
    a, b = (jax.device_put(host, device) for host in (x, y))
    jitted = jax.jit(lambda p, q: p + q)
    kept = [jitted(a, b)]

    def call() -> None:
        kept[0] = jitted(a, b)

    yield Peer(
        "JAX, jit, 2 inputs",
        call,
        lambda: jax.block_until_ready(kept[0]),
        lambda: np.asarray(kept[0]),
    )


def numba_peers(x: Host, y: Host) -> Iterator[Peer]:
    a, b, out = cuda.to_device(x), cuda.to_device(y), cuda.device_array_like(x)
    configured = add[-(-x.size // BLOCK), BLOCK]
    name = "Numba, eager, configured once"
    yield Peer(name, lambda: configured(a, b, out), cuda.synchronize, lambda: out.copy_to_host())


# By the module's name; JAX last, since its threads could break in on what others capture.
PEERS = {
    "torch": torch_peers,
    "cupy": cupy_peers,
    "warp": warp_peers,
    "quadrants": quadrants_peers,
    "numba": numba_peers,
    "jax": jax_peers,
}


def torch_array(host: Host) -> Any:
    import torch

    return torch.from_numpy(host).cuda()


def cupy_array(host: Host) -> Any:
    import cupy

    return cupy.asarray(host)


# What makes an array of another library, by what a row calls them.
ARRAYS: dict[str, Callable[[Host], Any]] = {
    "CuPy arrays": cupy_array,
    "PyTorch tensors": torch_array,
    "Numba device arrays": cuda.to_device,
}


def made(x: Host, y: Host) -> tuple[list[Peer], dict[str, str]]:
    """The peers that are installed and work, and what to record of them: versions, absentees."""
    found: list[Peer] = []
    versions, absent = [], []
    for module, make in PEERS.items():
        try:
            peers = list(make(x, y))
            for peer in peers:
                peer.call()
                peer.sync()
                np.testing.assert_allclose(peer.result(), x + y, rtol=1e-6, err_msg=peer.name)
        except Exception as error:
            # One that isn't there, or doesn't work on this machine, must not cost the others.
            print(f"skipped: {module}: {type(error).__name__}: {error}", flush=True)
            absent.append(module)
            continue
        found += peers
        version = sys.modules[module].__version__
        if isinstance(version, tuple):
            version = ".".join(map(str, version))
        versions.append(f"{module} {version}")
    return found, {"peers": " ".join(versions), "peers skipped": " ".join(absent) or "none"}
