"""Stack slots of a kernel after LLVM's reg2mem, and how to compute them again.

A value that follows from parameters and the thread's place is cheaper to compute in each region
than to keep in memory for each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphjit.backends.cpu.intrinsics import MARKERS, OF_ONE_THREAD
from graphjit.kernel.instructions import Instruction

_SAFE = frozenset(
    "add sub mul and or xor shl lshr ashr sext zext trunc icmp fcmp select getelementptr bitcast "
    "ptrtoint inttoptr extractvalue insertvalue freeze fadd fsub fmul fneg sitofp uitofp fpext "
    "fptrunc".split()
)


@dataclass(frozen=True)
class Slot:
    """A stack slot: a value that LLVM demoted (`private`), or memory that has an address."""

    name: str
    type: str
    size: int
    align: int
    private: bool


def is_lifetime(line: Instruction) -> bool:
    """Whether the instruction only says when a stack slot is in use."""
    return line.callee.startswith("llvm.lifetime.")


def find_slots(
    blocks: Iterable[tuple[str, list[Instruction]]], size_of: Callable[[list[str]], list[int]]
) -> dict[str, Slot]:
    """Every stack slot of a kernel, given its blocks and a way to size LLVM types."""
    lines = [line for _, instructions in blocks for line in instructions]
    types, aligns = {}, {}
    for line in lines:
        if line.opcode == "alloca":
            type_, _, align = line.text.split("alloca ", 1)[1].partition(", align ")
            types[line.name] = type_
            aligns[line.name] = max(8, int(align.split(",")[0] or 8))
    addressed: set[str] = set()
    for line in lines:
        if line.opcode == "load" or is_lifetime(line):
            continue
        # A store's value operand comes first, its address last.
        used = line.operands[:-1] if line.opcode == "store" else line.operands
        addressed.update(name for name in used if name in types)
    sizes = size_of(list(types.values()))
    return {
        name: Slot(name, type_, size, aligns[name], name not in addressed)
        for (name, type_), size in zip(types.items(), sizes, strict=True)
    }


def access(line: Instruction, slots: dict[str, Slot]) -> tuple[str, str] | None:
    """("load" or "store", slot) if the instruction reads or writes a private slot."""
    if line.opcode in ("load", "store"):
        slot = slots.get(line.operands[-1])
        if slot is not None and slot.private:
            return line.opcode, slot.name
    return None


def alike(
    blocks: Iterable[tuple[str, list[Instruction]]], slots: dict[str, Slot]
) -> frozenset[str]:
    """Private slots whose value, where all threads took one path, is the same for all of a block.

    Whether they did is for the running program to find out.
    """
    lines = [line for _, block in blocks for line in block]
    different = {*OF_ONE_THREAD}
    changed = True
    while changed:
        changed = False
        for line in lines:
            found = access(line, slots)
            if found is not None:
                source, target = line.operands[:1], found[1]
                if found[0] == "load":
                    source, target = (found[1],), line.name
            elif line.opcode in _SAFE or line.opcode in ("load", "alloca"):
                source, target = line.operands, line.name
            elif line.callee in MARKERS:
                source, target = (line.callee,), line.name
            else:
                source, target = ("gj.lin",), line.name
            if target and target not in different and different.intersection(source):
                different.add(target)
                changed = True
    return frozenset(
        name
        for name, slot in slots.items()
        if slot.private and slot.size in (1, 2, 4, 8) and name not in different
    )


@dataclass(frozen=True)
class Recipes:
    """How to compute private slots again instead of keeping them.

    Parameters
    ----------
    lines : dict of str to Instruction
        Pure instructions by name, and the store to each slot by ``"store " + slot``.
    needs : dict of str to tuple of str
        What each of them needs first.
    slots : frozenset of str
        The slots.
    """

    lines: dict[str, Instruction]
    needs: dict[str, tuple[str, ...]]
    slots: frozenset[str]

    def closure(self, slots: Iterable[str]) -> tuple[list[Instruction], list[str]]:
        """The instructions that compute some slots, in order, and all slots that they store to."""
        order: dict[str, None] = {}

        def place(name: str) -> None:
            if name not in order:
                for need in self.needs[name]:
                    place(need)
                order[name] = None

        for slot in slots:
            place(f"store {slot}")
        stored = [name[6:] for name in order if name.startswith("store ")]
        return [self.lines[name] for name in order], stored


def find_recipes(
    blocks: Iterable[tuple[str, list[Instruction]]], slots: dict[str, Slot], limit: int = 100
) -> Recipes:
    """Slots stored once, from a pure function of parameters, markers and other such slots."""
    lines = {line.name: line for _, block in blocks for line in block if line.name}
    stores: dict[str, list[Instruction]] = {}
    for _, block in blocks:
        for line in block:
            found = access(line, slots)
            if found is not None and found[0] == "store":
                stores.setdefault(found[1], []).append(line)
    lines |= {f"store {slot}": every[0] for slot, every in stores.items() if len(every) == 1}
    needs: dict[str, tuple[str, ...]] = {}
    for name, line in lines.items():
        found = access(line, slots)
        if line.callee in MARKERS:
            needs[name] = ()
        elif found is not None and found[0] == "load":
            needs[name] = (f"store {found[1]}",)
        elif found is not None:
            needs[name] = tuple(n for n in line.operands[:1] if n in lines)
        elif line.opcode in _SAFE:
            needs[name] = tuple(n for n in line.operands if n in lines)
    # Instructions that each needs in all; what never gets a finite number is carried by a loop or
    # isn't pure.
    costs: dict[str, int] = {}
    changed = True
    while changed:
        changed = False
        for name, below in needs.items():
            if name not in costs and all(n in costs for n in below):
                costs[name] = 1 + sum(costs[n] for n in below)
                changed = True

    def cost(name: str) -> int:
        return costs.get(name, limit + 1)

    chosen = [slot for slot in slots if f"store {slot}" in lines and cost(f"store {slot}") <= limit]
    return Recipes(lines, needs, frozenset(chosen))
