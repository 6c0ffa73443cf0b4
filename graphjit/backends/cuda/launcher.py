"""What launches a Schedule on a GPU.

Compiled where there is a C compiler (see `setup.py`).
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from graphjit._errors import ClosedError
from graphjit._locks import Turn
from graphjit._memory import Memory
from graphjit.backends.base import BindingStats
from graphjit.backends.cuda.calls import launch_kernel, load
from graphjit.backends.cuda.driver import activate, check
from graphjit.backends.cuda.image import BoundImage
from graphjit.backends.executable import Pointers

NO_CONTEXT = int(driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)
_no_context = NO_CONTEXT
# Named, since Cython takes the bare type for one of C in signatures of compiled functions.
Words = tuple[int, ...]


class Launcher:
    """Binds and launches; the turn is taken by whoever does.

    Parameters
    ----------
    device : int
        The GPU's number.
    memory : list of Memory
        What replays use besides arguments and results: on different streams they must not overlap.
    """

    __slots__ = ("__weakref__", "_device", "_handle", "_memory", "_stream", "_turn")

    def __init__(self, device: int, memory: list[Memory]) -> None:
        self._turn = Turn("the replay of a graph")
        load()
        self._device = device
        self._memory = memory
        self._stream: Any = None
        self._handle = 0

    def launch(self, pointers: Pointers, scalars: Words, stream: Any) -> None:
        """Replay once; returns when the replay is queued.

        Parameters
        ----------
        pointers : list of int
            The first slots: arguments, closures and results. It is kept.
        scalars : tuple of int
            The last slots.
        stream : int or None
            The stream.
        """
        raise NotImplementedError

    def stats(self) -> BindingStats:
        """How the calls were bound."""
        raise NotImplementedError

    def memory(self) -> list[Memory]:
        """The memory that replays use besides arguments and results."""
        return self._memory

    def close(self) -> None:
        """Destroy what it launches; a second call does nothing."""
        raise NotImplementedError

    def _change_stream(self, stream: Any) -> None:
        """Order this stream's replays after those of the one before: they share the memory."""
        if stream != self._stream:
            for memory in self._memory:
                memory.used_on(stream, True)
            self._handle = 0 if stream is None else int(stream)
        self._stream = stream


class SingleLaunch(Launcher):
    """A graph of one kernel: launching that costs the driver less, and needs no repointing.

    Parameters
    ----------
    device : int
        The GPU's number.
    memory : list of Memory
        As for Launcher.
    image : BoundImage
        The kernel's parameters.
    params : CUDA_KERNEL_NODE_PARAMS
        The kernel and its grid, block and shared memory.
    name : str
        The kernel's name, for messages.
    """

    __slots__ = ("_image", "_kernel", "_last", "_name", "rebound", "same")

    def __init__(
        self, device: int, memory: list[Memory], image: BoundImage, params: Any, name: str
    ) -> None:
        Launcher.__init__(self, device, memory)
        self._image = image
        grid = (params.gridDimX, params.gridDimY, params.gridDimZ)
        block = (params.blockDimX, params.blockDimY, params.blockDimZ)
        self._kernel: Any = (
            int(params.func),
            *grid,
            *block,
            params.sharedMemBytes,
            image.address,
        )
        self._name = name
        self._last: Any = None
        self.same = self.rebound = 0

    def launch(self, pointers: Pointers, scalars: Words, stream: Any) -> None:
        """As `Launcher.launch`."""
        self._turn.enter()
        try:
            if stream is not self._stream:
                self._change_stream(stream)
            if self._kernel is None:
                raise ClosedError("this compiled function was closed")
            if pointers == self._last and not scalars:
                self.same += 1
            else:
                self._last = None if scalars else pointers
                self._image.bind((*pointers, *scalars) if scalars else tuple(pointers))
                self.rebound += 1
            error = launch_kernel(self._kernel, self._handle)
            if error == _no_context:  # the first call of a thread that only replays
                activate(self._device)
                error = launch_kernel(self._kernel, self._handle)
            if error:
                check((driver.CUresult(error),), f"launching {self._name}")
        finally:
            self._turn.leave()

    def stats(self) -> BindingStats:
        """As `Launcher.stats`."""
        return BindingStats(self.same, 0, self.rebound, 0, self.rebound, 1)

    def close(self) -> None:
        """As `Launcher.close`."""
        self._kernel = None
