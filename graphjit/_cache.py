"""The compiled signatures of one graphed function."""

from __future__ import annotations

from dataclasses import dataclass

from graphjit import _misses
from graphjit._guards import Guard, changed
from graphjit._location import warn_user
from graphjit._locks import make_lock
from graphjit._signature import Key
from graphjit._stages import Compiled

# Traces of one signature, or evictions, after which a warning names the cause.
_MANY_MISSES = 16
# How many evicted signatures are remembered, to tell why one came again.
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
        # Fingerprints of evicted keys, and what was full.
        self._evicted: dict[int, str] = {}
        self._full = ""
        self._rebound = 0
        self._warned = False

    def find(self, key: Key) -> Compiled | None:
        """What was compiled for a key, if all that it was traced with still holds."""
        found = self._compiled.get(key)
        if found is None or changed(found.traced.guards) is not None:
            return None
        self.hits += 1
        return found

    def holds(self, key: Key, compiled: Compiled) -> bool:
        """Whether that is what is kept for a key."""
        return self._compiled.get(key) is compiled

    def info(self, hits: int) -> CacheInfo:
        """The figures, with hits that were found elsewhere."""
        compiled = self.values()
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
        """Forget all; each is freed when no call uses it any more. For who holds the lock."""
        self._compiled.clear()
        self._evicted.clear()

    def miss(self, key: Key) -> None:
        """Note that a key must be compiled, tell why to whoever asked, and warn if that goes on.

        For who holds the lock, as `add`.
        """
        self.misses += 1
        stale = self._compiled.get(key)
        guard = None if stale is None else changed(stale.traced.guards)
        if self.explains or _misses.is_listening():
            full = self._evicted.get(key.fingerprint)
            if full is not None:
                reasons: tuple[str, ...] = (f"it was compiled before, and evicted since {full}",)
            else:
                latest = sorted(self._compiled, key=self._last_use, reverse=True)
                reasons = _misses.reasons_for(key, latest, guard)
            _misses.report(self._name, reasons)
        self._warn(guard)

    def add(self, key: Key, compiled: Compiled) -> None:
        """Keep what was compiled, and let go what that leaves no room for.

        Parameters
        ----------
        key : Key
            What it was compiled for.
        compiled : Compiled
            What to keep.
        """
        # A replaced or evicted one may still be running on another thread: it is freed when
        # nothing refers to it.
        self._compiled.pop(key, None)
        nbytes = compiled.nbytes + sum(other.nbytes for other in self._compiled.values())
        for oldest in sorted(self._compiled, key=self._last_use):
            if len(self._compiled) >= self.max_size:
                self._full = f"cache_size={self.max_size}"
            elif nbytes > self.max_bytes:
                self._full = f"cache_bytes={self.max_bytes}"
            else:
                break
            nbytes -= self._compiled.pop(oldest).nbytes
            self.evictions += 1
            self._evicted[oldest.fingerprint] = self._full
        while len(self._evicted) > _MAX_EVICTED:
            del self._evicted[next(iter(self._evicted))]
        self._evicted.pop(key.fingerprint, None)
        self._compiled[key] = compiled

    def _last_use(self, key: Key) -> int:
        return self._compiled[key].replay.used

    def _warn(self, guard: Guard | None) -> None:
        """Say once that calls keep being traced anew, and why."""
        reason = ""
        if guard is not None:
            self._rebound += 1
            reason = f"{guard} between calls; pass it as an argument"
        limit = self.evictions >= max(len(self._compiled), _MANY_MISSES)
        if limit:
            reason = "more shapes, dtypes or static values come in turns than there is room for "
            reason += f"({self._full}); pad arguments, or raise {self._full.partition('=')[0]}"
        if not self._warned and (limit or self._rebound >= _MANY_MISSES):
            self._warned = True
            warn_user(f"{self._name} keeps being traced anew: {reason}")
