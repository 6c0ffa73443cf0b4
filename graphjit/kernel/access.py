"""How a kernel's addresses depend on the thread index, from its optimised IR.

Every pointer that a kernel loads from or stores to becomes a small expression over its parameters
and the thread index. With the parameters of a launch filled in, it tells how far apart in memory
neighbouring threads work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# An expression: ("param", index), ("tid", axis), ("ntid", axis), ("const", value), ("fixed",) for
# what doesn't depend on the thread within its block, ("unknown",), or (operation, left, right).
Expression = tuple[Any, ...]

_UNKNOWN: Expression = ("unknown",)
_FIXED: Expression = ("fixed",)
_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "or": "add"}
_CASTS = ("zext", "sext", "trunc", "ptrtoint", "inttoptr", "bitcast", "addrspacecast")
_SIZES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}
_ELEMENT = re.compile(r"getelementptr (?:(?:inbounds|nuw|nusw|nsw) )*(\S+|\[\d+ x \w+\]), ptr")
_SREG = re.compile(r"llvm\.nvvm\.read\.ptx\.sreg\.(n?tid)\.([xyz])")
# Strides beyond a cache line cost alike.
_FAR = 64


def addresses(function: Any) -> tuple[Expression, ...]:
    """The address of every load and store of an optimised kernel.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        The kernel, with everything it calls inlined and every value named.

    Returns
    -------
    tuple of Expression
    """
    reader = _Reader(function)
    found = []
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opcode in ("load", "store"):
                pointer = list(instruction.operands)[-1]
                found.append(reader.read(pointer))
    return tuple(found)


class _Reader:
    def __init__(self, function: Any) -> None:
        self._known: dict[str, Expression] = {
            argument.name: ("param", index) for index, argument in enumerate(function.arguments)
        }
        self._instructions = {
            instruction.name: instruction
            for block in function.blocks
            for instruction in block.instructions
        }

    def read(self, value: Any) -> Expression:
        if value.is_constant and not value.is_global:
            try:
                constant = value.get_constant_value(signed_int=True)
            except Exception:  # a constant expression
                return _FIXED
            return ("const", constant) if isinstance(constant, int) else _FIXED
        name = value.name
        if name not in self._known:
            instruction = self._instructions.get(name)
            if instruction is None:
                return _FIXED  # a global
            self._known[name] = _UNKNOWN  # while in progress: a loop's own value
            self._known[name] = self._instruction(instruction)
        return self._known[name]

    def _instruction(self, instruction: Any) -> Expression:
        opcode, operands = instruction.opcode, list(instruction.operands)
        if opcode in _ARITHMETIC:
            return (_ARITHMETIC[opcode], self.read(operands[0]), self.read(operands[1]))
        if opcode == "shl":
            shift = self.read(operands[1])
            if shift[0] != "const":
                return _UNKNOWN
            return ("mul", self.read(operands[0]), ("const", 1 << shift[1]))
        if opcode in _CASTS:
            return self.read(operands[0])
        if opcode in ("select", "phi"):
            # Numba's wraparound of negative indices selects between i and i + n: alike for us.
            choices = [self.read(o) for o in (operands[1:] if opcode == "select" else operands)]
            known = [choice for choice in choices if choice != _UNKNOWN]
            return known[0] if known else _UNKNOWN
        if opcode == "getelementptr":
            return self._element(instruction, operands)
        if opcode == "call":
            register = _SREG.fullmatch(operands[-1].name)
            if register:
                return (register.group(1), "xyz".index(register.group(2)))
            return _FIXED if "ctaid" in operands[-1].name else _UNKNOWN
        return _UNKNOWN

    def _element(self, instruction: Any, operands: list[Any]) -> Expression:
        match = _ELEMENT.search(str(instruction))
        size = _type_size(match.group(1)) if match and len(operands) == 2 else None
        if size is None:
            return _UNKNOWN
        offset = ("mul", self.read(operands[1]), ("const", size))
        return ("add", self.read(operands[0]), offset)


def _type_size(text: str) -> int | None:
    array = re.fullmatch(r"\[(\d+) x (\w+)\]", text)
    if array:
        size = _SIZES.get(array.group(2))
        return None if size is None else int(array.group(1)) * size
    return _SIZES.get(text)


def thread_strides(
    expression: Expression, params: Mapping[int, int], block: tuple[int, int, int]
) -> tuple[int, int, int] | None:
    """Bytes between the addresses of threads that are neighbours along x, y and z.

    Parameters
    ----------
    expression : Expression
        An address.
    params : mapping
        Values of the integer parameters that are known, by index.
    block : tuple of int
        Threads of a block along each axis.

    Returns
    -------
    tuple of int or None
        None where the address isn't linear in the thread index.
    """
    linear = _linear(expression, params, block)
    return None if linear is None else (linear[1], linear[2], linear[3])


def _linear(
    expression: Expression, params: Mapping[int, int], block: tuple[int, int, int]
) -> tuple[int | None, int, int, int] | None:
    """Constant term (None if not known) and coefficients of the thread index."""
    kind = expression[0]
    if kind == "const":
        return expression[1], 0, 0, 0
    if kind == "param":
        return params.get(expression[1]), 0, 0, 0
    if kind == "ntid":
        return block[expression[1]], 0, 0, 0
    if kind == "tid":
        return (0, *(int(axis == expression[1]) for axis in range(3)))  # type: ignore[return-value]
    if kind == "fixed":
        return None, 0, 0, 0
    if kind == "unknown":
        return None
    left, right = (_linear(operand, params, block) for operand in expression[1:])
    if left is None or right is None:
        return None
    if kind == "mul":
        if any(left[1:]) and any(right[1:]):
            return None
        if any(right[1:]):
            left, right = right, left
        factor = right[0]
        if factor is None:
            return None if any(left[1:]) else (None, 0, 0, 0)
        constant = None if left[0] is None else left[0] * factor
        return constant, left[1] * factor, left[2] * factor, left[3] * factor
    sign = 1 if kind == "add" else -1
    constant = None if left[0] is None or right[0] is None else left[0] + sign * right[0]
    return (
        constant,
        left[1] + sign * right[1],
        left[2] + sign * right[2],
        left[3] + sign * right[3],
    )


def fast_axis(
    accesses: tuple[Expression, ...], params: Mapping[int, int], block: tuple[int, int, int]
) -> str:
    """The thread axis along which a launch walks memory in the smallest steps.

    Parameters
    ----------
    accesses : tuple of Expression
        The kernel's addresses.
    params : mapping
        Values of the integer parameters that are known, by index.
    block : tuple of int
        Threads of a block along each axis.

    Returns
    -------
    {"x", "y"}
        What should be the innermost loop where threads run one after another.
    """
    if block[1] == 1:
        return "x"
    if block[0] == 1:
        return "y"
    cost = [0, 0]
    for access in accesses:
        strides = thread_strides(access, params, block)
        if strides is not None:
            for axis in range(2):
                cost[axis] += min(abs(strides[axis]), _FAR)
    return "y" if cost[1] < cost[0] else "x"
