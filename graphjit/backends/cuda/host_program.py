"""Graphs that the host launches one after the other, with calls of Python in between."""

from __future__ import annotations

from collections.abc import Callable
from sys import is_finalizing
from typing import Any

import numpy as np
from cuda.bindings import driver

from graphjit._device_control import HostCall, every
from graphjit._layout import Layout, contiguous
from graphjit._locks import Turn
from graphjit.backends.cuda.builder import GraphBuilder
from graphjit.backends.cuda.calls import launch
from graphjit.backends.cuda.driver import check
from graphjit.backends.cuda.instances import Instances, Key, Words
from graphjit.backends.cuda.nodes import Instance
from graphjit.schedule.flat import Jump, Run, flatten
from graphjit.schedule.host_calls import call_host
from graphjit.schedule.order import Order
from graphjit.schedule.schedule import Schedule

# Copies elements to the host: from an address, of a layout, in the order of a stream.
Download = Callable[[int, Layout, Any], "np.ndarray[Any, Any]"]


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
        self._items: list[Jump | HostCall | Instance] = []
        self._graphs: list[Any] = []
        self._turn = Turn("the replay of a graph")
        self._words = contiguous((schedule.words,), np.dtype(np.uint64))
        try:
            for item in flatten(schedule, _calls_host):
                self._items.append(self._graph(item.order) if isinstance(item, Run) else item)
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

    def __del__(self) -> None:
        # By then the driver's functions are gone, as names of modules are, and all else goes.
        if is_finalizing is not None and not is_finalizing():
            self.close()

    def _call(self, call: HostCall, stream: Any) -> None:
        def read(address: int, layout: Layout) -> Any:
            return self._download(address, layout, stream)

        call_host(self._schedule, call, self._slots(stream).tobytes(), read)

    def _slots(self, stream: Any) -> Any:
        """What the slots hold, once all that was launched is done."""
        return self._download(self._builder.slots, self._words, stream)

    def _graph(self, order: Order) -> Instance:
        """The graph of some nodes that follow each other."""
        graph = self._builder.part(order)
        self._graphs.append(graph)
        return Instance(check(driver.cuGraphInstantiate(graph, 0), "instantiating a graph"))


def _calls_host(node: Any) -> bool:
    return any(isinstance(each, HostCall) for each in every([node]))
