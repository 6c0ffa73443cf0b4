"""The native function around a kernel's thread functions: loops over blocks and threads."""

from __future__ import annotations

from collections.abc import Sequence

from graphjit.backends.cpu.frame import (
    GEOMETRY,
    Layout,
    call_thread,
    load_geometry,
    load_parameters,
)
from graphjit.backends.cpu.lockstep import lockstep_block
from graphjit.backends.cpu.scheduled import scheduled_block
from graphjit.backends.cpu.threads import CONTEXT, Cut, loop_metadata, metadata


def _nest(
    parameters: Sequence[tuple[str, str]], layout: Layout, fast_axis: str, thread: str
) -> str:
    """All threads of a block, for a kernel in which none waits: `fast_axis` innermost."""
    inner, outer = ("x", "y") if fast_axis == "x" else ("y", "x")
    axes = ("z", outer, inner)
    text = (
        "define internal void @gj.block(ptr %gj.params, ptr noalias %gj.geometry, "
        "ptr noalias %gj.scratch) alwaysinline nounwind {\nentry:\n"
        + load_geometry()
        + load_parameters(parameters, thread)
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
        + call_thread(0, parameters, 0)
        + f"  br label %latch.{inner}\n"
    )
    for axis, done in zip(reversed(axes), (f"latch.{outer}", "latch.z", "end"), strict=True):
        text += (
            f"latch.{axis}:\n"
            f"  %next.{axis} = add nuw nsw i32 %gj.tid.{axis}, 1\n"
            f"  %more.{axis} = icmp slt i32 %next.{axis}, %gj.ntid.{axis}\n"
            f"  br i1 %more.{axis}, label %head.{axis}, label %{done}"
            f"{loop_metadata(0) if axis == inner else ''}\n"
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
        + load_geometry()
        + load_parameters(parameters, thread)
        + layout.pointers()
        + f"""  %gx = zext i32 %gj.nctaid.x to i64
  %gy = zext i32 %gj.nctaid.y to i64
  %gxy = mul i64 %gx, %gy
  %nf = zext i32 %gj.ntid.{f} to i64
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
  br i1 %f.more, label %f, label %s.latch{loop_metadata(0)}
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
    if cut.lockstep:
        block = lockstep_block(parameters, cut, layout)
    elif cut.kinds:
        block = scheduled_block(parameters, cut, layout)
    elif cut.flat:
        block = _flat(parameters, layout, fast_axis, cut.regions[0].text)
    else:
        block = _nest(parameters, layout, fast_axis, cut.regions[0].text)
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
        + metadata(2 * len(cut.regions))
        + f"""
define void @{symbol}(ptr %params, ptr %dims, i64 %begin, i64 %end,
    ptr noalias %scratch, i32 %dynamic) nounwind {{
entry:
  %geometry = alloca [{len(GEOMETRY)} x i32], align 16
{loads}  %set.9 = getelementptr i32, ptr %geometry, i64 9
  store i32 %dynamic, ptr %set.9
{loop}done:
  ret void
}}
"""
    )
