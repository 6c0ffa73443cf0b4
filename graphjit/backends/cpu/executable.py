"""CPUExecutable: a Schedule as one native program.

Compiled where there is a C compiler (see `setup.py`): it runs at every call.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

from graphjit._layout import Layout
from graphjit._locks import Turn
from graphjit.backends.binding_stats import BindingStats
from graphjit.backends.cpu.memory import HostMemory, view_at
from graphjit.backends.cpu.pool import default_pool
from graphjit.backends.cpu.program import Program, slots_for
from graphjit.backends.cpu.steps import Steps
from graphjit.backends.executable import Executable, Pointers
from graphjit.schedule.scalar_words import ScalarWords
from graphjit.schedule.schedule import Schedule

# Named, since Cython takes the bare type for one of C in signatures of compiled functions.
Words = tuple[int, ...]


class CPUExecutable(Executable):
    """A Schedule as one native program.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    inputs : {"auto", "copy", "rebind"}
        How arguments are bound; unless they are to be copied, in place, which costs nothing.
    """

    def __init__(self, schedule: Schedule, inputs: str) -> None:
        self._schedule = schedule
        self._has_scalars = bool(schedule.scalars)
        self._scalar_words = ScalarWords(schedule.scalars)
        self._arena = HostMemory(schedule.arena.nbytes)
        slot_buffer = slots_for(schedule.words)
        threads = default_pool().num_threads
        slots = ctypes.addressof(slot_buffer)
        steps = Steps(schedule, slots, self._arena.address, threads)
        self._kernels = steps.kept
        failure = schedule.failure if schedule.has_state else -1
        self._program = Program(
            steps.items, schedule.words, slot_buffer=slot_buffer, failure=failure
        )
        self._slots = struct.Struct(f"<{schedule.slots}Q")
        self._static = tuple(self._static_inputs()) if inputs == "copy" else ()
        self._turn = Turn("the replay of a graph")
        self._last: Any = None
        self.same = self.rebound = self.copied = 0

    def run(self, pointers: Pointers, scalars: Any, stream: Any) -> None:
        """Replay once; returns when the work is done."""
        words = self._scalar_words.of(scalars) if self._has_scalars else ()
        if not self._static:
            self._replay(pointers, words)
            return
        # Threads share the static inputs.
        self._turn.enter()
        try:
            given, pointers = pointers, [*pointers]
            for slot, memory, layout, _ in self._static:
                _copy(layout, given[slot], memory.address)
                pointers[slot] = memory.address
            self.copied += 1
            self._replay(pointers, words)
            for slot, memory, layout, written in self._static:
                if written:
                    _copy(layout, memory.address, given[slot])
        finally:
            self._turn.leave()

    def _replay(self, pointers: Pointers, words: Words) -> None:
        if pointers == self._last:
            self.same += 1
        else:
            self._last = pointers
            self.rebound += 1
        values = [*pointers, self._arena.address]
        if words:
            values += words
        place, index = self._program.run(self._slots, values)
        if place:
            raise self._schedule.index_error(place, index)

    @property
    def nbytes(self) -> int:
        """Bytes of its temporaries and static inputs."""
        return self._arena.nbytes + sum(memory.nbytes for _, memory, _, _ in self._static)

    def binding_stats(self) -> BindingStats:
        """How its calls were bound."""
        return BindingStats(self.same, 0, self.rebound, self.copied, 0, 1)

    def close(self) -> None:
        """Free the program."""
        self._program.close()

    def _static_inputs(self) -> Iterator[tuple[int, HostMemory, Layout, bool]]:
        """Slot, buffer and layout of each argument, and whether it is written."""
        for slot, layout, written in self._schedule.copyable_inputs():
            low, high = layout.extent
            yield slot, HostMemory(high - low), layout, written


def _copy(layout: Layout, source: int, target: int) -> None:
    """Copy elements from one lowest address to another."""
    low = layout.extent[0]
    view_at(target - low, layout)[...] = view_at(source - low, layout)
