"""Which blocks of a function all threads of a block reach together.

The classic divergence analysis: values that differ between threads make branches diverge, and what
lies between such a branch and its immediate postdominator is reached by some threads only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_LABEL = re.compile(r"label %([\w.$-]+)")


def divergent_blocks(
    function: Any, differs: Callable[[str], bool], ignored: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Names of the blocks that only some threads of a block may reach at once.

    Parameters
    ----------
    function : llvmlite.binding.ValueRef
        A function whose blocks have names.
    differs : callable
        Whether what a function of that name returns differs between threads that give it the same.
    ignored : frozenset of str
        Blocks that no thread is taken to reach.

    Returns
    -------
    frozenset of str
    """
    blocks: dict[str, list[Any]] = {}
    successors: dict[str, list[str]] = {}
    conditions: dict[str, str] = {}
    for block in function.blocks:
        instructions = list(block.instructions)
        blocks[block.name] = [_Line(each) for each in instructions]
        last = str(instructions[-1]).strip()
        following = dict.fromkeys(_LABEL.findall(last))
        successors[block.name] = [each for each in following if each not in ignored]
        if len(successors[block.name]) > 1:
            conditions[block.name] = next(iter(instructions[-1].operands)).name
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
                    divergent |= {line.name for line in blocks[join] if line.opcode == "phi"}
        for name, lines in blocks.items():
            for line in lines:
                if line.name and line.name not in divergent:
                    if name in inside or line.is_source(differs) or divergent & line.operands:
                        divergent.add(line.name)
        changed = before != (len(divergent), len(inside))
    return frozenset(inside)


class _Line:
    """An instruction: what it is, its name, and the names of its operands."""

    def __init__(self, instruction: Any) -> None:
        self.opcode = instruction.opcode
        self.name = instruction.name
        operands = list(instruction.operands)
        self.callee = operands[-1].name if self.opcode == "call" else ""
        self.operands = frozenset(each.name for each in operands if each.name) - {self.callee}

    def is_source(self, differs: Callable[[str], bool]) -> bool:
        """Whether it makes a value that differs between threads."""
        if self.opcode == "call":
            return differs(self.callee)
        return self.opcode in ("alloca", "atomicrmw", "cmpxchg")


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
