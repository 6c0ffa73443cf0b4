"""What passes leave out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Removed:
    """A node that was left out.

    Parameters
    ----------
    what : str
        The node and the user's line.
    reason : str
        Why it could be.
    """

    what: str
    reason: str

    def __str__(self) -> str:
        return f"removed {self.what}: {self.reason}"
