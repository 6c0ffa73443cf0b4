"""Graphs that the host launches one after the other, with calls of Python in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.bindings import driver
from numba.cuda import types

from graphjit._device_control import HostCall, Switch, While, every
from graphjit._layout import Layout, contiguous
from graphjit._locks import Turn
from graphjit.backends.cuda.builder import GraphBuilder
from graphjit.backends.cuda.calls import launch
from graphjit.backends.cuda.driver import check
from graphjit.backends.cuda.instances import Instances, Key, Words
from graphjit.backends.cuda.nodes import Instance
from graphjit.schedule.hazards import Hazards
from graphjit.schedule.host_calls import call_host
from graphjit.schedule.order import Order
from graphjit.schedule.schedule import Schedule

# Copies elements to the host: from an address, of a layout, in the order of a stream.
Download = Callable[[int, Layout, Any], "np.ndarray[Any, Any]"]


@dataclass
class _Jump:
    """Goes on at `target`, unless a slot (if there is one) holds the value."""

    target: int
    slot: int | None = None
    value: int = 0


class HostProgram:
    """What the host launches and calls, once a call's pointers are in the slots.

    Parameters
    ----------
    schedule : Schedule
        What to run.
    builder : GraphBuilder
        Makes the graphs.
    download : callable
        Copies elements to the host.
    """

    def __init__(self, schedule: Schedule, builder: GraphBuilder, download: Download) -> None:
        self._schedule, self._builder, self._download = schedule, builder, download
        self._items: list[_Jump | HostCall | Instance] = []
        self._graphs: list[Any] = []
        self._turn = Turn("the replay of a graph")
        self._words = contiguous((schedule.words,), np.dtype(np.uint64))
        try:
            self._add(schedule.order)
        except BaseException:
            self.close()
            raise

    def run(self, first: Instances, pointers: Words, scalars: Key, stream: Any) -> None:
        """Launch and call everything; returns when what comes after the last call is queued.

        Parameters
        ----------
        first : Instances
            The graph that writes the slots.
        pointers, scalars
            As `Instances.launch`.
        stream : int or None
            The stream.
        """
        self._turn.enter()
        try:
            first.launch(pointers, scalars, stream)
            place, items = 0, self._items
            while place < len(items):
                item = items[place]
                place += 1
                if isinstance(item, Instance):
                    error = launch(item.address, int(stream or 0))
                    if error:
                        check((driver.CUresult(error),), "launching a graph")
                elif isinstance(item, HostCall):
                    self._call(item, stream)
                elif item.slot is None or self._slots(stream)[item.slot] != item.value:
                    place = item.target
        finally:
            self._turn.leave()

    def close(self) -> None:
        """Destroy the graphs; a second call does nothing."""
        items, self._items = self._items, []
        graphs, self._graphs = self._graphs, []
        for item in items:
            if isinstance(item, Instance):
                item.destroy()
        for graph in graphs:
            driver.cuGraphDestroy(graph)

    def _call(self, call: HostCall, stream: Any) -> None:
        def read(address: int, layout: Layout) -> Any:
            return self._download(address, layout, stream)

        call_host(self._schedule, call, self._slots(stream).tobytes(), read)

    def _slots(self, stream: Any) -> Any:
        """What the slots hold, once all that was launched is done."""
        return self._download(self._builder.slots, self._words, stream)

    def _add(self, order: Order) -> None:
        """Add nodes: runs of those that call nothing as graphs."""
        first = 0
        for index, node in enumerate(order.nodes):
            if any(isinstance(each, HostCall) for each in every([node])):
                self._add_graph(order, first, index)
                first = index + 1
                if isinstance(node, While):
                    self._add_loop(node, order.bodies[index][0])
                elif isinstance(node, Switch):
                    self._add_switch(node, order.bodies[index])
                else:
                    assert isinstance(node, HostCall)
                    self._items.append(node)
        self._add_graph(order, first, len(order.nodes))

    def _add_graph(self, order: Order, first: int, end: int) -> None:
        """Add the graph of some nodes that follow each other."""
        if first == end:
            return
        inside = range(first, end)
        edges = tuple(
            (before - first, after - first)
            for before, after in order.hazards.edges
            if before in inside and after in inside
        )
        part = Order(order.nodes[first:end], Hazards(edges, ()), order.bodies[first:end])
        graph = self._builder.part(part)
        self._graphs.append(graph)
        made = check(driver.cuGraphInstantiate(graph, 0), "instantiating a graph")
        self._items.append(Instance(made))

    def _add_loop(self, node: While, body: Order) -> None:
        start = len(self._items)
        test = _Jump(0, self._schedule.slot(node.test, types.boolean), 1)
        self._items.append(test)
        self._add(body)
        self._items.append(_Jump(start))
        test.target = len(self._items)

    def _add_switch(self, node: Switch, bodies: tuple[Order, ...]) -> None:
        ends, slot = [], self._schedule.slot(node.index, types.int64)
        for value, body in enumerate(bodies):
            test = _Jump(0, slot, value)
            self._items.append(test)
            self._add(body)
            ends.append(_Jump(0))
            self._items.append(ends[-1])
            test.target = len(self._items)
        for end in ends:
            end.target = len(self._items)
