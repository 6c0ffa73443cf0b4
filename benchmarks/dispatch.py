"""The host cost of one call: `python -m benchmarks.dispatch [--check] [--profile] [--json PATH]`.

On the CPU each call is compared with the bare native replay of the same program. On a GPU it is
compared with a bare `cuGraphLaunch` of the same kernel, and with other libraries at the same work.
"""

from __future__ import annotations

import sys
import timeit

import graphjit as gj

from . import stages
from .calls import added, added_scaled, calls, host_arrays
from .report import Row, Time, command_line, finish, interleaved, machine, summary

# So few that the kernel takes next to nothing.
SIZE = 16
# What a call may take above the native replay, where an empty Python call takes 45 ns. Both in µs.
LIMIT, EMPTY = 3.0, 0.045
# These have more to do than a call: containers to flatten, and arrays to describe first.
WITHOUT_LIMIT = ("a dict of arrays", "NumPy arrays")


def measure_empty_call() -> Time:
    """An empty Python call of three arguments, in microseconds: the speed of this host's Python."""

    def empty(x: object, y: object, z: object) -> None:
        pass

    count = 200_000
    taken = timeit.repeat("empty(1, 2, 3)", globals={"empty": empty}, number=count, repeat=15)
    return summary(taken) * (1e6 / count)


def measure_cpu() -> list[Row]:
    empty = measure_empty_call()
    limit = round(LIMIT * max(1.0, empty.least / EMPTY), 2)
    xs, ys = host_arrays(SIZE)
    x, y = gj.array(xs[0]), gj.array(ys[0])
    mine = calls(SIZE)
    times = interleaved(
        {
            **mine,
            "native": stages.native_replay(added.__wrapped__, x, y),
            "native, a scalar": stages.native_replay(added_scaled.__wrapped__, x, y, 0.5),
        },
        rounds=25,
        calls=200,
    )
    rows = [Row("an empty Python call of 3 arguments", empty * 1e3, "ns")]
    for name in mine:
        native = times["native, a scalar" if "scalar" in name else "native"]
        against = f"above the native replay, {native.median * 1e6:.2g} us"
        above = (times[name] - native) * 1e6
        mine = None if name in WITHOUT_LIMIT else limit
        rows.append(Row(f"CPU call, {name}", above, "us", None, against, mine))
    return rows


def main() -> int:
    options = command_line(profile="show which part of a call takes how long, and nothing else")
    gpu_is_there = bool(gj.devices("cuda"))
    if options.profile:
        stages.show("cpu", SIZE, calls=200)
        if gpu_is_there:
            stages.show("cuda", 65536, calls=20)
        return 0
    where = machine()
    with gj.use_backend("cpu"):
        rows = measure_cpu()
    if gpu_is_there:
        from . import dispatch_cuda

        with gj.use_backend("cuda"):
            found, peers = dispatch_cuda.measure()
        rows += found
        where = {**dispatch_cuda.gpu(), **where, **peers}
    return finish(rows, where, options)


if __name__ == "__main__":
    sys.exit(main())
