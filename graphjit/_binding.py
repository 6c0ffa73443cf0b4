"""Binding: how the arguments and closures of one graph become arrays on its device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphjit import backends
from graphjit._adoption import adopt, host_aval
from graphjit._array import Array
from graphjit._aval import ArrayAval, Aval
from graphjit._graph import Graph
from graphjit._inputs import Input
from graphjit._layout import Layout, contiguous, layout_of
from graphjit._memory import Handle, Memory
from graphjit._nodes import View
from graphjit._replay import Overlaps
from graphjit.backends.base import Device

_BYTE = np.dtype(np.uint8)
# Sets of pointers whose overlaps are remembered.
_MAX_KNOWN = 64

# A closed-over array, what to add to its address to get the lowest, and whether it is written.
Closure = tuple[Handle, int, bool]


class Binding:
    """How the arguments and closures of one graph become arrays on its device.

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
        self._mutated = graph.mutated
        self._given = given
        self._known: dict[tuple[int, ...], Overlaps] = {}
        self.sizes = tuple(graph.buffers[buffer].nbytes for buffer in given)
        leaves = {
            value.buffer: leaf for leaf, value in enumerate(graph.inputs) if isinstance(value, View)
        }
        # Closures come after the inputs, and are always the same arrays.
        inputs = [buffer for buffer in given if buffer in leaves]
        self.inputs = tuple(
            Input(
                leaves[b],
                _input_layout(graph, leaves[b]).extent[0],
                b in self._mutated,
                graph.buffers[b].name,
            )
            for b in inputs
        )
        self._closed_over: list[Any] = [
            value if isinstance(value, np.ndarray) else adopt(value)
            for value in (closures[buffer] for buffer in given if buffer in closures)
        ]
        self._closure_lows = [
            (a._layout if isinstance(a, Array) else layout_of(a)).extent[0]
            for a in self._closed_over
        ]
        self._closure_written = [b in self._mutated for b in given if b in closures]
        # Where a result that is a view of an argument or closure finds it.
        self.input_of = {buffer: self.inputs[place] for place, buffer in enumerate(inputs)}
        self.closure_of = {
            buffer: (place, self._closure_lows[place])
            for place, buffer in enumerate(b for b in given if b in closures)
        }
        # Inputs and closures that may not be written: neither may what a call returns of them.
        self.readonly = {
            buffer
            for buffer, leaf in leaves.items()
            if isinstance(aval := avals[leaf], ArrayAval) and aval.readonly
        }
        self.readonly |= {
            buffer
            for buffer, value in closures.items()
            if (value._readonly if isinstance(value, Array) else not _writeable(value))
        }
        # Closures that must be uploaded at each call; on the CPU they are used in place.
        self.uploads_closures = device.backend != "cpu" and any(
            isinstance(value, np.ndarray) for value in self._closed_over
        )
        self.overlaps = self._overlaps if self._mutated and len(given) > 1 else None

    def closures(self) -> tuple[Closure, ...]:
        """The closed-over arrays, where none is uploaded at each call."""
        return self._with_lows(
            value if isinstance(value, Array) else adopt(value, self.device)
            for value in self._closed_over
        )

    def stage(self, leaves: tuple[Any, ...], stream: Any) -> Staged:
        """The arguments and closures as arrays on the device, host arrays among them uploaded."""
        hosts = [
            (leaves[item.leaf], item.low, item.written)
            for item in self.inputs
            if not isinstance(leaves[item.leaf], Array)
        ]
        closed = self._closed_over if self.uploads_closures else []
        hosts += [
            (value, low, written)
            for value, low, written in zip(
                closed, self._closure_lows, self._closure_written, strict=False
            )
            if not isinstance(value, Array)
        ]
        staged = Staged(self, hosts, stream)
        arrays = iter(staged.arrays)
        on_device = list(leaves)
        for item in self.inputs:
            if not isinstance(leaves[item.leaf], Array):
                on_device[item.leaf] = next(arrays)
        staged.leaves = tuple(on_device)
        if self.uploads_closures:
            staged.closures = self._with_lows(
                value if isinstance(value, Array) else next(arrays) for value in closed
            )
        return staged

    def duplicate(self, address: int, nbytes: int, stream: Any) -> Memory:
        """A copy of some bytes on the device."""
        memory: Memory = self.backend.allocate(self.device, nbytes, stream)
        layout = contiguous((nbytes,), _BYTE)
        self.backend.copy(self.device, address, layout, memory.address, layout, stream)
        return memory

    def _with_lows(self, arrays: Iterable[Any]) -> tuple[Closure, ...]:
        return tuple(zip(arrays, self._closure_lows, self._closure_written, strict=True))

    def _overlaps(self, pointers: tuple[int, ...]) -> Overlaps:
        """Which given buffers share memory; worked out once for the same pointers again."""
        found = self._known.get(pointers)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known = {}
            found = self._known[pointers] = self._find_overlaps(pointers)
        return found

    def _find_overlaps(self, pointers: tuple[int, ...]) -> Overlaps:
        """Groups of given buffers that share memory, where one of the group is written."""
        groups: list[tuple[int, list[int]]] = []
        spans = zip(pointers, self.sizes, self._given, strict=True)
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
            if len(members) > 1 and self._mutated.intersection(members)
        )


class Staged:
    """Host arrays of one call, as arrays on the device.

    Parameters
    ----------
    binding : Binding
        What it belongs to.
    hosts : list of (numpy.ndarray or numpy.void, int, bool)
        Each with its distance to its lowest address, and whether it is written.
    stream : int or None
        The stream of the call.
    """

    leaves: tuple[Any, ...] = ()
    closures: tuple[Closure, ...] | None = None

    def __init__(self, binding: Binding, hosts: list[tuple[Any, int, bool]], stream: Any) -> None:
        self._binding = binding
        self._written: list[tuple[Memory, np.ndarray[Any, Any]]] = []
        self._stream = stream
        avals = [host_aval(host, binding.device) for host, _, _ in hosts]
        if binding.device.backend == "cpu":
            self.arrays = [
                _in_place(host, aval, binding)
                for (host, _, _), aval in zip(hosts, avals, strict=True)
            ]
        else:
            self.arrays = self._upload(hosts, avals)

    def _upload(self, hosts: list[tuple[Any, int, bool]], avals: list[ArrayAval]) -> list[Array]:
        """Copy the host arrays to the device, overlapping ones once, as the bytes they span."""
        binding = self._binding
        arrays: dict[int, Array] = {}
        pending = []
        for place, (host, _, _) in enumerate(hosts):
            low, high = avals[place].layout.extent
            address = np.asarray(host).ctypes.data
            pending.append((address + low, address + high, place))
        pending.sort()
        while pending:
            start, end, place = pending.pop(0)
            together = [(start, place)]
            while pending and pending[0][0] < end:
                first, last, place = pending.pop(0)
                together.append((first, place))
                end = max(end, last)
            raw = _bytes_at(start, end - start, [hosts[place][0] for _, place in together])
            memory = binding.backend.allocate(binding.device, end - start, self._stream)
            layout = contiguous(raw.shape, _BYTE)
            binding.backend.upload(binding.device, raw, memory.address, layout, self._stream)
            if any(hosts[place][2] for _, place in together):
                self._written.append((memory, raw))
            for first, place in together:
                lowest = memory.address + first - start
                low = avals[place].layout.extent[0]
                arrays[place] = Array(memory, lowest - low, avals[place])
        return [arrays[place] for place in range(len(hosts))]

    def finish(self) -> None:
        """Write back the host arrays that a kernel wrote; this waits for the replay."""
        for memory, raw in self._written:
            layout = contiguous(raw.shape, _BYTE)
            download = self._binding.backend.download
            raw[...] = download(self._binding.device, memory.address, layout, self._stream)


def _input_layout(graph: Graph, leaf: int) -> Layout:
    view = graph.inputs[leaf]
    assert isinstance(view, View)
    return view.layout


def _in_place(host: Any, aval: ArrayAval, binding: Binding) -> Array:
    """A host array or structured scalar on the CPU backend, as an array over the same memory."""
    adopted = adopt(host, binding.device)
    if adopted is not None:
        return adopted
    low, high = aval.layout.extent
    address = np.asarray(host).ctypes.data
    memory = binding.backend.adopt(binding.device, address + low, high - low, host)
    return Array(memory, address, aval)


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
