"""A whole graph replayed on the CPU by one native call."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graphjit._errors import ClosedError
from graphjit._locks import Turn
from graphjit._signals import run_signal_handlers
from graphjit.backends.cpu.native import compile_ir, prelude
from graphjit.backends.cpu.pool import (
    Crew,
    Pool,
    aligned_buffer,
    default_pool,
)
from graphjit.backends.cpu.pool_native import TYPES, native_pool
from graphjit.kernel.packing import ParamImage

MIN_PARALLEL_WORK = 32_768
"""Below this much estimated work (see `Step.parallel`) waking others costs more than it saves."""

_MIN_CHUNK_WORK = 4_096
_MAX_CHUNK_WORK = 10_000_000  # so that a signal need not wait long
_CHUNKS_PER_THREAD = 8
_MAX_CHUNKS = 2**31 - 1
_PAUSE_NS = 50_000_000

_REPLAY_IR = """
%Table = type { ptr, i64 }
%Relocation = type { ptr, ptr, i64 }                       ; target, slot, addend
%Late = type { ptr, ptr, i64, i64 }                        ; target, slot, addend, size
; records, count, next (-1: from the start), in the middle of it, scratch, relocations of 8, 4, 2, 1
%Program = type { ptr, i64, i64, i64, ptr, [4 x %Table] }

RELOCATE_8
RELOCATE_4
RELOCATE_2
RELOCATE_1

; What slots hold by now that steps before changed.
define internal void @relocate_late(ptr %first, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %in = icmp slt i64 %i, %n
  br i1 %in, label %body, label %out
body:
  %r = getelementptr %Late, ptr %first, i64 %i
  %target = load ptr, ptr %r
  %sp = getelementptr %Late, ptr %r, i32 0, i32 1
  %slot = load ptr, ptr %sp
  %ap = getelementptr %Late, ptr %r, i32 0, i32 2
  %a = load i64, ptr %ap
  %zp = getelementptr %Late, ptr %r, i32 0, i32 3
  %size = load i64, ptr %zp
  %v = load i64, ptr %slot, align 1
  %s = add i64 %v, %a
  switch i64 %size, label %eight [ i64 4, label %four  i64 2, label %two  i64 1, label %one ]
eight:
  store i64 %s, ptr %target, align 1
  br label %next
four:
  %s4 = trunc i64 %s to i32
  store i32 %s4, ptr %target, align 1
  br label %next
two:
  %s2 = trunc i64 %s to i16
  store i16 %s2, ptr %target, align 1
  br label %next
one:
  %s1 = trunc i64 %s to i8
  store i8 %s1, ptr %target, align 1
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

; 0 when finished, 1 when to be called again, 2 when after what the host does.
define i32 @graphjit_replay(ptr %program, ptr %pool) {
entry:
  %t0 = call i64 @now()
  %deadline = add i64 %t0, PAUSE_NS
  %rp = getelementptr %Program, ptr %program, i32 0, i32 0
  %records = load ptr, ptr %rp
  %cp = getelementptr %Program, ptr %program, i32 0, i32 1
  %count = load i64, ptr %cp
  %nextp = getelementptr %Program, ptr %program, i32 0, i32 2
  %next = load i64, ptr %nextp
  %midp = getelementptr %Program, ptr %program, i32 0, i32 3
  %mid = load i64, ptr %midp
  %scp = getelementptr %Program, ptr %program, i32 0, i32 4
  %scratch = load ptr, ptr %scp
  %fresh = icmp slt i64 %next, 0
  br i1 %fresh, label %relocate, label %again
relocate:
  %t8 = getelementptr %Program, ptr %program, i32 0, i32 5, i32 0
  call void @relocate8(ptr %t8)
  %t4 = getelementptr %Program, ptr %program, i32 0, i32 5, i32 1
  call void @relocate4(ptr %t4)
  %t2 = getelementptr %Program, ptr %program, i32 0, i32 5, i32 2
  call void @relocate2(ptr %t2)
  %t1 = getelementptr %Program, ptr %program, i32 0, i32 5, i32 3
  call void @relocate1(ptr %t1)
  br label %loop
again:
  %was_mid = icmp ne i64 %mid, 0
  store i64 0, ptr %midp
  br label %loop
loop:
  %i = phi i64 [ 0, %relocate ], [ %next, %again ], [ %following, %clock ]
  %resume = phi i1 [ false, %relocate ], [ %was_mid, %again ], [ false, %clock ]
  %in = icmp slt i64 %i, %count
  br i1 %in, label %step, label %finished
step:
  %rec = getelementptr %Record, ptr %records, i64 %i
  %np = getelementptr %Record, ptr %rec, i32 0, i32 5
  %chunks = load i32, ptr %np
  %lp = getelementptr %Record, ptr %rec, i32 0, i32 7
  %late = load ptr, ptr %lp
  %lnp = getelementptr %Record, ptr %rec, i32 0, i32 8
  %late_n = load i64, ptr %lnp
  call void @relocate_late(ptr %late, i64 %late_n)
  %i1 = add i64 %i, 1
  %bp = getelementptr %Record, ptr %rec, i32 0, i32 3
  %blocks = load i64, ptr %bp
  %many = icmp sgt i32 %chunks, 1
  br i1 %many, label %spread, label %single
single:
  switch i32 %chunks, label %alone [ i32 0, label %jump  i32 -1, label %host ]
host:
  store i64 %i1, ptr %nextp
  ret i32 2
jump:                                                       ; unless a slot has the value
  %jp = getelementptr %Record, ptr %rec, i32 0, i32 4
  %to = load i64, ptr %jp
  %tp = load ptr, ptr %rec
  %always = icmp eq ptr %tp, null
  br i1 %always, label %leap, label %test
test:
  %word = load i64, ptr %tp
  %stays = icmp eq i64 %word, %blocks
  br i1 %stays, label %clock, label %leap
leap:
  br label %clock
alone:
  %fp = getelementptr %Record, ptr %rec, i32 0, i32 0
  %f = load ptr, ptr %fp
  %pp = getelementptr %Record, ptr %rec, i32 0, i32 1
  %params = load ptr, ptr %pp
  %dims = getelementptr %Record, ptr %rec, i32 0, i32 2
  %dp = getelementptr %Record, ptr %rec, i32 0, i32 6
  %shared = load i32, ptr %dp
  call void %f(ptr %params, ptr %dims, i64 0, i64 %blocks, ptr %scratch, i32 %shared)
  br label %clock
spread:
  %run = inttoptr i64 POOL_RUN to ptr
  %state = call i32 %run(ptr %pool, ptr %rec, i1 %resume, i64 %deadline)
  %paused = icmp ne i32 %state, 0
  br i1 %paused, label %middle, label %clock
clock:
  %following = phi i64 [ %i1, %alone ], [ %i1, %spread ], [ %i1, %test ], [ %to, %leap ]
  %t = call i64 @now()
  %overdue = icmp sgt i64 %t, %deadline
  br i1 %overdue, label %between, label %loop
between:
  store i64 %following, ptr %nextp
  ret i32 1
middle:
  store i64 %i, ptr %nextp
  store i64 1, ptr %midp
  ret i32 1
finished:
  ret i32 0
}
"""

_RELOCATE_IR = """
define internal void @relocate{size}(ptr %table) {{
entry:
  %first = load ptr, ptr %table
  %np = getelementptr %Table, ptr %table, i32 0, i32 1
  %n = load i64, ptr %np
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %body ]
  %in = icmp slt i64 %i, %n
  br i1 %in, label %body, label %out
body:
  %r = getelementptr %Relocation, ptr %first, i64 %i
  %target = load ptr, ptr %r
  %sp = getelementptr %Relocation, ptr %r, i32 0, i32 1
  %slot = load ptr, ptr %sp
  %ap = getelementptr %Relocation, ptr %r, i32 0, i32 2
  %a64 = load i64, ptr %ap
  %v = load i{bits}, ptr %slot, align 1
  {addend}
  %s = add i{bits} %v, %a
  store i{bits} %s, ptr %target, align 1
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}}
"""

_SIZES = (8, 4, 2, 1)
_PROGRAM = struct.Struct("=QqqqQ" + "Qq" * len(_SIZES))
_RECORD = struct.Struct("=QQ6iqqiiQq")
_RELOCATION = struct.Struct("=QQq")
_LATE = struct.Struct("=QQqq")
_CURSOR = struct.Struct("=qqQ")
_CALLS = 2
_FAILURE = struct.Struct("<qq")
_NO_FAILURE = (0, 0)

# Named, since Cython takes the bare type for one of C in signatures of compiled functions.
Pair = tuple[int, int]
_CURSOR_OFFSET = 16


@functools.cache
def _replay(pool_run: int) -> Any:
    text = _REPLAY_IR.replace("PAUSE_NS", str(_PAUSE_NS)).replace("POOL_RUN", str(pool_run))
    for size in _SIZES:
        bits = 8 * size
        addend = f"%a = {'trunc i64 %a64 to' if size < 8 else 'add i64 %a64,'} " + (
            f"i{bits}" if size < 8 else "0"
        )
        relocate = _RELOCATE_IR.format(size=size, bits=bits, addend=addend)
        text = text.replace(f"RELOCATE_{size}\n", relocate)
    (address,) = compile_ir(prelude() + TYPES + text, ["graphjit_replay"])
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(address)


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
class Jump:
    """Goes on elsewhere than with the next step.

    Parameters
    ----------
    target : int
        Index of the step or jump that follows.
    slot : int, optional
        The slot that decides; if not given, it always jumps.
    value : int
        If the slot holds this, the next step follows.
    """

    target: int
    slot: int | None = None
    value: int = 0


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
        if size not in _SIZES or (relocation.addend is not None and size != 8):
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
    relocations: dict[int, list[tuple[int, int, int]]] = {size: [] for size in _SIZES}
    records = (_PROGRAM.size + 63) & -64
    end = records + len(steps) * _RECORD.size
    images = []
    late: list[list[tuple[int, int, int, int]]] = []
    for step in steps:
        late.append([])
        if not isinstance(step, Step):
            images.append((0, 0))
            continue
        pointers = end
        data = (pointers + 8 * len(step.image.offsets) + 15) & -16
        end = data + len(step.image.data)
        images.append((pointers, data))
        for item in step.image.relocations:
            place = (data + item.target, slots + 8 * item.slot, item.addend or 0)
            if step.is_late:
                late[-1].append((*place, item.size))
            else:
                relocations[item.size].append(place)
        end = (end + 15) & -16
    tables = []
    for size in _SIZES:
        tables.append((end, len(relocations[size])))
        end += _RELOCATION.size * len(relocations[size])
    lates = []
    for each in late:
        lates.append(end)
        end += _LATE.size * len(each)

    memory, base = aligned_buffer(end)
    start = base - ctypes.addressof(memory)
    heads = [value for offset, count in tables for value in (base + offset, count)]
    _PROGRAM.pack_into(memory, start, base + records, len(steps), -1, 0, 0, *heads)
    for index, (step, (pointers, data)) in enumerate(zip(steps, images, strict=True)):
        where = start + records + index * _RECORD.size
        if not isinstance(step, Step):
            slot = step.slot if isinstance(step, Jump) else None
            deciding = 0 if slot is None else slots + 8 * slot
            _RECORD.pack_into(memory, where, deciding, 0, *[1] * 6, *chunks[index], 0, 0, 0)
            continue
        dims = (*step.block, *step.grid)
        fixed = (*chunks[index], step.dynamic_shared, base + lates[index], len(late[index]))
        _RECORD.pack_into(memory, where, step.address, base + pointers, *dims, *fixed)
        for number, (written, *rest) in enumerate(late[index]):
            at = start + lates[index] + number * _LATE.size
            _LATE.pack_into(memory, at, base + written, *rest)
        targets = [base + data + offset for offset in step.image.offsets]
        struct.pack_into(f"={len(targets)}Q", memory, start + pointers, *targets)
        struct.pack_into(f"={len(step.image.data)}s", memory, start + data, step.image.data)
    for size, (offset, _) in zip(_SIZES, tables, strict=True):
        for index, (target, slot, addend) in enumerate(relocations[size]):
            where = start + offset + index * _RELOCATION.size
            _RELOCATION.pack_into(memory, where, base + target, slot, addend)
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
        self._cursor = self._address - ctypes.addressof(self._memory) + _CURSOR_OFFSET
        self._steps = steps
        self._spread = any(count > 1 for _, _, count in chunks)
        needed = (step.scratch_bytes for step in steps if isinstance(step, Step))
        self._scratch_bytes = max(needed, default=0)
        self._failure = 8 * failure
        self._native = _replay(native_pool().run)
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
                _CURSOR.pack_into(self._memory, self._cursor, -1, 0, self._scratch_address)
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
            if state == _CALLS:
                index = _CURSOR.unpack_from(self._memory, self._cursor)[0] - 1
                self._steps[index].function(self.slot_buffer)
            state = self._native(self._address, pool)

    def _run_spread(self, crew: Crew) -> None:
        if crew.running is not None:
            # A second exception cut short the clean-up below.
            crew.cancel()
        crew.running = self
        scratch = crew.reserve_scratch(self._scratch_bytes)
        _CURSOR.pack_into(self._memory, self._cursor, -1, 0, scratch)
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
