"""Host memory for Arrays, kept for reuse.

Fresh pages cost more than most kernels (a 16 MB array's page faults take some 4 ms), so freed
blocks are kept by size, up to a bound.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from graphjit._errors import DeviceMemoryError
from graphjit._locks import make_lock
from graphjit._memory import Memory

_ALIGNMENT = 64
_KEPT_BYTES = 256 * 2**20


# Memory and the aligned address in it.
_Block = tuple[np.ndarray[Any, Any], int]


class _Blocks:
    """Freed blocks by size, the size freed longest ago first."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._free: OrderedDict[int, list[_Block]] = OrderedDict()
        self._kept = 0

    def take(self, size: int) -> _Block:
        with self._lock:
            blocks = self._free.get(size)
            if blocks:
                self._kept -= size
                return blocks.pop()
        try:
            block = np.empty(size + _ALIGNMENT, np.uint8)
        except MemoryError:
            raise DeviceMemoryError(f"the CPU has no {size} bytes left") from None
        return block, -(-block.ctypes.data // _ALIGNMENT) * _ALIGNMENT

    def give(self, size: int, block: _Block) -> None:
        if size > _KEPT_BYTES:
            return
        with self._lock:
            self._free.setdefault(size, []).append(block)
            self._free.move_to_end(size)
            self._kept += size
            while self._kept > _KEPT_BYTES:
                oldest, blocks = next(iter(self._free.items()))
                if blocks:
                    blocks.pop()
                    self._kept -= oldest
                else:
                    del self._free[oldest]


_blocks = _Blocks()


class HostMemory(Memory):
    """A piece of host memory; a NumPy view of it keeps it alive, and so from being reused.

    Parameters
    ----------
    nbytes : int
        Size.
    """

    __slots__ = ("_block", "_size")

    def __init__(self, nbytes: int, block: _Block | None = None) -> None:
        self._size = _rounded(nbytes)
        taken = block or _blocks.take(self._size)
        self._block: _Block | None = taken
        Memory.__init__(self, taken[1], nbytes, None)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _bytes_interface(self.address, self.nbytes)

    def _moved(self) -> Memory:
        if self.exported:
            # A NumPy array over it may be around, and keeps this object, not the new one.
            return AdoptedMemory(self.address, self.nbytes, self)
        moved = HostMemory(self.nbytes, self._block)
        self._block = None
        return moved

    def __del__(self) -> None:
        block = getattr(self, "_block", None)
        if block is not None and _blocks is not None:
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
    """

    __slots__ = ("owner",)

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        Memory.__init__(self, address, nbytes, None)
        self.owner = owner
        self.exported = True

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _bytes_interface(self.address, self.nbytes)

    def _moved(self) -> Memory:
        return AdoptedMemory(self.address, self.nbytes, self.owner)


def _rounded(nbytes: int) -> int:
    step = 4096 if nbytes >= 4096 else _ALIGNMENT
    return -(-max(nbytes, 1) // step) * step


def _bytes_interface(address: int, nbytes: int) -> dict[str, Any]:
    return {"version": 3, "data": (address, False), "shape": (nbytes,), "typestr": "|u1"}
