"""A whole graph replayed on the CPU by one native call."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from graphjit._errors import ClosedError
from graphjit._locks import Turn
from graphjit._signals import run_signal_handlers
from graphjit.backends.cpu.items import Item, steps_of
from graphjit.backends.cpu.pool import Crew, Pool, aligned_buffer, default_pool
from graphjit.backends.cpu.pool_native import native_pool
from graphjit.backends.cpu.program_native import CALLS, CURSOR, CURSOR_OFFSET, native_replay
from graphjit.backends.cpu.tables import check, lay_out

_FAILURE = struct.Struct("<qq")
_NO_FAILURE = (0, 0)

# Named, since Cython takes the bare type for one of C in signatures of compiled functions.
Pair = tuple[int, int]


def slots_for(count: int) -> ctypes.Array[ctypes.c_char]:
    """Memory for so many slots."""
    return ctypes.create_string_buffer(max(8, 8 * count))


class Program:
    """Items that one native call replays in order, with a barrier after each.

    Parameters
    ----------
    steps : sequence of Step, Together, Jump or Call
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
            check(step, slots, len(steps))
        self._pool = default_pool() if pool is None else pool
        self.slot_buffer = slots_for(slots) if slot_buffer is None else slot_buffer
        tables = lay_out(steps, self._pool.num_threads, ctypes.addressof(self.slot_buffer))
        self._memory, self._address = tables.memory, tables.address
        self._cursor = self._address - ctypes.addressof(self._memory) + CURSOR_OFFSET
        self._steps = steps
        self._spread = tables.spread
        needed = (step.scratch_bytes for item in steps for step in steps_of(item))
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
