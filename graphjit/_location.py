"""Where in the user's code something was written, for messages."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

# Frames of these packages' modules are never the user's.
_LIBRARIES = ("cupy", "dpctl", "dpnp", "graphjit", "numba", "numpy", "optree", "torch")


@dataclass(frozen=True)
class Location:
    """A line of the user's code.

    Parameters
    ----------
    file : str
        Path of the source file, as Python knows it.
    line : int
        Line number.
    function : str
        Name of the function the line stands in.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    @property
    def short(self) -> str:
        """File name and line, for listings."""
        return f"{os.path.basename(self.file)}:{self.line}"


def location_of(error: BaseException) -> Location:
    """Find the innermost line of the user's code that an exception passed through.

    Returns
    -------
    Location
    """
    found = Location("<unknown>", 0, "<unknown>")
    trace = error.__traceback__
    while trace is not None:
        if _is_users(trace.tb_frame):
            code = trace.tb_frame.f_code
            found = Location(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found


def raised_by_user(error: BaseException) -> bool:
    """Whether the line that raised an exception is the user's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and _is_users(trace.tb_frame)


@contextlib.contextmanager
def at_line(where: Location) -> Iterator[None]:
    """Add the user's line to whatever is raised inside."""
    try:
        yield
    except Exception as error:
        error.add_note(f"  at {where}")
        raise


def user_location() -> Location:
    """Find the innermost frame that belongs neither to graphjit nor to the libraries it calls.

    Returns
    -------
    Location
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users(frame):
            code = frame.f_code
            return Location(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return Location("<unknown>", 0, "<unknown>")


def _is_users(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _LIBRARIES


def called_at() -> str:
    """Where the user made the call, for the end of a message."""
    return f"\n  called at {user_location()}"


def warn_user(message: str) -> None:
    """Warn, at the user's line: compiled modules have no frames, so their number varies."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, RuntimeWarning, level)
