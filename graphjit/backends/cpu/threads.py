"""Thread functions: a kernel's instructions as a function of the place of one thread.

The text of a function is that of the kernel, instruction by instruction; only the calls of markers
become parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphjit.backends.cpu.intrinsics import MARKERS
from graphjit.kernel.instructions import Instruction


@dataclass(frozen=True)
class Kept:
    """A value that outlives a wait.

    Parameters
    ----------
    type : str
        Its LLVM type.
    place : int
        Where its row of lanes starts, in bytes a lane; its place in a block's cells if all threads
        are known to share it.
    size : int
        Its bytes.
    """

    type: str
    place: int
    size: int


@dataclass(frozen=True)
class Region:
    """What a thread does from one suspend point to the next.

    Parameters
    ----------
    text : str
        LLVM text of its thread function.
    takes : tuple of Kept
        Values that threads share, or most likely do, and that the function has as arguments.
    gives : tuple of Kept
        Values that threads share, for which its last arguments are addresses.
    """

    text: str
    takes: tuple[Kept, ...] = ()
    gives: tuple[Kept, ...] = ()


@dataclass(frozen=True)
class Cut:
    """A kernel's thread functions and what they keep while threads wait.

    Parameters
    ----------
    regions : tuple of Region
        What runs between waits, in the thread functions `gj.thread.N`; the first starts the kernel.
    kinds : tuple of str
        Kind of each suspend point ("block", "reduce" or "warp"), in the order of their numbers.
    frame : int
        Bytes a thread has in the rows of slots.
    local : int
        Bytes of a thread's addressable local memory.
    cells : int
        Bytes of what all threads of a block share.
    lockstep : bool
        Whether all threads of a block are known to go from wait to wait together.
    flat : bool
        Whether the threads' place along the fast axis is used only as `gj.global`, the index in
        the whole grid: blocks side by side can then be one loop.
    """

    regions: tuple[Region, ...]
    kinds: tuple[str, ...] = ()
    frame: int = 0
    local: int = 0
    cells: int = 0
    lockstep: bool = False
    flat: bool = False


# Parameters of every thread function after the kernel's own.
CONTEXT = (
    ("i64", "gj.global"),
    *((type_, name) for name, type_ in MARKERS.items()),
    ("ptr", "gj.frame"),
    ("ptr", "gj.local"),
)


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
    takes: Sequence[Kept] = (),
    gives: Sequence[Kept] = (),
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
    takes, gives : sequence of Kept
        Its last arguments: values `gj.taken.N`, and addresses `gj.given.N`.
    independent : bool
        Whether all its memory accesses are of the group that is independent between threads.
    """
    # Once inlined, noalias leaves a mark in the loop that undoes the group's independence.
    noalias = frozenset() if independent else _SCRATCH
    declared = [
        f"{type_} {'noalias ' if name in noalias else ''}%{name}"
        for type_, name in (*parameters, *CONTEXT)
    ]
    declared += [f"{value.type} %gj.taken.{i}" for i, value in enumerate(takes)]
    declared += [f"ptr %gj.given.{i}" for i, _ in enumerate(gives)]
    return (
        f"define internal i32 @gj.thread.{number}({', '.join(declared)}) "
        "alwaysinline nounwind {\n" + "\n".join(body) + "\n}\n"
    )
