"""CUDAExecutable: a Schedule as an explicit CUDA graph, repointed in place."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from cuda.bindings import driver

from graphjit._layout import Layout
from graphjit._memory import Memory
from graphjit._options import Options
from graphjit.backends.binding_stats import BindingStats
from graphjit.backends.cuda.builder import GraphBuilder
from graphjit.backends.cuda.driver import activate, check
from graphjit.backends.cuda.failures import note_launch
from graphjit.backends.cuda.host_program import HostProgram
from graphjit.backends.cuda.instances import Instances
from graphjit.backends.cuda.nodes import StaticInput
from graphjit.backends.executable import Executable, Pointers
from graphjit.schedule.scalar_words import ScalarWords
from graphjit.schedule.schedule import Schedule


class CUDAExecutable(Executable):
    """A Schedule instantiated on a CUDA device.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    device : Device
        Where.
    memory : callable
        Allocates device memory: from a number of bytes to a Memory.
    copy : callable
        Copies elements: source, its layout, target, its layout, stream.
    download : callable
        Copies elements to the host: source, its layout, stream.
    options : Options
        How arguments are bound, and whether kernels are launched before those they wait for end.
    """

    def __init__(
        self,
        schedule: Schedule,
        device: Any,
        memory: Any,
        copy: Any,
        download: Any,
        options: Options,
    ) -> None:
        activate(device.index)
        self._schedule = schedule
        self._arena = memory(schedule.arena.nbytes) if schedule.arena.nbytes else Memory(0, 0, None)
        self._has_scalars = bool(schedule.scalars)
        self._scalar_words = ScalarWords(schedule.scalars)
        early = "programmatic_launch" in options.optimize
        built = GraphBuilder(schedule, self._arena, memory, early)
        self._kept: list[Any] = built.kept
        self._program: Any = None
        # Where replays say which index was out of bounds.
        self._watched: Any = built.memory[0] if schedule.indices else None
        try:
            if schedule.has_calls:
                self._program = HostProgram(schedule, built, download)
            self._instances = Instances(
                device.index,
                built.graph,
                built.nodes,
                schedule.slots - 1,
                [self._arena, *built.memory],
                memory,
                tuple(self._static_inputs(copy)),
                # A copy would be copied back before the host has launched all that writes it.
                "rebind" if schedule.has_calls else options.inputs,
                # The handles of loops and branches are those of one instance.
                is_only=schedule.has_state,
            )
        except BaseException:
            if self._program is not None:
                self._program.close()
            driver.cuGraphDestroy(built.graph)
            raise

    def run(self, pointers: Pointers, scalars: Any, stream: Any) -> None:
        """Replay once on a stream; returns when the replay is queued."""
        words = self._scalar_words.of(scalars) if self._has_scalars else ()
        if self._program is None:
            self._instances.launch(pointers, words, stream)
        else:
            self._program.run(self._instances, pointers, words, stream)
        if self._watched is not None:
            note_launch(self._schedule, self._watched)

    @property
    def nbytes(self) -> int:
        """Bytes of its temporaries and static inputs."""
        return sum(memory.nbytes for memory in self._instances.memory())

    def binding_stats(self) -> BindingStats:
        """How its calls were bound."""
        return self._instances.stats()

    def close(self) -> None:
        """Destroy the graph; a second call does nothing."""
        self._instances.close()
        if self._program is not None:
            self._program.close()

    def _static_inputs(self, copy: Any) -> Iterator[StaticInput]:
        """The arguments that may be copied."""
        for slot, layout, written in self._schedule.copyable_inputs():
            low, high = layout.extent
            copied = functools.partial(_copy_input, copy, layout)
            yield StaticInput(slot, high - low, copied, written)


def _copy_input(copy: Any, layout: Layout, source: int, target: int, stream: Any) -> None:
    """Copy the elements of an argument from one lowest address to another."""
    if layout.is_contiguous:
        copied = driver.cuMemcpyDtoDAsync(target, source, layout.nbytes, stream or 0)
        check(copied, "copying an argument")
    else:
        low = layout.extent[0]
        copy(source - low, layout, target - low, layout, stream)
