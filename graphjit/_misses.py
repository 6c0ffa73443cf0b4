"""Why a call was traced anew."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from graphjit._guards import Guard
from graphjit._location import Location, user_location
from graphjit._locks import make_lock
from graphjit._signature import Key, differences

_log = logging.getLogger("graphjit")


@dataclass(frozen=True)
class Miss:
    """A call that had to be traced.

    Parameters
    ----------
    function : str
        The graphed function's name.
    reasons : tuple of str
        What differed from the most similar call before, or what else was the cause.
    location : Location
        The line that made the call.
    """

    function: str
    reasons: tuple[str, ...]
    location: Location

    def __str__(self) -> str:
        return f"{self.function} is traced at {self.location}: {'; '.join(self.reasons)}"


@dataclass
class _Listeners:
    lists: list[list[Miss]] = field(default_factory=list)
    lock: Any = field(default_factory=make_lock)


_listeners = _Listeners()
_always = os.environ.get("GRAPHJIT_EXPLAIN_MISSES", "0") not in ("", "0")


class explain_misses:
    """Say why calls are traced, within a ``with`` block.

    Each such call is logged as a warning of the logger ``"graphjit"``, which Python prints unless
    told otherwise, and kept in the list that the block is given. The environment variable
    GRAPHJIT_EXPLAIN_MISSES=1 logs them from the start, ``graphed(explain_misses=True)`` those of
    one function.

    Examples
    --------
    >>> import graphjit as gj
    >>> double = gj.graphed(lambda x: x.copy())
    >>> _ = double(gj.zeros(3))
    >>> with gj.explain_misses() as misses:
    ...     _ = double(gj.zeros(4))
    >>> misses[0].reasons
    ('argument x was float64[3] and is float64[4]',)
    """

    def __init__(self) -> None:
        self._lists: list[list[Miss]] = []

    def __enter__(self) -> list[Miss]:
        mine: list[Miss] = []
        self._lists.append(mine)
        with _listeners.lock:
            _listeners.lists.append(mine)
        return mine

    def __exit__(self, *exception: object) -> None:
        mine = self._lists.pop()
        with _listeners.lock:
            _listeners.lists = [kept for kept in _listeners.lists if kept is not mine]


def is_listening() -> bool:
    """Whether anybody wants to know."""
    return _always or bool(_listeners.lists)


def report(function: str, reasons: tuple[str, ...]) -> None:
    """Tell of a miss."""
    miss = Miss(function, reasons, user_location())
    _log.warning("%s", miss)
    with _listeners.lock:
        for kept in _listeners.lists:
            kept.append(miss)


def reasons_for(key: Key, known: Iterable[Key], changed: Guard | None) -> tuple[str, ...]:
    """What a call's key has that no key before had.

    Parameters
    ----------
    key : Key
        The call's.
    known : iterable of Key
        Those of calls before, the one used last first.
    changed : Guard or None
        What doesn't hold any more, where the key itself was known.

    Returns
    -------
    tuple of str
    """
    if changed is not None:
        return (f"{changed} between calls",)
    found = min((differences(other, key) for other in known), key=len, default=None)
    return ("nothing was compiled for it yet",) if found is None else tuple(found)
