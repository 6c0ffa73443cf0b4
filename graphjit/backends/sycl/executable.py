"""SYCLExecutable: a Schedule as SYCL graphs, and what the host decides between them."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any

import numpy as np

from graphjit._device_control import HostCall, Switch, While
from graphjit._errors import ClosedError
from graphjit._layout import Layout
from graphjit._locks import Turn
from graphjit._memory import Memory
from graphjit.backends.binding_stats import BindingStats
from graphjit.backends.executable import Executable, Pointers
from graphjit.backends.sycl import runtime, shim
from graphjit.backends.sycl.builder import GraphBuilder
from graphjit.backends.sycl.memory import meetings
from graphjit.schedule.flat import Run, flatten
from graphjit.schedule.host_calls import call_host
from graphjit.schedule.scalar_words import ScalarWords
from graphjit.schedule.schedule import Schedule

_REPLAYED = (shim.Executable, shim.Launch)


class SYCLExecutable(Executable):
    """A Schedule instantiated on a SYCL device.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    device : Device
        Where.
    backend : SYCLBackend
        Allocates and copies.
    inputs : {"auto", "copy", "rebind"}
        How arguments are bound; unless they are to be copied, in place.
    """

    def __init__(self, schedule: Schedule, device: Any, backend: Any, inputs: str) -> None:
        allocate = functools.partial(backend.allocate, device)
        self._schedule = schedule
        self._download = functools.partial(backend.download, device)
        self._copy_elements = functools.partial(backend.copy, device)
        self._note = functools.partial(backend.note, device)
        self._queue = runtime.address(device.index)
        self._scalar_words = ScalarWords(schedule.scalars)
        self._arena: Memory = allocate(schedule.arena.nbytes)
        self._slots: Memory = allocate(8 * schedule.words)
        shim.memset(self._queue, self._slots.address, 0, 8 * schedule.words)
        builder = GraphBuilder(schedule, device.index, self._arena, self._slots.address, allocate)
        self._items = [
            builder.executable(item.order) if isinstance(item, Run) else item
            for item in flatten(schedule, _is_apart)
        ]
        self._memory, self._kernels = builder.memory, builder.kept
        self._ring = shim.Ring(self._queue, 8 * schedule.slots)
        self._words = struct.Struct(f"<{schedule.slots}Q")
        self._static: list[tuple[int, Memory, Layout, bool]] = []
        if inputs == "copy" and not schedule.has_calls:
            for slot, layout, written in schedule.copyable_inputs():
                low, high = layout.extent
                self._static.append((slot, allocate(high - low), layout, written))
        self._turn = Turn("the replay of a graph")
        self._last: bytes | None = None
        self._last_queue = self._queue
        self._is_closed = False
        self._same = self._rebound = self._copied = 0

    def run(self, pointers: Pointers, scalars: Any, stream: Any) -> None:
        """Replay once on a queue; returns when the replay is queued."""
        words = self._scalar_words.of(scalars) if self._schedule.scalars else ()
        queue = stream or self._queue
        self._turn.enter()
        try:
            if self._is_closed:
                raise ClosedError("this compiled function was closed")
            if stream is not None:
                self._note(stream)
            given = pointers
            if self._static:
                pointers = [*pointers]
                for slot, memory, layout, _ in self._static:
                    memory.used_on(stream, True)
                    self._copy(layout, given[slot], memory.address, stream)
                    pointers[slot] = memory.address
            if queue != self._last_queue:
                shim.order(self._last_queue, queue)
                self._last_queue = queue
            values = self._words.pack(*pointers, self._arena.address, *words)
            self._count(values)
            self._play(values, queue)
            for slot, memory, layout, written in self._static:
                if written:
                    self._copy(layout, memory.address, given[slot], stream)
        finally:
            meetings.end()
            self._turn.leave()

    def _count(self, values: bytes) -> None:
        self._copied += bool(self._static)
        if values == self._last:
            self._same += 1
        else:
            self._rebound += 1

    def _play(self, values: bytes, queue: int) -> None:
        items, slots = self._items, self._slots.address
        if len(items) == 1 and isinstance(items[0], _REPLAYED):
            if values == self._last:
                items[0].replay(queue)
            else:
                items[0].write_and_replay(queue, slots, values, self._ring)
        else:
            if values != self._last:
                self._ring.write(queue, slots, values)
            self._jump(queue)
        self._last = values
        if self._schedule.indices:
            self._raise_failure(queue)

    def _jump(self, queue: int) -> None:
        """Launch and call what the slots say, one after the other."""
        items = self._items
        place = 0
        while place < len(items):
            item = items[place]
            place += 1
            if isinstance(item, _REPLAYED):
                item.replay(queue)
            elif isinstance(item, HostCall):
                self._call(item, queue)
            elif item.slot is None or self._word(item.slot, queue) != item.value:
                place = item.target

    def _word(self, slot: int, queue: int) -> int:
        word = ctypes.c_uint64()
        shim.memcpy(queue, ctypes.addressof(word), self._slots.address + 8 * slot, 8, True)
        return word.value

    def _raise_failure(self, queue: int) -> None:
        place = self._slots.address + 8 * self._schedule.failure
        words = (ctypes.c_int64 * 2)()
        shim.memcpy(queue, ctypes.addressof(words), place, 16, True)
        if words[0]:
            shim.memset(queue, place, 0, 16)
            raise self._schedule.index_error(words[0], words[1])

    def _call(self, call: HostCall, queue: int) -> None:
        words = np.empty(self._schedule.words, np.uint64)
        shim.memcpy(queue, words.ctypes.data, self._slots.address, words.nbytes, True)

        def read(address: int, layout: Layout) -> Any:
            return self._download(address, layout, queue)

        call_host(self._schedule, call, words.tobytes(), read)

    def _copy(self, layout: Layout, source: int, target: int, stream: Any) -> None:
        """Copy the elements of an argument from one lowest address to another."""
        low = layout.extent[0]
        self._copy_elements(source - low, layout, target - low, layout, stream)

    @property
    def nbytes(self) -> int:
        """Bytes of its temporaries and static inputs."""
        kept = [self._arena, *self._memory, *(memory for _, memory, _, _ in self._static)]
        return sum(memory.nbytes for memory in kept)

    def binding_stats(self) -> BindingStats:
        """How its calls were bound."""
        return BindingStats(self._same, 0, self._rebound, self._copied, 0, 1)

    def close(self) -> None:
        """Free the graphs; a second call does nothing."""
        self._is_closed = True
        self._items = []


def _is_apart(node: Any) -> bool:
    """Whether the host decides a node: no SYCL graph holds loops or branches."""
    return isinstance(node, (While, Switch, HostCall))
