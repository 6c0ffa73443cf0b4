"""The part of the scheduler that is the same for every kernel, compiled once a process.

States are the numbers of suspend points, in the order block barrier, reducing barrier, warp; 0 is
a thread that has returned. `last` is the highest number that is not yet of the kind asked for.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm

from graphjit.backends.cpu.host import compile_module, parse, target_machine

_SOURCE = """
; Whether threads agree on a word: that word, or -1.
define i32 @gj.agree(ptr %words, i32 %begin, i32 %end) nounwind {
entry:
  br label %next
next:
  %i = phi i32 [ %begin, %entry ], [ %i.next, %next ]
  %all = phi i32 [ -1, %entry ], [ %all.next, %next ]
  %any = phi i32 [ 0, %entry ], [ %any.next, %next ]
  %i64 = zext i32 %i to i64
  %p = getelementptr i32, ptr %words, i64 %i64
  %w = load i32, ptr %p
  %all.next = and i32 %all, %w
  %any.next = or i32 %any, %w
  %i.next = add nuw nsw i32 %i, 1
  %more = icmp ult i32 %i.next, %end
  br i1 %more, label %next, label %done
done:
  %same = icmp eq i32 %all.next, %any.next
  %r = select i1 %same, i32 %all.next, i32 -1
  ret i32 %r
}

; The lanes of the warp that may go on: those that wait with the same mask, once nobody of that
; mask is still on the way. Where the program doesn't say (no mask, or a mask that never fills), the
; lanes without a mask that stand at one place go first, then whoever is there.
define i32 @gj.group(ptr %states, ptr %exchange, i64 %stride, i32 %first, i32 %count,
    i32 %last) nounwind {
entry:
  %mask.row = mul i64 %stride, 2
  %masks = getelementptr i32, ptr %exchange, i64 %mask.row
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %i.next, %outer.next ]
  %open = phi i32 [ 0, %entry ], [ %open.next, %outer.next ]
  %partial = phi i32 [ 0, %entry ], [ %partial.next, %outer.next ]
  %i.t = add i32 %first, %i
  %i.64 = zext i32 %i.t to i64
  %i.sp = getelementptr i32, ptr %states, i64 %i.64
  %i.state = load i32, ptr %i.sp
  %i.mp = getelementptr i32, ptr %masks, i64 %i.64
  %i.mask = load i32, ptr %i.mp
  %i.waits = icmp sgt i32 %i.state, %last
  br i1 %i.waits, label %inner, label %outer.next
inner:
  %j = phi i32 [ 0, %outer ], [ %j.next, %inner ]
  %group = phi i32 [ 0, %outer ], [ %group.next, %inner ]
  %waiting = phi i32 [ 0, %outer ], [ %waiting.next, %inner ]
  %j.t = add i32 %first, %j
  %j.64 = zext i32 %j.t to i64
  %j.sp = getelementptr i32, ptr %states, i64 %j.64
  %j.state = load i32, ptr %j.sp
  %j.mp = getelementptr i32, ptr %masks, i64 %j.64
  %j.mask = load i32, ptr %j.mp
  %j.waits = icmp sgt i32 %j.state, %last
  %same.mask = icmp eq i32 %j.mask, %i.mask
  %same.state = icmp eq i32 %j.state, %i.state
  %masked = icmp ne i32 %i.mask, 0
  %either = or i1 %masked, %same.state
  %same0 = and i1 %same.mask, %either
  %same = and i1 %same0, %j.waits
  %same32 = zext i1 %same to i32
  %same.bit = shl i32 %same32, %j
  %group.next = or i32 %group, %same.bit
  %waits32 = zext i1 %j.waits to i32
  %waits.bit = shl i32 %waits32, %j
  %waiting.next = or i32 %waiting, %waits.bit
  %j.next = add nuw nsw i32 %j, 1
  %j.more = icmp ult i32 %j.next, %count
  br i1 %j.more, label %inner, label %inner.end
inner.end:
  %elsewhere0 = xor i32 %group.next, -1
  %elsewhere1 = and i32 %waiting.next, %i.mask
  %elsewhere = and i32 %elsewhere0, %elsewhere1
  %arrived = icmp eq i32 %elsewhere, 0
  %complete = and i1 %arrived, %masked
  br i1 %complete, label %found, label %note
note:
  %open.free = icmp eq i32 %open, 0
  %open.mine = select i1 %masked, i32 0, i32 %group.next
  %open.1 = select i1 %open.free, i32 %open.mine, i32 %open
  %partial.free = icmp eq i32 %partial, 0
  %partial.1 = select i1 %partial.free, i32 %group.next, i32 %partial
  br label %outer.next
outer.next:
  %open.next = phi i32 [ %open, %outer ], [ %open.1, %note ]
  %partial.next = phi i32 [ %partial, %outer ], [ %partial.1, %note ]
  %i.next = add nuw nsw i32 %i, 1
  %i.more = icmp ult i32 %i.next, %count
  br i1 %i.more, label %outer, label %nothing
nothing:
  %has.open = icmp ne i32 %open.next, 0
  %r = select i1 %has.open, i32 %open.next, i32 %partial.next
  ret i32 %r
found:
  ret i32 %group.next
}

; Freeze what the lanes of a group show each other, before any of them goes on and shows more.
define void @gj.exchange.group(ptr %x, i64 %stride, i32 %first, i32 %count, i32 %group) nounwind {
entry:
  %first64 = zext i32 %first to i64
  %value = getelementptr i32, ptr %x, i64 %first64
  %high = getelementptr i32, ptr %value, i64 %stride
  %row3 = mul i64 %stride, 3
  %seen = getelementptr i32, ptr %value, i64 %row3
  %seen.high = getelementptr i32, ptr %seen, i64 %stride
  %result = getelementptr i32, ptr %seen.high, i64 %stride
  %members = getelementptr i32, ptr %result, i64 %stride
  br label %freeze
freeze:
  %i = phi i64 [ 0, %entry ], [ %i.next, %freeze ]
  %ballot = phi i32 [ 0, %entry ], [ %ballot.next, %freeze ]
  %i32 = trunc i64 %i to i32
  %shift = lshr i32 %group, %i32
  %bit = and i32 %shift, 1
  %in = icmp ne i32 %bit, 0
  %v.p = getelementptr i32, ptr %value, i64 %i
  %v = load i32, ptr %v.p
  %h.p = getelementptr i32, ptr %high, i64 %i
  %h = load i32, ptr %h.p
  %s.p = getelementptr i32, ptr %seen, i64 %i
  %s = load i32, ptr %s.p
  %sh.p = getelementptr i32, ptr %seen.high, i64 %i
  %sh = load i32, ptr %sh.p
  %s.new = select i1 %in, i32 %v, i32 %s
  %sh.new = select i1 %in, i32 %h, i32 %sh
  store i32 %s.new, ptr %s.p
  store i32 %sh.new, ptr %sh.p
  %set = icmp ne i32 %v, 0
  %set32 = zext i1 %set to i32
  %set.in = and i32 %set32, %bit
  %set.bit = shl i32 %set.in, %i32
  %ballot.next = or i32 %ballot, %set.bit
  %i.next = add nuw nsw i64 %i, 1
  %i.more = icmp ult i64 %i.next, 32
  br i1 %i.more, label %freeze, label %tell
tell:
  %k = phi i64 [ 0, %freeze ], [ %k.next, %tell ]
  %k32 = trunc i64 %k to i32
  %k.shift = lshr i32 %group, %k32
  %k.bit = and i32 %k.shift, 1
  %k.in = icmp ne i32 %k.bit, 0
  %r.p = getelementptr i32, ptr %result, i64 %k
  %r = load i32, ptr %r.p
  %m.p = getelementptr i32, ptr %members, i64 %k
  %m = load i32, ptr %m.p
  %r.new = select i1 %k.in, i32 %ballot.next, i32 %r
  %m.new = select i1 %k.in, i32 %group, i32 %m
  store i32 %r.new, ptr %r.p
  store i32 %m.new, ptr %m.p
  %k.next = add nuw nsw i64 %k, 1
  %k.more = icmp ult i64 %k.next, 32
  br i1 %k.more, label %tell, label %end
end:
  ret void
}

; Exchange in every warp of a block whose threads have all come to one place: group by group of
; the lanes that name the same mask.
define void @gj.exchange.warps(ptr %exchange, i64 %stride, i32 %nt) nounwind {
entry:
  %mask.row = mul i64 %stride, 2
  %masks = getelementptr i32, ptr %exchange, i64 %mask.row
  br label %warp
warp:
  %first = phi i32 [ 0, %entry ], [ %first.next, %warp.next ]
  %left = sub i32 %nt, %first
  %count = call i32 @llvm.umin.i32(i32 %left, i32 32)
  %first64 = zext i32 %first to i64
  %mine = getelementptr i32, ptr %masks, i64 %first64
  %unused = sub i32 32, %count
  %everyone = lshr i32 -1, %unused
  br label %group
group:
  %open = phi i32 [ %everyone, %warp ], [ %open.next, %go ]
  %lane = call i32 @llvm.cttz.i32(i32 %open, i1 true)
  %lane64 = zext i32 %lane to i64
  %mask.p = getelementptr i32, ptr %mine, i64 %lane64
  %mask = load i32, ptr %mask.p
  br label %member
member:
  %i = phi i32 [ 0, %group ], [ %i.next, %member ]
  %found = phi i32 [ 0, %group ], [ %found.next, %member ]
  %i64 = zext i32 %i to i64
  %i.p = getelementptr i32, ptr %mine, i64 %i64
  %i.mask = load i32, ptr %i.p
  %same = icmp eq i32 %i.mask, %mask
  %same32 = zext i1 %same to i32
  %bit = shl i32 %same32, %i
  %found.next = or i32 %found, %bit
  %i.next = add nuw nsw i32 %i, 1
  %i.more = icmp ult i32 %i.next, 32
  br i1 %i.more, label %member, label %go
go:
  %members = and i32 %found.next, %open
  call void @gj.exchange.group(ptr %exchange, i64 %stride, i32 %first, i32 %count, i32 %members)
  %others = xor i32 %members, -1
  %open.next = and i32 %open, %others
  %again = icmp ne i32 %open.next, 0
  br i1 %again, label %group, label %warp.next
warp.next:
  %first.next = add i32 %first, 32
  %more = icmp ult i32 %first.next, %nt
  br i1 %more, label %warp, label %done
done:
  ret void
}

; Count the predicates of the threads at a reducing barrier, for each of them to read.
define void @gj.reduce(ptr %states, ptr %x, i64 %stride, i32 %nt, i32 %last) nounwind {
entry:
  %row5 = mul i64 %stride, 5
  %result = getelementptr i32, ptr %x, i64 %row5
  %members = getelementptr i32, ptr %result, i64 %stride
  %nt64 = zext i32 %nt to i64
  br label %count
count:
  %i = phi i64 [ 0, %entry ], [ %i.next, %count ]
  %true = phi i32 [ 0, %entry ], [ %true.next, %count ]
  %here = phi i32 [ 0, %entry ], [ %here.next, %count ]
  %s.p = getelementptr i32, ptr %states, i64 %i
  %s = load i32, ptr %s.p
  %v.p = getelementptr i32, ptr %x, i64 %i
  %v = load i32, ptr %v.p
  %waits = icmp sgt i32 %s, %last
  %waits32 = zext i1 %waits to i32
  %set = icmp ne i32 %v, 0
  %both = and i1 %set, %waits
  %both32 = zext i1 %both to i32
  %true.next = add i32 %true, %both32
  %here.next = add i32 %here, %waits32
  %i.next = add nuw nsw i64 %i, 1
  %i.more = icmp ult i64 %i.next, %nt64
  br i1 %i.more, label %count, label %tell
tell:
  %k = phi i64 [ 0, %count ], [ %k.next, %tell ]
  %r.p = getelementptr i32, ptr %result, i64 %k
  store i32 %true.next, ptr %r.p
  %m.p = getelementptr i32, ptr %members, i64 %k
  store i32 %here.next, ptr %m.p
  %k.next = add nuw nsw i64 %k, 1
  %k.more = icmp ult i64 %k.next, %nt64
  br i1 %k.more, label %tell, label %end
end:
  ret void
}

; The same where all threads of the block are there, and their states were never stored.
define void @gj.reduce.all(ptr %states, ptr %x, i64 %stride, i32 %nt) nounwind {
entry:
  %nt64 = zext i32 %nt to i64
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %p = getelementptr i32, ptr %states, i64 %i
  store i32 1, ptr %p
  %i.next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %i.next, %nt64
  br i1 %more, label %next, label %done
done:
  call void @gj.reduce(ptr %states, ptr %x, i64 %stride, i32 %nt, i32 0)
  ret void
}
"""

_SAME = """
; Whether lanes hold one word.
define i1 @gj.same.BITS(ptr %words, i32 %begin, i32 %end) nounwind {
entry:
  %b64 = zext i32 %begin to i64
  %b.p = getelementptr iBITS, ptr %words, i64 %b64
  %one = load iBITS, ptr %b.p
  br label %next
next:
  %i = phi i32 [ %begin, %entry ], [ %i.next, %next ]
  %diff = phi iBITS [ 0, %entry ], [ %diff.next, %next ]
  %i64 = zext i32 %i to i64
  %p = getelementptr iBITS, ptr %words, i64 %i64
  %w = load iBITS, ptr %p
  %x = xor iBITS %w, %one
  %diff.next = or iBITS %diff, %x
  %i.next = add nuw nsw i32 %i, 1
  %more = icmp ult i32 %i.next, %end
  br i1 %more, label %next, label %done
done:
  %r = icmp eq iBITS %diff.next, 0
  ret i1 %r
}
"""
_SOURCE += "\n".join(_SAME.replace("BITS", bits) for bits in ("8", "16", "32", "64"))

_SIGNATURES = {
    "gj.agree": "i32 (ptr, i32, i32)",
    **{f"gj.same.{bits}": "i1 (ptr, i32, i32)" for bits in (8, 16, 32, 64)},
    "gj.group": "i32 (ptr, ptr, i64, i32, i32, i32)",
    "gj.exchange.group": "void (ptr, i64, i32, i32, i32)",
    "gj.exchange.warps": "void (ptr, i64, i32)",
    "gj.reduce": "void (ptr, ptr, i64, i32, i32)",
    "gj.reduce.all": "void (ptr, ptr, i64, i32)",
}
_engines: list[Any] = []


def declarations(text: str) -> str:
    """Declarations of those of the scheduler's functions that LLVM text calls."""
    return "\n".join(
        f"declare {signature.replace(' (', f' @{name}(')} nounwind"
        for name, signature in _SIGNATURES.items()
        if f"@{name}(" in text
    )


@functools.cache
def provide(symbol: str) -> bool:
    """Make one of the scheduler's functions known to LLVM; say whether there is such a one."""
    if symbol not in _SIGNATURES:
        return False
    # One function at a time: most kernels need only the first.
    source = next(text for text in _SOURCE.split("\n\n") if f" @{symbol}(" in text)
    others = source.replace(f"@{symbol}(", "")
    for other in _SIGNATURES:
        if f"@{other}(" in others:
            provide(other)
    machine = target_machine()
    module = parse(source + declarations(others), machine)
    engine = compile_module(module, machine, unroll=False)
    llvm.add_symbol(symbol, engine.get_function_address(symbol))
    _engines.append(engine)
    return True
