"""Host memory for Arrays, kept for reuse.

Fresh pages cost more than most kernels (a 16 MB array's page faults take some 4 ms), so freed
blocks are kept by size, up to a bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphjit._errors import DeviceMemoryError
from graphjit._interpreter import reference_count
from graphjit._layout import Layout
from graphjit._locks import make_lock
from graphjit._memory import ALONE, Allocator, Memory

_ALIGNMENT = 64
_PAGE = 4096
_KEPT_BYTES = 256 * 2**20


# Memory and the aligned address in it.
_Block = tuple[np.ndarray[Any, Any], int]


class _Blocks:
    """Freed blocks by size."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._free: dict[int, list[_Block]] = {}
        # Roughly: threads may update it at once. It is counted where it matters.
        self._kept = 0

    def take(self, size: Any) -> Any:
        """A block of exactly that size."""
        blocks = self._free.get(size)
        if blocks:
            try:
                found = blocks.pop()  # atomic; another thread may have been quicker
            except IndexError:
                pass
            else:
                self._kept -= size
                return found
        try:
            block = np.empty(size + _ALIGNMENT, np.uint8)
        except MemoryError:
            raise DeviceMemoryError(f"the CPU has no {size} bytes left") from None
        return block, -(-block.ctypes.data // _ALIGNMENT) * _ALIGNMENT

    def give(self, size: Any, block: Any) -> None:
        """Keep a block."""
        blocks = self._free.get(size)
        if blocks is None:
            if size > _KEPT_BYTES:
                return
            blocks = self._free.setdefault(size, [])
        blocks.append(block)
        self._kept += size
        if self._kept > _KEPT_BYTES:
            self._trim()

    def _trim(self) -> None:
        """Let go what is beyond the bound, the sizes met first first."""
        with self._lock:
            kept = sum(size * len(blocks) for size, blocks in list(self._free.items()))
            while kept > _KEPT_BYTES and self._free:
                oldest = next(iter(self._free))
                kept -= oldest * len(self._free.pop(oldest))
            self._kept = kept


_blocks = _Blocks()
_alone = ALONE


class HostMemory(Memory):
    """A piece of host memory; a NumPy view of it keeps it alive, and so from being reused.

    Parameters
    ----------
    nbytes : int
        Size.
    """

    __slots__ = ("_block", "_size")

    def __init__(self, nbytes: int) -> None:
        self._hold(nbytes, None)

    def _hold(self, nbytes: Any, block: Any) -> None:
        """Take a block, if none is given."""
        self._block: _Block | None = None  # if there is no memory
        step = _PAGE if nbytes >= _PAGE else _ALIGNMENT
        self._size = (nbytes + step - 1) // step * step or step
        taken = _blocks.take(self._size) if block is None else block
        self._block = taken
        self.address = taken[1]
        self.nbytes = nbytes
        self.stream = None
        self.others = None
        self.exported = False
        self._lost = ""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _bytes_interface(self.address, self.nbytes)

    def _moved(self) -> Memory:
        # This keeps the block: another thread's call may be reading it.
        return AdoptedMemory(self.address, self.nbytes, self, self.exported)

    def __del__(self) -> None:
        block = self._block
        if _blocks is not None and block is not None and reference_count(self) == _alone:
            _blocks.give(self._size, block)


class AdoptedMemory(Memory):
    """Host memory that somebody else owns.

    Parameters
    ----------
    address : int
        First byte.
    nbytes : int
        Size.
    owner : object
        Kept alive.
    exported : bool
        Whether others may use it without a word.
    """

    __slots__ = ("owner",)

    def __init__(self, address: int, nbytes: int, owner: object, exported: bool = True) -> None:
        Memory.__init__(self, address, nbytes, None)
        self.owner = owner
        self.exported = exported

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _bytes_interface(self.address, self.nbytes)

    def _moved(self) -> Memory:
        return AdoptedMemory(self.address, self.nbytes, self.owner, self.exported)


class HostAllocator(Allocator):
    """Host memory of one size.

    Parameters
    ----------
    nbytes : int
        The size.
    """

    __slots__ = ("_nbytes",)

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes

    def take(self, stream: Any) -> Memory:
        """As `Allocator.take`."""
        memory: HostMemory = HostMemory.__new__(HostMemory)
        memory._hold(self._nbytes, None)
        return memory


def view_at(address: int, layout: Layout) -> np.ndarray[Any, Any]:
    """What is at an address, as a NumPy array."""
    low, high = layout.extent
    memory = AdoptedMemory(address + low, high - low, None)
    return np.ndarray(layout.shape, layout.dtype, np.asarray(memory), -low, layout.strides)


def _bytes_interface(address: int, nbytes: int) -> dict[str, Any]:
    return {"version": 3, "data": (address, False), "shape": (nbytes,), "typestr": "|u1"}
