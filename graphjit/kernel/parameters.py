"""A kernel's parameters on a GPU: their order, and which of them are only found there.

A graph's launch sends what changed since the last one: one span, from the first parameter that
changed to the last. Numba gives every array seven parameters or more, of which only the pointer
changes, so two arrays make a span that takes the driver 0.6 µs longer than two adjacent pointers
(measured on an H200). Nothing but the launch knows their order.
"""

from __future__ import annotations

import re

from graphjit.kernel.ir import KernelIR

_WAIT = 'call void asm sideeffect "griddepcontrol.wait;", "~{memory}"()'


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


def with_unaliased(module: str, entry: str, indices: frozenset[int]) -> str:
    """LLVM IR of a kernel some of whose pointers are to memory that nothing else leads to.

    Parameters
    ----------
    module : str
        The IR, in which the kernel need not be.
    entry : str
        The kernel.
    indices : frozenset of int
        The parameters.

    Returns
    -------
    str
    """
    found = _definition(entry).search(module) if indices else None
    if found is None:
        return module
    items = _split(found[1])
    for index in indices:
        type_, _, name = items[index].rpartition(" ")
        items[index] = f"{type_} noalias {name}"
    return f"{module[: found.start(1)]}{', '.join(items)}{module[found.end(1) :]}"


def waiting(module: str, entry: str) -> str | None:
    """LLVM IR of a kernel that first waits for the kernels that its launch depends on.

    A kernel launched before those have ended may do that, from compute capability 9.0 on.

    Parameters
    ----------
    module : str
        The IR.
    entry : str
        The kernel, which is called nowhere in it.

    Returns
    -------
    str or None
        The IR, or None if the kernel isn't in it as expected.
    """
    found = _definition(entry).search(module)
    if found is None:
        return None
    return f"{module[: found.end()]}  {_WAIT}\n{module[found.end() :]}"


def _definition(entry: str) -> re.Pattern[str]:
    """A kernel's parameters, and what is between them and its first instruction."""
    return re.compile(
        rf'define \w*\s?void @"?{re.escape(entry)}"?\(([^()]*)\)([^{{]*\{{\s*(?:\S+:.*\n)?)'
    )


def indirect(module: str, entry: str, indices: frozenset[int]) -> str | None:
    """LLVM IR of a kernel that loads some of its parameters from memory.

    Each of those becomes the address of its value and, where it is a pointer, an integer that is
    added to it.

    Parameters
    ----------
    module : str
        The IR.
    entry : str
        The kernel, which is called nowhere in it.
    indices : frozenset of int
        The parameters.

    Returns
    -------
    str or None
        The IR, or None if the kernel isn't in it as expected.
    """
    found = _definition(entry).search(module)
    if found is None:
        return None
    parameters, loads = [], []
    for index, item in enumerate(_split(found[1])):
        type_, _, name = item.rpartition(" ")
        if index in indices:
            at, added = _suffixed(name, "at"), _suffixed(name, "add")
            is_pointer = type_ == "ptr" or type_.endswith("*")
            parameters += [f"i64 {at}", f"i64 {added}"] if is_pointer else [f"i64 {at}"]
            loads += _loaded(type_, name, at, added, "*" not in found[1])
        else:
            parameters.append(item)
    head = f'define void @"{entry}"({", ".join(parameters)}){found[2]}'
    text = module[: found.start()] + head + "".join(f"  {x}\n" for x in loads)
    rest = module[found.end() :]

    def types(match: re.Match[str]) -> str:
        old = enumerate(_split(match[1]))
        new = (_indirect_type(type_) if index in indices else type_ for index, type_ in old)
        return f"({', '.join(new)})"

    # Its type before its name, where IR has typed pointers.
    uses = re.compile(rf'(?<=void )\(([^()]*)\)(?=\* ?@"{re.escape(entry)}")')
    return uses.sub(types, text) + uses.sub(types, rest)


def _indirect_type(type_: str) -> str:
    return "i64, i64" if type_ == "ptr" or type_.endswith("*") else "i64"


def _loaded(type_: str, name: str, at: str, added: str, opaque: bool) -> list[str]:
    """Instructions that give a parameter its name back; memory is the GPU's global memory."""

    def pointer(to: str) -> str:
        return "ptr addrspace(1)" if opaque else f"{to} addrspace(1)*"

    place, value, place_of = (_suffixed(name, part) for part in ("p", "v", "g"))
    if type_ != "ptr" and not type_.endswith("*"):
        return [
            f"{place} = inttoptr i64 {at} to {pointer(type_)}",
            f"{name} = load {type_}, {pointer(type_)} {place}",
        ]
    whole = _suffixed(name, "s")
    there = pointer(type_[:-1])
    return [
        f"{place} = inttoptr i64 {at} to {pointer('i64')}",
        f"{value} = load i64, {pointer('i64')} {place}",
        f"{whole} = add i64 {value}, {added}",
        f"{place_of} = inttoptr i64 {whole} to {there}",
        f"{name} = addrspacecast {there} {place_of} to {type_}",
    ]


def _suffixed(name: str, suffix: str) -> str:
    return f'{name[:-1]}.{suffix}"' if name.endswith('"') else f"{name}.{suffix}"


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
