"""Signal handlers in the middle of compiled code."""

from __future__ import annotations


def run_signal_handlers() -> None:
    """Let Python run the handlers of signals that came: it does when a Python function begins.

    Compiled modules have to call this where they may loop for long. It isn't in one of them, or it
    would do nothing.
    """
