"""Binding: the memory of one call, from its arguments to the pointers a replay takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphjit import backends
from graphjit._adoption import adopt
from graphjit._array import Array
from graphjit._aval import ArrayAval, Aval
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
    given : tuple of int
        Input and closure buffers, in the order of their pointers.
    closures : dict
        Arrays of the closure buffers.
    avals : tuple of ArrayAval or ScalarAval
        What the argument leaves are.
    device : Device
        Where the graph runs.
    """

    def __init__(
        self,
        graph: Graph,
        given: tuple[int, ...],
        closures: dict[int, Any],
        avals: tuple[Aval, ...],
        device: Device,
    ) -> None:
        self.device = device
        self.backend = backends.get(device.backend)
        self.on_host = device.backend == "cpu"
        self.mutated = graph.mutated
        self.given = given
        self.places = {buffer: place for place, buffer in enumerate((*given, *graph.results))}
        self.result_bytes = [graph.buffers[buffer].nbytes for buffer in graph.results]
        inputs = {
            value.buffer: leaf for leaf, value in enumerate(graph.inputs) if isinstance(value, View)
        }
        # Leaf of each input; closures, which come after the inputs, are always the same arrays.
        self._leaves = [inputs[buffer] for buffer in given if buffer in inputs]
        self._closures = [
            value if isinstance(value, np.ndarray) else adopt(value)
            for value in (closures[buffer] for buffer in given if buffer in closures)
        ]
        # What to add to the address of the first element to get the buffer's first byte.
        self._lows = [
            _layout(graph, buffer, inputs, self._closures, given).extent[0] for buffer in given
        ]
        self.sizes = [graph.buffers[buffer].nbytes for buffer in given]
        # Inputs and closures that may not be written: neither may what a call returns of them.
        self.readonly = {
            buffer
            for buffer, leaf in inputs.items()
            if isinstance(aval := avals[leaf], ArrayAval) and aval.readonly
        }
        self.readonly |= {
            buffer
            for buffer, value in closures.items()
            if (value._readonly if isinstance(value, Array) else not _writeable(value))
        }
        self._last: tuple[list[int], Overlaps] = ([], ())

    def bind(self, leaves: tuple[Any, ...], stream: Any) -> Call:
        """The memory of one call: arguments in place, host arrays uploaded, results allocated."""
        owners = [leaves[leaf] for leaf in self._leaves]
        owners += self._closures
        pointers = []
        uploads = False
        for owner, low in zip(owners, self._lows, strict=True):
            if type(owner) is Array:
                memory = owner._memory
                if memory.stream != stream:
                    memory.used_on(stream)
                pointers.append(owner._address + low)
            else:
                pointers.append(np.asarray(owner).ctypes.data + low)
                uploads = True
        overlaps: Overlaps = ()
        if self.mutated and len(pointers) > 1:
            overlaps = self.overlaps_of(pointers)
        call = Call(self, pointers, owners, overlaps)
        if uploads and not self.on_host:
            call.upload(self.sizes, stream)
        allocate, device = self.backend.allocate, self.device
        for nbytes in self.result_bytes:
            memory = allocate(device, nbytes, stream)
            owners.append(memory)
            pointers.append(memory.address)
        return call

    @property
    def is_direct(self) -> bool:
        """Whether closures need no upload, so that arguments on the device need nothing at all."""
        return self.on_host or all(type(closure) is Array for closure in self._closures)

    def inputs(self) -> list[tuple[int, int]]:
        """Leaf of each input, and what to add to its address."""
        return list(zip(self._leaves, self._lows, strict=False))

    def fixed_pointers(self) -> list[int]:
        """Pointers of the closures, which don't change while their guards hold."""
        lows = self._lows[len(self._leaves) :]
        return [
            (c._address if type(c) is Array else np.asarray(c).ctypes.data) + low
            for c, low in zip(self._closures, lows, strict=True)
        ]

    def note_streams(self, leaves: tuple[Any, ...], stream: Any) -> None:
        """Tell the memory of the given Arrays which stream works on it."""
        for leaf in self._leaves:
            memory = leaves[leaf]._memory
            if memory.stream != stream:
                memory.used_on(stream)
        for closure in self._closures:
            if isinstance(closure, Array) and closure._memory.stream != stream:
                closure._memory.used_on(stream)

    def overlaps_of(self, pointers: list[int]) -> Overlaps:
        """Which given buffers share memory; worked out once for the same pointers again."""
        last = self._last
        if pointers != last[0]:
            last = self._last = (list(pointers), self._overlaps(pointers))
        return last[1]

    def _overlaps(self, pointers: list[int]) -> Overlaps:
        """Groups of given buffers that share memory, where one of the group is written."""
        groups: list[tuple[int, list[int]]] = []
        spans = zip(pointers, self.sizes, self.given, strict=True)
        for start, nbytes, buffer in sorted(spans):
            if nbytes == 0:
                continue
            end = start + nbytes
            if groups and start < groups[-1][0]:
                groups[-1] = (max(groups[-1][0], end), [*groups[-1][1], buffer])
            else:
                groups.append((end, [buffer]))
        return tuple(
            tuple(sorted(members))
            for _, members in groups
            if len(members) > 1 and self.mutated.intersection(members)
        )


class Call:
    """The memory of one call.

    Parameters
    ----------
    binding : Binding
        What it belongs to.
    pointers : list of int
        First byte of each external buffer.
    owners : list
        What keeps each external buffer alive: Arrays, host arrays, Memory.
    overlaps : tuple
        Which given buffers share memory.
    """

    __slots__ = ("_binding", "_owners", "_staged", "overlaps", "pointers")

    def __init__(
        self, binding: Binding, pointers: list[int], owners: list[Any], overlaps: Overlaps
    ) -> None:
        self._binding = binding
        self.pointers = pointers
        self._owners = owners
        self.overlaps = overlaps
        self._staged: list[tuple[Memory, np.ndarray[Any, Any]]] = []

    def upload(self, sizes: list[int], stream: Any) -> None:
        """Copy the host arrays to the device, overlapping ones once, as the bytes they span."""
        binding = self._binding
        pending = sorted(
            (self.pointers[place], self.pointers[place] + sizes[place], place)
            for place, owner in enumerate(self._owners)
            if type(owner) is not Array
        )
        while pending:
            start, end, place = pending.pop(0)
            together = [(start, place)]
            while pending and pending[0][0] < end:
                first, last, place = pending.pop(0)
                together.append((first, place))
                end = max(end, last)
            raw = _bytes_at(start, end - start, [self._owners[place] for _, place in together])
            memory = binding.backend.allocate(binding.device, end - start, stream)
            binding.backend.upload(raw, memory.address, contiguous(raw.shape, _BYTE), stream)
            if any(binding.given[place] in binding.mutated for _, place in together):
                self._staged.append((memory, raw))
            for first, place in together:
                self.pointers[place] = memory.address + first - start
                # A view of a host argument that is returned is device memory of this call.
                self._owners[place] = memory

    def finish(self, stream: Any) -> None:
        """Write back the host arrays that a kernel wrote; this waits for the replay."""
        for memory, raw in self._staged:
            layout = contiguous(raw.shape, _BYTE)
            raw[...] = self._binding.backend.download(memory.address, layout, stream)

    def array(self, buffer: int, offset: int, aval: ArrayAval) -> Array:
        """A result: an Array over the memory of a view."""
        place = self._binding.places[buffer]
        owner, address = self._owners[place], self.pointers[place] + offset
        if type(owner) is Array:
            owner = owner._memory
        elif isinstance(owner, np.ndarray | np.void):
            binding = self._binding
            owner = binding.backend.adopt(
                binding.device, self.pointers[place], binding.sizes[place], owner
            )
        return Array(owner, address, aval)


def _layout(
    graph: Graph,
    buffer: int,
    inputs: dict[int, int],
    closures: list[Any],
    given: tuple[int, ...],
) -> Layout:
    """The layout of an input or a closure."""
    if buffer in inputs:
        view = graph.inputs[inputs[buffer]]
        assert isinstance(view, View)
        return view.layout
    value = closures[given.index(buffer) - sum(b in inputs for b in given)]
    if isinstance(value, np.ndarray):
        return Layout(value.shape, value.strides, value.dtype)
    assert isinstance(value, Array)
    return value._layout


def _writeable(value: Any) -> bool:
    return bool(value.flags.writeable) if isinstance(value, np.ndarray) else True


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
