"""Host scalars as the 64-bit words that go into slots.

Compiled where there is a C compiler (see `setup.py`): it runs at every call with scalars.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphjit._nodes import ScalarRef, StateRef
from graphjit._scalars import element
from graphjit.kernel.packing import scalar_codes, scalar_parts


@dataclass(frozen=True)
class ScalarSlot:
    """A dynamic scalar as launches take it.

    Parameters
    ----------
    ref : ScalarRef or StateRef
        The scalar.
    type : numba.cuda.types.Type
        What it is converted to.
    dtype : numpy.dtype or None
        For a fill: the element type that NumPy's assignment converts it to first.
    first : int
        Its first slot.
    """

    ref: ScalarRef | StateRef
    type: Any
    dtype: Any
    first: int


class ScalarWords:
    """What goes into the scalar slots of a Schedule.

    Parameters
    ----------
    slots : tuple of ScalarSlot
        The dynamic scalars.
    """

    __slots__ = ("_pack", "_plain", "_slots", "_unpack")

    def __init__(self, slots: tuple[ScalarSlot, ...]) -> None:
        codes = [code for slot in slots for code in scalar_codes(slot.type)]
        self._slots = slots
        self._pack = struct.Struct("<" + "".join(map(_padded, codes))).pack
        self._unpack = struct.Struct(f"<{len(codes)}Q").unpack
        # Which scalar goes into each slot, if all go as they are.
        self._plain: tuple[int, ...] | None = None
        if len(codes) == len(slots) and all(slot.dtype is None for slot in slots):
            self._plain = tuple(slot.ref.index for slot in slots)

    def of(self, values: Sequence[Any]) -> Any:
        """The words, from the values of the graph's scalars.

        Parameters
        ----------
        values : sequence
            One for each scalar of the graph.

        Returns
        -------
        tuple of int
        """
        if self._plain is not None:
            try:
                if len(self._plain) == 1:
                    return self._unpack(self._pack(values[self._plain[0]]))
                return self._unpack(self._pack(*[values[index] for index in self._plain]))
            except (struct.error, OverflowError):
                pass  # to be converted, or refused, by the slow way
        parts = [
            part
            for slot in self._slots
            for part in scalar_parts(_converted(values[slot.ref.index], slot), slot.type)
        ]
        return self._unpack(self._pack(*parts))


def _padded(code: str) -> str:
    """A `struct` code, filled up to 8 bytes."""
    return f"{code}{8 - struct.calcsize(code)}x" if struct.calcsize(code) < 8 else code


def _converted(value: Any, slot: ScalarSlot) -> Any:
    return value if slot.dtype is None else element(value, slot.dtype).item()
