"""A kernel cut where its threads wait: regions that run from one suspend point to the next.

LLVM's reg2mem leaves every value that outlives a block in a stack slot. A region is then the
blocks reachable from a suspend point, verbatim; only the slots live at its ends are kept in the
block's frame, one row a slot and one lane a thread, so that a loop over threads can be vectorised.
It is the work-item loop of pocl (Jaaskelainen et al., 2015), with continuations in place of
its restrictions on control flow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphjit.backends.cpu.intrinsics import SUSPENDS
from graphjit.backends.cpu.slots import (
    Recipes,
    Slot,
    access,
    alike,
    find_recipes,
    find_slots,
    is_lifetime,
)
from graphjit.backends.cpu.threads import (
    ACCESS,
    CONTEXT,
    Cut,
    Kept,
    Region,
    arguments,
    emit,
    thread_function,
)
from graphjit.kernel.instructions import Instruction, read_blocks

# A region that takes arguments is compiled twice: for threads that agree on them, and for others.
_MAX_TAKEN = 3
_MAX_TWICE = 150
_LABEL = re.compile(r"label %([\w.$-]+)")


@dataclass
class Segment:
    """Instructions that run without a wait between them, and where control goes next.

    Parameters
    ----------
    label : str
        Its block's label, or the one of the suspend point before it.
    lines : list of Instruction
        The instructions, the terminator included where no suspend point ends it.
    successors : tuple of str
        Labels of the segments that follow in the same region.
    state : int
        Number of the suspend point that ends it; 0 if none does.
    """

    label: str
    lines: list[Instruction] = field(default_factory=list)
    successors: tuple[str, ...] = ()
    state: int = 0


def _segments(
    blocks: Iterable[tuple[str, list[Instruction]]],
) -> tuple[dict[str, Segment], tuple[str, ...]]:
    kinds: list[str] = []
    segments = {}
    for block_label, instructions in blocks:
        label = block_label
        segment = segments[label] = Segment(label)
        for line in instructions:
            if line.callee in SUSPENDS:
                kinds.append(line.callee)
                segment.state = len(kinds)
                label = f"gj.resume{len(kinds)}"
                segment = segments[label] = Segment(label)
            else:
                segment.lines.append(line)
        targets = _LABEL.findall(segment.lines[-1].text)
        if label != block_label:
            # The suspend point's loop ends when its thread is resumed.
            targets = targets[1:]
            segment.lines[-1] = Instruction(f"  br label %{targets[0]}", "br", "", ())
        segment.successors = tuple(targets)
    # States are numbered by kind (block barriers, reducing ones, warps), so that one comparison
    # tells what a thread waits for.
    order = sorted(range(len(kinds)), key=lambda i: list(SUSPENDS).index(kinds[i]))
    number = {old + 1: new + 1 for new, old in enumerate(order)}
    renumbered = {}
    for label, segment in segments.items():
        segment.state = number.get(segment.state, 0)
        if label.startswith("gj.resume"):
            label = segment.label = f"gj.resume{number[int(label[9:])]}"
        renumbered[label] = segment
    return renumbered, tuple(SUSPENDS[kinds[i]] for i in order)


def _reachable(segments: dict[str, Segment], label: str) -> list[Segment]:
    seen, todo = {label: segments[label]}, [label]
    while todo:
        for successor in segments[todo.pop()].successors:
            if successor not in seen:
                seen[successor] = segments[successor]
                todo.append(successor)
    return list(seen.values())


def _live(segments: dict[str, Segment], slots: dict[str, Slot]) -> dict[str, set[str]]:
    """Private slots whose value is read at or after the start of each segment."""
    reads: dict[str, set[str]] = {}
    writes: dict[str, set[str]] = {}
    after = {}
    for label, segment in segments.items():
        reads[label], writes[label] = set(), set()
        for line in segment.lines:
            found = access(line, slots)
            if found is not None:
                kind, name = found
                if kind == "store":
                    writes[label].add(name)
                elif name not in writes[label]:
                    reads[label].add(name)
        after[label] = [*segment.successors]
        if segment.state:
            after[label].append(f"gj.resume{segment.state}")
    live = {label: set(reads[label]) for label in segments}
    changed = True
    while changed:
        changed = False
        for label in reversed(segments):
            out = set().union(*(live[successor] for successor in after[label]))
            new = reads[label] | (out - writes[label])
            if new != live[label]:
                live[label], changed = new, True
    return live


def cut(
    function: Any,
    text: str,
    parameters: Sequence[tuple[str, str]],
    size_of: Callable[[list[str]], list[int]],
    uniform: frozenset[str] | None,
) -> Cut:
    """Cut a kernel at its suspend points.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        The kernel after reg2mem, its values named.
    text : str
        The printed kernel.
    parameters : sequence of (str, str)
        LLVM type and name of each of its parameters.
    size_of : callable
        Sizes in bytes of LLVM types given as text.
    uniform : frozenset of str or None
        Values that all threads share, if they are known to come to each suspend point together.
    """
    blocks = read_blocks(function, text)
    slots = find_slots(blocks, size_of)
    segments, kinds = _segments(blocks)
    live = _live(segments, slots)
    recipes = find_recipes(blocks, slots)
    kept = set().union(*(live[f"gj.resume{k + 1}"] for k in range(len(kinds)))) - recipes.slots
    # reg2mem names a slot after its value.
    known = {name for name in slots if name.partition(".reg2mem")[0] in (uniform or ())}
    lanes, frame = _places(slots, kept - known)
    cells, cell_bytes = _places(slots, kept & known)
    places, local = {}, 0
    for slot in slots.values():
        if not slot.private:
            local = -(-local // slot.align) * slot.align
            places[slot.name] = local
            local += slot.size
    # Each thread's memory starts as aligned as the scratch memory itself can be.
    widest = max((slot.align for slot in slots.values() if not slot.private), default=1)
    local = -(-local // widest) * widest
    first = blocks[0][0]
    layout = _Layout(
        parameters,
        slots,
        {**lanes, **cells},
        places,
        live,
        recipes,
        alike(blocks, slots) if uniform is None else frozenset(known),
        uniform is not None,
    )
    labels = [first, *(f"gj.resume{k + 1}" for k in range(len(kinds)))]
    regions = tuple(
        layout.region(_reachable(segments, label), number) for number, label in enumerate(labels)
    )
    return Cut(regions, kinds, frame, local, cell_bytes, uniform is not None)


def _places(slots: dict[str, Slot], names: Iterable[str]) -> tuple[dict[str, int], int]:
    """Where each of some slots is kept, and how many bytes they are.

    The widest come first: then each starts at a multiple of its size.
    """
    places, offset = {}, 0
    for name in sorted(names, key=lambda name: (-slots[name].size, name)):
        places[name] = offset
        offset += slots[name].size
    return places, offset


@dataclass(frozen=True)
class _Layout:
    parameters: Sequence[tuple[str, str]]
    slots: dict[str, Slot]
    rows: dict[str, int]
    places: dict[str, int]
    live: dict[str, set[str]]
    recipes: Recipes
    alike: frozenset[str]
    lockstep: bool

    def _row(self, name: str, unique: str) -> Iterator[str]:
        size = self.slots[name].size
        yield f"  %{unique}.o = mul nuw nsw i64 %gj.stride, {self.rows[name]}"
        yield f"  %{unique}.r = getelementptr i8, ptr %gj.frame, i64 %{unique}.o"
        yield f"  %{unique} = getelementptr [{size} x i8], ptr %{unique}.r, i64 %gj.lin64"

    def region(self, segments: list[Segment], number: int) -> Region:
        """The thread function of a region, given its first segment first."""
        stored: set[str] = set()
        loaded: set[str] = set()
        for segment in segments:
            for line in segment.lines:
                found = access(line, self.slots)
                if found is not None:
                    (stored if found[0] == "store" else loaded).add(found[1])
        for segment in segments:
            if segment.state:
                loaded |= (self.live[f"gj.resume{segment.state}"] & stored) - self.recipes.slots
        reloaded = self.live[segments[0].label] & loaded if number else set()
        lines, computed = self.recipes.closure(sorted(reloaded & self.recipes.slots))
        used = stored | loaded | set(computed)
        waited = sorted(reloaded - self.recipes.slots)
        takes = [name for name in waited if name in self.alike]
        gives = []
        if self.lockstep:
            saved = set().union(*(self._saved(s.state, stored) for s in segments if s.state))
            gives = sorted(saved & self.alike)
        elif len(takes) > _MAX_TAKEN or sum(len(s.lines) for s in segments) > _MAX_TWICE:
            takes = []
        body = self._body(segments, number, used, waited, takes, gives, stored, computed)
        taken, given = (tuple(self._kept(name) for name in names) for names in (takes, gives))
        text = thread_function(number, self.parameters, body, taken, given)
        if lines:
            text += self._recompute(number, lines, computed)
        return Region(text, taken, given)

    def _kept(self, name: str) -> Kept:
        return Kept(self.slots[name].type, self.rows[name], self.slots[name].size)

    def _saved(self, state: int, stored: set[str]) -> set[str]:
        """What a region that stores some slots has to keep when it ends at a suspend point.

        What it didn't store is still where it was loaded from.
        """
        return (self.live[f"gj.resume{state}"] - self.recipes.slots) & stored

    def _body(
        self,
        segments: list[Segment],
        number: int,
        used: set[str],
        waited: list[str],
        takes: list[str],
        gives: list[str],
        stored: set[str],
        computed: list[str],
    ) -> Iterator[str]:
        yield "gj.entry:"
        yield "  %gj.lin64 = zext i32 %gj.lin to i64"
        for slot in self.slots.values():
            if not slot.private:
                place = self.places[slot.name]
                yield f"  %{slot.name} = getelementptr i8, ptr %gj.local, i64 {place}"
            elif slot.name in used:
                yield f"  %{slot.name} = alloca {slot.type}"
        if computed:
            targets = ", ".join(f"ptr %{name}" for name in computed)
            yield f"  call void @gj.recompute.{number}({arguments(self.parameters)}, {targets})"
        for index, name in enumerate(takes):
            yield f"  store {self.slots[name].type} %gj.taken.{index}, ptr %{name}"
        for index, name in enumerate(name for name in waited if name not in takes):
            type_ = self.slots[name].type
            yield from self._row(name, f"gj.in{index}")
            yield f"  %gj.in{index}.v = load {type_}, ptr %gj.in{index}{ACCESS}"
            yield f"  store {type_} %gj.in{index}.v, ptr %{name}"
        yield f"  br label %{segments[0].label}"
        for segment in segments:
            yield f"{segment.label}:"
            for line in segment.lines:
                if line.opcode == "alloca" or is_lifetime(line):
                    continue
                if line.opcode == "ret":
                    yield "  ret i32 0"
                else:
                    yield emit(line, access(line, self.slots) is None)
            if segment.state:
                yield from self._suspend(segment.state, stored, gives)

    def _suspend(self, state: int, stored: set[str], gives: list[str]) -> Iterator[str]:
        for index, name in enumerate(sorted(self._saved(state, stored))):
            type_ = self.slots[name].type
            unique = f"gj.out{state}.{index}"
            yield f"  %{unique}.v = load {type_}, ptr %{name}"
            if name in gives:
                yield f"  store {type_} %{unique}.v, ptr %gj.given.{gives.index(name)}"
            else:
                yield from self._row(name, unique)
                yield f"  store {type_} %{unique}.v, ptr %{unique}{ACCESS}"
        yield f"  ret i32 {state}"

    def _recompute(self, number: int, lines: list[Instruction], stored: list[str]) -> str:
        """The function that computes slots again at the start of a region.

        It is one of its own so that its values can keep the names that the region gives them too.
        """
        parameters = [*((type_, name) for type_, name in (*self.parameters, *CONTEXT))]
        parameters += [("ptr", name) for name in stored]
        body = "\n".join(emit(line) for line in lines)
        declared = ", ".join(f"{type_} %{name}" for type_, name in parameters)
        return (
            f"define internal void @gj.recompute.{number}({declared}) alwaysinline nounwind {{\n"
            f"{body}\n  ret void\n}}\n"
        )
