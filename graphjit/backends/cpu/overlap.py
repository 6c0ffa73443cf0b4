"""Which steps of a program run at the same time, each on one thread or spread over several.

Steps are taken level by level: those of one level wait for none of each other. Where levels of
small steps fall into parts that have nothing to do with each other, a part is one task, and nobody
waits between its levels.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from graphjit.backends.cpu.items import MIN_PARALLEL_WORK, Step, Together

_WORTHWHILE = 10_000  # nanoseconds to be saved by letting others take part
_LONGEST_TASK = 5_000_000
_TASKS_PER_THREAD = 8


def overlapped(
    steps: Sequence[Step], edges: Iterable[tuple[int, int]], threads: int
) -> list[Step | Together]:
    """The same steps in an order that respects the edges, those that overlap together.

    Parameters
    ----------
    steps : sequence of Step
        Steps in an order that respects the edges.
    edges : iterable of (int, int)
        Which step (the second, by index) must wait for which.
    threads : int
        How many threads there are for them.
    """
    before: list[list[int]] = [[] for _ in steps]
    for first, then in edges:
        before[then].append(first)
    if threads == 1:
        return list(steps)
    items: list[Step | Together] = []
    phase = _Phase(steps, before, threads)
    for level in _levels(before):
        members = [steps[n] for n in level]
        if any(step.is_late or _is_large(step) for step in members):
            items += phase.end()
            if len(members) > 1 and not any(step.is_late for step in members):
                items.append(Together(tuple((step,) for step in members)))
            else:
                items += members
        elif not phase.add(level):
            items += phase.end()
            phase.add(level)
    return items + phase.end()


def _is_large(step: Step) -> bool:
    return step.parallel is True or step.parallel >= MIN_PARALLEL_WORK


def _levels(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """Steps by the length of the longest way to them."""
    depth: list[int] = []
    levels: list[list[int]] = []
    for step, others in enumerate(before):
        depth.append(1 + max((depth[other] for other in others), default=-1))
        if depth[step] == len(levels):
            levels.append([])
        levels[depth[step]].append(step)
    return levels


class _Phase:
    """Levels of small steps between two points that all threads reach, in the parts they form."""

    def __init__(
        self, steps: Sequence[Step], before: Sequence[Sequence[int]], threads: int
    ) -> None:
        self._steps, self._before, self._threads = steps, before, threads
        # A part is known by one of its steps.
        self._part_of: dict[int, int] = {}
        self._joined: dict[int, int] = {}
        self._works: dict[int, int] = {}

    def _time(self, works: Sequence[int]) -> float:
        """An estimate of what parts take side by side."""
        return max(max(works, default=0), sum(works) / self._threads)

    def add(self, level: Sequence[int]) -> bool:
        """Take a level in, unless it is quicker if all threads wait for each other before it."""
        works = dict(self._works)
        lost = []
        for step in level:
            joined = {self._name(other) for other in self._before[step] if other in self._part_of}
            part = self._part_of[step] = min(joined, default=step)
            works[part] = sum(works.pop(other) for other in joined) + self._work(step)
            for other in joined - {part}:
                self._joined[other] = part
                lost.append(other)
        apart = self._time([self._work(step) for step in level])
        quicker = self._time([*self._works.values()]) + apart < self._time([*works.values()])
        if self._works and (quicker or max(works.values()) > _LONGEST_TASK):
            for step in level:
                del self._part_of[step]
            for part in lost:
                del self._joined[part]
            return False
        self._works = works
        return True

    def _name(self, step: int) -> int:
        """The part that a step is in by now."""
        part = self._part_of[step]
        while part in self._joined:
            part = self._joined[part]
        return part

    def _work(self, step: int) -> int:
        return int(self._steps[step].parallel)

    def end(self) -> list[Step | Together]:
        """What was taken in, as items; the phase is empty then."""
        works = self._works
        part_of = {step: self._name(step) for step in sorted(self._part_of)}
        self._works, self._part_of, self._joined = {}, {}, {}
        total = sum(works.values())
        saved = total - self._time([*works.values()])
        if len(works) < 2 or total < MIN_PARALLEL_WORK or saved < _WORTHWHILE:
            return [self._steps[step] for step in part_of]
        # The longest first, each to the task with least to do.
        tasks = [(0, number) for number in range(self._threads * _TASKS_PER_THREAD)]
        task_of = {}
        for part in sorted(works, key=lambda part: -works[part]):
            done, number = tasks[0]
            task_of[part] = number
            heapq.heapreplace(tasks, (done + works[part], number))
        chosen: dict[int, list[Step]] = {}
        for step, part in part_of.items():
            chosen.setdefault(task_of[part], []).append(self._steps[step])
        return [Together(tuple(map(tuple, chosen.values())))]
