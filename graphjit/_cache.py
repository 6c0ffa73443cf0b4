"""The compiled signatures of one graphed function."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from graphjit import _misses
from graphjit._guards import Guard, changed
from graphjit._location import warn_user
from graphjit._locks import make_lock
from graphjit._signature import Key
from graphjit._stages import Compiled

# Traces of one signature, or evictions, after which a warning names the cause.
_MANY_MISSES = 16
# Keys of evicted signatures that are remembered, to tell why one came again.
_MAX_EVICTED = 1024


@dataclass(frozen=True)
class CacheInfo:
    """What a graphed function has compiled.

    Parameters
    ----------
    hits : int
        Calls that found what they needed.
    misses : int
        Calls that were traced.
    evictions : int
        Signatures that had to go to make room.
    size : int
        Signatures there are now.
    max_size : int
        How many are kept.
    nbytes : int
        Device memory of their temporaries, in bytes.
    """

    hits: int
    misses: int
    evictions: int
    size: int
    max_size: int
    nbytes: int


class Cache:
    """Compiled functions by key; the one unused for longest goes first.

    Parameters
    ----------
    name : str
        The graphed function's, for messages.
    max_size : int
        How many are kept.
    max_bytes : int
        How much device memory their temporaries may hold, in bytes; the last one always stays.
    explains : bool
        Whether misses are always told.
    """

    def __init__(self, name: str, max_size: int, max_bytes: int, explains: bool) -> None:
        self.max_size = max(1, max_size)
        self.max_bytes = max_bytes
        self.lock = make_lock()
        self.hits = self.misses = self.evictions = 0
        self._name = name
        self.explains = explains
        self._compiled: dict[Key, Compiled] = {}
        self._clock = itertools.count()
        self._used: dict[Key, int] = {}
        self._evicted: dict[Key, None] = {}
        self._rebound = 0
        self._warned = False

    def find(self, key: Key) -> Compiled | None:
        """What was compiled for a key, if all that it was traced with still holds."""
        found = self._compiled.get(key)
        if found is None or changed(found.traced.guards) is not None:
            return None
        self.hits += 1
        self._used[key] = next(self._clock)
        return found

    def info(self, hits: int) -> CacheInfo:
        """The figures, with hits that were found elsewhere."""
        with self.lock:
            compiled = list(self._compiled.values())
            return CacheInfo(
                self.hits + hits,
                self.misses,
                self.evictions,
                len(compiled),
                self.max_size,
                sum(item.nbytes for item in compiled),
            )

    def values(self) -> list[Compiled]:
        """All of them."""
        return list(self._compiled.values())

    def clear(self) -> None:
        """Forget all; each is freed when no call uses it any more."""
        with self.lock:
            self._compiled.clear()
            self._used.clear()
            self._evicted.clear()

    def miss(self, key: Key) -> None:
        """Note that a key must be compiled, tell why to whoever asked, and warn if that goes on."""
        self.misses += 1
        stale = self._compiled.get(key)
        guard = None if stale is None else changed(stale.traced.guards)
        if self.explains or _misses.is_listening():
            if key in self._evicted:
                reasons: tuple[str, ...] = (
                    f"it was compiled, and evicted: only {self.max_size} signatures and "
                    f"{self.max_bytes} bytes of temporaries are kept (cache_size, cache_bytes)",
                )
            else:
                latest = sorted(self._compiled, key=self._used.__getitem__, reverse=True)
                reasons = _misses.reasons_for(key, latest, guard)
            _misses.report(self._name, reasons)
        self._warn(guard)

    def add(self, key: Key, compiled: Compiled, used: Callable[[Compiled], int]) -> None:
        """Keep what was compiled, and let go what that leaves no room for.

        Parameters
        ----------
        key : Key
            What it was compiled for.
        compiled : Compiled
            What to keep.
        used : callable
            When one was called last the short way, by the clock of `tick`.
        """
        # A replaced or evicted one may still be running on another thread: it is freed when
        # nothing refers to it.
        self._drop(key)
        last = {known: max(self._used[known], used(c)) for known, c in self._compiled.items()}
        nbytes = compiled.nbytes + sum(other.nbytes for other in self._compiled.values())
        for oldest in sorted(last, key=last.__getitem__):
            if len(self._compiled) < self.max_size and nbytes <= self.max_bytes:
                break
            nbytes -= self._compiled[oldest].nbytes
            self._drop(oldest)
            self.evictions += 1
            while len(self._evicted) >= _MAX_EVICTED:
                del self._evicted[next(iter(self._evicted))]
            self._evicted[oldest] = None
        self._evicted.pop(key, None)
        self._compiled[key] = compiled
        self._used[key] = next(self._clock)

    def tick(self) -> int:
        """The time of a call."""
        return next(self._clock)

    def _drop(self, key: Key) -> None:
        self._compiled.pop(key, None)
        self._used.pop(key, None)

    def _warn(self, guard: Guard | None) -> None:
        """Say once that calls keep being traced anew, and why."""
        reason = ""
        if guard is not None:
            self._rebound += 1
            reason = f"{guard} between calls; pass it as an argument"
        limit = self.evictions >= max(self.max_size, _MANY_MISSES)
        if limit:
            reason = f"arguments of more than {self.max_size} different shapes, dtypes or static"
            reason += " values come in turns; pad them, or raise cache_size"
        if not self._warned and (limit or self._rebound >= _MANY_MISSES):
            self._warned = True
            warn_user(f"{self._name} keeps being traced anew: {reason}")
