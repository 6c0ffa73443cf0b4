"""SYCL's graphs and memory, through a small library of C++ (`shim.cpp`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from sys import is_finalizing
from typing import Any

from graphjit._errors import DeviceError, DeviceMemoryError
from graphjit.backends.sycl import runtime
from graphjit.backends.sycl.build import library_path

_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_RING = 16


class _Argument(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("size", ctypes.c_int32), ("value", ctypes.c_uint64))


# What functions return and take: a pointer is null after an error, a number isn't 0.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hold": (_I, ()),
    "release": (_I, ()),
    "malloc_device": (_P, (_P, _N, _N)),
    "free": (_I, (_P, _P)),
    "memcpy": (_I, (_P, _P, _P, _N, _I)),
    "memset": (_I, (_P, _P, _I, _N)),
    "wait": (_I, (_P,)),
    "order": (_I, (_P, _P)),
    "launch": (_I, (_P, _P, _P, _P, _P, _I)),
    "write_and_launch": (_I, (_P, _P, _P, _P, _P, _I, _P, ctypes.c_char_p, _N, _P)),
    "graph_create": (_P, (_P,)),
    "graph_delete": (_I, (_P,)),
    "add_kernel": (_P, (_P, _P, _P, _P, _P, _I, _P, _I)),
    "finalize": (_P, (_P,)),
    "executable_delete": (_I, (_P,)),
    "replay": (_I, (_P, _P)),
    "ring_create": (_P, (_P, _N, _I)),
    "ring_delete": (_I, (_P,)),
    "write": (_I, (_P, _P, _P, ctypes.c_char_p, _N)),
    "write_and_replay": (_I, (_P, _P, _P, ctypes.c_char_p, _N, _P)),
}


_loaded: Any = None
_is_forked = False


def _library() -> Any:
    global _loaded
    if _is_forked:
        raise DeviceError(
            "SYCL was used before this process was forked, and doesn't work in the child; start "
            "processes that use it by multiprocessing's method 'spawn'"
        )
    if _loaded is None:
        runtime.dpctl()  # loads libsycl, which the library is linked to
        library = ctypes.CDLL(str(library_path()))
        library.gj_error.restype = ctypes.c_char_p
        for name, (returns, takes) in _FUNCTIONS.items():
            function = getattr(library, f"gj_{name}")
            function.restype, function.argtypes = returns, takes
            function.errcheck = _checked if returns is _I else _found
        _loaded = library
    return _loaded


def is_usable() -> bool:
    """Whether there is anything to be freed: not at the end of the process, nor in a fork of it."""
    return not (is_finalizing() or _is_forked)


def _note_fork() -> None:
    global _is_forked
    _is_forked = _loaded is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def _checked(result: Any, function: Any, arguments: Any) -> Any:
    if result:
        raise DeviceError(f"SYCL: {_library().gj_error().decode()}")
    return result


def _found(result: Any, function: Any, arguments: Any) -> Any:
    if not result:
        if function.__name__ == "gj_malloc_device":
            raise DeviceMemoryError("the SYCL device has no memory left")
        raise DeviceError(f"SYCL: {_library().gj_error().decode()}")
    return result


@contextlib.contextmanager
def held() -> Iterator[None]:
    """While this lasts, no thread submits anything, or waits."""
    library = _library()
    library.gj_hold()
    try:
        yield
    finally:
        library.gj_release()


def malloc_device(queue: int, nbytes: int, alignment: int) -> int:
    """Allocate device memory; raises DeviceMemoryError where there is none left."""
    return int(_library().gj_malloc_device(queue, nbytes, alignment))


def free(queue: int, address: int) -> None:
    """Free device memory that nothing uses."""
    _library().gj_free(queue, address)


def memcpy(queue: int, target: int, source: int, nbytes: int, wait: bool = False) -> None:
    """Copy bytes in the order of a queue, and wait for them if told so."""
    _library().gj_memcpy(queue, target, source, nbytes, wait)


def memset(queue: int, target: int, byte: int, nbytes: int) -> None:
    """Set bytes in the order of a queue."""
    _library().gj_memset(queue, target, byte, nbytes)


def wait(queue: int) -> None:
    """Wait until a queue has done all that it was given."""
    _library().gj_wait(queue)


def order(before: int, after: int) -> None:
    """Let what a queue is given from now on wait for all that another, or itself, was given."""
    _library().gj_order(before, after)


def _delete(what: str, owner: Any) -> None:
    """Delete an object of the library, unless the process ends: SYCL may be gone then."""
    if is_usable() and hasattr(owner, "handle"):
        getattr(_library(), f"gj_{what}_delete")(owner.handle)


class Launch:
    """A launch of one kernel, which can be submitted as it is.

    Parameters
    ----------
    kernel : int
        Address of the kernel.
    threads, block : sequence of int
        Threads of the whole grid and of a block along x, y and z.
    arguments : sequence of (int, int, int)
        Kind (0: a value; 1: local memory), bytes, and value or bytes of local memory.
    """

    def __init__(
        self,
        kernel: int,
        threads: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[tuple[int, int, int]],
    ) -> None:
        made = (_Argument * len(arguments))(*(_Argument(*each) for each in arguments))
        self.given = kernel, (_N * 3)(*threads), (_N * 3)(*block), made, len(arguments)

    def replay(self, queue: int) -> None:
        """Launch once; returns when that is queued."""
        _library().gj_launch(queue, *self.given)

    def write_and_replay(self, queue: int, target: int, words: bytes, ring: Ring) -> None:
        """Copy bytes to device memory first."""
        _library().gj_write_and_launch(queue, *self.given, target, words, len(words), ring.handle)


class Executable:
    """A graph that can be replayed.

    Parameters
    ----------
    handle : int
        What the library knows it by.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def replay(self, queue: int) -> None:
        """Replay once; returns when that is queued."""
        _library().gj_replay(self.handle, queue)

    def write_and_replay(self, queue: int, target: int, words: bytes, ring: Ring) -> None:
        """Copy bytes to device memory first."""
        _library().gj_write_and_replay(self.handle, queue, target, words, len(words), ring.handle)

    def __del__(self) -> None:
        # At the end of the process this module's names are gone before what was made of them.
        if _delete is not None:
            _delete("executable", self)


class Graph:
    """A graph that nodes are added to.

    Parameters
    ----------
    queue : int
        Address of a queue of its context and device.
    """

    def __init__(self, queue: int) -> None:
        self.handle = _library().gj_graph_create(queue)

    def add(self, launch: Launch, wait_for: Sequence[int]) -> int:
        """Add a launch.

        Parameters
        ----------
        launch : Launch
            The launch.
        wait_for : sequence of int
            Nodes that it comes after.

        Returns
        -------
        int
            The node.
        """
        waits = (_P * len(wait_for))(*wait_for)
        return int(_library().gj_add_kernel(self.handle, *launch.given, waits, len(wait_for)))

    def finalize(self) -> Executable:
        """What can be replayed."""
        return Executable(_library().gj_finalize(self.handle))

    def __del__(self) -> None:
        # At the end of the process this module's names are gone before what was made of them.
        if _delete is not None:
            _delete("graph", self)


class Ring:
    """Host memory for words that are on their way to a device.

    Parameters
    ----------
    queue : int
        Address of a queue of the context.
    nbytes : int
        Bytes that are written at most at once.
    """

    def __init__(self, queue: int, nbytes: int) -> None:
        self.handle = _library().gj_ring_create(queue, nbytes, _RING)

    def write(self, queue: int, target: int, words: bytes) -> None:
        """Copy bytes to device memory, in the order of a queue."""
        _library().gj_write(self.handle, queue, target, words, len(words))

    def __del__(self) -> None:
        # At the end of the process this module's names are gone before what was made of them.
        if _delete is not None:
            _delete("ring", self)
