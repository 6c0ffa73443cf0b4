"""Where a compiler may make one operation, rounded once, of a product and a sum.

NVIDIA's does ("contraction") where all that is done with a product, in its own block, is to add it.
What it contracts within a kernel is the user's business; nothing may be contracted, or no longer
be, because kernels became one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_SUMS = ("fadd", "fsub")
# What a product is still one after.
_SAME = ("phi", "select", "fneg", "fpext", "fptrunc", "bitcast", "freeze")
# What makes no product.
_OTHERS = (
    *("sitofp", "uitofp", "fptosi", "fptoui", "icmp", "fcmp", "trunc", "zext", "sext"),
    *("add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr"),
    *("and", "or", "xor"),
)
# What may be done with a product without adding it.
_UNADDED = ("fmul", "fdiv", "fcmp", "fptosi", "fptoui")
_FUSED = re.compile(r"llvm\.(nvvm\.)?fma\b.*")


class Contraction:
    """The products and sums of a kernel.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        The kernel, optimised, with everything it calls inlined and every value named.
    is_private : callable
        Whether a pointer is to a thread's own memory.
    """

    def __init__(self, function: Any, is_private: Callable[[Any], bool]) -> None:
        self._is_private = is_private
        self._makers: dict[str, Any] = {}
        self._users: dict[str, list[Any]] = {}
        self._block: dict[str, str] = {}
        for block in function.blocks:
            for instruction in block.instructions:
                if instruction.name:
                    self._makers[instruction.name] = instruction
                    self._block[instruction.name] = block.name
                for name in {operand.name for operand in instruction.operands}:
                    self._users.setdefault(name, []).append(instruction)

    @property
    def count(self) -> int:
        """How many sums a compiler may contract."""
        return sum(
            self._contractible(product)
            for product in self._makers.values()
            if product.opcode == "fmul"
        )

    def _contractible(self, product: Any) -> int:
        """How many sums a product is added in; 0 if something else is done with it."""
        sums, todo = 0, [product]
        while todo:
            value = todo.pop()
            for user in self._users.get(value.name, ()):
                if self._block.get(user.name) != self._block[product.name]:
                    return 0
                if user.opcode == "fneg":
                    todo.append(user)
                elif user.opcode in _SUMS:
                    sums += 1
                else:
                    return 0
        return sums

    def may_be_product(self, value: Any) -> bool:
        """Whether a value may come straight from a product, made here or loaded.

        Parameters
        ----------
        value : llvmlite.binding.ValueRef
            The value.
        """
        todo, seen = [value], set()
        while todo:
            each = todo.pop()
            maker = self._makers.get(each.name)
            if maker is None or each.name in seen:
                continue  # a constant or a parameter
            seen.add(each.name)
            operands = list(maker.operands)
            if maker.opcode in _SAME:
                todo += operands[1:] if maker.opcode == "select" else operands
            elif maker.opcode in _SUMS:
                # A compiler may leave out what adds zero.
                if any(operand.is_constant and not _is_nonzero(operand) for operand in operands):
                    return True
            elif maker.opcode == "call":
                if not _FUSED.fullmatch(operands[-1].name):
                    return True
            elif maker.opcode not in _OTHERS:
                return True
        return False

    def may_be_added(self, value: Any) -> bool:
        """Whether something may be added to a value.

        Parameters
        ----------
        value : llvmlite.binding.ValueRef
            The value.
        """
        todo, seen = [value.name], set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for user in self._users.get(name, ()):
                if user.opcode in _SAME:
                    todo.append(user.name)
                elif user.opcode == "store":
                    # What is handed on in an argument is looked at where it is loaded.
                    if self._is_private(list(user.operands)[-1]):
                        return True
                elif user.opcode not in _UNADDED:
                    return True
        return False


def _is_nonzero(constant: Any) -> bool:
    try:
        return bool(constant.get_constant_value() != 0)
    except Exception:  # a constant expression
        return False
