"""USM for Arrays, kept for reuse in the order of queues."""

from __future__ import annotations

import threading
from typing import Any

from graphjit._errors import DeviceMemoryError
from graphjit._interpreter import reference_count
from graphjit._locks import make_lock
from graphjit._memory import Allocator, Memory
from graphjit.backends.sycl import runtime, shim

_GRANULE = 512
_ALIGNMENT = 64
_KEPT_BYTES = 256 * 2**20
_alone = 0
# Blocks by size and the queue that they belong to; each is an address.
_Key = tuple[int, int]


class _Probe:
    """Tells, by being dropped, what `reference_count` says in a `__del__` written here."""

    def __del__(self) -> None:
        global _alone
        if _alone == 0:
            _alone = reference_count(self)


_Probe()


class Shared(int):
    """The stream of memory that other libraries use too: no call is ever on it, so each one asks.

    Its value is the address of the queue whose work uses the memory, 0 for the device's own.

    Attributes
    ----------
    owner : dpctl.SyclQueue or None
        That queue.
    """

    owner: Any


def _shared(stream: Any) -> Shared:
    made = Shared(stream or 0)
    made.owner = getattr(stream, "owner", None)
    return made


class _Meetings(threading.local):
    """How this thread's next work is ordered with the work of other libraries."""

    def __init__(self) -> None:
        # Pairs of queues: the first shall wait for what the second is given next.
        self._waits: set[tuple[int, int]] = set()

    def meet(self, theirs: int, ours: int) -> None:
        """Let work that is given to our queue wait for all that theirs was given, and be awaited.

        Where both are one queue, which needn't run in order, a barrier does.
        """
        shim.order(theirs, ours)
        if theirs != ours:
            self._waits.add((theirs, ours))

    def end(self) -> None:
        """Let other libraries' queues wait for the work that was given to ours."""
        if self._waits:
            waits, self._waits = self._waits, set()
            for theirs, ours in waits:
                shim.order(ours, theirs)


meetings = _Meetings()


class Pool:
    """Memory of one device.

    Parameters
    ----------
    index : int
        The device's number.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.queue = runtime.address(index)
        self._free: dict[_Key, list[int]] = {}
        self._kept = 0
        self._lock = make_lock()

    def take(self, nbytes: int, stream: Any) -> USMMemory:
        """Uninitialised memory that work queued on the stream from now on may use."""
        size = -(-nbytes // _GRANULE) * _GRANULE or _GRANULE
        blocks = self._free.get((size, stream or self.queue))
        try:
            address = blocks.pop() if blocks else None
        except IndexError:  # another thread was quicker
            address = None
        if address is None:
            address = self._allocate(size, nbytes)
        else:
            self._kept -= size
        return USMMemory(self, address, size, nbytes, stream)

    def give(self, address: int, size: int, stream: Any) -> None:
        """Take a block back, whose last use was queued on the stream."""
        if self._kept + size > _KEPT_BYTES:
            shim.wait(stream or self.queue)
            shim.free(self.queue, address)
            return
        self._kept += size
        self._free.setdefault((size, stream or self.queue), []).append(address)

    def trim(self) -> None:
        """Free all kept blocks."""
        with self._lock:
            free, self._free = self._free, {}
            self._kept = 0
            for (_, stream), blocks in free.items():
                shim.wait(stream)
                for address in blocks:
                    shim.free(self.queue, address)

    def _allocate(self, size: int, nbytes: int) -> int:
        try:
            return shim.malloc_device(self.queue, size, _ALIGNMENT)
        except DeviceMemoryError:
            self.trim()
        try:
            return shim.malloc_device(self.queue, size, _ALIGNMENT)
        except DeviceMemoryError:
            raise DeviceMemoryError(f"sycl:{self.index} has no {nbytes} bytes left") from None


class USMMemory(Memory):
    """A piece of device memory that goes back to its pool when nothing refers to it.

    Parameters
    ----------
    pool : Pool
        Where it comes from.
    address, size : int
        Its block.
    nbytes : int
        Bytes that were asked for.
    stream : int or None
        The queue whose work may use it.
    """

    __slots__ = ("_home", "_pool", "_size")

    def __init__(self, pool: Pool, address: int, size: int, nbytes: int, stream: Any) -> None:
        Memory.__init__(self, address, nbytes, stream)
        self._pool, self._size, self._home = pool, size, stream

    def used_on(self, stream: Any, written: bool) -> None:
        """As `Memory.used_on`: on another queue than the last, after all that it was given."""
        Memory.used_on(self, stream, written)
        if stream is self.stream:
            return
        queue = self._pool.queue
        last, ours = self.stream or queue, stream or queue
        if isinstance(self.stream, Shared):
            meetings.meet(last, ours)
        elif stream != self.stream:
            shim.order(last, ours)
            self.stream = stream

    def share(self, queue: Any) -> None:
        """Say that another library is given the address, whose work, on a queue, isn't told of."""
        if not isinstance(self.stream, Shared):
            made = Shared(queue.addressof_ref())
            made.owner = queue
            ours = int(self.stream or self._pool.queue)
            if ours != made:
                shim.order(ours, made)
            self.stream = made

    def _moved(self) -> Memory:
        if self.exported:
            return AdoptedMemory(self.address, self.nbytes, self, self.stream, self._pool.queue)
        moved = USMMemory(self._pool, self.address, self._size, self.nbytes, self.stream)
        self._size = 0
        return moved

    def __del__(self) -> None:
        # At the end of the process SYCL may be gone before this, and so may this module's names.
        if shim is None or not shim.is_usable() or not self._size:
            return
        if reference_count(self) == _alone:
            self._pool.give(self.address, self._size, self.stream)


class AdoptedMemory(Memory):
    """Device memory that somebody else owns.

    Parameters
    ----------
    address, nbytes : int
        The memory.
    owner : object
        Kept alive.
    stream : int or None
        The queue that wrote it.
    queue : int
        What None stands for.
    """

    __slots__ = ("_queue", "owner")

    def __init__(self, address: int, nbytes: int, owner: object, stream: Any, queue: int) -> None:
        Memory.__init__(self, address, nbytes, _shared(stream))
        self.owner, self._queue = owner, queue
        self.exported = True

    def used_on(self, stream: Any, written: bool) -> None:
        """Wait for the owner's queue, and let that wait for the work that is to come."""
        Memory.used_on(self, stream, written)
        if stream is not self.stream:
            meetings.meet(self.stream or self._queue, stream or self._queue)

    def share(self, queue: Any) -> None:
        """It is shared from the beginning."""

    def _moved(self) -> Memory:
        return AdoptedMemory(self.address, self.nbytes, self.owner, self.stream, self._queue)


class USMAllocator(Allocator):
    """Device memory of one size.

    Parameters
    ----------
    pool : Pool
        Where it comes from.
    nbytes : int
        The size.
    """

    __slots__ = ("_nbytes", "_pool")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self._pool, self._nbytes = pool, nbytes

    def take(self, stream: Any) -> Memory:
        """As `Allocator.take`."""
        return self._pool.take(self._nbytes, stream)
