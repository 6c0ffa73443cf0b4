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

from graphjit.backends.cpu.intrinsics import MARKERS, SUSPENDS

_LABEL = re.compile(r"label %([\w.$-]+)")
_SAFE = frozenset(
    "add sub mul and or xor shl lshr ashr sext zext trunc icmp fcmp select getelementptr bitcast "
    "ptrtoint inttoptr extractvalue insertvalue freeze fadd fsub fmul fneg sitofp uitofp fpext "
    "fptrunc".split()
)


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


@dataclass(frozen=True)
class Slot:
    """A stack slot: a value that LLVM demoted (`private`), or memory that has an address."""

    name: str
    type: str
    size: int
    align: int
    private: bool


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
    flat : bool
        Whether the threads' place along the fast axis is used only as `gj.global`, the index in
        the whole grid: blocks side by side can then be one loop.
    """

    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    frame: int
    local: int
    flat: bool = False


# Parameters of every thread function after the kernel's own.
CONTEXT = (
    ("i64", "gj.global"),
    *((type_, name) for name, type_ in MARKERS.items()),
    ("ptr", "gj.frame"),
    ("ptr", "gj.local"),
    ("ptr", "gj.state"),
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


def _is_lifetime(line: Instruction) -> bool:
    return line.callee.startswith("llvm.lifetime.")


def _slots(
    blocks: Iterable[tuple[str, list[Instruction]]], size_of: Callable[[list[str]], list[int]]
) -> dict[str, Slot]:
    lines = [line for _, instructions in blocks for line in instructions]
    types, aligns = {}, {}
    for line in lines:
        if line.opcode == "alloca":
            type_, _, align = line.text.split("alloca ", 1)[1].partition(", align ")
            types[line.name] = type_
            aligns[line.name] = max(8, int(align.split(",")[0] or 8))
    addressed = set()
    for line in lines:
        if line.opcode == "load" or _is_lifetime(line):
            continue
        # A store's value operand comes first, its address last.
        used = line.operands[:-1] if line.opcode == "store" else line.operands
        addressed.update(name for name in used if name in types)
    sizes = size_of(list(types.values()))
    return {
        name: Slot(name, type_, size, aligns[name], name not in addressed)
        for (name, type_), size in zip(types.items(), sizes, strict=True)
    }


def _access(line: Instruction, slots: dict[str, Slot]) -> tuple[str, str] | None:
    """("load" or "store", slot) if the instruction reads or writes a private slot."""
    if line.opcode in ("load", "store"):
        slot = slots.get(line.operands[-1])
        if slot is not None and slot.private:
            return line.opcode, slot.name
    return None


def _live(segments: dict[str, Segment], slots: dict[str, Slot]) -> dict[str, set[str]]:
    """Private slots whose value is read at or after the start of each segment."""
    reads: dict[str, set[str]] = {}
    writes: dict[str, set[str]] = {}
    after = {}
    for label, segment in segments.items():
        reads[label], writes[label] = set(), set()
        for line in segment.lines:
            access = _access(line, slots)
            if access is not None:
                kind, name = access
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


@dataclass(frozen=True)
class _Recipes:
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


def _recipes(
    blocks: Iterable[tuple[str, list[Instruction]]], slots: dict[str, Slot], limit: int = 100
) -> _Recipes:
    """Slots stored once, from a pure function of parameters, markers and other such slots."""
    lines = {line.name: line for _, block in blocks for line in block if line.name}
    stores: dict[str, list[Instruction]] = {}
    for _, block in blocks:
        for line in block:
            access = _access(line, slots)
            if access is not None and access[0] == "store":
                stores.setdefault(access[1], []).append(line)
    lines |= {f"store {slot}": found[0] for slot, found in stores.items() if len(found) == 1}
    needs: dict[str, tuple[str, ...]] = {}
    for name, line in lines.items():
        access = _access(line, slots)
        if line.callee in MARKERS:
            needs[name] = ()
        elif access is not None and access[0] == "load":
            needs[name] = (f"store {access[1]}",)
        elif access is not None:
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
    return _Recipes(lines, needs, frozenset(chosen))


def _emit(line: Instruction) -> str:
    """The instruction, with a marker's call turned into the parameter of its name."""
    type_ = MARKERS.get(line.callee)
    if type_ is None:
        return line.text
    if type_ == "ptr":
        return f"  %{line.name} = getelementptr i8, ptr %{line.callee}, i64 0"
    return f"  %{line.name} = add {type_} %{line.callee}, 0"


# Parts of the scratch memory; no two overlap, and no argument of a kernel points there.
_SCRATCH = frozenset({"gj.shared", "gj.exchange", "gj.frame", "gj.local", "gj.state"})


def _parameters(parameters: Sequence[tuple[str, str]]) -> str:
    return ", ".join(
        f"{type_} {'noalias ' if name in _SCRATCH else ''}%{name}"
        for type_, name in (*parameters, *CONTEXT)
    )


def arguments(parameters: Sequence[tuple[str, str]]) -> str:
    """Argument list of a call that passes a thread function's parameters on by their names."""
    return ", ".join(f"{type_} %{name}" for type_, name in (*parameters, *CONTEXT))


def whole(
    function: Any, text: str, parameters: Sequence[tuple[str, str]], fast_axis: str
) -> Cut:
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
    body = []
    for label, instructions in blocks:
        body.append(f"{label}:")
        for line in instructions:
            if line.opcode == "ret":
                body.append("  ret i32 0")
            elif line.name in (indices or ()):
                body.append(f"  %{line.name} = add i64 %gj.global, 0")
            else:
                body.append(_emit(line))
    flat = indices is not None
    return Cut((_function(0, parameters, body),), (), 0, 0, flat)


def _grid_indices(
    blocks: Iterable[tuple[str, list[Instruction]]], axis: str
) -> set[str] | None:
    """Values that are `cuda.grid` along an axis, if its registers are used for nothing else."""
    lines = {line.name: line for _, block in blocks for line in block if line.name}
    users: dict[str, list[Instruction]] = {}
    for _, block in blocks:
        for line in block:
            for name in line.operands:
                users.setdefault(name, []).append(line)
            if line.callee in ("gj.lin", "gj.shared"):
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
        user.name
        for call in calls("ntid")
        for user in users.get(call, ())
        if user.opcode in extend
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


def _function(
    number: int, parameters: Sequence[tuple[str, str]], body: Iterable[str]
) -> str:
    return (
        f"define internal i32 @gj.thread.{number}({_parameters(parameters)}) "
        "alwaysinline nounwind {\n" + "\n".join(body) + "\n}\n"
    )


def cut(
    function: Any,
    text: str,
    parameters: Sequence[tuple[str, str]],
    size_of: Callable[[list[str]], list[int]],
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
    """
    blocks = read_blocks(function, text)
    slots = _slots(blocks, size_of)
    segments, kinds = _segments(blocks)
    live = _live(segments, slots)
    recipes = _recipes(blocks, slots)
    kept = set().union(*(live[f"gj.resume{k + 1}"] for k in range(len(kinds)))) - recipes.slots
    rows, offset = {}, 0
    # Widest first: a row starts at a multiple of its lanes' size, being whole multiples of 64.
    for name in sorted(kept, key=lambda name: (-slots[name].size, name)):
        rows[name] = offset
        offset += slots[name].size
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
    layout = _Layout(parameters, slots, rows, places, live, recipes)
    functions = [
        layout.region(_reachable(segments, label), number)
        for number, label in enumerate(
            [first, *(f"gj.resume{k + 1}" for k in range(len(kinds)))]
        )
    ]
    return Cut(tuple(functions), kinds, offset, local)


@dataclass(frozen=True)
class _Layout:
    parameters: Sequence[tuple[str, str]]
    slots: dict[str, Slot]
    rows: dict[str, int]
    places: dict[str, int]
    live: dict[str, set[str]]
    recipes: _Recipes

    def _row(self, name: str, unique: str) -> Iterator[str]:
        size = self.slots[name].size
        yield f"  %{unique}.o = mul nuw nsw i64 %gj.stride, {self.rows[name]}"
        yield f"  %{unique}.r = getelementptr i8, ptr %gj.frame, i64 %{unique}.o"
        yield f"  %{unique} = getelementptr [{size} x i8], ptr %{unique}.r, i64 %gj.lin64"

    def region(self, segments: list[Segment], number: int) -> str:
        """LLVM text of the thread function of a region, given its first segment first."""
        stored, loaded = set(), set()
        for segment in segments:
            for line in segment.lines:
                access = _access(line, self.slots)
                if access is not None:
                    (stored if access[0] == "store" else loaded).add(access[1])
        for segment in segments:
            if segment.state:
                loaded |= (self.live[f"gj.resume{segment.state}"] & stored) - self.recipes.slots
        reloaded = self.live[segments[0].label] & loaded if number else set()
        lines, computed = self.recipes.closure(sorted(reloaded & self.recipes.slots))
        used = stored | loaded | set(computed)
        body = self._body(segments, number, used, stored, reloaded, computed)
        text = _function(number, self.parameters, body)
        return text + self._recompute(number, lines, computed) if lines else text

    def _body(
        self,
        segments: list[Segment],
        number: int,
        used: set[str],
        stored: set[str],
        reloaded: set[str],
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
        for index, name in enumerate(sorted(reloaded - self.recipes.slots)):
            type_ = self.slots[name].type
            yield from self._row(name, f"gj.in{index}")
            yield f"  %gj.in{index}.v = load {type_}, ptr %gj.in{index}"
            yield f"  store {type_} %gj.in{index}.v, ptr %{name}"
        yield f"  br label %{segments[0].label}"
        for segment in segments:
            yield f"{segment.label}:"
            for line in segment.lines:
                if line.opcode == "alloca" or _is_lifetime(line):
                    continue
                if line.opcode == "ret":
                    yield "  store i32 0, ptr %gj.state"
                    yield "  ret i32 0"
                else:
                    yield _emit(line)
            if segment.state:
                yield from self._suspend(segment.state, stored)

    def _suspend(self, state: int, stored: set[str]) -> Iterator[str]:
        # What the region didn't store is still in the frame, where it was reloaded from.
        saved = (self.live[f"gj.resume{state}"] - self.recipes.slots) & stored
        for index, name in enumerate(sorted(saved)):
            type_ = self.slots[name].type
            unique = f"gj.out{state}.{index}"
            yield from self._row(name, unique)
            yield f"  %{unique}.v = load {type_}, ptr %{name}"
            yield f"  store {type_} %{unique}.v, ptr %{unique}"
        yield f"  store i32 {state}, ptr %gj.state"
        yield f"  ret i32 {state}"

    def _recompute(self, number: int, lines: list[Instruction], stored: list[str]) -> str:
        """The function that computes slots again at the start of a region.

        It is one of its own so that its values can keep the names that the region gives them too.
        """
        parameters = [*((type_, name) for type_, name in (*self.parameters, *CONTEXT))]
        parameters += [("ptr", name) for name in stored]
        body = "\n".join(_emit(line) for line in lines)
        declared = ", ".join(f"{type_} %{name}" for type_, name in parameters)
        return (
            f"define internal void @gj.recompute.{number}({declared}) alwaysinline nounwind {{\n"
            f"{body}\n  ret void\n}}\n"
        )
