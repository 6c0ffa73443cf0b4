"""A launch's parameters in host memory, at a fixed address, as the driver reads them.

Compiled where there is a C compiler (see `setup.py`).
"""

from __future__ import annotations

import ctypes

from graphjit.backends.cuda.calls import PLACE, write_words
from graphjit.kernel.packing import ParamImage

# Named, since Cython takes the bare types for ones of C in signatures of compiled functions.
Words = list[int]
Order = tuple[int, ...]


class BoundImage:
    """A ParamImage with the pointer array that `cuLaunchKernel` takes.

    Parameters
    ----------
    image : ParamImage
        The parameters.
    order : tuple of int
        Which of them the kernel takes first, and so on.
    fixed : int, optional
        A slot that never changes, and isn't among the words that are bound.
    value : int
        What is in it.
    """

    def __init__(
        self, image: ParamImage, order: Order, fixed: int | None = None, value: int = 0
    ) -> None:
        self._data = ctypes.create_string_buffer(image.data, max(len(image.data), 8))
        base = ctypes.addressof(self._data)
        self._pointers = (ctypes.c_void_p * max(len(image.offsets), 1))(
            *(base + image.offsets[index] for index in order)
        )
        self.address = ctypes.addressof(self._pointers)
        moving = []
        for relocation in image.relocations:
            place, slot = base + relocation.target, relocation.slot
            addend = (relocation.addend or 0) % 2**64
            if slot == fixed:
                write_words(PLACE.pack(place, 0, addend), [value])
            else:
                moving.append((place, slot - (fixed is not None and slot > fixed), addend))
        self._relocations = b"".join(PLACE.pack(*each) for each in moving)
        self.words = frozenset(word for _, word, _ in moving)

    def bind(self, words: Words) -> None:
        """Write what the relocations say, from slots taken as 64-bit words."""
        write_words(self._relocations, words)
