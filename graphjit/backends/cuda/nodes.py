"""The parts of a graph that calls are bound to.

Compiled where there is a C compiler (see `setup.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from graphjit._memory import Memory
from graphjit.backends.cuda.image import BoundImage


class Instance:
    """An instantiated graph.

    Parameters
    ----------
    made : CUgraphExec
        What `cuGraphInstantiate` gave.
    """

    __slots__ = ("address", "handle", "is_open")

    def __init__(self, made: Any) -> None:
        self.handle = made
        self.address = int(made)
        self.is_open = True

    def destroy(self) -> None:
        """Destroy it; this waits for nothing, the driver frees it when its launches are over."""
        self.is_open = False
        driver.cuGraphExecDestroy(self.handle)


class KernelNode:
    """A kernel node: its handle, its parameters in host memory, and the driver's structure."""

    __slots__ = ("address", "handle", "image", "mark", "params", "params_address")

    def __init__(self, handle: Any, image: BoundImage, params: Any) -> None:
        self.handle = handle
        self.address = int(handle)
        self.image = image
        self.params = params
        self.params_address = int(params.getPtr())
        self.mark = 0  # which search found it last


class StaticInput:
    """An argument that can be copied into a buffer of the executable's own.

    Parameters
    ----------
    slot : int
        Its slot.
    nbytes : int
        Bytes it spans.
    copy : callable
        Copies its elements: from an address to another, on a stream.
    written : bool
        Whether a kernel may write it: then it is copied back.
    """

    __slots__ = ("copy", "memory", "nbytes", "slot", "written")

    def __init__(
        self, slot: int, nbytes: int, copy: Callable[[int, int, Any], None], written: bool
    ) -> None:
        self.slot = slot
        self.nbytes = nbytes
        self.copy = copy
        self.written = written
        self.memory: Memory | None = None
