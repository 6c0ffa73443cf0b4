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
from graphjit._interpreter import reference_count
from graphjit._locks import make_lock
from graphjit._memory import ALONE, Allocator, Memory
from graphjit.backends.cuda.driver import activate, check

_GRANULE = 512
# Beyond this share of the device's memory freed blocks go back to the driver.
_KEPT_SHARE = 4
_MAX_SHELVES = 512
_alone = ALONE


class Block:
    """A block from the driver.

    Parameters
    ----------
    buffer : cuda.core.Buffer
        What holds it.
    size : int
        Its bytes.
    """

    __slots__ = ("address", "buffer", "size")

    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer = buffer
        self.address = int(buffer.handle)
        self.size = size


class Shelf:
    """Free blocks of one size that belong to one stream.

    Parameters
    ----------
    stream : int or None
        The stream.
    size : int
        Bytes of each block.
    """

    __slots__ = ("blocks", "is_open", "size", "stream")

    def __init__(self, stream: Any, size: int) -> None:
        self.stream = stream
        self.size = size
        self.blocks: list[Block] = []
        self.is_open = True


class DeviceMemory(Memory):
    """A piece of device memory that goes back to its pool when nothing refers to it.

    Parameters
    ----------
    pool : Pool
        Where it comes from.
    shelf : Shelf
        Where it goes back to, if it still belongs to that stream.
    block : Block
        What it is.
    nbytes : int
        Bytes that were asked for.
    """

    __slots__ = ("_block", "_pool", "_shelf")

    def __init__(self, pool: Pool, shelf: Shelf, block: Block, nbytes: int) -> None:
        self._hold(pool, shelf, block, nbytes)

    def _hold(self, pool: Pool, shelf: Shelf, block: Block, nbytes: Any) -> None:
        self._pool = pool
        self._shelf = shelf
        self._block: Block | None = block
        self.address = block.address
        self.nbytes = nbytes
        self.stream = shelf.stream
        self.others = None
        self.exported = False
        self._lost = ""

    def used_on(self, stream: Any, written: bool) -> None:
        """As `Memory.used_on`: reads wait for the last write, writes for all that came before."""
        Memory.used_on(self, stream, written)
        if stream == self.stream and (not written or self.others is None):
            return
        activate(self._pool.index)
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
        if self.exported:
            # Whoever was given the address keeps this object, not the new one.
            return AdoptedMemory(self.address, self.nbytes, self, self.stream, self._pool.index)
        block = self._block
        assert block is not None
        moved = DeviceMemory(self._pool, self._shelf, block, self.nbytes)
        moved.stream, moved.others = self.stream, self.others
        self._block = None
        return moved

    def __del__(self) -> None:
        block = self._block
        if block is None or reference_count(self) != _alone:
            return
        shelf = self._shelf
        if self.stream is shelf.stream and self.others is None and not self.exported:
            if self._pool.has_room_for(shelf):
                shelf.blocks.append(block)
                return
        if driver is not None:
            self._pool.give(self, block)


def gpu_of(address: int) -> int:
    """The number of the GPU whose memory has this address."""
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(driver.cuPointerGetAttribute(attribute, address), "asking for an array's GPU"))


class AdoptedMemory(Memory):
    """Device memory that somebody else owns, kept alive through `owner`."""

    __slots__ = ("_index", "owner")

    def __init__(
        self, address: int, nbytes: int, owner: object, stream: Any = None, index: int = 0
    ) -> None:
        Memory.__init__(self, address, nbytes, stream)
        self.owner = owner
        self.exported = True
        self._index = index

    def used_on(self, stream: Any, written: bool) -> None:
        """Wait for the stream that its owner named when it gave the array."""
        Memory.used_on(self, stream, written)
        if stream != self.stream:
            activate(self._index)
            order(self.stream, stream)

    def _moved(self) -> Memory:
        return AdoptedMemory(self.address, self.nbytes, self.owner, self.stream, self._index)


class Pool:
    """Memory of one device.

    Parameters
    ----------
    index : int
        The device's number.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self._core = activate(index)
        self._lock = make_lock()
        # By stream and size, those met first first.
        self._shelves: dict[tuple[Any, int], Shelf] = {}
        # Bytes of all free blocks; roughly, since threads may update it at once.
        self._kept = 0
        self._limit = check(driver.cuMemGetInfo(), "asking for the memory size")[1] // _KEPT_SHARE

    def take(self, nbytes: int, stream: Any) -> DeviceMemory:
        """Uninitialised memory that work queued on the stream from now on may use."""
        return self.take_from(self.shelf(nbytes, stream), nbytes)

    def shelf(self, nbytes: int, stream: Any) -> Shelf:
        """Where blocks of a size that belong to a stream are kept."""
        size = (nbytes + _GRANULE - 1) // _GRANULE * _GRANULE or _GRANULE
        found = self._shelves.get((stream, size))
        if found is None:
            with self._lock:
                found = self._shelves.setdefault((stream, size), Shelf(stream, size))
                while len(self._shelves) > _MAX_SHELVES:
                    # Streams and sizes come and go; their blocks must not stay for ever.
                    self._drop(self._shelves.pop(next(iter(self._shelves))))
        return found

    def take_from(self, shelf: Shelf, nbytes: Any) -> DeviceMemory:
        """A kept block, or a new one."""
        if shelf.blocks:
            try:
                block: Block = shelf.blocks.pop()  # atomic; another thread may have been quicker
            except IndexError:
                pass
            else:
                self._kept -= shelf.size
                memory: DeviceMemory = DeviceMemory.__new__(DeviceMemory)
                memory._hold(self, shelf, block, nbytes)
                return memory
        activate(self.index)
        try:
            buffer = self._allocate(shelf.size, shelf.stream)
        except Exception as error:
            if "OUT_OF_MEMORY" not in str(error) or not self.trim():
                raise self._translated(error, nbytes) from error
            try:
                buffer = self._allocate(shelf.size, shelf.stream)
            except Exception as again:
                raise self._translated(again, nbytes) from again
        return DeviceMemory(self, shelf, Block(buffer, shelf.size), nbytes)

    def has_room_for(self, shelf: Shelf) -> bool:
        """Whether a block may be kept; counts it if so."""
        if not shelf.is_open or self._kept + shelf.size > self._limit:
            return False
        self._kept += shelf.size
        return True

    def give(self, memory: DeviceMemory, block: Block) -> None:
        """Keep a block that other streams have used, or let the driver have it."""
        try:
            activate(self.index)
            if memory.exported or self._kept + block.size > self._limit:
                # Whoever got it may still be at work, on any stream; the driver knows of one.
                driver.cuCtxSynchronize()
                return
            for other in memory.others or ():
                order(other, memory.stream)
            shelf = self.shelf(block.size, memory.stream)
            self._kept += block.size
            shelf.blocks.append(block)
        except Exception:  # at interpreter exit the driver may be gone
            return

    def trim(self) -> int:
        """Let the driver have all kept blocks; how many bytes that was."""
        with self._lock:
            shelves, self._shelves = self._shelves, {}
        return sum([self._drop(shelf) for shelf in shelves.values()])

    def _drop(self, shelf: Shelf) -> int:
        """Let the driver have the blocks of a shelf, which is used no more."""
        shelf.is_open = False
        blocks, shelf.blocks = shelf.blocks, []
        dropped = shelf.size * len(blocks)
        self._kept -= dropped
        if blocks:
            activate(self.index)
            driver.cuCtxSynchronize()
        return dropped

    def _allocate(self, size: int, stream: Any) -> Any:
        return self._core.memory_resource.allocate(size, stream=Stream.from_handle(stream or 0))

    def _translated(self, error: Exception, nbytes: int) -> Exception:
        if "OUT_OF_MEMORY" in str(error):
            return DeviceMemoryError(f"cuda:{self.index} has no {nbytes} bytes left")
        return error


class DeviceAllocator(Allocator):
    """Device memory of one size.

    Parameters
    ----------
    pool : Pool
        Where it comes from.
    nbytes : int
        The size.
    """

    __slots__ = ("_nbytes", "_pool", "_shelf")

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self._pool = pool
        self._nbytes = nbytes
        self._shelf = pool.shelf(nbytes, None)

    def take(self, stream: Any) -> Memory:
        """As `Allocator.take`."""
        shelf: Shelf = self._shelf
        if shelf.stream is not stream or not shelf.is_open:
            self._shelf = shelf = self._pool.shelf(self._nbytes, stream)
        return self._pool.take_from(shelf, self._nbytes)


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
