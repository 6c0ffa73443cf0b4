"""A block whose threads wait: all run to their next suspend point, then whoever may goes on.

Threads that stand at one point run their region as a loop; those that don't, in runs that do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphjit.backends.cpu.frame import Layout, call_thread, load_geometry, load_parameters
from graphjit.backends.cpu.scheduler import declarations
from graphjit.backends.cpu.threads import ACCESS, Cut, Region, loop_metadata


def scheduled_block(parameters: Sequence[tuple[str, str]], cut: Cut, layout: Layout) -> str:
    """LLVM text of `gj.block` and of the regions that it runs."""
    ranges = [_range(k, parameters, layout, region) for k, region in enumerate(cut.regions)]
    text = "".join(ranges) + _block(cut.kinds, layout)
    return text + declarations(text)


def _range(
    number: int, parameters: Sequence[tuple[str, str]], layout: Layout, region: Region
) -> str:
    """Run one region for the threads [begin, end); return their state, or -1 if it differs."""
    # Kept apart, the regions take half the time to compile, and run as fast.
    text = (
        f"define internal i32 @gj.range.{number}(ptr %gj.params, ptr noalias %gj.geometry, "
        "ptr %gj.scratch, i32 %begin, i32 %end) noinline nounwind {\nentry:\n"
        + load_geometry()
        + load_parameters(parameters, region.text)
        + layout.pointers()
    )
    if not region.takes:
        text += "  br label %row\n"
        return text + _loop("", number, parameters, layout, [], "") + _range_end("done")
    # Threads that took one path agree on these values: then they are loaded once, and what is
    # decided by them is decided once.
    values, agree = [], []
    for i, value in enumerate(region.takes):
        bits = 8 * value.size
        text += f"""  %row.{i}.o = mul nuw nsw i64 %gj.stride, {value.place}
  %row.{i} = getelementptr i8, ptr %gj.frame, i64 %row.{i}.o
  %agree.{i} = call i1 @gj.same.{bits}(ptr %row.{i}, i32 %begin, i32 %end)
"""
        values.append(f"{value.type} %fast.{i}")
        agree.append(f"%agree.{i}")
    together = agree[0]
    for i, one in enumerate(agree[1:]):
        text += f"  %together.{i} = and i1 {together}, {one}\n"
        together = f"%together.{i}"
    text += f"  br i1 {together}, label %fast, label %slow\nfast:\n"
    text += "  %begin64 = zext i32 %begin to i64\n"
    for i, value in enumerate(region.takes):
        text += f"""  %fast.{i}.p = getelementptr [{value.size} x i8], ptr %row.{i}, i64 %begin64
  %fast.{i} = load {value.type}, ptr %fast.{i}.p
"""
    text += "  br label %fast.row\n"
    text += _loop("fast.", number, parameters, layout, values, "")
    text += _range_end("fast.done", "fast.")
    lanes = "".join(
        f"""  %lane.{i}.p = getelementptr [{value.size} x i8], ptr %row.{i}, i64 %gj.lane
  %lane.{i} = load {value.type}, ptr %lane.{i}.p{ACCESS}
"""
        for i, value in enumerate(region.takes)
    )
    values = [f"{value.type} %lane.{i}" for i, value in enumerate(region.takes)]
    text = text.removesuffix("}\n") + "slow:\n  br label %slow.row\n"
    text += _loop("slow.", number, parameters, layout, values, lanes)
    return text + _range_end("slow.done", "slow.")


def _loop(
    tag: str,
    number: int,
    parameters: Sequence[tuple[str, str]],
    layout: Layout,
    values: Sequence[str],
    loads: str,
) -> str:
    """The loop over the rows of threads from %begin to %end, and over each row."""
    before = tag.removesuffix(".") or "entry"
    text = (
        f"""row:
  %start = phi i32 [ %begin, %{before} ], [ %stop, %row.end ]
  %all.0 = phi i32 [ -1, %{before} ], [ %all, %row.end ]
  %any.0 = phi i32 [ 0, %{before} ], [ %any, %row.end ]
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
  %gj.lane = zext i32 %gj.lin to i64
{loads}"""
        + call_thread(number, parameters, layout.local, values)
        + f"""  %gj.state = getelementptr i32, ptr %gj.states, i64 %gj.lane
  store i32 %gj.next, ptr %gj.state{ACCESS}
  %all = and i32 %all.1, %gj.next
  %any = or i32 %any.1, %gj.next
  %x.next = add nuw nsw i32 %gj.tid.x, 1
  %x.more = icmp slt i32 %x.next, %x.last
  br i1 %x.more, label %thread, label %row.end{loop_metadata(2 * number + (tag == "slow."))}
row.end:
  %more = icmp ult i32 %stop, %end
  br i1 %more, label %row, label %done
"""
    )
    return _tagged(text, tag) if tag else text


def _tagged(text: str, tag: str) -> str:
    """The same code under other names, so that it can stand twice in one function."""
    own = set(re.findall(r"^  (%[\w.]+) =", text, re.MULTILINE))
    own |= {f"%{label}" for label in re.findall(r"^([\w.]+):$", text, re.MULTILINE)} | {"%done"}
    text = re.sub(r"%[\w.]+", lambda m: f"%{tag}{m[0][1:]}" if m[0] in own else m[0], text)
    return re.sub(r"^([\w.]+):$", rf"{tag}\1:", text, flags=re.MULTILINE)


def _range_end(label: str, tag: str = "") -> str:
    return f"""{label}:
  %{tag}same = icmp eq i32 %{tag}all, %{tag}any
  %{tag}r = select i1 %{tag}same, i32 %{tag}all, i32 -1
  ret i32 %{tag}r
}}
"""


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
define internal void @gj.warp(CONTEXT, ptr %states, ptr %exchange, i64 %stride,
    i32 %first, i32 %end) nounwind {
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
  %mask.same = call i1 @gj.same.32(ptr %mask.p, i32 %first, i32 %end)
  br i1 %mask.same, label %together, label %apart
together:
  call void @gj.exchange.group(ptr %exchange, i64 %stride, i32 %first, i32 %count, i32 %everyone)
  %together.next = call i32 @gj.dispatch(i32 %state, CONTEXT, i32 %first, i32 %end)
  br label %look
apart:
  %group = call i32 @gj.group(ptr %states, ptr %exchange, i64 %stride,
    i32 %first, i32 %count, i32 LAST_BLOCK)
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


def _block(kinds: Sequence[str], layout: Layout) -> str:
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
        + load_geometry()
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
  %t = phi i32 [ 0, %{"arrived" if warps else "warps"} ], [ %t.end, %apart.next ]
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
    text += _dispatch(len(kinds))
    if warps:
        text += _WARPS.replace("CONTEXT", _CALL).replace("LAST_BLOCK", str(last_block))
    return text
