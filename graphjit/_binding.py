"""Binding: the memory of one call, from its arguments to the pointers a replay takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphjit import backends
from graphjit._array import Array, adopt
from graphjit._graph import Graph, View
from graphjit._layout import Layout, contiguous
from graphjit.backends.base import Device, Memory

# Groups of external buffers that share memory, by buffer index.
Overlaps = tuple[tuple[int, ...], ...]
_BYTE = np.dtype(np.uint8)


class Binding:
    """How the arguments and closures of one graph become pointers.

    Parameters
    ----------
    graph : Graph
        The program.
    externals : tuple of int
        Buffers that need a pointer, in order: inputs and closures, then results.
    closures : dict
        Arrays of the closure buffers.
    device : Device
        Where the graph runs.
    """

    def __init__(
        self, graph: Graph, externals: tuple[int, ...], closures: dict[int, Any], device: Device
    ) -> None:
        self.graph = graph
        self.device = device
        self.backend = backends.get(device.backend)
        self.results = graph.results
        self._sources: list[tuple[int, int, Any]] = []
        inputs = {
            value.buffer: leaf for leaf, value in enumerate(graph.inputs) if isinstance(value, View)
        }
        self._mutated = graph.mutated
        self.given = externals[: len(externals) - len(self.results)]
        for buffer in self.given:
            closure = closures.get(buffer)
            if closure is not None and not isinstance(closure, np.ndarray):
                closure = adopt(closure)
            self._sources.append((buffer, inputs.get(buffer, -1), closure))
        self._last: tuple[tuple[int, ...], Overlaps] = ((), ())

    def bind(self, leaves: tuple[Any, ...], stream: Any) -> Call:
        """The memory of one call: arguments in place, host arrays uploaded, results allocated."""
        call = Call(self, stream)
        spans = []
        for buffer, leaf, closure in self._sources:
            value = closure if leaf < 0 else leaves[leaf]
            spans.append(call.add(buffer, value))
        call.upload(stream)
        if self._mutated:
            starts = tuple(start for start, _ in spans)
            if starts != self._last[0]:
                self._last = (starts, self._overlaps(spans))
            call.overlaps = self._last[1]
        return call

    def _overlaps(self, spans: list[tuple[int, int]]) -> Overlaps:
        """Groups of given buffers that share memory, where one of the group is written."""
        groups: list[tuple[int, list[int]]] = []
        for (start, end), buffer in sorted(zip(spans, self.given, strict=True)):
            if end == start:
                continue
            if groups and start < groups[-1][0]:
                groups[-1] = (max(groups[-1][0], end), [*groups[-1][1], buffer])
            else:
                groups.append((end, [buffer]))
        return tuple(
            tuple(sorted(members))
            for _, members in groups
            if len(members) > 1 and self._mutated.intersection(members)
        )


class Call:
    """The memory of one call.

    Parameters
    ----------
    binding : Binding
        What it belongs to.
    stream : object
        The stream it launches on.
    """

    def __init__(self, binding: Binding, stream: Any) -> None:
        self._binding = binding
        self.overlaps: Overlaps = ()
        self.pointers: list[int] = []
        self._owners: dict[int, tuple[Any, int]] = {}
        self._hosts: list[tuple[int, int, np.ndarray[Any, Any], int, int]] = []
        self._staged: list[tuple[Memory, np.ndarray[Any, Any], bool]] = []
        self._stream = stream

    def add(self, buffer: int, value: Any) -> tuple[int, int]:
        """Note the array of a given buffer; its first and one past its last byte."""
        if isinstance(value, Array):
            low, high = value._layout.extent
            start = value._address + low
            self._owners[buffer] = (value, start)
            self.pointers.append(start)
            return start, start + high - low
        host = np.asarray(value)  # a record becomes a 0-d array
        low, high = _extent(host)
        start = host.ctypes.data + low
        if self._binding.device.backend != "cpu":
            self._hosts.append((len(self.pointers), buffer, host, start, start + high - low))
        self._owners[buffer] = (host, start)
        self.pointers.append(start)
        return start, start + high - low

    def upload(self, stream: Any) -> None:
        """Copy host arrays to the device, overlapping ones once, and allocate the results."""
        binding = self._binding
        pending = sorted(self._hosts, key=lambda item: item[3])
        while pending:
            together = [pending.pop(0)]
            end = together[0][4]
            while pending and pending[0][3] < end:
                together.append(pending.pop(0))
                end = max(end, together[-1][4])
            start = together[0][3]
            raw = _bytes_at(start, end - start, [item[2] for item in together])
            memory = binding.backend.allocate(binding.device, end - start, stream)
            layout = contiguous((end - start,), _BYTE)
            binding.backend.upload(raw, memory.address, layout, stream)
            written = any(item[1] in binding._mutated for item in together)
            self._staged.append((memory, raw, written))
            for index, buffer, _, first, _ in together:
                address = memory.address + first - start
                self.pointers[index] = address
                # A view of a host argument that is returned: device memory of this call.
                self._owners[buffer] = (memory, address)
        for buffer in binding.results:
            memory = binding.backend.allocate(
                binding.device, binding.graph.buffers[buffer].nbytes, stream
            )
            self._owners[buffer] = (memory, memory.address)
            self.pointers.append(memory.address)

    def finish(self, stream: Any) -> None:
        """Write back the host arrays that a kernel wrote; this waits for the replay."""
        for memory, raw, written in self._staged:
            if written:
                layout = contiguous(raw.shape, _BYTE)
                raw[...] = self._binding.backend.download(memory.address, layout, stream)

    def array(self, view: View) -> Array:
        """A result: an Array over the memory of a view."""
        owner, start = self._owners[view.buffer]
        device = self._binding.device
        if isinstance(owner, Array):
            return Array(owner._memory, start + view.offset, view.layout, device, owner._readonly)
        if isinstance(owner, np.ndarray):
            nbytes = self._binding.graph.buffers[view.buffer].nbytes
            owner = self._binding.backend.adopt(device, start, nbytes, owner)
        return Array(owner, start + view.offset, view.layout, device)


def _extent(host: np.ndarray[Any, Any]) -> tuple[int, int]:
    return Layout(host.shape, host.strides, host.dtype).extent


class _Bytes:
    """Presents raw host memory to NumPy and keeps its owners alive."""

    def __init__(self, address: int, nbytes: int, owners: list[Any]) -> None:
        self.owners = owners
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
        }


def _bytes_at(address: int, nbytes: int, owners: list[Any]) -> np.ndarray[Any, Any]:
    return np.asarray(_Bytes(address, nbytes, owners))
