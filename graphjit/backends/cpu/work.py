"""How much a kernel has to do, which decides whether it is worth waking other threads for."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter

_INSTRUCTIONS = 32  # of simple kernels, in a nanosecond, side by side in vectors
_TURNS = 64
_BLOCK = re.compile(r"([\w.$-]+):")
_LABEL = re.compile(r"label %([\w.$-]+)")


def thread_work(body: str) -> int:
    """A guess at the nanoseconds that one thread takes, from the number of its instructions.

    Loops are taken to run some hundred times: to spread a kernel that is quickly done costs less
    than to leave a long one to one thread.

    Parameters
    ----------
    body : str
        LLVM text of the kernel, everything inlined, its blocks named.
    """
    instructions, here, waits = 0, "", False
    flow: dict[str, set[str]] = {}
    for line in body.splitlines():
        label = _BLOCK.match(line)
        if label:
            here, waits = label[1], False
            flow[here] = set()
        elif line.startswith("  "):
            instructions += 1
            # A suspend point looks like a loop.
            waits = waits or "@gj.suspend." in line
            flow[here].update(to for to in _LABEL.findall(line) if to != here or not waits)
    try:
        TopologicalSorter(flow).prepare()
        turns = 1
    except CycleError:
        turns = _TURNS
    return max(1, instructions // _INSTRUCTIONS) * turns
