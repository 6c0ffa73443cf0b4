"""A function's LLVM instructions as lines of text with what analyses need to know of them.

Asking LLVM for each of them, and for each operand, is what takes time: they are read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Instruction:
    """One instruction: its text, and what analyses need to know of it."""

    text: str
    opcode: str
    name: str
    operands: tuple[str, ...]

    @property
    def callee(self) -> str:
        """The called function's name, or an empty string."""
        return self.operands[-1] if self.opcode == "call" and self.operands else ""


def name_values(function: Any) -> None:
    """Give every argument, block and value of a function a name that needs no quotes."""
    for index, argument in enumerate(function.arguments):
        argument.name = f"gj.a{index}"
    number = 0
    for index, block in enumerate(function.blocks):
        block.name = f"gj.b{index}"
        for instruction in block.instructions:
            if str(instruction.type) != "void":
                instruction.name = f"gj.v{number}"
                number += 1


def read_blocks(function: Any, text: str) -> list[tuple[str, list[Instruction]]]:
    """Pair a function's parsed instructions with their lines in the printed module.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        A function whose values `name_values` has named.
    text : str
        The printed function.
    """
    # Printing each instruction on its own would number the whole module every time.
    lines = iter(
        line
        for line in text.splitlines()[1:]
        if line.startswith("  ") and not line.lstrip().startswith("#dbg")
    )
    blocks = []
    for block in function.blocks:
        instructions = []
        for instruction in block.instructions:
            line = next(lines)
            opcode = instruction.opcode
            while opcode == "switch" and "\n  ]" not in line:
                line += "\n" + next(lines)
            names = tuple(operand.name for operand in instruction.operands)
            instructions.append(Instruction(line, opcode, instruction.name, names))
        blocks.append((block.name, instructions))
    return blocks
