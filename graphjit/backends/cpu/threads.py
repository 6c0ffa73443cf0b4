"""Thread functions: a kernel's instructions as a function of the place of one thread.

The text of a function is that of the kernel, instruction by instruction; only the calls of markers
become parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graphjit.backends.cpu.intrinsics import MARKERS


@dataclass(frozen=True)
class Instruction:
    """One instruction: its text, and what the cutting needs to know of it."""

    text: str
    opcode: str
    name: str
    operands: tuple[str, ...]

    @property
    def callee(self) -> str:
        """The called function's name, or an empty string."""
        return self.operands[-1] if self.opcode == "call" and self.operands else ""


@dataclass(frozen=True)
class Carried:
    """A value that a region takes from before its wait, and that threads most likely share.

    Parameters
    ----------
    type : str
        Its LLVM type.
    row : int
        Where its row of lanes starts, in bytes a lane.
    size : int
        Bytes of a lane.
    """

    type: str
    row: int
    size: int


@dataclass(frozen=True)
class Cut:
    """A kernel's thread functions and what they keep while threads wait.

    Parameters
    ----------
    functions : tuple of str
        LLVM text of `gj.thread.N`, one a region; region 0 starts the kernel.
    kinds : tuple of str
        Kind of each suspend point ("block", "reduce" or "warp"), in the order of their numbers.
    frame : int
        Bytes a thread has in the rows of slots.
    local : int
        Bytes of a thread's addressable local memory.
    carried : tuple of tuple of Carried
        For each function, the last of its arguments.
    flat : bool
        Whether the threads' place along the fast axis is used only as `gj.global`, the index in
        the whole grid: blocks side by side can then be one loop.
    """

    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    frame: int
    local: int
    carried: tuple[tuple[Carried, ...], ...] = ((),)
    flat: bool = False


# Parameters of every thread function after the kernel's own.
CONTEXT = (
    ("i64", "gj.global"),
    *((type_, name) for name, type_ in MARKERS.items()),
    ("ptr", "gj.frame"),
    ("ptr", "gj.local"),
)


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


# Memory accesses of this group are independent from thread to thread: what threads may do to each
# other's memory between two barriers in no order at all, they may do side by side in a vector.
_GROUP = 90_000
ACCESS = f", !llvm.access.group !{_GROUP}"


def loop_metadata(number: int) -> str:
    """Attachment of the branch that closes a loop over threads."""
    return f", !llvm.loop !{_GROUP + 2 + number}"


def metadata(loops: int) -> str:
    """Definitions of the metadata that a module with so many loops over threads names."""
    group = f"!{_GROUP} = distinct !{{}}\n"
    fact = f'!{_GROUP + 1} = !{{!"llvm.loop.parallel_accesses", !{_GROUP}}}\n'
    return (
        group
        + fact
        + "".join(
            f"!{n} = distinct !{{!{n}, !{_GROUP + 1}}}\n"
            for n in range(_GROUP + 2, _GROUP + 2 + loops)
        )
    )


def emit(line: Instruction, shared: bool = False) -> str:
    """The instruction, with a marker's call turned into the parameter of its name.

    Parameters
    ----------
    line : Instruction
        The instruction.
    shared : bool
        Whether a memory access is to memory that is not one thread's at a time.
    """
    type_ = MARKERS.get(line.callee)
    if type_ is None:
        if shared and line.opcode in ("load", "store"):
            return line.text + ACCESS
        return line.text
    if type_ == "ptr":
        return f"  %{line.name} = getelementptr i8, ptr %{line.callee}, i64 0"
    return f"  %{line.name} = add {type_} %{line.callee}, 0"


# Parts of the scratch memory; no two overlap, and no argument of a kernel points there.
_SCRATCH = frozenset({"gj.shared", "gj.exchange", "gj.frame", "gj.local"})


def arguments(parameters: Sequence[tuple[str, str]]) -> str:
    """Argument list of a call that passes a thread function's parameters on by their names."""
    return ", ".join(f"{type_} %{name}" for type_, name in (*parameters, *CONTEXT))


def thread_function(
    number: int,
    parameters: Sequence[tuple[str, str]],
    body: Iterable[str],
    carried: Sequence[Carried] = (),
    independent: bool = True,
) -> str:
    """LLVM text of the thread function of a region.

    Parameters
    ----------
    number : int
        The region's number.
    parameters : sequence of (str, str)
        LLVM type and name of each of the kernel's parameters.
    body : iterable of str
        Its lines.
    carried : sequence of Carried
        Its last arguments.
    independent : bool
        Whether all its memory accesses are of the group that is independent between threads.
    """
    # Once inlined, noalias leaves a mark in the loop that undoes the group's independence.
    noalias = frozenset() if independent else _SCRATCH
    declared = [
        f"{type_} {'noalias ' if name in noalias else ''}%{name}"
        for type_, name in (*parameters, *CONTEXT)
    ]
    declared += [f"{value.type} %gj.carried{i}" for i, value in enumerate(carried)]
    return (
        f"define internal i32 @gj.thread.{number}({', '.join(declared)}) "
        "alwaysinline nounwind {\n" + "\n".join(body) + "\n}\n"
    )
