"""What a block's code finds in memory: its geometry, its parameters and its scratch memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graphjit.backends.cpu.intrinsics import EXCHANGE_FIELDS
from graphjit.backends.cpu.threads import CONTEXT

# What a block is told: its geometry, as i32s in memory that all its regions read.
GEOMETRY = (
    *(f"gj.ntid.{a}" for a in "xyz"),
    *(f"gj.nctaid.{a}" for a in "xyz"),
    *(f"gj.ctaid.{a}" for a in "xyz"),
    "gj.dynamic_size",
)
_STATE, _LANE = 4, 64


@dataclass(frozen=True)
class Layout:
    """How one worker's scratch memory is divided for a block.

    Parameters
    ----------
    shared : int
        Bytes of static shared memory, a multiple of 16; dynamic shared memory follows.
    frame, local : int
        Bytes a thread keeps while it waits, in rows of slots and as addressable memory.
    waits : bool
        Whether threads wait at all.
    """

    shared: int
    frame: int
    local: int
    waits: bool

    def size(self, threads: int, dynamic: int) -> int:
        """Bytes for one block of `threads` threads with `dynamic` bytes of shared memory."""
        memory = (self.shared + dynamic + 63) // 64 * 64
        if self.waits:
            lanes = (threads + _LANE - 1) // _LANE * _LANE
            memory += lanes * (self.frame + self.local + _STATE + 4 * EXCHANGE_FIELDS)
        return memory

    def pointers(self) -> str:
        """Instructions that find the parts from `%gj.scratch`."""
        return f"""  %gj.nt0 = mul i32 %gj.ntid.x, %gj.ntid.y
  %gj.nt = mul i32 %gj.nt0, %gj.ntid.z
  %gj.nt64 = zext i32 %gj.nt to i64
  %gj.lanes0 = add i64 %gj.nt64, {_LANE - 1}
  %gj.stride = and i64 %gj.lanes0, -{_LANE}
  %gj.dyn64 = zext i32 %gj.dynamic_size to i64
  %gj.memory0 = add i64 %gj.dyn64, {self.shared + 63}
  %gj.memory = and i64 %gj.memory0, -64
  %gj.shared = getelementptr i8, ptr %gj.scratch, i64 0
  %gj.frame = getelementptr i8, ptr %gj.scratch, i64 %gj.memory
  %gj.frames = mul i64 %gj.stride, {self.frame}
  %gj.locals = getelementptr i8, ptr %gj.frame, i64 %gj.frames
  %gj.local.size = mul i64 %gj.stride, {self.local}
  %gj.states = getelementptr i8, ptr %gj.locals, i64 %gj.local.size
  %gj.state.size = mul i64 %gj.stride, {_STATE}
  %gj.exchange = getelementptr i8, ptr %gj.states, i64 %gj.state.size
"""


def load_geometry() -> str:
    """Loads of a block's geometry."""
    return "".join(
        f"  %{name}.p = getelementptr i32, ptr %gj.geometry, i64 {index}\n"
        f"  %{name} = load i32, ptr %{name}.p\n"
        for index, name in enumerate(GEOMETRY)
    )


def load_parameters(parameters: Sequence[tuple[str, str]], text: str) -> str:
    """Loads of the parameters that `text` names; they can't change while a kernel runs."""
    body = (x for x in text.splitlines() if not re.match(r"define |  call void @gj\.recompute", x))
    used = set(re.findall(r"%(gj\.a\d+)\b", "\n".join(body)))
    return "".join(
        f"  %{name}.pp = getelementptr ptr, ptr %gj.params, i64 {index}\n"
        f"  %{name}.p = load ptr, ptr %{name}.pp, !invariant.load !{{}}\n"
        f"  %{name} = load {type_}, ptr %{name}.p, !invariant.load !{{}}\n"
        if name in used
        else f"  %{name} = freeze {type_} undef\n"
        for index, (type_, name) in enumerate(parameters)
    )


def call_thread(
    number: int, parameters: Sequence[tuple[str, str]], local: int, more: Sequence[str] = ()
) -> str:
    """The call of a region's thread function for the thread `gj.lin`."""
    given = [f"{type_} %{name}" for type_, name in (*parameters, *CONTEXT)]
    arguments = ", ".join([*given, *more]).replace("%gj.global", "poison")
    return f"""  %gj.lin.64 = zext i32 %gj.lin to i64
  %gj.local.o = mul nuw nsw i64 %gj.lin.64, {local}
  %gj.local = getelementptr i8, ptr %gj.locals, i64 %gj.local.o
  %gj.next = call i32 @gj.thread.{number}({arguments})
"""
