"""What is made of many launches: `python -m benchmarks.compiler [--check] [--json PATH]`.

The same Numba kernels are captured from one stream with cuda-bindings, which makes of a chain just
the explicit graph of its kernels and full edges. Elementwise chains are also `jax.jit`'s. All take
turns in one run, on a GPU; without one, `benchmarks.cpu` has the figures of the CPU backend.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

import graphjit as gj
from examples import lattice_boltzmann, shallow_water
from graphjit._nodes import Constant, Launch, ScalarRef, View

from .cuda import captured, gpu, synchronize
from .loops import BLOCK, step
from .report import Row, Time, finish, interleaved, machine

STEPS, CHAINS, CHAIN = 100, 8, 50
SMALL, LARGE = 65536, 2**24
# What an H200's memory moves, bytes a second, as its data sheet says.
BANDWIDTH = 4.8e12
K = np.float32(1e-3)
Call = Callable[[], Any]


def repeated(u: Any, k: Any, steps: int) -> Any:
    for _ in range(steps):
        u = step(u, k)
    return u


def chain(u: Any, k: Any) -> Any:
    """Launches of which each needs the one before."""
    return repeated(u, k, STEPS)


def chains(arrays: Any, k: Any) -> Any:
    """Chains that don't need each other, written one after another."""
    return tuple(repeated(u, k, CHAIN) for u in arrays)


def launches(function: Any, args: tuple[Any, ...], make: Callable[..., Any]) -> tuple[Any, Any]:
    """The launches of a function as they are written, on memory of their own.

    Parameters
    ----------
    function : callable
        Launches kernels, and does nothing else with arrays than make them.
    args : tuple
        Host arrays, in tuples or not, and numbers.
    make : callable
        Makes an array from a host array.

    Returns
    -------
    callable, callable
        What launches them all, given what to configure a kernel with besides grid and block; and
        what gives the results.
    """
    graph = gj.make_graph(function)(*args)
    leaves = [a for arg in args for a in (arg if isinstance(arg, tuple) else (arg,))]
    given = dict(zip(graph.inputs, leaves, strict=True))
    arrays: dict[int, Any] = {}
    for view, host in given.items():
        if isinstance(view, View):
            arrays[view.buffer] = make(host)

    def value(operand: Any) -> Any:
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, ScalarRef):
            if operand in given:
                return given[operand]
            scalar = graph.scalars[operand.index]
            return scalar.function(*map(value, scalar.operands))
        if operand.buffer not in arrays:
            arrays[operand.buffer] = make(np.zeros(operand.layout.shape, operand.layout.dtype))
        return arrays[operand.buffer]

    calls = []
    for node in graph.nodes:
        if not isinstance(node, Launch):
            raise TypeError(f"not a launch: {graph.describe(node)}")
        operands = tuple(map(value, node.operands))
        calls.append((node.kernel.dispatcher, node.grid, node.block, operands))

    def launch(*stream: Any) -> None:
        for dispatcher, grid, block, operands in calls:
            dispatcher[(grid, block, *stream)](*operands)

    return launch, lambda: [arrays[output.view.buffer] for output in graph.outputs]


def contestants(function: Any, args: tuple[Any, ...], *optimized: Any) -> list[Call]:
    """The launches captured in one stream, and the function graphed, once for each `optimize=`.

    The results of all are the same.
    """
    on_device = tuple(
        tuple(map(gj.array, a)) if isinstance(a, tuple) else gj.array(a) if np.ndim(a) else a
        for a in args
    )
    launch, results = launches(function, args, cuda.to_device)
    launch()  # compiles
    replay = captured(launch)
    replay()
    synchronize()
    expected = [result.copy_to_host() for result in results()]
    calls: list[Call] = [replay]
    for optimize in optimized:
        call = functools.partial(gj.graphed(function, optimize=optimize), *on_device)
        found = call()
        found = found if isinstance(found, tuple) else (found,)
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine.copy_to_host(), other)
        calls.append(call)
    return calls


def device_times(calls_of: dict[str, Call], calls: int = 50) -> dict[str, Time]:
    """Microseconds that the device takes for each, one call after another."""
    times = interleaved(calls_of, rounds=15, calls=calls, sync=synchronize)
    return {name: time * 1e6 for name, time in times.items()}


def measure_chain() -> list[Row]:
    args = (np.random.default_rng(0).random(SMALL, np.float32), K)
    bare, plain, early, fused = contestants(chain, args, False, "programmatic_launch", True)
    times = device_times({"bare": bare, "plain": plain, "early": early, "fused": fused})
    name, against = f"chain of {STEPS} kernels", "bare graph"
    return [
        Row(f"{name}, unfused", times["plain"], "us", times["bare"], against, limit=1.03),
        Row(f"{name}, launched early", times["early"], "us", times["bare"], against, limit=0.82),
        Row(f"{name}, fused", times["fused"], "us", times["bare"], against, faster_by=20),
    ]


def measure_chains() -> list[Row]:
    random = np.random.default_rng(1)
    args = (tuple(random.random(BLOCK, np.float32) for _ in range(CHAINS)), K)
    bare, unfused, fused = contestants(chains, args, "programmatic_launch", True)
    times = device_times({"bare": bare, "unfused": unfused, "fused": fused})
    name, against = f"{CHAINS} chains of {CHAIN} small kernels", "captured in one stream"
    return [
        Row(f"{name}, unfused", times["unfused"], "us", times["bare"], against, limit=0.25),
        Row(f"{name}, fused", times["fused"], "us", times["bare"], against),
    ]


def jax_chain(host: Any) -> Callable[[], Any]:
    """`jax.jit` of the same chain; the call gives its result at once, unfinished."""
    import jax

    u = jax.device_put(host, jax.devices("gpu")[0])

    @jax.jit
    def update(u: Any) -> Any:
        for _ in range(STEPS):
            u = u + K * (np.float32(1) - u)
        return u

    np.testing.assert_allclose(
        np.asarray(update(u)), gj.graphed(chain)(gj.array(host), K).copy_to_host(), rtol=1e-5
    )
    return lambda: update(u)


def measure_jax() -> list[Row]:
    """A small chain with the wait for it, and a large one's time on the device."""
    name, rows = f"elementwise chain of {STEPS}", []
    mine, theirs = both_chains(SMALL)
    times = interleaved(
        {
            "gj": lambda: mine().block_until_ready(),
            "jax": lambda: theirs().block_until_ready(),
        },
        rounds=25,
        calls=200,
    )
    small = {key: time * 1e6 for key, time in times.items()}
    rows.append(Row(f"{name}, {SMALL} floats", small["gj"], "us", small["jax"], "jax.jit", limit=1))
    mine_large, theirs_large = both_chains(LARGE)
    large = device_times({"gj": mine_large, "jax": theirs_large}, calls=30)
    where = f"{name}, {LARGE} floats, device time"
    rows.append(Row(where, large["gj"], "us", large["jax"], "jax.jit", limit=1.03))
    return rows


def both_chains(size: int) -> tuple[Call, Call]:
    """graphjit's chain and JAX's, on the same numbers."""
    host = np.random.default_rng(2).random(size, np.float32)
    u, compiled = gj.array(host), gj.graphed(chain)
    return lambda: compiled(u, K), jax_chain(host)


def measure_examples() -> list[Row]:
    """A step of each example, and how it compares with the memory that it must at least move."""
    rows = []
    for example, size in ((lattice_boltzmann, 512), (shallow_water, 512), (shallow_water, 2048)):
        advance, args, nbytes = example.benchmark_step(size)
        bare, mine = contestants(advance, args, True)
        times = device_times({"gj": mine, "captured": bare})
        name = f"{example.__name__.rpartition('.')[2]}, {size} x {size}"
        rows.append(Row(name, times["gj"], "us", times["captured"], "captured in one stream"))
        least = nbytes / BANDWIDTH * 1e6
        rows.append(Row(f"{name}, least", times["gj"], "us", Time(least, least), "its bytes moved"))
    return rows


def main() -> int:
    where = machine()
    with gj.use_backend("cuda"):
        rows = [*measure_chain(), *measure_chains(), *measure_jax(), *measure_examples()]
    return finish(rows, {**gpu(), **where})


if __name__ == "__main__":
    sys.exit(main())
