"""The garbage collector, held while functions are traced."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from graphjit._locks import make_lock

_held = 0
_held_lock = make_lock()


@contextlib.contextmanager
def collector_held() -> Iterator[None]:
    """Keep the garbage collector from running finalisers, whose launches would be recorded."""
    global _held
    with _held_lock:
        if _held == 0 and gc.isenabled():
            gc.disable()
            _held = 1
        elif _held:
            _held += 1
        mine = _held > 0
    try:
        yield
    finally:
        with _held_lock:
            if mine:
                _held -= 1
                if _held == 0:
                    gc.enable()
