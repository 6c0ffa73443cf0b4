"""From the texts of Numba's LLVM modules to one module."""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

# How Numba clears a local array: one store of all of it, over which LLVM's passes take time that
# grows with the square of its length (a minute for 20,000 elements).
_CLEARED = re.compile(
    r'^  store \[(\d+) x (\w+)\] zeroinitializer, \[\d+ x \w+\]\* (%"?[^",\s]+"?)(?:, align \d+)?$',
    re.MULTILINE,
)
_SIZES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_MEMSET = "llvm.memset.p0.i64"


def with_memset(text: str) -> str:
    """The same module with local arrays cleared by memset."""

    def clear(match: re.Match[str]) -> str:
        count, type_, pointer = match.groups()
        if type_ not in _SIZES:
            return match[0]
        size = int(count) * _SIZES[type_]
        return f"  call void @{_MEMSET}(ptr {pointer}, i8 0, i64 {size}, i1 false)"

    result = _CLEARED.sub(clear, text)
    if result != text and f"@{_MEMSET}(" not in text and f'@"{_MEMSET}"(' not in text:
        result += f"\ndeclare void @{_MEMSET}(ptr, i8, i64, i1)\n"
    return result


# A piece of the stack whose size is known.
_PIECE = re.compile(r"^  %\S+ = alloca [^,]+(, i\d+ \d+)?(, align \d+)?(, addrspace\(\d+\))?$")


def with_one_frame(text: str) -> str:
    """The same module with each function's pieces of the stack allocated when it begins.

    Numba allocates some where it needs them, float16's among them: in a loop the stack would grow
    with each iteration, and LLVM keeps none of them in registers.
    """
    lines = text.splitlines()
    result: list[str] = []
    place: int | None = None  # where the function's first block begins, once that is over
    begins: int | None = None
    for line in lines:
        if line.startswith("define "):
            begins, place = len(result) + 1, None
        elif begins is not None and line and not line[0].isspace() and line != "}":
            # A label: the first one may name the first block itself.
            if len(result) == begins:
                begins += 1
            else:
                place = begins
        elif line == "}":
            begins = place = None
        if place is not None and _PIECE.match(line):
            result.insert(place, line)
        else:
            result.append(line)
    return "\n".join(result) + "\n"


def linked_module(texts: list[str]) -> Any:
    """The modules of a kernel and of the device functions it calls, as one."""
    # Numba lists a device function that is reached along two paths twice.
    module, *others = (llvm.parse_assembly(text) for text in dict.fromkeys(texts))
    for other in others:
        module.link_in(other)
    return module
