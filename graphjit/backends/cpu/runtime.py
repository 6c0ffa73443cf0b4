"""The runtime that stands for CUDA's: which functions there are, and the text of those needed."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from graphjit.backends.cpu import callbacks, intrinsics
from graphjit.backends.cpu.host import has_half, has_symbol
from graphjit.kernel import device_runtime, half, libdevice
from graphjit.kernel.device_runtime import called, memory_operation

# Intrinsics that are NVIDIA's or need something that a host thread doesn't have.
_FOREIGN = ("llvm.nvvm.", "llvm.amdgcn.", "llvm.coro.")


def is_host_intrinsic(name: str) -> bool:
    """Whether LLVM itself has the intrinsic on a host."""
    return name.startswith("llvm.") and not name.startswith(_FOREIGN)


def definition(name: str) -> str | None:
    """LLVM text that defines, or declares, a function of the runtime."""
    for table in (
        intrinsics.DEFINITIONS,
        intrinsics.COLLECTIVES,
        libdevice.DEFINITIONS,
        libdevice.LIBRARY,
        half.DEFINITIONS,
    ):
        if name in table:
            return table[name]
    if name.startswith("gj.memory."):
        return memory_operation(name)
    return half.definition(name) if has_half() else None


def assembly(template: str) -> str | None:
    """Function that stands for a piece of PTX on this host."""
    if template in half.ASSEMBLY and not has_half():
        return None
    return device_runtime.assembly(template)


@functools.cache
def exists(symbol: str) -> bool:
    """Whether the runtime or the process has a function."""
    if symbol.startswith("llvm.") or symbol in callbacks.SYMBOLS:
        return True
    if symbol in libdevice.LIBRARY:
        return has_symbol(symbol)
    text = definition(symbol)
    if text is None:
        return symbol in intrinsics.SUSPENDS
    return all(exists(other) for other in called(text) - {symbol})


def definitions(needed: Iterable[str]) -> str:
    """Definitions of functions and all that they call; collectives are only declared."""
    texts, todo = {}, set(needed)
    while todo:
        name = todo.pop()
        if name in texts or name.startswith("llvm."):
            continue
        if name in intrinsics.COLLECTIVES:
            texts[name] = intrinsics.collective_declaration(name)
            continue
        text = definition(name)
        if text is None:
            raise NotImplementedError(f"the cpu backend has no definition of {name}")
        texts[name] = text
        todo |= called(text)
    return "\n".join(texts[name] for name in sorted(texts))
