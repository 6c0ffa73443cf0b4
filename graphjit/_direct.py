"""The short way through a call: arrays and numbers by position, and nothing on the host to upload.

It does what `Compiled.run` does, with everything that is the same at each call worked out before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphjit import _scalars
from graphjit._array import Array
from graphjit._aval import ArrayAval
from graphjit._binding import Binding, Overlaps
from graphjit._graph import Scalar

# One leaf of a result: from the arguments, the result buffers and the scalars.
Result = Callable[[tuple[Any, ...], Sequence[Any], Sequence[Any]], Any]


class DirectCall:
    """A compiled function for arguments that are all Arrays and numbers.

    Parameters
    ----------
    binding : Binding
        How arguments become pointers; `Binding.is_direct` is true.
    scalars : tuple of Scalar
        The graph's scalars.
    scalar_inputs : tuple of int
        Arguments that are scalars.
    results : tuple of callable
        What makes each leaf of the result.
    executable : callable
        The executable for arguments that overlap in a given way.
    unflatten : callable or None
        From the leaves to the result; None if the one leaf is the result.
    """

    def __init__(
        self,
        binding: Binding,
        scalars: tuple[Scalar, ...],
        scalar_inputs: tuple[int, ...],
        results: tuple[Result, ...],
        executable: Callable[[Overlaps], Any],
        unflatten: Callable[[list[Any]], Any] | None,
    ) -> None:
        self._binding = binding
        self._inputs = binding.inputs()
        self._fixed = binding.fixed_pointers()
        self._watched = bool(binding.mutated) and len(binding.given) > 1
        self._has_streams = binding.device.backend != "cpu"
        self._allocate = binding.backend.allocate
        self._device = binding.device
        self._result_bytes = binding.result_bytes
        self._scalars = scalars
        self._scalar_inputs = scalar_inputs
        self._results = results
        self._only = results[0] if unflatten is None else None
        self._unflatten = unflatten
        self._executable = executable
        self._run = executable(()).run

    def __call__(self, args: tuple[Any, ...], stream: Any) -> Any:
        """Replay.

        Parameters
        ----------
        args : tuple
            Arrays and numbers, of the avals and classes it was made for.
        stream : object
            The stream to launch on.
        """
        pointers = [args[leaf]._address + low for leaf, low in self._inputs]
        pointers += self._fixed
        if self._has_streams:
            self._binding.note_streams(args, stream)
        run = self._run
        if self._watched:
            overlaps = self._binding.overlaps_of(pointers)
            if overlaps:
                run = self._executable(overlaps).run
        scalars: Sequence[Any] = ()
        if self._scalars:
            scalars = _scalars.evaluate(self._scalars, [args[i] for i in self._scalar_inputs])
        allocate, device = self._allocate, self._device
        made = [allocate(device, nbytes, stream) for nbytes in self._result_bytes]
        for memory in made:
            pointers.append(memory.address)
        run(pointers, scalars, stream)
        if self._only is not None:
            return self._only(args, made, scalars)
        assert self._unflatten is not None
        return self._unflatten([result(args, made, scalars) for result in self._results])


def fresh_array(index: int, offset: int, aval: ArrayAval) -> Result:
    """A result that is a view of a buffer made for this call."""
    return lambda args, made, scalars: Array(made[index], made[index].address + offset, aval)
