"""What fusion did with a graph's launches, and why it left the others alone."""

from __future__ import annotations

from dataclasses import dataclass

# So many names are listed.
_LISTED = 6


@dataclass(frozen=True)
class Fused:
    """Launches that became one.

    Parameters
    ----------
    names : tuple of str
        Their kernels.
    locations : tuple of str
        The user's lines.
    in_registers : tuple of str
        Temporaries that are in no memory any more.
    """

    names: tuple[str, ...]
    locations: tuple[str, ...]
    in_registers: tuple[str, ...]

    def __str__(self) -> str:
        kept = f"; in registers: {_listed(self.in_registers)}" if self.in_registers else ""
        names = ", ".join(dict.fromkeys(self.names))
        return f"fused {len(self.names)} launches: {names} ({_listed(self.locations)}){kept}"


@dataclass(frozen=True)
class Apart:
    """Two launches, one of which waits for the other, that didn't become one.

    Parameters
    ----------
    first, second : str
        Their kernels, and the user's lines.
    reason : str
        Why not.
    """

    first: str
    second: str
    reason: str

    def __str__(self) -> str:
        return f"apart {self.first} and {self.second}: {self.reason}"


@dataclass(frozen=True)
class FusionReport:
    """What became one launch, and why the rest didn't.

    Parameters
    ----------
    fused : tuple of Fused
        What did.
    apart : tuple of Apart
        What didn't.
    """

    fused: tuple[Fused, ...] = ()
    apart: tuple[Apart, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.fused, *self.apart))) or "nothing to fuse"


def _listed(names: tuple[str, ...]) -> str:
    distinct = list(dict.fromkeys(names))
    if len(distinct) > _LISTED:
        distinct = [*distinct[: _LISTED - 2], "...", distinct[-1]]
    return ", ".join(distinct)
