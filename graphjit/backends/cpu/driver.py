"""The native function around a kernel's thread functions: loops over blocks and threads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graphjit.backends.cpu.intrinsics import EXCHANGE_FIELDS
from graphjit.backends.cpu.regions import CONTEXT, Cut
from graphjit.backends.cpu.scheduler import declarations

# What a block is told: its geometry, as i32s in memory that all its regions read.
_GEOMETRY = (
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


def _load_geometry() -> str:
    return "".join(
        f"  %{name}.p = getelementptr i32, ptr %gj.geometry, i64 {index}\n"
        f"  %{name} = load i32, ptr %{name}.p\n"
        for index, name in enumerate(_GEOMETRY)
    )


def _load_parameters(parameters: Sequence[tuple[str, str]], text: str) -> str:
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


def _call_thread(number: int, parameters: Sequence[tuple[str, str]], local: int) -> str:
    arguments = ", ".join(f"{type_} %{name}" for type_, name in (*parameters, *CONTEXT))
    arguments = arguments.replace("%gj.global", "poison")
    return f"""  %gj.lin.64 = zext i32 %gj.lin to i64
  %gj.local.o = mul nuw nsw i64 %gj.lin.64, {local}
  %gj.local = getelementptr i8, ptr %gj.locals, i64 %gj.local.o
  %gj.state = getelementptr i32, ptr %gj.states, i64 %gj.lin.64
  %gj.next = call i32 @gj.thread.{number}({arguments})
"""


def _nest(
    parameters: Sequence[tuple[str, str]], layout: Layout, fast_axis: str, thread: str
) -> str:
    """All threads of a block, for a kernel in which none waits: `fast_axis` innermost."""
    inner, outer = ("x", "y") if fast_axis == "x" else ("y", "x")
    axes = ("z", outer, inner)
    text = (
        "define internal void @gj.block(ptr %gj.params, ptr noalias %gj.geometry, "
        "ptr noalias %gj.scratch) alwaysinline nounwind {\nentry:\n"
        + _load_geometry()
        + _load_parameters(parameters, thread)
        + layout.pointers()
        + "  br label %head.z\n"
    )
    before = "entry"
    for axis in axes:
        text += (
            f"head.{axis}:\n"
            f"  %gj.tid.{axis} = phi i32 [ 0, %{before} ], [ %next.{axis}, %latch.{axis} ]\n"
        )
        before = f"head.{axis}"
        if axis != inner:
            text += f"  br label %head.{outer if axis == 'z' else inner}\n"
    text += (
        "  %lin.z = mul i32 %gj.tid.z, %gj.ntid.y\n"
        "  %lin.zy = add i32 %lin.z, %gj.tid.y\n"
        "  %lin.row = mul i32 %lin.zy, %gj.ntid.x\n"
        "  %gj.lin = add i32 %lin.row, %gj.tid.x\n"
        + _call_thread(0, parameters, 0)
        + f"  br label %latch.{inner}\n"
    )
    for axis, done in zip(reversed(axes), (f"latch.{outer}", "latch.z", "end"), strict=True):
        text += (
            f"latch.{axis}:\n"
            f"  %next.{axis} = add nuw nsw i32 %gj.tid.{axis}, 1\n"
            f"  %more.{axis} = icmp slt i32 %next.{axis}, %gj.ntid.{axis}\n"
            f"  br i1 %more.{axis}, label %head.{axis}, label %{done}\n"
        )
    return text + "end:\n  ret void\n}\n"


def _flat(
    parameters: Sequence[tuple[str, str]], layout: Layout, fast_axis: str, thread: str
) -> str:
    """All threads of the blocks [begin, end), the fast axis one loop over blocks side by side.

    The blocks are taken as rectangles: whole rows together where there are any, else a part of one.
    """
    fast, slow = (0, 1) if fast_axis == "x" else (1, 0)
    f, s = "xy"[fast], "xy"[slow]
    return (
        "define internal void @gj.blocks(ptr %gj.params, ptr noalias %gj.geometry, "
        "ptr noalias %gj.scratch, i64 %begin, i64 %end) alwaysinline nounwind {\nentry:\n"
        + _load_geometry()
        + _load_parameters(parameters, thread)
        + layout.pointers()
        + f"""  %gx = zext i32 %gj.nctaid.x to i64
  %gy = zext i32 %gj.nctaid.y to i64
  %gxy = mul i64 %gx, %gy
  %nf = zext i32 %gj.ntid.{f} to i64
  %gj.state = getelementptr i8, ptr %gj.scratch, i64 0
  %gj.local = getelementptr i8, ptr %gj.scratch, i64 0
  br label %rectangle
rectangle:
  %b = phi i64 [ %begin, %entry ], [ %b.next, %slow.latch ]
  %b.cz = udiv i64 %b, %gxy
  %in.plane = urem i64 %b, %gxy
  %cy = udiv i64 %in.plane, %gx
  %cx = urem i64 %in.plane, %gx
  %left = sub i64 %end, %b
  %row.left = sub i64 %gx, %cx
  %cut = icmp ult i64 %left, %gx
  %inside = icmp ne i64 %cx, 0
  %partly = or i1 %cut, %inside
  %rows.0 = udiv i64 %left, %gx
  %rows.1 = sub i64 %gy, %cy
  %rows.2 = call i64 @llvm.umin.i64(i64 %rows.0, i64 %rows.1)
  %columns.0 = call i64 @llvm.umin.i64(i64 %left, i64 %row.left)
  %rows = select i1 %partly, i64 1, i64 %rows.2
  %columns = select i1 %partly, i64 %columns.0, i64 %gx
  %count = mul i64 %rows, %columns
  %b.next = add i64 %b, %count
  %gj.block.z = trunc i64 %b.cz to i32
  %last.x = add i64 %cx, %columns
  %last.y = add i64 %cy, %rows
  %f.first = mul nuw nsw i64 %c{f}, %nf
  %f.last = mul nuw nsw i64 %last.{f}, %nf
  br label %slow.block
slow.block:
  %c = phi i64 [ %c{s}, %rectangle ], [ %c.next, %slow.latch.block ]
  %gj.slow = trunc i64 %c to i32
  br label %z
z:
  %gj.tid.z = phi i32 [ 0, %slow.block ], [ %z.next, %z.latch ]
  br label %s
s:
  %gj.tid.{s} = phi i32 [ 0, %z ], [ %s.next, %s.latch ]
  br label %f
f:
  %gj.global = phi i64 [ %f.first, %s ], [ %f.next, %f ]
  %gj.next = call i32 @gj.thread.0({_flat_arguments(parameters, f, s)})
  %f.next = add nuw nsw i64 %gj.global, 1
  %f.more = icmp slt i64 %f.next, %f.last
  br i1 %f.more, label %f, label %s.latch
s.latch:
  %s.next = add nuw nsw i32 %gj.tid.{s}, 1
  %s.more = icmp slt i32 %s.next, %gj.ntid.{s}
  br i1 %s.more, label %s, label %z.latch
z.latch:
  %z.next = add nuw nsw i32 %gj.tid.z, 1
  %z.more = icmp slt i32 %z.next, %gj.ntid.z
  br i1 %z.more, label %z, label %slow.latch.block
slow.latch.block:
  %c.next = add nuw nsw i64 %c, 1
  %c.more = icmp slt i64 %c.next, %last.{s}
  br i1 %c.more, label %slow.block, label %slow.latch
slow.latch:
  %more = icmp slt i64 %b.next, %end
  br i1 %more, label %rectangle, label %done
done:
  ret void
}}
"""
    )


def _flat_arguments(parameters: Sequence[tuple[str, str]], fast: str, slow: str) -> str:
    given = {
        f"gj.ctaid.{slow}": "%gj.slow",
        "gj.ctaid.z": "%gj.block.z",
        f"gj.tid.{fast}": "poison",
        f"gj.ctaid.{fast}": "poison",
        "gj.lin": "poison",
    }
    return ", ".join(
        f"{type_} {given.get(name, f'%{name}')}" for type_, name in (*parameters, *CONTEXT)
    )


def _range(
    number: int, parameters: Sequence[tuple[str, str]], layout: Layout, thread: str
) -> str:
    """Run one region for the threads [begin, end); return their state, or -1 if it differs."""
    return (
        f"define internal i32 @gj.range.{number}(ptr %gj.params, ptr noalias %gj.geometry, "
        "ptr %gj.scratch, i32 %begin, i32 %end) nounwind {\nentry:\n"
        + _load_geometry()
        + _load_parameters(parameters, thread)
        + layout.pointers()
        + f"""  br label %row
row:
  %start = phi i32 [ %begin, %entry ], [ %stop, %row.end ]
  %all.0 = phi i32 [ -1, %entry ], [ %all, %row.end ]
  %any.0 = phi i32 [ 0, %entry ], [ %any, %row.end ]
  %index = udiv i32 %start, %gj.ntid.x
  %first = mul i32 %index, %gj.ntid.x
  %x.first = sub i32 %start, %first
  %gj.tid.y = urem i32 %index, %gj.ntid.y
  %gj.tid.z = udiv i32 %index, %gj.ntid.y
  %x.left = sub i32 %gj.ntid.x, %x.first
  %left = sub i32 %end, %start
  %count = call i32 @llvm.umin.i32(i32 %x.left, i32 %left)
  %stop = add i32 %start, %count
  %x.last = add i32 %x.first, %count
  br label %thread
thread:
  %gj.tid.x = phi i32 [ %x.first, %row ], [ %x.next, %thread ]
  %all.1 = phi i32 [ %all.0, %row ], [ %all, %thread ]
  %any.1 = phi i32 [ %any.0, %row ], [ %any, %thread ]
  %gj.lin = add nuw nsw i32 %first, %gj.tid.x
"""
        + _call_thread(number, parameters, layout.local)
        + """  %all = and i32 %all.1, %gj.next
  %any = or i32 %any.1, %gj.next
  %x.next = add nuw nsw i32 %gj.tid.x, 1
  %x.more = icmp slt i32 %x.next, %x.last
  br i1 %x.more, label %thread, label %row.end
row.end:
  %more = icmp ult i32 %stop, %end
  br i1 %more, label %row, label %done
done:
  %same = icmp eq i32 %all, %any
  %r = select i1 %same, i32 %all, i32 -1
  ret i32 %r
}
"""
    )


def _dispatch(count: int) -> str:
    arguments = "ptr %gj.params, ptr %gj.geometry, ptr %gj.scratch, i32 %begin, i32 %end"
    cases = "".join(f"    i32 {k}, label %region.{k}\n" for k in range(1, count + 1))
    text = (
        f"define internal i32 @gj.dispatch(i32 %state, {arguments}) nounwind {{\n"
        f"  switch i32 %state, label %none [\n{cases}  ]\nnone:\n  unreachable\n"
    )
    for k in range(1, count + 1):
        text += f"region.{k}:\n  %r.{k} = call i32 @gj.range.{k}({arguments})\n  ret i32 %r.{k}\n"
    return text + "}\n"


_CALL = "ptr %gj.params, ptr %gj.geometry, ptr %gj.scratch"

# One warp until none of its threads waits for the warp.
_WARPS = """
define internal void @gj.warp(CONTEXT, ptr %states, ptr %exchange, i64 %stride, i32 %first, i32 %end) nounwind {
entry:
  %count = sub i32 %end, %first
  %full = icmp uge i32 %count, 32
  %part0 = shl i32 1, %count
  %part = sub i32 %part0, 1
  %everyone = select i1 %full, i32 -1, i32 %part
  %start = call i32 @gj.agree(ptr %states, i32 %first, i32 %end)
  br label %look
look:
  %state = phi i32 [ %start, %entry ], [ %together.next, %together ], [ %apart.next, %apart.done ]
  %mixed = icmp eq i32 %state, -1
  br i1 %mixed, label %apart, label %uniform
uniform:
  %waits = icmp sgt i32 %state, LAST_BLOCK
  br i1 %waits, label %masks, label %return
masks:
  %mask.row = mul i64 %stride, 2
  %mask.p = getelementptr i32, ptr %exchange, i64 %mask.row
  %mask.same = call i1 @gj.same(ptr %mask.p, i32 %first, i32 %end)
  br i1 %mask.same, label %together, label %apart
together:
  call void @gj.exchange.group(ptr %exchange, i64 %stride, i32 %first, i32 %count, i32 %everyone)
  %together.next = call i32 @gj.dispatch(i32 %state, CONTEXT, i32 %first, i32 %end)
  br label %look
apart:
  %group = call i32 @gj.group(ptr %states, ptr %exchange, i64 %stride, i32 %first, i32 %count, i32 LAST_BLOCK)
  %nobody = icmp eq i32 %group, 0
  br i1 %nobody, label %return, label %apart.go
apart.go:
  call void @gj.exchange.group(ptr %exchange, i64 %stride, i32 %first, i32 %count, i32 %group)
  br label %lane
lane:
  %left = phi i32 [ %group, %apart.go ], [ %left.next, %lane ]
  %i = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %t = add i32 %first, %i
  %t.end = add i32 %t, 1
  %t64 = zext i32 %t to i64
  %t.p = getelementptr i32, ptr %states, i64 %t64
  %t.state = load i32, ptr %t.p
  %t.next = call i32 @gj.dispatch(i32 %t.state, CONTEXT, i32 %t, i32 %t.end)
  %left.1 = sub i32 %left, 1
  %left.next = and i32 %left, %left.1
  %lane.more = icmp ne i32 %left.next, 0
  br i1 %lane.more, label %lane, label %apart.done
apart.done:
  %apart.next = call i32 @gj.agree(ptr %states, i32 %first, i32 %end)
  br label %look
return:
  ret void
}
"""

def _scheduled_block(kinds: Sequence[str], layout: Layout) -> str:
    """A block whose threads wait: all run to their next suspend point, then whoever may goes on."""
    warps = "warp" in kinds
    reduces = "reduce" in kinds
    last_plain = kinds.count("block")
    last_block = last_plain + kinds.count("reduce")
    reduce = (
        "  call void @gj.reduce(ptr %gj.states, ptr %gj.exchange, i64 %gj.stride, i32 %gj.nt, "
        f"i32 {last_plain})\n"
    )
    text = (
        "define internal void @gj.block(ptr %gj.params, ptr noalias %gj.geometry, "
        "ptr %gj.scratch) nounwind {\nentry:\n"
        + _load_geometry()
        + layout.pointers()
        + f"""  %begin = call i32 @gj.range.0({_CALL}, i32 0, i32 %gj.nt)
  br label %look
look:
  %state = phi i32 [ %begin, %entry ], [ %once, %together ], [ %later, %apart.done ]
  %over = icmp eq i32 %state, 0
  br i1 %over, label %return, label %warps
warps:
"""
    )
    if warps:
        text += f"""  %low = icmp sge i32 %state, 0
  %high = icmp sle i32 %state, {last_block}
  %none = and i1 %low, %high
  br i1 %none, label %arrived, label %warp
warp:
  %w = phi i32 [ 0, %warps ], [ %w.next, %warp ]
  %w.next = add i32 %w, 32
  %w.end = call i32 @llvm.umin.i32(i32 %w.next, i32 %gj.nt)
  call void @gj.warp({_CALL}, ptr %gj.states, ptr %gj.exchange, i64 %gj.stride, i32 %w, i32 %w.end)
  %w.more = icmp ult i32 %w.next, %gj.nt
  br i1 %w.more, label %warp, label %warps.done
warps.done:
  %agreed = call i32 @gj.agree(ptr %gj.states, i32 0, i32 %gj.nt)
  br label %arrived
arrived:
  %now = phi i32 [ %state, %warps ], [ %agreed, %warps.done ]
"""
    else:
        text += "  %now = add i32 %state, 0\n"
    if reduces:
        text += reduce
    text += f"""  switch i32 %now, label %together [
    i32 0, label %return
    i32 -1, label %apart
  ]
together:
  %once = call i32 @gj.dispatch(i32 %now, {_CALL}, i32 0, i32 %gj.nt)
  br label %look
apart:
  %t = phi i32 [ 0, %{'arrived' if warps else 'warps'} ], [ %t.end, %apart.next ]
  %t64 = zext i32 %t to i64
  %t.p = getelementptr i32, ptr %gj.states, i64 %t64
  %t.state = load i32, ptr %t.p
  br label %run
run:
  %e = phi i32 [ %t, %apart ], [ %e.next, %run.more ]
  %e.next = add i32 %e, 1
  %e.inside = icmp ult i32 %e.next, %gj.nt
  br i1 %e.inside, label %run.more, label %run.end
run.more:
  %e64 = zext i32 %e.next to i64
  %e.p = getelementptr i32, ptr %gj.states, i64 %e64
  %e.state = load i32, ptr %e.p
  %e.same = icmp eq i32 %e.state, %t.state
  br i1 %e.same, label %run, label %run.end
run.end:
  %t.end = add i32 %e, 1
  %t.over = icmp eq i32 %t.state, 0
  br i1 %t.over, label %apart.next, label %resume
resume:
  %t.next = call i32 @gj.dispatch(i32 %t.state, {_CALL}, i32 %t, i32 %t.end)
  br label %apart.next
apart.next:
  %t.more = icmp ult i32 %t.end, %gj.nt
  br i1 %t.more, label %apart, label %apart.done
apart.done:
  %later = call i32 @gj.agree(ptr %gj.states, i32 0, i32 %gj.nt)
  br label %look
return:
  ret void
}}
"""
    text += _dispatch(len(kinds)) + declarations()
    if warps:
        text += _WARPS.replace("CONTEXT", _CALL).replace("LAST_BLOCK", str(last_block))
    return text


def driver(
    symbol: str, parameters: Sequence[tuple[str, str]], cut: Cut, layout: Layout, fast_axis: str
) -> str:
    """LLVM text of the native function `symbol` and all between it and the thread functions.

    Parameters
    ----------
    symbol : str
        Its name.
    parameters : sequence of (str, str)
        LLVM type and name of each of the kernel's parameters.
    cut : Cut
        The thread functions.
    layout : Layout
        Division of the scratch memory.
    fast_axis : {"x", "y"}
        Innermost axis of the thread loops where no thread waits.
    """
    if cut.kinds:
        block = "".join(
            _range(k, parameters, layout, text) for k, text in enumerate(cut.functions)
        )
        block += _scheduled_block(cut.kinds, layout)
    elif cut.flat:
        block = _flat(parameters, layout, fast_axis, cut.functions[0])
    else:
        block = _nest(parameters, layout, fast_axis, cut.functions[0])
    loads = "".join(
        f"  %dim.{k}.p = getelementptr i32, ptr %dims, i64 {k}\n"
        f"  %dim.{k} = load i32, ptr %dim.{k}.p\n"
        f"  %set.{k} = getelementptr i32, ptr %geometry, i64 {k}\n"
        f"  store i32 %dim.{k}, ptr %set.{k}\n"
        for k in range(6)
    )
    indices = "".join(
        f"  %set.c{k} = getelementptr i32, ptr %geometry, i64 {6 + k}\n"
        f"  store i32 %c{k}, ptr %set.c{k}\n"
        for k in range(3)
    )
    if cut.flat:
        loop = """  %some = icmp slt i64 %begin, %end
  br i1 %some, label %blocks, label %done
blocks:
  call void @gj.blocks(ptr %params, ptr %geometry, ptr %scratch, i64 %begin, i64 %end)
  br label %done
"""
    else:
        loop = f"""  %gx = zext i32 %dim.3 to i64
  %gy = zext i32 %dim.4 to i64
  %gxy = mul i64 %gx, %gy
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %block, label %done
block:
  %b = phi i64 [ %begin, %entry ], [ %b.next, %block ]
  %c0.64 = urem i64 %b, %gx
  %row = udiv i64 %b, %gx
  %c1.64 = urem i64 %row, %gy
  %c2.64 = udiv i64 %b, %gxy
  %c0 = trunc i64 %c0.64 to i32
  %c1 = trunc i64 %c1.64 to i32
  %c2 = trunc i64 %c2.64 to i32
{indices}  call void @gj.block(ptr %params, ptr %geometry, ptr %scratch)
  %b.next = add nsw i64 %b, 1
  %more = icmp slt i64 %b.next, %end
  br i1 %more, label %block, label %done
"""
    return (
        block
        + f"""
define void @{symbol}(ptr %params, ptr %dims, i64 %begin, i64 %end, ptr noalias %scratch, i32 %dynamic) nounwind {{
entry:
  %geometry = alloca [{len(_GEOMETRY)} x i32], align 16
{loads}  %set.9 = getelementptr i32, ptr %geometry, i64 9
  store i32 %dynamic, ptr %set.9
{loop}done:
  ret void
}}
"""
    )
