"""Device memory for Arrays, kept for reuse in stream order.

cuda.core's pool takes some ten microseconds for what a call wants every time: a block of the size
of its last result. So freed blocks are kept, by size and by the stream they belong to. On that
stream the next user's work is queued behind the last one's, which makes reuse safe without waiting;
other streams that used a block are waited for, on the device, when it is freed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from cuda.bindings import driver
from cuda.core import Stream

from graphjit._errors import DeviceMemoryError
from graphjit._locks import make_lock
from graphjit.backends.cuda.driver import activate, check

_GRANULE = 512
# Beyond this share of the device's memory freed blocks go back to the driver.
_KEPT_SHARE = 4
_MAX_STREAMS = 16


class DeviceMemory:
    """A piece of device memory that belongs to a stream.

    Parameters
    ----------
    pool : Pool
        Where it goes back to.
    buffer : cuda.core.Buffer
        What holds it.
    nbytes : int
        Size asked for.
    stream : int or None
        Stream it belongs to.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_others",
        "_pool",
        "address",
        "exported",
        "nbytes",
        "stream",
    )

    def __init__(self, pool: Pool, buffer: Any, address: int, nbytes: int, stream: Any) -> None:
        self._pool = pool
        self._buffer = buffer
        self._others: set[Any] | None = None
        self.address = address
        self.nbytes = nbytes
        self.stream = stream
        # Other libraries may use it on streams that nobody tells us of.
        self.exported = False

    def used_on(self, stream: Any) -> None:
        """Note that work on another stream uses the memory."""
        if stream != self.stream:
            if self._others is None:
                self._others = set()
            self._others.add(stream)

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None and driver is not None:
            pool.give(self)


def gpu_of(address: int) -> int:
    """The number of the GPU whose memory has this address."""
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(driver.cuPointerGetAttribute(attribute, address), "asking for an array's GPU"))


class AdoptedMemory:
    """Device memory that somebody else owns, kept alive through `owner`."""

    __slots__ = ("__weakref__", "address", "exported", "nbytes", "owner")
    stream = None

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.exported = True

    def used_on(self, stream: Any) -> None:
        """Nothing to note: its owner frees it."""


class Pool:
    """Freed blocks of one device.

    Parameters
    ----------
    index : int
        The device's number.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._core = activate(index)
        self._lock = make_lock()
        # By stream, the one used longest ago first, then by size.
        self._free: dict[Any, defaultdict[int, list[tuple[Any, int]]]] = {}
        self._kept = 0
        self._limit = check(driver.cuMemGetInfo(), "asking for the memory size")[1] // _KEPT_SHARE

    def take(self, nbytes: int, stream: Any) -> DeviceMemory:
        """Uninitialised memory that work queued on the stream from now on may use."""
        size = -(-max(nbytes, 1) // _GRANULE) * _GRANULE
        mine = self._free.get(stream)
        blocks = mine.get(size) if mine else None
        if blocks:
            try:
                buffer, address = blocks.pop()  # atomic; another thread may have been quicker
            except IndexError:
                pass
            else:
                self._kept -= size
                return DeviceMemory(self, buffer, address, nbytes, stream)
        activate(self._index)
        try:
            buffer = self._allocate(size, stream)
        except Exception as error:
            if "OUT_OF_MEMORY" not in str(error) or not self.trim():
                raise self._translated(error, nbytes) from error
            try:
                buffer = self._allocate(size, stream)
            except Exception as again:
                raise self._translated(again, nbytes) from again
        return DeviceMemory(self, buffer, int(buffer.handle), nbytes, stream)

    def give(self, memory: DeviceMemory) -> None:
        """Keep a freed block, or let the driver have it."""
        size = -(-max(memory.nbytes, 1) // _GRANULE) * _GRANULE
        buffer = memory._buffer
        try:
            activate(self._index)
            if memory.exported:
                # Whoever got it may still be at work on any stream.
                driver.cuCtxSynchronize()
                return
            if memory._others:
                for other in memory._others:
                    order(other, memory.stream)
            if self._kept + size <= self._limit:
                self._keep(memory.stream, size, (buffer, memory.address))
        except Exception:  # at interpreter exit the driver may be gone
            return

    def trim(self) -> int:
        """Let the driver have all kept blocks; how many bytes that was."""
        with self._lock:
            free, self._free = self._free, {}
            kept, self._kept = self._kept, 0
        if kept:
            free.clear()
            driver.cuCtxSynchronize()
        return kept

    def _keep(self, stream: Any, size: int, block: tuple[Any, int]) -> None:
        mine = self._free.get(stream)
        if mine is None:
            with self._lock:
                mine = self._free.setdefault(stream, defaultdict(list))
                while len(self._free) > _MAX_STREAMS:
                    # Streams come and go; their blocks must not stay for ever.
                    oldest = self._free.pop(next(iter(self._free)))
                    self._kept -= sum(size * len(blocks) for size, blocks in oldest.items())
        self._kept += size
        mine[size].append(block)

    def _allocate(self, size: int, stream: Any) -> Any:
        return self._core.memory_resource.allocate(size, stream=Stream.from_handle(stream or 0))

    def _translated(self, error: Exception, nbytes: int) -> Exception:
        if "OUT_OF_MEMORY" in str(error):
            return DeviceMemoryError(f"cuda:{self._index} has no {nbytes} bytes left")
        return error


def order(before: Any, after: Any) -> None:
    """Let work queued on one stream from now on wait for what another was given so far."""
    if (before or 0) == (after or 0):
        return
    event = check(
        driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING), "creating an event"
    )
    try:
        check(driver.cuEventRecord(event, before or 0), "ordering two streams")
        check(driver.cuStreamWaitEvent(after or 0, event, 0), "ordering two streams")
    finally:
        driver.cuEventDestroy(event)
