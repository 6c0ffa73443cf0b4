"""Results of unrolled loops get buffers of their own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from graphjit._graph import Graph
from graphjit._nodes import Access, Buffer, Copy, Fill, Launch, Operand, ScalarRef, View, Work


def with_own_results(graph: Graph, born: Mapping[int, tuple[int, int]]) -> Graph:
    """The graph with results in buffers that no other iteration uses: each call brings new ones.

    Parameters
    ----------
    graph : Graph
        Nothing but pieces of work.
    born : mapping of int to (int, int)
        Where what a buffer holds in the end begins: the node, and the version before it.

    Returns
    -------
    Graph
    """
    moved: dict[int, tuple[int, int, int]] = {}
    buffers, nodes = list(graph.buffers), list(graph.nodes)
    for output in graph.outputs:
        if isinstance(output, Access) and output.view.buffer in born:
            buffer = output.view.buffer
            node, version = born[buffer]
            if version and buffer not in moved:
                like = buffers[buffer]
                moved[buffer] = len(buffers), node, version
                name = f"{like.name}.result"
                buffers.append(Buffer(len(buffers), "temporary", like.nbytes, name))

    def renamed(view: View, place: int) -> tuple[View, int]:
        new, node, version = moved.get(view.buffer, (0, len(nodes) + 1, 0))
        if place < node:
            return view, 0
        return dataclasses.replace(view, buffer=new), version

    def access(old: Access, place: int) -> Access:
        view, version = renamed(old.view, place)
        return Access(view, old.version - version)

    def operand(old: Operand, place: int) -> Operand:
        return renamed(old, place)[0] if isinstance(old, View) else old

    first = min((node for _, node, _ in moved.values()), default=len(nodes))
    for place in range(first, len(nodes)):
        work = nodes[place]
        assert isinstance(work, Work)
        nodes[place] = rebuilt(
            work,
            functools.partial(operand, place=place),
            [access(each, place) for each in work.reads],
            [access(each, place) for each in work.writes],
        )
    outputs: tuple[Access | ScalarRef, ...] = tuple(
        access(each, len(nodes)) if isinstance(each, Access) else each for each in graph.outputs
    )
    return dataclasses.replace(graph, buffers=tuple(buffers), nodes=tuple(nodes), outputs=outputs)


def rebuilt(
    work: Work, operand: Callable[[Operand], Operand], reads: list[Access], writes: list[Access]
) -> Work:
    """The same work on other operands."""
    if isinstance(work, Launch):
        return dataclasses.replace(
            work,
            operands=tuple(map(operand, work.operands)),
            reads=tuple(dict.fromkeys(reads)),
            writes=tuple(dict.fromkeys(writes)),
        )
    if isinstance(work, Copy):
        return Copy(reads[0], writes[0], work.location)
    value = operand(work.value)
    assert not isinstance(value, View)
    return Fill(value, writes[0], work.location)
