"""One parameter packing for every backend: the one of `cuLaunchKernel`.

A launch's parameters are an image of bytes and the offset of each parameter in it. What changes
from call to call (pointers, dynamic scalars) is written into the image from a table of slots,
as its relocations say.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.cuda import types

from graphjit._errors import IntegerRangeError
from graphjit.kernel.ir import KernelIR


@dataclass(frozen=True)
class Address:
    """Memory named by a slot: the 8-byte pointer at `slots[slot]`, plus `offset` bytes."""

    slot: int
    offset: int = 0


@dataclass(frozen=True)
class Relocation:
    """One thing to write into an image before a launch.

    Parameters
    ----------
    target : int
        Byte offset in the image.
    slot : int
        Index of the 8-byte slot to read.
    addend : int or None
        Added to the slot's pointer; None copies the slot's bytes as they are.
    size : int
        Bytes to write: 8 for a pointer, the scalar's own width otherwise.
    """

    target: int
    slot: int
    addend: int | None
    size: int


@dataclass(frozen=True)
class ParamImage:
    """The parameters of one launch.

    Parameters
    ----------
    data : bytes
        The image; every parameter is aligned to 8 bytes.
    offsets : tuple of int
        Byte offset of each LLVM parameter, in order.
    relocations : tuple of Relocation
        What to write from the slots before a launch.
    """

    data: bytes
    offsets: tuple[int, ...]
    relocations: tuple[Relocation, ...]

    def integers(self) -> dict[int, int]:
        """The 8-byte parameters that don't change, as integers, by index."""
        moving = {relocation.target for relocation in self.relocations}
        return {
            index: int.from_bytes(self.data[offset : offset + 8], "little", signed=True)
            for index, offset in enumerate(self.offsets)
            if offset not in moving
        }


def indirect_image(image: ParamImage, slots: int, fixed: int) -> tuple[ParamImage, frozenset[int]]:
    """The parameters of a kernel that loads what changes from the slots, in device memory.

    Parameters
    ----------
    image : ParamImage
        The kernel's parameters.
    slots : int
        Address of the slots.
    fixed : int
        A slot that never changes: its relocations stay.

    Returns
    -------
    ParamImage
        With the address of a slot in place of each parameter that changes, and what is added to it
        after that if it is a pointer.
    frozenset of int
        Which parameters those are.
    """
    moving = {r.target: r for r in image.relocations if r.slot != fixed}
    stays = {r.target: r for r in image.relocations if r.slot == fixed}
    builder, indirect = _ImageBuilder(), set()
    ends = [*image.offsets[1:], len(image.data)]
    for index, (offset, end) in enumerate(zip(image.offsets, ends, strict=True)):
        if offset in moving:
            relocation = moving[offset]
            indirect.add(index)
            builder.integers(slots + 8 * relocation.slot)
            if relocation.addend is not None:
                builder.integers(relocation.addend)
        elif offset in stays:
            builder.pointer(Address(fixed, stays[offset].addend or 0))
        else:
            builder.bytes(image.data[offset:end])
    return builder.image(), frozenset(indirect)


def pack_launch(
    kernel: KernelIR,
    operands: tuple[Any, ...],
    address: Callable[[Any], Address],
    slot: Callable[[Any, Any], int],
) -> ParamImage:
    """The parameters of a launch.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.
    operands : tuple of View, ScalarRef or Constant
        One for each leaf.
    address : callable
        Where a View is.
    slot : callable
        First slot of a dynamic scalar, from the ScalarRef and the parameter's Numba type.

    Returns
    -------
    ParamImage
    """
    builder = _ImageBuilder()
    for leaf, operand in zip(kernel.leaves, operands, strict=True):
        if leaf.is_memory:
            if leaf.count > 1:
                layout = operand.layout
                builder.integers(0, 0, layout.size, layout.dtype.itemsize)
                builder.pointer(address(operand))
                builder.integers(*layout.shape, *layout.strides)
            else:
                builder.pointer(address(operand))
            continue
        codes = scalar_codes(leaf.type)
        if hasattr(operand, "index"):
            first = slot(operand, leaf.type)
            for part, code in enumerate(codes):
                builder.scalar(first + part, struct.calcsize(code))
        else:
            for code, part in zip(codes, scalar_parts(operand.value, leaf.type), strict=True):
                builder.bytes(struct.pack(f"<{code}", part))
    return builder.image()


class _ImageBuilder:
    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets: list[int] = []
        self._relocations: list[Relocation] = []

    def bytes(self, value: bytes) -> None:
        self._offsets.append(len(self._data))
        self._data += value + bytes(-len(value) % 8)

    def integers(self, *values: int) -> None:
        for value in values:
            self.bytes(struct.pack("<q", value))

    def pointer(self, at: Address) -> None:
        self._relocations.append(Relocation(len(self._data), at.slot, at.offset, 8))
        self.bytes(bytes(8))

    def scalar(self, slot: int, size: int) -> None:
        self._relocations.append(Relocation(len(self._data), slot, None, size))
        self.bytes(bytes(8))

    def image(self) -> ParamImage:
        return ParamImage(bytes(self._data), tuple(self._offsets), tuple(self._relocations))


def scalar_codes(type_: Any) -> tuple[str, ...]:
    """`struct` codes of the parameters that a value of a Numba type becomes.

    Raises
    ------
    TypeError
        If kernels take no such value.
    """
    if isinstance(type_, types.Boolean):
        return ("?",)
    if isinstance(type_, types.Integer):
        code = {8: "b", 16: "h", 32: "i", 64: "q"}[type_.bitwidth]
        return (code if type_.signed else code.upper(),)
    if isinstance(type_, types.Float):
        return ({16: "e", 32: "f", 64: "d"}[type_.bitwidth],)
    if isinstance(type_, types.Complex):
        return ("f", "f") if type_.bitwidth == 64 else ("d", "d")
    if isinstance(type_, (types.NPDatetime, types.NPTimedelta)):
        return ("q",)
    raise TypeError(f"a kernel can't take a value of type {type_}")


def scalar_parts(value: Any, type_: Any) -> tuple[Any, ...]:
    """A value as the parameters of `scalar_codes`, converted as ctypes converts it.

    Raises
    ------
    IntegerRangeError
        If a Python integer doesn't fit in 64 bits; narrower ones wrap around.
    """
    if isinstance(type_, types.Complex):
        value = complex(value)
        if type_.bitwidth == 64:
            return ctypes.c_float(value.real).value, ctypes.c_float(value.imag).value
        return value.real, value.imag
    if isinstance(type_, types.Float):
        if type_.bitwidth == 32:
            return (ctypes.c_float(value).value,)
        if type_.bitwidth == 16:
            with np.errstate(over="ignore"):
                return (float(np.float16(value)),)
        return (float(value),)
    if isinstance(type_, types.Integer):
        value = operator.index(value)
        if type_.bitwidth == 64 and not type_.minval <= value <= type_.maxval:
            raise IntegerRangeError(f"the integer {value} doesn't fit in {type_}")
        value %= 2**type_.bitwidth
        if type_.signed and value >= 2 ** (type_.bitwidth - 1):
            value -= 2**type_.bitwidth
        return (value,)
    if isinstance(type_, (types.NPDatetime, types.NPTimedelta)):
        return (int(value.view("int64")),)
    return (value,)
