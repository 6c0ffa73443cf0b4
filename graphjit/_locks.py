"""Locks for a library that garbage collection, signal handlers and forks interrupt anywhere."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

from graphjit._interpreter import thread_ident

# Seconds between two looks at a turn that another thread has.
_LONGEST_PAUSE = 2e-4
# Seconds after which a turn that nobody says to have is taken, and a closed gate passed.
_LOST = 1.0
_NOBODY = 0  # no thread's number

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def make_lock() -> Any:
    """Make a reentrant lock that is free in a forked child.

    Reentrant, since a finaliser or a signal handler may run in the middle of the code it guards;
    freed, since whoever held it in the parent doesn't exist in the child.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


class Turn:
    """A lock for work that must not be entered again by the thread that is at it.

    It is taken at every replay, for some microseconds as a rule: taking one item off a list is
    atomic and ten times faster than a lock of Python's. Whoever finds none looks again later.

    Parameters
    ----------
    what : str
        The work, for messages.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._holder = _NOBODY
        self._at_fork_reinit()
        _locks.add(self)

    def enter(self) -> None:
        """Wait until nobody is inside; raises RuntimeError if this thread is."""
        me = thread_ident()
        try:
            self._free.pop()
        except IndexError:
            self._wait(me)
        self._holder = me

    def leave(self) -> None:
        """Let others in."""
        self._holder = _NOBODY
        self._free.append(None)

    def try_enter(self) -> bool:
        """Enter if nobody is inside; whether that was so."""
        try:
            self._free.pop()
        except IndexError:
            return False
        self._holder = thread_ident()
        return True

    def _wait(self, me: Any) -> None:
        if self._holder == me:
            raise RuntimeError(
                f"{self._what} was started while this thread is at it already, from a signal "
                "handler, a finaliser or a kernel's callback"
            )
        pause = 0.0
        unheld = time.monotonic()
        while True:
            time.sleep(pause)
            try:
                self._free.pop()
                return
            except IndexError:
                pause = min(pause + 5e-6, _LONGEST_PAUSE)
            if self._holder != _NOBODY:
                unheld = time.monotonic()
            elif time.monotonic() - unheld > _LOST:
                return  # an exception from a signal came between taking it and saying so

    def _at_fork_reinit(self) -> None:
        self._free: list[None] = [None]
        self._holder = _NOBODY


class Gate:
    """Keeps threads out of code in which the end of the process, or a fork, must not find them.

    Whoever closes it waits until nobody is inside. Then threads wait before it, at most a second:
    at the end of the process it isn't opened again, and a handler of the end may wait for one.
    """

    def __init__(self) -> None:
        self._inside: list[None] = []
        self._until = 0.0
        self._keeper = _NOBODY
        _locks.add(self)

    def enter(self) -> None:
        """Go in, as soon as it is open."""
        self._inside.append(None)
        if self._keeper != _NOBODY and self._keeper != thread_ident():
            self._inside.pop()
            while self._keeper != _NOBODY and time.monotonic() < self._until:
                time.sleep(_LONGEST_PAUSE)
            self._inside.append(None)

    def leave(self) -> None:
        """Say that this thread is out again."""
        if self._inside:  # a child forked from inside starts with none
            self._inside.pop()

    def close(self) -> None:
        """Let no other thread in, and wait until those inside are out."""
        self._until = time.monotonic() + _LOST
        self._keeper = thread_ident()
        while self._inside and time.monotonic() < self._until:
            time.sleep(_LONGEST_PAUSE)

    def open(self) -> None:
        """Let all in."""
        self._keeper = _NOBODY

    def _at_fork_reinit(self) -> None:
        self._inside.clear()
        self._keeper = _NOBODY


def _free_all() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
