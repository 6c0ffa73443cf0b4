"""Nodes in groups that are to become one node each."""

from __future__ import annotations

from collections.abc import Iterator

from graphjit._device_control import Scheduled
from graphjit.schedule.hazards import Hazards


class Groups:
    """Nodes in groups; the order among groups is the nodes'.

    Parameters
    ----------
    nodes : tuple of node
        The nodes, each a group of its own.
    hazards : Hazards
        Which wait for which.
    """

    def __init__(self, nodes: tuple[Scheduled, ...], hazards: Hazards) -> None:
        self.hazards = hazards
        self.members: dict[int, list[int]] = {n: [n] for n in range(len(nodes))}
        self._group = list(range(len(nodes)))
        self._after: dict[int, set[int]] = {n: set() for n in range(len(nodes))}
        for first, second in hazards.edges:
            self._after[first].add(second)

    def of(self, node: int) -> int:
        """The group that a node is in."""
        return self._group[node]

    def would_wait_for_itself(self, one: int, other: int) -> bool:
        """Whether a way from one group to the other leads through a third."""
        last = max(*self.members[one], *self.members[other])
        for start, end in ((one, other), (other, one)):
            todo = [group for group in self._next(start) if group != end]
            seen = set(todo)
            while todo:
                for group in self._next(todo.pop()):
                    if group == end:
                        return True
                    if group not in seen and min(self.members[group]) <= last:
                        seen.add(group)
                        todo.append(group)
        return False

    def _next(self, group: int) -> Iterator[int]:
        for node in self.members[group]:
            for after in self._after[node]:
                if self._group[after] != group:
                    yield self._group[after]

    def merge(self, one: int, other: int) -> None:
        """Make two groups one."""
        for node in self.members[other]:
            self._group[node] = one
        self.members[one] = sorted((*self.members[one], *self.members.pop(other)))

    def ordered(self) -> Iterator[list[int]]:
        """The groups, each after those that it waits for, and else as their last nodes stand."""
        before: dict[int, set[int]] = {group: set() for group in self.members}
        for first, second in self.hazards.edges:
            if self._group[first] != self._group[second]:
                before[self._group[second]].add(self._group[first])
        done: set[int] = set()
        for group in sorted(self.members, key=lambda g: self.members[g][-1]):
            stack = [group]
            while stack:
                missing = before[stack[-1]] - done
                if stack[-1] in done:
                    stack.pop()
                elif missing:
                    stack.extend(sorted(missing, reverse=True))
                else:
                    done.add(stack[-1])
                    yield self.members[stack.pop()]
