"""A program in memory, as its native half reads it: records, tasks, images, relocations."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphjit.backends.cpu.items import MIN_PARALLEL_WORK, Call, Item, Step, Together, steps_of
from graphjit.backends.cpu.pool import aligned_buffer
from graphjit.backends.cpu.program_native import (
    PART,
    PROGRAM,
    PROGRAM_RELOCATIONS,
    RECORD,
    RECORD_LATE,
    RECORD_PARAMS,
    RELOCATION,
    SIZES,
    TASK,
)
from graphjit.schedule.flat import Jump

_MIN_CHUNK_WORK = 4_096
_MAX_CHUNK_WORK = 10_000_000  # so that a signal need not wait long
_CHUNKS_PER_THREAD = 8
_MAX_CHUNKS = 2**31 - 1
_WORD = struct.Struct("=Q")

# A step and the blocks of it that are to run.
Part = tuple[Step, int, int]


def _split(together: Together, threads: int) -> list[list[Part]]:
    """What each chunk of overlapping steps does."""
    chunks: list[list[Part]] = []
    for steps in together.tasks:
        if len(steps) > 1:
            chunks.append([(step, 0, math.prod(step.grid)) for step in steps])
            continue
        (step,) = steps
        blocks, size, count = _chunk(step, threads)
        chunks += [[(step, k * size, min(blocks, (k + 1) * size))] for k in range(count)]
    return chunks


def _chunk(step: Step, threads: int) -> tuple[int, int, int]:
    """Return how many blocks a step has, how many a chunk has, and how many chunks that is."""
    blocks = math.prod(step.grid)
    if step.parallel is True:
        wanted = threads * _CHUNKS_PER_THREAD
    elif step.parallel < MIN_PARALLEL_WORK:
        wanted = 1
    else:
        wanted = min(threads * _CHUNKS_PER_THREAD, step.parallel // _MIN_CHUNK_WORK)
        wanted = max(wanted, step.parallel // _MAX_CHUNK_WORK)
    chunk = -(-blocks // min(wanted, _MAX_CHUNKS))
    return blocks, chunk, -(-blocks // chunk)


def check(step: Item, slots: int, steps: int) -> None:
    """Raise ValueError if a step's sizes or relocations, or a jump's target, are out of range."""
    if isinstance(step, Jump):
        if not 0 <= step.target <= steps or not 0 <= (step.slot or 0) < slots:
            raise ValueError(f"a jump to {step.target} of {steps}, by slot {step.slot} of {slots}")
        return
    if isinstance(step, Call):
        return
    if isinstance(step, Together):
        if len(step.tasks) < 2:
            raise ValueError(f"{len(step.tasks)} tasks that overlap")
        for each in steps_of(step):
            check(each, slots, steps)
        return
    image = step.image
    problem = ""
    if min(step.block) < 1 or min(step.grid) < 1 or max(step.block + step.grid) >= 2**31:
        problem = f"bad block {step.block} or grid {step.grid}"
    elif any(not 0 <= offset <= len(image.data) for offset in image.offsets):
        problem = "a parameter outside its image"
    for relocation in image.relocations:
        size = relocation.size
        if size not in SIZES or (relocation.addend is not None and size != 8):
            problem = f"a relocation of {size} bytes"
        elif not 0 <= relocation.slot < slots:
            problem = f"a relocation from slot {relocation.slot} of {slots}"
        elif not 0 <= relocation.target <= len(image.data) - size:
            problem = "a relocation outside its image"
    if problem:
        raise ValueError(f"step {step.name!r} has {problem}")


@dataclass(frozen=True)
class Tables:
    """A program in memory.

    Parameters
    ----------
    memory : ctypes array
        What holds it.
    address : int
        Where it starts.
    spread : bool
        Whether any of its items takes more than one thread.
    """

    memory: Any
    address: int
    spread: bool


def lay_out(items: Sequence[Item], threads: int, slots: int) -> Tables:
    """Write a program into fresh memory.

    Parameters
    ----------
    items : sequence of Step, Together, Jump or Call
        What it consists of.
    threads : int
        How many threads there are for them.
    slots : int
        Address of the slots.
    """
    memory = _Memory()
    program = memory.reserve(PROGRAM.size)
    # The steps that overlap have records behind those of the items.
    members = [step for each in items if isinstance(each, Together) for step in steps_of(each)]
    everything = [*items, *members]
    records = memory.reserve(len(everything) * RECORD.size)
    places = {id(step): records + k * RECORD.size for k, step in enumerate(everything)}
    first: list[tuple[int, ...]] = []
    spread = False
    for index, item in enumerate(everything):
        record = records + index * RECORD.size
        if isinstance(item, Step):
            chunks = _chunk(item, threads)
            spread = spread or chunks[2] > 1
            memory.step(record, item, chunks, slots, first)
        elif isinstance(item, Together):
            spread = True
            memory.together(record, _split(item, threads), places)
        else:
            slot = item.slot if isinstance(item, Jump) else None
            deciding = 0 if slot is None else slots + 8 * slot
            target = (item.value, item.target, 0) if isinstance(item, Jump) else (0, 0, -1)
            memory.pack(RECORD, record, deciding, 0, *[1] * 6, *target, 0, 0, 0)
    table = memory.relocations(first)
    memory.pack(PROGRAM, program, records, len(items), -1, 0, 0, table, len(first))
    memory.refer(program, program + PROGRAM_RELOCATIONS)
    return Tables(*memory.fixed(), spread)


class _Memory:
    """Memory that grows; addresses in it are offsets until it is `fixed`."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._addresses: list[int] = []

    def reserve(self, size: int) -> int:
        """The offset of so many bytes, at a multiple of 16."""
        start = len(self._bytes)
        self._bytes += bytes((size + 15) & -16)
        return start

    def pack(self, layout: struct.Struct, where: int, *values: Any) -> None:
        layout.pack_into(self._bytes, where, *values)

    def refer(self, *places: int) -> None:
        """Say where offsets are written that are to become addresses."""
        self._addresses += places

    def relocations(self, table: Sequence[tuple[int, ...]]) -> int:
        start = self.reserve(len(table) * RELOCATION.size)
        for index, relocation in enumerate(table):
            where = start + index * RELOCATION.size
            self.pack(RELOCATION, where, *relocation)
            self.refer(where)
        return start

    def step(
        self,
        record: int,
        step: Step,
        chunks: tuple[int, int, int],
        slots: int,
        first: list[tuple[int, ...]],
    ) -> None:
        """Write a step; what is relocated before the program starts is added to `first`."""
        image = step.image
        pointers = self.reserve(8 * len(image.offsets))
        data = self.reserve(len(image.data))
        self._bytes[data : data + len(image.data)] = image.data
        for index, offset in enumerate(image.offsets):
            self.pack(_WORD, pointers + 8 * index, data + offset)
            self.refer(pointers + 8 * index)
        table = [
            (data + each.target, slots + 8 * each.slot, each.addend or 0, each.size)
            for each in image.relocations
        ]
        if not step.is_late:
            first += table
            table = []
        late = self.relocations(table)
        fixed = (*chunks, step.dynamic_shared, late, len(table))
        self.pack(RECORD, record, step.address, pointers, *step.block, *step.grid, *fixed)
        self.refer(record + RECORD_PARAMS, record + RECORD_LATE)

    def together(self, record: int, chunks: list[list[Part]], places: dict[int, int]) -> None:
        tasks = self.reserve(len(chunks) * TASK.size)
        parts = self.reserve(sum(map(len, chunks)) * PART.size)
        for index, chunk in enumerate(chunks):
            self.pack(TASK, tasks + index * TASK.size, parts, len(chunk))
            self.refer(tasks + index * TASK.size)
            for step, begin, end in chunk:
                self.pack(PART, parts, places[id(step)], begin, end)
                self.refer(parts)
                parts += PART.size
        self.pack(RECORD, record, 0, tasks, *[1] * 6, 0, 0, len(chunks), 0, 0, 0)
        self.refer(record + RECORD_PARAMS)

    def fixed(self) -> tuple[Any, int]:
        """The memory, and the address where it starts."""
        memory, base = aligned_buffer(len(self._bytes))
        for place in self._addresses:
            (offset,) = _WORD.unpack_from(self._bytes, place)
            self.pack(_WORD, place, base + offset)
        ctypes.memmove(base, bytes(self._bytes), len(self._bytes))
        return memory, base
