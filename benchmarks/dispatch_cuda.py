"""The GPU's part of `benchmarks.dispatch`: host time of one call, multiples of a bare launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

import graphjit as gj

from .calls import BLOCK, Call, add, add_scaled, calls, calls_on, host_arrays, in_turns
from .cuda import captured, gpu, synchronize
from .peers import ARRAYS, made
from .report import Row, Time, interleaved

__all__ = ["gpu", "measure"]

SIZE = 65536
GRID = SIZE // BLOCK
# Multiples of the bare launch. What isn't here has no limit.
LIMITS = {
    "the same arrays": 1.5,
    "u = f(u)": 1.5,
    "new arrays": 2.0,
    "new arrays, a new scalar": 2.4,
}
# What peers are compared with.
COMPARED = ("the same arrays", "new arrays")
NODES = 1000


@cuda.jit
def accumulate(x, total):
    i = cuda.grid(1)
    if i < x.size:
        total[i] += x[i]


def repeated(x: Any) -> Any:
    """A graph of NODES nodes, all but the first of which use the argument."""
    total = gj.zeros_like(x)
    for _ in range(NODES - 2):
        accumulate[GRID, BLOCK](x, total)
    out = gj.empty_like(x)
    add[GRID, BLOCK](x, total, out)
    return out


@gj.graphed
def added_twice(x: Any, y: Any) -> Any:
    """A graph of two kernels, both of which new arrays concern."""
    middle, out = gj.empty_like(x), gj.empty_like(x)
    add[GRID, BLOCK](x, y, middle)
    add[GRID, BLOCK](middle, y, out)
    return out


def two_kernels() -> dict[str, Call]:
    """Calls of it, and the bare launch."""
    xs, ys = host_arrays(SIZE)
    x, y = gj.array(xs[0]), gj.array(ys[0])
    next_x, next_y = in_turns(xs, ys, gj.array)
    fed_back = [x]

    def feed_back() -> None:
        fed_back[0] = added_twice(fed_back[0], y)

    for step in range(80):
        found = added_twice(next_x(), next_y()).copy_to_host()
        expected = xs[step % len(xs)] + ys[step % len(ys)] + ys[step % len(ys)]
        np.testing.assert_array_equal(found, expected)
    dx, dy, middle, out = (cuda.to_device(host) for host in (xs[0], ys[0], xs[0], xs[0]))

    def enqueue(stream: Any) -> None:
        add[GRID, BLOCK, stream](dx, dy, middle)
        add[GRID, BLOCK, stream](middle, dy, out)

    return {
        "2 kernels, the same arrays": lambda: added_twice(x, y),
        "2 kernels, u = f(u)": feed_back,
        "2 kernels, new arrays": lambda: added_twice(next_x(), next_y()),
        "2 kernels, bare": captured(enqueue),
    }


def bare_launches() -> dict[str, Call]:
    """Bare launches of the same kernels, with a scalar and without."""
    xs, ys = host_arrays(SIZE)
    x, y, out = (cuda.to_device(host) for host in (xs[0], ys[0], xs[0]))
    add[GRID, BLOCK](x, y, out)
    add_scaled[GRID, BLOCK](x, y, 0.5, out)
    bare = captured(lambda stream: add[GRID, BLOCK, stream](x, y, out))
    scaled = captured(lambda stream: add_scaled[GRID, BLOCK, stream](x, y, 0.5, out))
    on_default = captured(lambda stream: add[GRID, BLOCK, stream](x, y, out), launch_on=0)
    return {"bare": bare, "bare, a scalar": scaled, "bare, default stream": on_default}


def measure_calls() -> list[Row]:
    """One call on Arrays, and bare launches of the same graphs, before others are imported."""
    mine, bare, two = calls(SIZE), bare_launches(), two_kernels()
    times = _in_turns({**mine, **bare, **two}, synchronize)
    rows = []
    for name in mine:
        reference = "bare, a scalar" if "scalar" in name else "bare"
        rows.append(_row(name, times, reference, "bare cuGraphLaunch", limit=LIMITS.get(name)))
    for name in list(two)[:-1]:
        rows.append(_row(name, times, "2 kernels, bare", "bare cuGraphLaunch of the two"))
    name = "bare, default stream"
    rows.append(_row(name, times, "bare", "bare cuGraphLaunch on a stream of its own"))
    return rows


def measure_others() -> tuple[list[Row], dict[str, str]]:
    """Calls on other libraries' arrays, and the same work by others, beside calls on Arrays."""
    xs, ys = host_arrays(SIZE)
    mine = {name: call for name, call in calls(SIZE).items() if name in COMPARED}
    theirs: dict[str, Call] = {}
    for kind, make in ARRAYS.items():
        try:
            make(xs[0])
        except Exception as error:
            print(f"skipped: {kind}: {type(error).__name__}: {error}", flush=True)
        else:
            theirs.update(calls_on(make, SIZE, kind))
    bare = {"bare": bare_launches()["bare"]}
    peers, recorded = made(xs[0], ys[0])

    def wait() -> None:
        for peer in peers:
            peer.sync()
        synchronize()

    times = _in_turns({**mine, **theirs, **bare, **{p.name: p.call for p in peers}}, wait)
    rows = [_row(name, times, "bare", "bare cuGraphLaunch") for name in theirs]
    for peer in peers:
        faster_by = 1 if peer.binds else None
        for name in COMPARED:
            rows.append(_row(name, times, peer.name, peer.name, faster_by=faster_by))
    return rows, recorded


def _in_turns(contestants: dict[str, Call], wait: Call) -> dict[str, Time]:
    """Host time of each: so few calls in a sample that no queue is ever full.

    Nobody's threads spin here, and without pauses the processor keeps its clock.
    """
    return interleaved(
        contestants,
        rounds=61,
        calls=20,
        sync=wait,
        sync_inside=False,
        pause=0.0,
        warm=0.003,
    )


def measure_long_graph() -> list[Row]:
    """A new array for every node of a long graph: repointing them all, or one copy."""
    xs, ys = host_arrays(SIZE)
    expected = xs[0].copy()
    total = np.zeros_like(expected)
    for _ in range(NODES - 2):
        total += xs[0]
    expected += total
    contestants: dict[str, Callable[[], Any]] = {}
    for inputs in ("auto", "copy", "rebind"):
        function = gj.graphed(inputs=inputs)(repeated)
        result = function(gj.array(xs[0]))
        np.testing.assert_array_equal(result.copy_to_host(), expected)
        next_x, _ = in_turns(xs, ys, gj.array)

        def call(function: Any = function, next_x: Call = next_x) -> None:
            function(next_x())
            synchronize()

        contestants[inputs] = call
    times = interleaved(contestants, rounds=15, calls=10)
    name = f"{NODES} nodes that use a new array, host and device"
    against = 'inputs="{}" in place of "auto"'
    return [
        Row(name, times["auto"] * 1e6, "us", times[other] * 1e6, against.format(other), limit)
        for other, limit in (("copy", 1.05), ("rebind", None))
    ]


def measure() -> tuple[list[Row], dict[str, str]]:
    """All rows, and what to record of the peers."""
    rows = measure_calls() + measure_long_graph()
    others, recorded = measure_others()
    return rows + others, recorded


def _row(name: str, times: dict[str, Time], other: str, against: str, **target: Any) -> Row:
    return Row(f"enqueue, {name}", times[name] * 1e6, "us", times[other] * 1e6, against, **target)
