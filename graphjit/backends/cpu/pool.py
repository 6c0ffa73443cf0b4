"""A pool of worker threads for native code: Python threads parked inside a native function."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from graphjit._locks import Turn
from graphjit.backends.cpu.pool_native import (
    ENTRY_LOCK,
    ENTRY_SCRATCH,
    ENTRY_SIZE,
    HEADER_SIZE,
    WORKERS,
    native_pool,
)

_EXIT_TIMEOUT = 1.0

_allocate_lock: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p)(
    ("PyThread_allocate_lock", ctypes.pythonapi)
)
_acquire_lock: Any = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
    ("PyThread_acquire_lock", ctypes.pythonapi)
)


def default_num_threads() -> int:
    """Return how many threads a pool has unless told: `GRAPHJIT_NUM_THREADS` or the usable CPUs.

    Raises
    ------
    ValueError
        If the environment variable is not a positive integer.
    """
    text = os.environ.get("GRAPHJIT_NUM_THREADS", "")
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"GRAPHJIT_NUM_THREADS must be a positive integer, not {text!r}")
        return int(text)
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def aligned_buffer(size: int) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """Return zeroed memory and the first 64-byte aligned address in it, with `size` bytes after."""
    buffer = ctypes.create_string_buffer(size + 63)
    return buffer, (ctypes.addressof(buffer) + 63) & -64


class Placement:
    """One CPU for each worker, and none of them the caller's.

    A scheduler may put a thread that is woken on the CPU of the one that woke it, which is busy,
    and leave it there for several milliseconds while another CPU idles: longer than most replays.
    Where there are fewer workers than CPUs for them, the scheduler is left alone.

    Parameters
    ----------
    threads : sequence of int
        Native ids of the workers.
    """

    def __init__(self, threads: Sequence[int]) -> None:
        self._owners: dict[int, int] = {}
        self._caller: int | None = None
        get_cpu = _sched_getcpu()
        if get_cpu is None or not threads:
            return
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) != len(threads) + 1:
            return
        self._get_cpu = get_cpu
        self._caller = get_cpu()
        others = [cpu for cpu in cpus if cpu != self._caller]
        for cpu, thread in zip(others, threads, strict=False):
            self._place(thread, cpu)

    def keep_apart(self) -> None:
        """Move a worker whose CPU the caller has come to."""
        if self._caller is None:
            return
        cpu = self._get_cpu()
        if cpu != self._caller:
            free, self._caller = self._caller, cpu
            thread = self._owners.pop(cpu, None)
            if thread is not None:
                self._place(thread, free)

    def _place(self, thread: int, cpu: int) -> None:
        try:
            os.sched_setaffinity(thread, {cpu})
        except OSError:
            self._caller = None  # not allowed here, or the thread is gone
        else:
            self._owners[cpu] = thread


@functools.cache
def _sched_getcpu() -> Any:
    """The C library's function of that name, where there is one."""
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return function if function is not None and function() >= 0 else None


class Crew:
    """The threads of a pool and the native memory they share.

    Each thread keeps its crew alive, so one that is still inside a long chunk can be left behind.

    Parameters
    ----------
    workers : int
        How many threads to start.
    """

    def __init__(self, workers: int) -> None:
        native = native_pool()
        self._state, self.address = aligned_buffer(HEADER_SIZE + (workers + 1) * ENTRY_SIZE)
        self._offset = self.address - ctypes.addressof(self._state)
        self._locks = [_held_lock() for _ in range(workers + 1)]
        struct.pack_into("=i", self._state, self._offset + WORKERS, workers)
        for index, lock in enumerate(self._locks):
            struct.pack_into("=Q", self._state, self._entry(index) + ENTRY_LOCK, lock)
        self.running: object = None
        self._scratch_size = 0
        self.reserve_scratch(1)
        self._threads = [
            threading.Thread(
                target=_work,
                args=(native.worker, self, index),
                name=f"graphjit-cpu-{index}",
                daemon=True,
            )
            for index in range(workers)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:
            # No more threads, or the interpreter is exiting: those that run are enough.
            pass
        self._placement = Placement([t.native_id for t in self._threads if t.native_id])

    def keep_apart(self) -> None:
        """See to it that no worker has the caller's CPU."""
        self._placement.keep_apart()

    def _entry(self, index: int) -> int:
        return self._offset + HEADER_SIZE + index * ENTRY_SIZE

    def reserve_scratch(self, size: int) -> int:
        """Give each thread `size` bytes of scratch at least; returns the caller's address."""
        if size > self._scratch_size:
            stride = (size + 127) & -128
            self._scratch, start = aligned_buffer(stride * len(self._locks))
            for index in range(len(self._locks)):
                where = self._entry(index) + ENTRY_SCRATCH
                struct.pack_into("=Q", self._state, where, start + index * stride)
            self._scratch_size = stride
            self._caller_scratch = start + (len(self._locks) - 1) * stride
        return self._caller_scratch

    def cancel(self) -> None:
        """Drop what is left of an interrupted job and wait for the chunks being run."""
        native_pool().cancel(self.address)

    def stop(self, timeout: float) -> None:
        """Send the threads home and wait for them, `timeout` seconds at most."""
        native_pool().stop(self.address)
        limit = time.monotonic() + timeout
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, limit - time.monotonic()))


def _work(worker: Any, crew: Crew, index: int) -> None:
    worker(crew.address, index)


def _held_lock() -> int:
    """Return a new, held `PyThread_type_lock`; a few bytes that are never freed."""
    lock = int(_allocate_lock())
    _acquire_lock(lock, 1)
    return lock


class Pool:
    """Worker threads and scratch memory that replays share, one replay at a time.

    The threads start at the first use and sleep when there is no work. A forked child starts its
    own. Once the interpreter has begun to exit, callers work alone.

    Parameters
    ----------
    num_threads : int, optional
        Threads that take part in a replay, its caller included; `default_num_threads()` if None.

    Raises
    ------
    ValueError
        If `num_threads` is below 1.
    """

    def __init__(self, num_threads: int | None = None) -> None:
        count = default_num_threads() if num_threads is None else num_threads
        if count < 1:
            raise ValueError(f"a pool needs at least one thread, not {count}")
        self.num_threads = count
        self.turn = Turn("the replay of a graph")
        self._crew: Crew | None = None
        self._workers = count - 1
        _pools.add(self)

    def crew(self) -> Crew:
        """Return the running crew; the caller has its turn until it is done with it."""
        crew = self._crew
        if crew is None:
            crew = self._crew = Crew(self._workers)
        crew.keep_apart()
        return crew

    def close(self, timeout: float = _EXIT_TIMEOUT) -> None:
        """Stop the threads; a second call does nothing, and a later replay starts new ones."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.stop(timeout)

    def _forget(self) -> None:
        """In a forked child: the threads exist no more."""
        self._crew = None

    def _retire(self) -> None:
        self._workers = 0
        self.close()

    def __del__(self) -> None:
        # Not at interpreter exit: by then `_retire` has stopped the threads, and names are None.
        if getattr(self, "_crew", None) is not None and native_pool is not None:
            self.close()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


@functools.cache
def default_pool() -> Pool:
    """Return the pool that programs share unless given another."""
    return Pool()


def _for_all(action: str) -> None:
    for pool in list(_pools):
        getattr(pool, action)()


# Python 3.12 and later warn about a fork with threads running, so they are stopped first.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=functools.partial(_for_all, "close"),
        after_in_child=functools.partial(_for_all, "_forget"),
    )
atexit.register(_for_all, "_retire")
