"""Which code of a kernel all threads of a block reach together, and which values they share there.

The classic divergence analysis: values that differ between threads make branches diverge, and what
lies between such a branch and its immediate postdominator is reached by some threads only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphjit.kernel.instructions import Instruction

_LABEL = re.compile(r"label %([\w.$-]+)")
# A phi's value, whatever it is, and the block before.
_INCOMING = re.compile(r"\[ (.*?), %([\w.$-]+) \](?=,|$)")


@dataclass(frozen=True)
class Divergence:
    """Where the threads of a block part, and what differs between them.

    Parameters
    ----------
    blocks : frozenset of str
        Names of the blocks that only some of the threads may reach at once.
    values : frozenset of str
        Names of the values that threads which reach them together may not share.
    """

    blocks: frozenset[str]
    values: frozenset[str]


def divergence(
    blocks: Iterable[tuple[str, Sequence[Instruction]]],
    differs: Callable[[Instruction], bool],
    ignored: frozenset[str] = frozenset(),
) -> Divergence:
    """Find where threads part.

    Parameters
    ----------
    blocks : iterable of (str, sequence of Instruction)
        A function's blocks, all values named.
    differs : callable
        Whether an instruction makes a value that differs between threads though its operands don't.
    ignored : frozenset of str
        Blocks that no thread is taken to reach.

    Returns
    -------
    Divergence
    """
    lines: dict[str, list[_Line]] = {}
    successors: dict[str, list[str]] = {}
    conditions: dict[str, str] = {}
    for label, instructions in blocks:
        lines[label] = [_line(each, differs) for each in instructions]
        following = dict.fromkeys(_LABEL.findall(instructions[-1].text))
        successors[label] = [each for each in following if each not in ignored]
        if len(successors[label]) > 1:
            conditions[label] = instructions[-1].operands[0]
    regions = {name: _between(name, successors, _postdominators(successors)) for name in conditions}
    divergent: set[str] = set()
    inside: set[str] = set()
    changed = True
    while changed:
        before = len(divergent), len(inside)
        for name, condition in conditions.items():
            if condition in divergent:
                region, join = regions[name]
                inside |= region
                if join is not None:
                    ways = region | {name}
                    divergent |= {each.name for each in lines[join] if each.chooses(ways)}
        for name, block in lines.items():
            for line in block:
                if line.name and line.name not in divergent:
                    if name in inside or line.differs or divergent & line.operands:
                        divergent.add(line.name)
        changed = before != (len(divergent), len(inside))
    return Divergence(frozenset(inside), frozenset(divergent))


class _Line(NamedTuple):
    """The name of what an instruction makes, if anything, and what that depends on."""

    name: str
    operands: frozenset[str]
    differs: bool
    incoming: tuple[tuple[str, str], ...]

    def chooses(self, blocks: frozenset[str]) -> bool:
        """Whether it is a phi with a value that depends on which of some blocks comes before."""
        return len({value for value, block in self.incoming if block in blocks}) > 1


def _line(instruction: Instruction, differs: Callable[[Instruction], bool]) -> _Line:
    name, operands = instruction.name, instruction.operands
    if instruction.opcode == "call":
        operands = operands[:-1]
    incoming = _INCOMING.findall(instruction.text) if instruction.opcode == "phi" else ()
    return _Line(
        name,
        frozenset(each for each in operands if each),
        bool(name) and differs(instruction),
        tuple(incoming),
    )


def _postdominators(successors: dict[str, list[str]]) -> dict[str, frozenset[str]]:
    """For each block those that every way from it to an end passes, itself among them."""
    every = frozenset(successors)
    found = {
        name: every if following else frozenset((name,)) for name, following in successors.items()
    }
    changed = True
    while changed:
        changed = False
        for name, following in successors.items():
            if following:
                common = frozenset.intersection(*(found[each] for each in following))
                new = common | {name}
                if new != found[name]:
                    found[name], changed = new, True
    return found


def _between(
    start: str, successors: dict[str, list[str]], after: dict[str, frozenset[str]]
) -> tuple[frozenset[str], str | None]:
    """The blocks from a branch to where its ways join, and the block where they do."""
    ends = after[start] - {start}
    # The nearest is the one that all the others postdominate.
    join = next((each for each in ends if ends <= after[each]), None)
    seen: set[str] = set()
    todo = list(successors[start])
    while todo:
        name = todo.pop()
        if name != join and name not in seen:
            seen.add(name)
            todo += successors[name]
    return frozenset(seen), join
