"""What a program of the CPU consists of: steps, those that overlap, jumps and calls of Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from graphjit.kernel.packing import ParamImage
from graphjit.schedule.flat import Jump

MIN_PARALLEL_WORK = 32_768
"""Below this much estimated work (see `Step.parallel`) waking others costs more than it saves."""


@dataclass(frozen=True)
class Step:
    """One launch of a native kernel.

    Parameters
    ----------
    address : int
        Native function `void f(void **params, const int32_t *dims, int64_t begin, int64_t end,
        void *scratch, int32_t dynamic_shared)`, which runs the linear blocks from `begin` to
        before `end`; `dims` are the block's and the grid's x, y, z. Whoever makes the step keeps
        the code loaded.
    image : ParamImage
        Its parameters.
    block, grid : tuple of int
        Extents in x, y and z.
    dynamic_shared : int
        Bytes of dynamic shared memory.
    scratch_bytes : int
        Bytes of 64-byte aligned, uninitialised scratch that one call needs.
    name : str
        What to call it in messages.
    parallel : bool or int
        Whether to spread its blocks over the pool. An int is an estimate of the work in
        nanoseconds on one thread, which decides (as a rule, one for each thread of a simple kernel
        or for each 8 bytes moved).
    is_late : bool
        Whether steps before it change the slots that its image depends on.
    """

    address: int
    image: ParamImage
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    dynamic_shared: int = 0
    scratch_bytes: int = 0
    name: str = ""
    parallel: bool | int = True
    is_late: bool = False


@dataclass(frozen=True)
class Call:
    """A call of Python.

    Parameters
    ----------
    function : callable
        Takes the program's slots.
    """

    function: Callable[[ctypes.Array[ctypes.c_char]], None]


@dataclass(frozen=True)
class Together:
    """Steps that overlap.

    Parameters
    ----------
    tasks : tuple of tuple of Step
        What one thread does in order, while others do other tasks. A step alone may be spread over
        several threads. None of the steps is late.
    """

    tasks: tuple[tuple[Step, ...], ...]


Item = Step | Together | Jump | Call


def steps_of(item: Item) -> list[Step]:
    """The steps that an item consists of."""
    if isinstance(item, Together):
        return [step for task in item.tasks for step in task]
    return [item] if isinstance(item, Step) else []
