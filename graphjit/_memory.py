# cython: nonecheck=True
"""Memory of a device, and the handles that Arrays are.

Compiled where there is a C compiler (see `setup.py`): every call makes and drops some of these.
"""

from __future__ import annotations

from typing import Any

from graphjit._errors import ClosedError
from graphjit._interpreter import reference_count
from graphjit._location import called_at


class _Gone:
    """The stream of memory that its handles lost: no call is ever on it."""

    def __repr__(self) -> str:
        return "gone"


GONE = _Gone()


ALONE = 0
"""What `reference_count(self)` says in the `__del__` of an object that nothing refers to.

The garbage collector calls the `__del__` of all objects in a cycle before it frees any, and others
of them may use the memory yet, or come back to life with it: then it says more.
"""


class _Probe:
    """Tells it, by being dropped."""

    __slots__ = ()

    def __del__(self) -> None:
        global ALONE
        if ALONE == 0:
            ALONE = reference_count(self)


_Probe()


class Memory:
    """A piece of device memory, freed when nothing refers to it.

    Parameters
    ----------
    address : int
        Device address of the first byte.
    nbytes : int
        Size in bytes.
    stream : int or None
        The stream whose work wrote it last, where it can be used without a word.
    """

    __slots__ = ("__weakref__", "_lost", "address", "exported", "nbytes", "others", "stream")

    def __init__(self, address: int, nbytes: int, stream: Any) -> None:
        self.address = address
        self.nbytes = nbytes
        self.stream = stream
        # Streams other than `stream` whose work reads it, and which are ordered after the writes.
        self.others: set[Any] | None = None
        # Set when another library is given the address: the memory is not reused then.
        self.exported = False
        self._lost = ""

    def used_on(self, stream: Any, written: bool) -> None:
        """Let work queued on a stream from now on use the memory, after those it must wait for.

        Parameters
        ----------
        stream : int or None
            The stream.
        written : bool
            Whether that work writes it.

        Raises
        ------
        ClosedError
            If the memory was closed or donated.
        """
        if self.stream is GONE:
            raise ClosedError(self._lost + called_at())

    def _lost_twin(self) -> Memory:
        """What lost handles get in place of this, so that they don't keep it alive."""
        twin = Memory(0, 0, GONE)
        twin._lost = self._lost
        return twin

    def move(self, why: str) -> Memory:
        """The same memory under a new owner; every handle to this one is lost.

        Parameters
        ----------
        why : str
            What became of it, for the message of whoever uses it later.

        Returns
        -------
        Memory
        """
        self.used_on(self.stream, False)
        moved = self._moved()
        self._lost = why
        self.stream = GONE
        return moved

    def _moved(self) -> Memory:
        raise NotImplementedError


class Allocator:
    """Makes memory of one size."""

    __slots__ = ("__weakref__",)

    def take(self, stream: Any) -> Memory:
        """Uninitialised memory that work queued on a stream from now on may use.

        Parameters
        ----------
        stream : int or None
            The stream.

        Raises
        ------
        DeviceMemoryError
            If there is none left.
        """
        raise NotImplementedError


class Handle:
    """An address in some memory and what is there.

    Parameters
    ----------
    memory : Memory
        What keeps the elements alive.
    start : int
        Device address of the first element.
    aval : ArrayAval
        Shape, strides, dtype and device.
    """

    __slots__ = ("__weakref__", "_aval", "_memory", "_start")

    def __init__(self, memory: Memory, start: int, aval: Any) -> None:
        self._memory = memory
        self._start = start
        self._aval = aval

    def _lose(self, why: str) -> Memory:
        """Give the memory away; this handle and every other one to it is lost."""
        memory = self._memory
        moved = memory.move(why)
        if not memory.exported:  # who was given the address may keep no more than this handle
            self._memory = memory._lost_twin()
        return moved

    @property
    def _address(self) -> int:
        """Device address of the first element, for use by work on any stream after a wait."""
        if self._memory.stream is GONE:
            self._memory.used_on(None, False)
        return self._start
