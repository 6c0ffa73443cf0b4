"""A block whose threads provably go from wait to wait together: one loop over them for each region.

Nothing has to be known of single threads: where they wait and what they share is kept once.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphjit.backends.cpu.frame import Layout, call_thread, load_geometry, load_parameters
from graphjit.backends.cpu.intrinsics import MARKERS, OF_ONE_THREAD, SUSPENDS
from graphjit.backends.cpu.scheduler import declarations
from graphjit.backends.cpu.threads import Cut, Region, loop_metadata
from graphjit.kernel.instructions import Instruction
from graphjit.kernel.uniformity import divergence

_DECLARED = "ptr %gj.params, ptr noalias %gj.geometry, ptr %gj.scratch, ptr noalias %gj.cells"
_PASSED = "ptr %gj.params, ptr %gj.geometry, ptr %gj.scratch, ptr %gj.cells"


def uniform_values(blocks: Sequence[tuple[str, Sequence[Instruction]]]) -> frozenset[str] | None:
    """Names of the values that are the same for all threads of a block, whatever memory holds.

    Parameters
    ----------
    blocks : sequence of (str, sequence of Instruction)
        A kernel's blocks, its suspend points among them, before reg2mem.

    Returns
    -------
    frozenset of str or None
        None if some threads may not reach one of the suspend points when the others do.
    """
    found = divergence(blocks, _differs)
    for label, lines in blocks:
        if label in found.blocks and any(line.callee in SUSPENDS for line in lines):
            return None
    return frozenset(line.name for _, lines in blocks for line in lines) - found.values


def _differs(line: Instruction) -> bool:
    """Whether threads may get different values though what they start from is the same."""
    if line.opcode != "call":
        # What a thread loads may have been written since another one did.
        return line.opcode in ("load", "alloca", "atomicrmw", "cmpxchg")
    if line.callee in MARKERS:
        return line.callee in OF_ONE_THREAD
    return line.callee not in SUSPENDS and not line.callee.startswith("llvm.")


def lockstep_block(parameters: Sequence[tuple[str, str]], cut: Cut, layout: Layout) -> str:
    """LLVM text of `gj.block` and of the regions that it runs.

    Parameters
    ----------
    parameters : sequence of (str, str)
        LLVM type and name of each of the kernel's parameters.
    cut : Cut
        The thread functions.
    layout : Layout
        Division of the scratch memory.
    """
    ranges = [_range(k, parameters, layout, region) for k, region in enumerate(cut.regions)]
    text = "".join(ranges) + _block(cut, layout)
    return text + declarations(text)


# What threads show each other is exchanged once all have come to a wait.
_EXCHANGES = {
    "block": "",
    "reduce": "  call void @gj.reduce.all(ptr %gj.states, ptr %gj.exchange, i64 %gj.stride, "
    "i32 %gj.nt)\n",
    "warp": "  call void @gj.exchange.warps(ptr %gj.exchange, i64 %gj.stride, i32 %gj.nt)\n",
}


def _block(cut: Cut, layout: Layout) -> str:
    """Run region after region, as each says which comes next."""
    numbers = range(len(cut.regions))
    states = ", ".join(f"[ %state.{k}, %region.{k} ]" for k in numbers)
    cases = " ".join(f"i32 {k}, label %region.{k}" for k in numbers[1:])
    regions = "".join(
        f"region.{k}:\n{exchange}  %state.{k} = call i32 @gj.range.{k}({_PASSED})\n"
        "  br label %next\n"
        for k, exchange in enumerate(["", *(_EXCHANGES[kind] for kind in cut.kinds)])
    )
    found = "" if set(cut.kinds) == {"block"} else load_geometry() + layout.pointers()
    return f"""define internal void @gj.block(ptr %gj.params, ptr noalias %gj.geometry,
    ptr %gj.scratch) nounwind {{
entry:
{found}  %gj.cells = alloca [{cut.cells} x i8], align 16
  br label %region.0
next:
  %state = phi i32 {states}
  switch i32 %state, label %return [ {cases} ]
{regions}return:
  ret void
}}
"""


def _range(
    number: int, parameters: Sequence[tuple[str, str]], layout: Layout, region: Region
) -> str:
    """Run one region for all threads of a block; return the number of the wait they came to."""
    shared = [*region.takes, *region.gives]
    cells = "".join(
        f"  %cell.{i}.p = getelementptr i8, ptr %gj.cells, i64 {value.place}\n"
        f"  %cell.{i} = load {value.type}, ptr %cell.{i}.p\n"
        for i, value in enumerate(shared)
    )
    gives = [*enumerate(region.gives, len(region.takes))]
    # A value that a thread doesn't give stays as it was. The loop holds no access of a cell, which
    # would have to be told from those of the kernel's memory.
    places = "".join(f"  %given.{i} = alloca {value.type}\n" for i, value in gives)
    before = "".join(f"  store {v.type} %cell.{i}, ptr %given.{i}\n" for i, v in gives)
    after = "".join(f"  %new.{i} = load {v.type}, ptr %given.{i}\n" for i, v in gives)
    kept = "".join(f"  store {v.type} %new.{i}, ptr %cell.{i}.p\n" for i, v in gives)
    more = [f"{value.type} %cell.{i}" for i, value in enumerate(region.takes)]
    more += [f"ptr %given.{i}" for i, _ in gives]
    # Kept apart, the regions take half the time to compile, and run as fast.
    return (
        f"define internal i32 @gj.range.{number}({_DECLARED}) noinline nounwind {{\nentry:\n"
        + load_geometry()
        + load_parameters(parameters, region.text)
        + layout.pointers()
        + cells
        + places
        + f"""  br label %z
z:
  %gj.tid.z = phi i32 [ 0, %entry ], [ %z.next, %z.latch ]
  %z.row = mul nuw nsw i32 %gj.tid.z, %gj.ntid.y
  br label %y
y:
  %gj.tid.y = phi i32 [ 0, %z ], [ %y.next, %y.latch ]
  %row = add nuw nsw i32 %z.row, %gj.tid.y
  %first = mul nuw nsw i32 %row, %gj.ntid.x
  br label %x
x:
  %gj.tid.x = phi i32 [ 0, %y ], [ %x.next, %x ]
  %gj.lin = add nuw nsw i32 %first, %gj.tid.x
{before}{call_thread(number, parameters, layout.local, more)}{after}\
  %x.next = add nuw nsw i32 %gj.tid.x, 1
  %x.more = icmp slt i32 %x.next, %gj.ntid.x
  br i1 %x.more, label %x, label %y.latch{loop_metadata(number)}
y.latch:
  %y.next = add nuw nsw i32 %gj.tid.y, 1
  %y.more = icmp slt i32 %y.next, %gj.ntid.y
  br i1 %y.more, label %y, label %z.latch
z.latch:
  %z.next = add nuw nsw i32 %gj.tid.z, 1
  %z.more = icmp slt i32 %z.next, %gj.ntid.z
  br i1 %z.more, label %z, label %done
done:
{kept}  ret i32 %gj.next
}}
"""
    )
