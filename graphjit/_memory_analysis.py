"""How much memory a schedule uses, and how little it could be."""

from __future__ import annotations

from dataclasses import dataclass

from graphjit._nodes import View
from graphjit.schedule.memory import least_bytes, temporary_bytes
from graphjit.schedule.schedule import Schedule


@dataclass(frozen=True)
class MemoryAnalysis:
    """The memory of a compiled function, in bytes.

    Parameters
    ----------
    arguments, closures, results : int
        Arrays that a call is given, closes over and makes. What is computed once is closed over.
    arena : int
        What all temporaries take together.
    least : int
        The heaviest temporaries that may be in use together: no arena is smaller.
    unplanned : int
        What they would take if each had memory of its own.

    Examples
    --------
    >>> import graphjit as gj
    >>> gj.graphed(lambda x: x.copy()).lower(gj.zeros(4)).memory_analysis()
    MemoryAnalysis(arguments=32, closures=0, results=32, arena=0, least=0, unplanned=0)
    """

    arguments: int
    closures: int
    results: int
    arena: int
    least: int
    unplanned: int


def analyse(schedule: Schedule) -> MemoryAnalysis:
    """The memory that a call of a schedule uses."""
    graph = schedule.graph
    return MemoryAnalysis(
        arguments=sum(
            graph.buffers[each.buffer].nbytes for each in graph.inputs if isinstance(each, View)
        ),
        closures=sum(b.nbytes for b in graph.buffers if b.storage == "closure"),
        results=sum(graph.buffers[buffer].nbytes for buffer in graph.results),
        arena=schedule.arena.nbytes,
        least=least_bytes(graph, schedule.order),
        unplanned=temporary_bytes(graph, schedule.order),
    )
