"""A whole graph replayed on the CPU by one native call."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graphjit._errors import ClosedError
from graphjit._locks import Turn
from graphjit._signals import run_signal_handlers
from graphjit.backends.cpu.pool import (
    Crew,
    Pool,
    aligned_buffer,
    default_pool,
)
from graphjit.backends.cpu.pool_native import native_pool
from graphjit.backends.cpu.program_native import (
    CALLS,
    CURSOR,
    CURSOR_OFFSET,
    PROGRAM,
    RECORD,
    RELOCATION,
    SIZES,
    native_replay,
)
from graphjit.kernel.packing import ParamImage
from graphjit.schedule.flat import Jump

MIN_PARALLEL_WORK = 32_768
"""Below this much estimated work (see `Step.parallel`) waking others costs more than it saves."""

_MIN_CHUNK_WORK = 4_096
_MAX_CHUNK_WORK = 10_000_000  # so that a signal need not wait long
_CHUNKS_PER_THREAD = 8
_MAX_CHUNKS = 2**31 - 1
_FAILURE = struct.Struct("<qq")
_NO_FAILURE = (0, 0)

# Named, since Cython takes the bare type for one of C in signatures of compiled functions.
Pair = tuple[int, int]


@dataclass(frozen=True)
class Step:
    """One launch of a native kernel.

    Parameters
    ----------
    address : int
        Native function `void f(void **params, const int32_t *dims, int64_t begin, int64_t end,
        void *scratch, int32_t dynamic_shared)`, which runs the linear blocks from `begin` to
        before `end`; `dims` are the block's and the grid's x, y, z. Whoever makes the step keeps
        the code loaded.
    image : ParamImage
        Its parameters.
    block, grid : tuple of int
        Extents in x, y and z.
    dynamic_shared : int
        Bytes of dynamic shared memory.
    scratch_bytes : int
        Bytes of 64-byte aligned, uninitialised scratch that one call needs.
    name : str
        What to call it in messages.
    parallel : bool or int
        Whether to spread its blocks over the pool. An int is an estimate of the work in
        nanoseconds on one thread, which decides (as a rule, one for each GPU thread of a simple
        kernel or for each 8 bytes moved).
    is_late : bool
        Whether steps before it change the slots that its image depends on.
    """

    address: int
    image: ParamImage
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    dynamic_shared: int = 0
    scratch_bytes: int = 0
    name: str = ""
    parallel: bool | int = True
    is_late: bool = False


@dataclass(frozen=True)
class Call:
    """A call of Python.

    Parameters
    ----------
    function : callable
        Takes the program's slots.
    """

    function: Callable[[ctypes.Array[ctypes.c_char]], None]


Item = Step | Jump | Call


def _chunk(step: Item, threads: int) -> tuple[int, int, int]:
    """Return how many blocks a step has, how many a chunk has, and how many chunks that is."""
    if isinstance(step, Jump):
        return step.value, step.target, 0
    if isinstance(step, Call):
        return 0, 0, -1
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


def _check(step: Item, slots: int, steps: int) -> None:
    if isinstance(step, Jump):
        if not 0 <= step.target <= steps or not 0 <= (step.slot or 0) < slots:
            raise ValueError(f"a jump to {step.target} of {steps}, by slot {step.slot} of {slots}")
        return
    if isinstance(step, Call):
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


def _lay_out(
    steps: Sequence[Item], chunks: Sequence[tuple[int, int, int]], slots: int
) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """Write a program's tables into fresh memory: `%Program`, records, images, relocations."""
    records = (PROGRAM.size + 63) & -64
    end = records + len(steps) * RECORD.size
    images = []
    # What is written before the first step, and before each.
    first: list[tuple[int, int, int, int]] = []
    late: list[list[tuple[int, int, int, int]]] = [[] for _ in steps]
    for step, own in zip(steps, late, strict=True):
        if not isinstance(step, Step):
            images.append((0, 0))
            continue
        pointers = end
        data = (pointers + 8 * len(step.image.offsets) + 15) & -16
        end = data + len(step.image.data)
        images.append((pointers, data))
        for item in step.image.relocations:
            place = (data + item.target, slots + 8 * item.slot, item.addend or 0, item.size)
            (own if step.is_late else first).append(place)
        end = (end + 15) & -16
    tables = [first, *late]
    places = []
    for table in tables:
        places.append(end)
        end += RELOCATION.size * len(table)

    memory, base = aligned_buffer(end)
    start = base - ctypes.addressof(memory)
    head = (base + records, len(steps), -1, 0, 0, base + places[0], len(first))
    PROGRAM.pack_into(memory, start, *head)
    for index, (step, (pointers, data)) in enumerate(zip(steps, images, strict=True)):
        where = start + records + index * RECORD.size
        if not isinstance(step, Step):
            slot = step.slot if isinstance(step, Jump) else None
            deciding = 0 if slot is None else slots + 8 * slot
            RECORD.pack_into(memory, where, deciding, 0, *[1] * 6, *chunks[index], 0, 0, 0)
            continue
        dims = (*step.block, *step.grid)
        own_table = (base + places[1 + index], len(late[index]))
        fixed = (*chunks[index], step.dynamic_shared, *own_table)
        RECORD.pack_into(memory, where, step.address, base + pointers, *dims, *fixed)
        targets = [base + data + offset for offset in step.image.offsets]
        struct.pack_into(f"={len(targets)}Q", memory, start + pointers, *targets)
        struct.pack_into(f"={len(step.image.data)}s", memory, start + data, step.image.data)
    for table, at in zip(tables, places, strict=True):
        for index, (target, *rest) in enumerate(table):
            where = start + at + index * RELOCATION.size
            RELOCATION.pack_into(memory, where, base + target, *rest)
    return memory, base


def slots_for(count: int) -> ctypes.Array[ctypes.c_char]:
    """Memory for so many slots."""
    return ctypes.create_string_buffer(max(8, 8 * count))


class Program:
    """Steps that one native call replays in order, with a barrier after each.

    Parameters
    ----------
    steps : sequence of Step or Jump
        The launches, and what decides which of them run.
    slots : int
        How many 8-byte slots their relocations refer to.
    pool : Pool, optional
        Who runs large steps; the shared pool if None.
    slot_buffer : ctypes array, optional
        Memory for the slots.
    failure : int, optional
        Steps say in this slot what failed, and in the next more about it.

    Attributes
    ----------
    slot_buffer : ctypes array
        The slots, at a fixed address; fill them with `struct.pack_into` before `run`.

    Raises
    ------
    ValueError
        If a step's sizes or relocations are out of range; nothing has run then.
    """

    def __init__(
        self,
        steps: Sequence[Item],
        slots: int,
        pool: Pool | None = None,
        slot_buffer: Any = None,
        failure: int = -1,
    ) -> None:
        for step in steps:
            _check(step, slots, len(steps))
        self._pool = default_pool() if pool is None else pool
        self.slot_buffer = slots_for(slots) if slot_buffer is None else slot_buffer
        chunks = [_chunk(step, self._pool.num_threads) for step in steps]
        self._memory, self._address = _lay_out(steps, chunks, ctypes.addressof(self.slot_buffer))
        self._cursor = self._address - ctypes.addressof(self._memory) + CURSOR_OFFSET
        self._steps = steps
        self._spread = any(count > 1 for _, _, count in chunks)
        needed = (step.scratch_bytes for step in steps if isinstance(step, Step))
        self._scratch_bytes = max(needed, default=0)
        self._failure = 8 * failure
        self._native = native_replay(native_pool().run)
        self._closed = False
        # A program that needs no workers has its own turn and scratch: it does not queue.
        self._turn = self._pool.turn if self._spread else Turn("the replay of a graph")
        own = 0 if self._spread else self._scratch_bytes
        self._scratch, self._scratch_address = aligned_buffer(own)

    def run(self, slots: struct.Struct | None = None, values: Iterable[Any] = ()) -> Pair:
        """Replay all steps with what is in `slot_buffer`, written anew if `slots` is given.

        Python runs again every 50 ms or so, between steps or between the chunks of a large step,
        so a signal handler can raise; the rest of the replay is dropped then. Calls from several
        threads take turns.

        Parameters
        ----------
        slots : struct.Struct, optional
            Layout of the slots.
        values : iterable
            What to write into them.

        Returns
        -------
        tuple of int
            What failed, and more about it; zeros if nothing did.

        Raises
        ------
        ClosedError
            If the program was closed.
        RuntimeError
            If the call comes from a signal handler or a callback inside
            a replay on the same thread.
        """
        self._turn.enter()
        try:
            if self._closed:
                raise ClosedError("this compiled function was closed")
            if slots is not None:
                slots.pack_into(self.slot_buffer, 0, *values)
            if self._failure >= 0:
                _FAILURE.pack_into(self.slot_buffer, self._failure, 0, 0)
            if self._spread:
                self._run_spread(self._pool.crew())
            else:
                CURSOR.pack_into(self._memory, self._cursor, -1, 0, self._scratch_address)
                self._play(None)
            if self._failure >= 0:
                return _FAILURE.unpack_from(self.slot_buffer, self._failure)
            return _NO_FAILURE
        finally:
            self._turn.leave()

    def _play(self, pool: Any) -> None:
        """Run all steps, with breaks for Python."""
        state = self._native(self._address, pool)
        while state:
            run_signal_handlers()
            if state == CALLS:
                index = CURSOR.unpack_from(self._memory, self._cursor)[0] - 1
                self._steps[index].function(self.slot_buffer)
            state = self._native(self._address, pool)

    def _run_spread(self, crew: Crew) -> None:
        if crew.running is not None:
            # A second exception cut short the clean-up below.
            crew.cancel()
        crew.running = self
        scratch = crew.reserve_scratch(self._scratch_bytes)
        CURSOR.pack_into(self._memory, self._cursor, -1, 0, scratch)
        try:
            self._play(crew.address)
        except BaseException:
            crew.cancel()
            crew.running = None
            raise
        crew.running = None

    def close(self) -> None:
        """Refuse further replays and free the tables; a second call does nothing.

        A replay under way in another thread ends first; its memory goes with the program then.
        """
        self._closed = True
        # Not waiting: the garbage collector may call this inside a replay on the same thread.
        if self._turn.try_enter():
            self._memory, self._address = aligned_buffer(0)
            self._scratch, self._scratch_address = aligned_buffer(0)
            self._turn.leave()
