"""Which argument's memory each load and store of an optimised kernel can touch.

LLVM's own attributes give up where an address goes through an integer, as every access to a strided
array does in Numba's code. Here addresses are followed back to the parameters they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_CASTS = ("ptrtoint", "inttoptr", "bitcast", "addrspacecast", "zext", "sext", "trunc", "freeze")
_NOWHERE: frozenset[int] = frozenset()


@dataclass
class Touched:
    """Parameters whose memory is read and written.

    Parameters
    ----------
    reads, writes : set of int
        Indices of data pointer parameters.
    """

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)


def touched(function: Any) -> Touched | None:
    """Follow every memory access of a kernel back to its parameters.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        The kernel, optimised, with everything it calls inlined and every value named.

    Returns
    -------
    Touched or None
        None where some address can't be followed; then nothing is known.
    """
    origins = _Origins(function)
    result = Touched()
    for block in function.blocks:
        for instruction in block.instructions:
            opcode, operands = instruction.opcode, list(instruction.operands)
            read: list[Any] = []
            written: list[Any] = []
            if opcode == "load":
                read = operands
            elif opcode == "store":
                written = operands[1:]
                if _is_pointer(operands[0]) and origins.of(operands[0]) != _NOWHERE:
                    return None  # an address goes where it can't be followed
            elif opcode in ("atomicrmw", "cmpxchg"):
                read = written = operands[:1]
            elif opcode == "call":
                pointers = [o for o in operands[:-1] if _is_pointer(o)]
                read = written = pointers
                if operands[-1].name == "":
                    return None  # inline assembly
            for value, where in [(v, result.reads) for v in read] + [
                (v, result.writes) for v in written
            ]:
                found = origins.of(value)
                if found is None:
                    return None
                where |= found
    return result


class _Origins:
    """The pointer parameters that values are made of, worked out to a fixed point."""

    def __init__(self, function: Any) -> None:
        self._known: dict[str, frozenset[int] | None] = {
            argument.name: frozenset([index]) if _is_pointer(argument) else _NOWHERE
            for index, argument in enumerate(function.arguments)
        }
        instructions = [
            (i.name, i.opcode, list(i.operands), _is_pointer(i))
            for block in function.blocks
            for i in block.instructions
            if i.name
        ]
        for name, *_ in instructions:
            self._known[name] = _NOWHERE
        changed = True
        while changed:
            changed = False
            for name, opcode, operands, is_pointer in instructions:
                found = self._result(opcode, operands, is_pointer)
                if found != self._known[name]:
                    self._known[name] = found
                    changed = True

    def of(self, value: Any) -> frozenset[int] | None:
        """Parameters a value may point into; None if that can't be told."""
        if value.is_constant or value.is_global:
            # Shared memory, constants, and captured arrays, which are accounted for as a whole.
            return _NOWHERE
        return self._known.get(value.name)

    def _result(self, opcode: str, operands: list[Any], is_pointer: bool) -> frozenset[int] | None:
        if opcode == "alloca":
            return _NOWHERE
        if opcode == "getelementptr":
            operands = operands[:1]
        elif opcode == "select":
            operands = operands[1:]
        elif opcode not in ("phi", "add", "sub", "or", "and", *_CASTS):
            # Numbers are indices; a pointer out of memory or a call could point anywhere.
            return None if is_pointer else _NOWHERE
        result: frozenset[int] = _NOWHERE
        for operand in operands:
            found = self.of(operand)
            if found is None:
                return None
            result |= found
        return result


def _is_pointer(value: Any) -> bool:
    return str(value.type).startswith("ptr")
