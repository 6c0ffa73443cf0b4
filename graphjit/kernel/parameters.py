"""The order of a kernel's parameters on a GPU.

A graph's launch sends what changed since the last one: one span, from the first parameter that
changed to the last. Numba gives every array seven parameters or more, of which only the pointer
changes, so two arrays make a span that takes the driver 0.6 µs longer than two adjacent pointers
(measured on an H200). Nothing but the launch knows their order.
"""

from __future__ import annotations

import re

from graphjit.kernel.ir import KernelIR


def moving_first(kernel: KernelIR) -> tuple[int, ...]:
    """A kernel's parameters: first the pointers, then the numbers, then what describes arrays.

    Parameters
    ----------
    kernel : KernelIR
        The kernel.

    Returns
    -------
    tuple of int
        Indices of LLVM parameters.
    """
    pointers = [leaf.data for leaf in kernel.leaves if leaf.data is not None]
    numbers = [
        leaf.first + part
        for leaf in kernel.leaves
        if not leaf.is_memory
        for part in range(leaf.count)
    ]
    first = [*pointers, *numbers]
    count = sum(leaf.count for leaf in kernel.leaves)
    return (*first, *(index for index in range(count) if index not in set(first)))


def reordered(module: str, entry: str, order: tuple[int, ...]) -> str | None:
    """LLVM IR of a kernel whose parameters are in another order.

    Parameters
    ----------
    module : str
        The IR.
    entry : str
        The kernel, which is called nowhere in it.
    order : tuple of int
        For each new place, which parameter it was.

    Returns
    -------
    str or None
        The IR, or None if the kernel isn't in it as expected.
    """
    name = re.escape(f'@"{entry}"')
    # Its definition, and its type before its name where IR has typed pointers.
    lists = re.compile(rf"(?<=void )\(([^()]*)\)(?=\* ?{name})|(?<={name})\(([^()]*)\)")
    found = [_split(match[1] or match[2] or "") for match in lists.finditer(module)]
    if f'define void @"{entry}"(' not in module or {len(each) for each in found} != {len(order)}:
        return None
    lists_now = (", ".join(each[index] for index in order) for each in found)
    return lists.sub(lambda match: f"({next(lists_now)})", module)


def _split(text: str) -> list[str]:
    """The items of a list, at the commas that are not in brackets."""
    items, depth = [""], 0
    for character in text:
        if character == "," and depth == 0:
            items.append("")
            continue
        depth += (character in "[{<") - (character in "]}>")
        items[-1] += character
    return [item.strip() for item in items]
