"""Kernels in which no thread waits for another: one thread function, and what it needs to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphjit.backends.cpu.threads import (
    Cut,
    Region,
    emit,
    thread_function,
)
from graphjit.kernel.instructions import Instruction, read_blocks


def whole(function: Any, text: str, parameters: Sequence[tuple[str, str]], fast_axis: str) -> Cut:
    """The thread function of a kernel in which no thread waits.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        The kernel, everything inlined, its values named.
    text : str
        The printed kernel.
    parameters : sequence of (str, str)
        LLVM type and name of each of its parameters.
    fast_axis : {"x", "y"}
        Innermost axis of the loops over threads.
    """
    blocks = read_blocks(function, text)
    indices = _grid_indices(blocks, fast_axis)
    # Local memory is one and the same for all turns of the loop over threads.
    shared = not any(line.opcode == "alloca" for _, lines in blocks for line in lines)
    body = []
    for label, instructions in blocks:
        body.append(f"{label}:")
        for line in instructions:
            if line.opcode == "ret":
                body.append("  ret i32 0")
            elif line.name in (indices or ()):
                body.append(f"  %{line.name} = add i64 %gj.global, 0")
            else:
                body.append(emit(line, shared))
    text = thread_function(0, parameters, body, independent=shared)
    return Cut((Region(text),), flat=indices is not None)


def _grid_indices(blocks: Iterable[tuple[str, list[Instruction]]], axis: str) -> set[str] | None:
    """Values that are `cuda.grid` along an axis, if its registers are used for nothing else."""
    lines = {line.name: line for _, block in blocks for line in block if line.name}
    users: dict[str, list[Instruction]] = {}
    for _, block in blocks:
        for line in block:
            for name in line.operands:
                users.setdefault(name, []).append(line)
            # A thread that spins on another's atomics needs the blocks to run one after the other.
            if line.callee in ("gj.lin", "gj.shared") or line.opcode in ("cmpxchg", "fence"):
                return None

    def through(names: set[str], opcodes: tuple[str, ...]) -> set[str] | None:
        """What the values are used for, if that is these operations alone."""
        found = [user for name in names for user in users.get(name, ())]
        if any(user.opcode not in opcodes for user in found):
            return None
        return {user.name for user in found}

    def calls(register: str) -> set[str]:
        return {name for name, line in lines.items() if line.callee == f"gj.{register}.{axis}"}

    extend = ("sext", "zext")
    threads = through(calls("tid"), extend)
    places = through(calls("ctaid"), extend)
    if not threads or not places:
        return None
    products, sums = through(places, ("mul",)), through(threads, ("add",))
    if products is None or sums is None or through(products, ("add",)) != sums:
        return None
    sizes = {
        user.name for call in calls("ntid") for user in users.get(call, ()) if user.opcode in extend
    }
    fits = all(
        set(lines[name].operands) & places and set(lines[name].operands) & sizes
        for name in products
    ) and all(
        set(lines[name].operands) & threads
        and set(lines[name].operands) & products
        and " i64 " in lines[name].text
        for name in sums
    )
    return sums if fits else None
