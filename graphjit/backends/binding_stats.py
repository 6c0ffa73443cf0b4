"""How calls were bound to their memory, counted."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class BindingStats:
    """How the calls of an executable were bound to their memory.

    Parameters
    ----------
    same : int
        Calls on the memory of the call before: nothing to do.
    recalled : int
        Calls on a set of pointers that has an instance of its own.
    rebound : int
        Calls that repointed the nodes which use what had changed.
    copied : int
        Calls that copied arguments into static buffers.
    nodes : int
        Nodes repointed in all.
    instances : int
        Instances there are now, each bound to a set of pointers.
    """

    same: int = 0
    recalled: int = 0
    rebound: int = 0
    copied: int = 0
    nodes: int = 0
    instances: int = 0

    def __add__(self, other: BindingStats) -> BindingStats:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return BindingStats(*(a + b for a, b in pairs))
