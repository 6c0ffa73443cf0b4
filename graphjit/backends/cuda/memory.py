"""Device memory for Arrays, kept for reuse in stream order.

cuda.core's pool takes some ten microseconds for what a call wants every time: a block of the size
of its last result. So freed blocks are kept, by size and by the stream they belong to. On that
stream the next user's work is queued behind the last one's, which makes reuse safe without waiting;
other streams that used a block are waited for, on the device, when it is freed.
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver
from cuda.core import Stream

from graphjit._errors import DeviceMemoryError
from graphjit._locks import make_lock
from graphjit._memory import Memory
from graphjit.backends.cuda.driver import activate, check

_GRANULE = 512
# Beyond this share of the device's memory freed blocks go back to the driver.
_KEPT_SHARE = 4
_MAX_LISTS = 512


class DeviceMemory(Memory):
    """A piece of device memory that goes back to its pool when nothing refers to it.

    Parameters
    ----------
    pool : Pool
        Where it goes back to.
    buffer : cuda.core.Buffer
        What holds it.
    address, nbytes, stream
        As for Memory.
    """

    __slots__ = ("_buffer", "_pool")

    def __init__(self, pool: Pool, buffer: Any, address: int, nbytes: int, stream: Any) -> None:
        self._pool = pool
        self._buffer = buffer
        self.address = address
        self.nbytes = nbytes
        self.stream = stream
        self.others = None
        self.exported = False
        self._lost = ""

    def used_on(self, stream: Any, written: bool) -> None:
        """As `Memory.used_on`: reads wait for the last write, writes for all that came before."""
        Memory.used_on(self, stream, written)
        others = self.others
        if written:
            if others is not None:
                self.others = None
                for other in others:
                    order(other, stream)
            if stream != self.stream:
                order(self.stream, stream)
                self.stream = stream
        elif stream != self.stream:
            if others is None:
                others = self.others = set()
            if stream not in others:
                order(self.stream, stream)
                others.add(stream)

    def _moved(self) -> Memory:
        moved = DeviceMemory(self._pool, self._buffer, self.address, self.nbytes, self.stream)
        moved.others, moved.exported = self.others, self.exported
        self._buffer = None
        return moved

    def __del__(self) -> None:
        if self._buffer is not None and driver is not None:
            self._pool.give(self)


def gpu_of(address: int) -> int:
    """The number of the GPU whose memory has this address."""
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(driver.cuPointerGetAttribute(attribute, address), "asking for an array's GPU"))


class AdoptedMemory(Memory):
    """Device memory that somebody else owns, kept alive through `owner`."""

    __slots__ = ("owner",)

    def __init__(self, address: int, nbytes: int, owner: object, stream: Any = None) -> None:
        Memory.__init__(self, address, nbytes, stream)
        self.owner = owner
        self.exported = True

    def used_on(self, stream: Any, written: bool) -> None:
        """Wait for the stream that its owner named when it gave the array."""
        Memory.used_on(self, stream, written)
        if stream != self.stream:
            order(self.stream, stream)

    def _moved(self) -> Memory:
        return AdoptedMemory(self.address, self.nbytes, self.owner, self.stream)


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
        # By stream and size, the ones freed first for the first time first.
        self._free: dict[tuple[Any, int], list[tuple[Any, int]]] = {}
        self._kept = 0
        self._limit = check(driver.cuMemGetInfo(), "asking for the memory size")[1] // _KEPT_SHARE

    def take(self, nbytes: int, stream: Any) -> DeviceMemory:
        """Uninitialised memory that work queued on the stream from now on may use."""
        size = (nbytes + _GRANULE - 1) // _GRANULE * _GRANULE or _GRANULE
        blocks = self._free.get((stream, size))
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
        size = (memory.nbytes + _GRANULE - 1) // _GRANULE * _GRANULE or _GRANULE
        try:
            if memory.exported or self._kept + size > self._limit:
                # Whoever got it may still be at work, on any stream; the driver knows of one.
                activate(self._index)
                driver.cuCtxSynchronize()
                return
            if memory.others is not None:
                activate(self._index)
                for other in memory.others:
                    order(other, memory.stream)
            blocks = self._free.get((memory.stream, size))
            if blocks is None:
                blocks = self._new_list((memory.stream, size))
            self._kept += size
            blocks.append((memory._buffer, memory.address))
        except Exception:  # at interpreter exit the driver may be gone
            return

    def trim(self) -> int:
        """Let the driver have all kept blocks; how many bytes that was."""
        with self._lock:
            free, self._free = self._free, {}
            kept, self._kept = self._kept, 0
        if kept:
            activate(self._index)
            driver.cuCtxSynchronize()
            free.clear()
        return kept

    def _new_list(self, key: tuple[Any, int]) -> list[tuple[Any, int]]:
        """Where blocks of a size that belong to a stream are kept."""
        with self._lock:
            blocks = self._free.setdefault(key, [])
            while len(self._free) > _MAX_LISTS:
                # Streams and sizes come and go; their blocks must not stay for ever.
                oldest = next(iter(self._free))
                dropped = self._free.pop(oldest)
                self._kept -= oldest[1] * len(dropped)
                if dropped:
                    activate(self._index)
                    driver.cuCtxSynchronize()
            return blocks

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
