"""What runs anywhere in the process, so that a call need not ask for its own thread's state.

Compiled where there is a C compiler (see `setup.py`).
"""

from __future__ import annotations

from graphjit._locks import make_lock


class Activity:
    """How many threads are in a trace, and how many in a `stream` block: or more, never fewer."""

    __slots__ = ("_lock", "streams", "traces")

    def __init__(self) -> None:
        self.traces = 0
        self.streams = 0
        self._lock = make_lock()

    def count_trace(self, change: int) -> None:
        """One more trace runs, or one fewer."""
        with self._lock:
            self.traces += change

    def count_stream(self, change: int) -> None:
        """One more block is entered, or one fewer."""
        with self._lock:
            self.streams += change


activity = Activity()
