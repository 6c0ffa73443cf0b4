"""A launch's parameters in host memory, at a fixed address, as the driver reads them.

Compiled where there is a C compiler (see `setup.py`).
"""

from __future__ import annotations

import ctypes

from graphjit.kernel.packing import ParamImage

# Named, since Cython takes the bare type for one of C in the signature of a compiled function.
Words = tuple[int, ...]


class BoundImage:
    """A ParamImage with the pointer array that `cuLaunchKernel` takes.

    Parameters
    ----------
    image : ParamImage
        The parameters.
    """

    def __init__(self, image: ParamImage) -> None:
        self._data = ctypes.create_string_buffer(image.data, max(len(image.data), 8))
        base = ctypes.addressof(self._data)
        self._pointers = (ctypes.c_void_p * max(len(image.offsets), 1))(
            *(base + offset for offset in image.offsets)
        )
        self.address = ctypes.addressof(self._pointers)
        self._words = memoryview(self._data).cast("B").cast("Q")
        self._relocations = tuple((r.target // 8, r.slot, r.addend or 0) for r in image.relocations)
        self.slots = frozenset(r.slot for r in image.relocations)

    def bind(self, slots: Words) -> None:
        """Write what the relocations say, from slots taken as 64-bit words."""
        words = self._words
        for target, slot, addend in self._relocations:
            words[target] = slots[slot] + addend
