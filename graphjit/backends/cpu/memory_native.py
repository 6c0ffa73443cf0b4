"""The native half of copies and fills: strided walks over any number of axes up to eight."""

from __future__ import annotations

import functools

from graphjit.backends.cpu.native import compile_ir

MAX_AXES = 8
_WIDTHS = (1, 2, 4, 8, 16)

# One row: n elements, `ds` and `ss` bytes apart. The accesses stay in order, because overlapping
# rows rely on it; LLVM checks for overlap itself where it vectorises.
_ROW_IR = """
define internal void @copy_row{bits}(ptr %dst, ptr %src, i64 %n, i64 %ds, i64 %ss) {{
entry:
  %dense = icmp eq i64 %ds, {size}
  br i1 %dense, label %packed, label %loop
packed:
  %same = icmp eq i64 %ss, 0
  br i1 %same, label %splat, label %gather
splat:
  %v0 = load i{bits}, ptr %src, align 1
  call void @fill_dense{bits}(ptr %dst, i{bits} %v0, i64 %n)
  ret void
gather:
  %i = phi i64 [ 0, %packed ], [ %i1, %gather ]
  %so = mul i64 %i, %ss
  %sp = getelementptr i8, ptr %src, i64 %so
  %v = load i{bits}, ptr %sp, align 1
  %dp = getelementptr i{bits}, ptr %dst, i64 %i
  store i{bits} %v, ptr %dp, align 1
  %i1 = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %gather, label %out
loop:
  %j = phi i64 [ 0, %entry ], [ %j1, %loop ]
  %so2 = mul i64 %j, %ss
  %sp2 = getelementptr i8, ptr %src, i64 %so2
  %v2 = load i{bits}, ptr %sp2, align 1
  %do2 = mul i64 %j, %ds
  %dp2 = getelementptr i8, ptr %dst, i64 %do2
  store i{bits} %v2, ptr %dp2, align 1
  %j1 = add nuw nsw i64 %j, 1
  %more2 = icmp slt i64 %j1, %n
  br i1 %more2, label %loop, label %out
out:
  ret void
}}

define internal void @fill_dense{bits}(ptr %dst, i{bits} %v, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %dp = getelementptr i{bits}, ptr %dst, i64 %i
  store i{bits} %v, ptr %dp, align 1
  %i1 = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""

_COPY_IR = """
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.trap()
declare ptr @malloc(i64)
declare void @free(ptr)

define internal void @copy_any(ptr %dst, ptr %src, i64 %n, i64 %ds, i64 %ss, i64 %size) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %so = mul i64 %i, %ss
  %sp = getelementptr i8, ptr %src, i64 %so
  %do = mul i64 %i, %ds
  %dp = getelementptr i8, ptr %dst, i64 %do
  call void @llvm.memmove.p0.p0.i64(ptr %dp, ptr %sp, i64 %size, i1 false)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}

define internal void @copy_row(ptr %dst, ptr %src, i64 %n, i64 %ds, i64 %ss, i64 %size) {
  %dd = icmp eq i64 %ds, %size
  %sd = icmp eq i64 %ss, %size
  %dense = and i1 %dd, %sd
  br i1 %dense, label %run, label %strided
run:
  %bytes = mul i64 %n, %size
  call void @llvm.memmove.p0.p0.i64(ptr %dst, ptr %src, i64 %bytes, i1 false)
  ret void
strided:
  switch i64 %size, label %any [ CASES ]
ROWS
any:
  call void @copy_any(ptr %dst, ptr %src, i64 %n, i64 %ds, i64 %ss, i64 %size)
  ret void
}

; Elements `first` to before `last`, counted in row-major order of `shape`.
define internal void @walk(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds, ptr %ss,
                           i64 %first, i64 %last) {
entry:
  %index = alloca [8 x i64]
  %in = sub i64 %nd, 1
  %np = getelementptr i64, ptr %shape, i64 %in
  %inner = load i64, ptr %np
  %dip = getelementptr i64, ptr %ds, i64 %in
  %di = load i64, ptr %dip
  %sip = getelementptr i64, ptr %ss, i64 %in
  %si = load i64, ptr %sip
  %row = udiv i64 %first, %inner
  %col = urem i64 %first, %inner
  %total = sub i64 %last, %first
  %empty = icmp sle i64 %total, 0
  br i1 %empty, label %out, label %decode
decode:
  %a = phi i64 [ %in, %entry ], [ %a1, %place ]
  %rest = phi i64 [ %row, %entry ], [ %rest1, %place ]
  %d = phi ptr [ %dst, %entry ], [ %d1, %place ]
  %s = phi ptr [ %src, %entry ], [ %s1, %place ]
  %top = icmp eq i64 %a, 0
  br i1 %top, label %rows, label %place
place:
  %a1 = sub i64 %a, 1
  %xp = getelementptr i64, ptr %shape, i64 %a1
  %x = load i64, ptr %xp
  %i = urem i64 %rest, %x
  %rest1 = udiv i64 %rest, %x
  %ip = getelementptr i64, ptr %index, i64 %a1
  store i64 %i, ptr %ip
  %dap = getelementptr i64, ptr %ds, i64 %a1
  %da = load i64, ptr %dap
  %dm = mul i64 %i, %da
  %d1 = getelementptr i8, ptr %d, i64 %dm
  %sap = getelementptr i64, ptr %ss, i64 %a1
  %sa = load i64, ptr %sap
  %sm = mul i64 %i, %sa
  %s1 = getelementptr i8, ptr %s, i64 %sm
  br label %decode
rows:
  %dr = phi ptr [ %d, %decode ], [ %dn, %next ]
  %sr = phi ptr [ %s, %decode ], [ %sn, %next ]
  %c = phi i64 [ %col, %decode ], [ 0, %next ]
  %left = phi i64 [ %total, %decode ], [ %left1, %next ]
  %room = sub i64 %inner, %c
  %part = icmp slt i64 %left, %room
  %n = select i1 %part, i64 %left, i64 %room
  %dc = mul i64 %c, %di
  %dq = getelementptr i8, ptr %dr, i64 %dc
  %sc = mul i64 %c, %si
  %sq = getelementptr i8, ptr %sr, i64 %sc
  call void @copy_row(ptr %dq, ptr %sq, i64 %n, i64 %di, i64 %si, i64 %size)
  %left1 = sub i64 %left, %n
  %fin = icmp eq i64 %left1, 0
  br i1 %fin, label %out, label %carry
carry:
  %b = phi i64 [ %in, %rows ], [ %b1, %wrap ]
  %dw = phi ptr [ %dr, %rows ], [ %dback, %wrap ]
  %sw = phi ptr [ %sr, %rows ], [ %sback, %wrap ]
  %b1 = sub i64 %b, 1
  %jp = getelementptr i64, ptr %index, i64 %b1
  %j = load i64, ptr %jp
  %j1 = add i64 %j, 1
  store i64 %j1, ptr %jp
  %dbp = getelementptr i64, ptr %ds, i64 %b1
  %db = load i64, ptr %dbp
  %dn = getelementptr i8, ptr %dw, i64 %db
  %sbp = getelementptr i64, ptr %ss, i64 %b1
  %sb = load i64, ptr %sbp
  %sn = getelementptr i8, ptr %sw, i64 %sb
  %ep = getelementptr i64, ptr %shape, i64 %b1
  %e = load i64, ptr %ep
  %full = icmp eq i64 %j1, %e
  br i1 %full, label %wrap, label %next
wrap:
  store i64 0, ptr %jp
  %dm2 = mul i64 %db, %e
  %dneg = sub i64 0, %dm2
  %dback = getelementptr i8, ptr %dn, i64 %dneg
  %sm2 = mul i64 %sb, %e
  %sneg = sub i64 0, %sm2
  %sback = getelementptr i8, ptr %sn, i64 %sneg
  br label %carry
next:
  br label %rows
out:
  ret void
}

; What is known about a pair of views: whether their extents meet, whether their strides are equal,
; whether each axis of dst steps over all inner ones, how many elements there are.
%Facts = type { i1, i1, i1, i64 }

define internal %Facts @compare(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds,
                                ptr %ss) {
entry:
  %d0 = ptrtoint ptr %dst to i64
  %s0 = ptrtoint ptr %src to i64
  br label %loop
loop:
  %a = phi i64 [ %nd, %entry ], [ %a1, %body ]
  %total = phi i64 [ 1, %entry ], [ %total1, %body ]
  %span = phi i64 [ %size, %entry ], [ %span1, %body ]
  %slo = phi i64 [ %s0, %entry ], [ %slo1, %body ]
  %shi = phi i64 [ %s0, %entry ], [ %shi1, %body ]
  %same = phi i1 [ true, %entry ], [ %same1, %body ]
  %nested = phi i1 [ true, %entry ], [ %nested1, %body ]
  %more = icmp sgt i64 %a, 0
  br i1 %more, label %body, label %done
body:
  %a1 = sub i64 %a, 1
  %np = getelementptr i64, ptr %shape, i64 %a1
  %n = load i64, ptr %np
  %dp = getelementptr i64, ptr %ds, i64 %a1
  %d = load i64, ptr %dp
  %sp = getelementptr i64, ptr %ss, i64 %a1
  %s = load i64, ptr %sp
  %total1 = mul i64 %total, %n
  %n1 = sub i64 %n, 1
  %reach = mul i64 %n1, %d
  %span1 = add i64 %span, %reach
  %sreach = mul i64 %n1, %s
  %neg = icmp slt i64 %sreach, 0
  %down = select i1 %neg, i64 %sreach, i64 0
  %up = select i1 %neg, i64 0, i64 %sreach
  %slo1 = add i64 %slo, %down
  %shi1 = add i64 %shi, %up
  %eq = icmp eq i64 %d, %s
  %same1 = and i1 %same, %eq
  %over = icmp sge i64 %d, %span
  %nested1 = and i1 %nested, %over
  br label %loop
done:
  %dend = add i64 %d0, %span
  %send = add i64 %shi, %size
  %before = icmp ule i64 %dend, %slo
  %after = icmp ule i64 %send, %d0
  %apart = or i1 %before, %after
  %meet = xor i1 %apart, true
  %f0 = insertvalue %Facts undef, i1 %meet, 0
  %f1 = insertvalue %Facts %f0, i1 %same, 1
  %f2 = insertvalue %Facts %f1, i1 %nested, 2
  %f3 = insertvalue %Facts %f2, i64 %total, 3
  ret %Facts %f3
}

; dst and src overlap, with equal strides, and dst is higher: from the last row to the first.
define internal void @walk_back(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds,
                                i64 %total) {
entry:
  %back = alloca [8 x i64]
  %in = sub i64 %nd, 1
  br label %loop
loop:
  %a = phi i64 [ 0, %entry ], [ %a1, %body ]
  %off = phi i64 [ 0, %entry ], [ %off1, %body ]
  %more = icmp slt i64 %a, %nd
  br i1 %more, label %body, label %done
body:
  %np = getelementptr i64, ptr %shape, i64 %a
  %n = load i64, ptr %np
  %dp = getelementptr i64, ptr %ds, i64 %a
  %d = load i64, ptr %dp
  %bp = getelementptr i64, ptr %back, i64 %a
  %last = icmp eq i64 %a, %in
  %dense = icmp eq i64 %d, %size
  %keep = and i1 %last, %dense              ; memmove takes a dense row either way
  %neg = sub i64 0, %d
  %b = select i1 %keep, i64 %d, i64 %neg
  store i64 %b, ptr %bp
  %n1 = sub i64 %n, 1
  %reach = mul i64 %n1, %d
  %add = select i1 %keep, i64 0, i64 %reach
  %off1 = add i64 %off, %add
  %a1 = add i64 %a, 1
  br label %loop
done:
  %dq = getelementptr i8, ptr %dst, i64 %off
  %sq = getelementptr i8, ptr %src, i64 %off
  call void @walk(ptr %dq, ptr %sq, i64 %size, i64 %nd, ptr %shape, ptr %back, ptr %back, i64 0,
                  i64 %total)
  ret void
}

define internal void @copy_through(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds,
                                   ptr %ss, i64 %total) {
entry:
  %packed = alloca [8 x i64]
  br label %loop
loop:
  %a = phi i64 [ %nd, %entry ], [ %a1, %body ]
  %step = phi i64 [ %size, %entry ], [ %step1, %body ]
  %more = icmp sgt i64 %a, 0
  br i1 %more, label %body, label %go
body:
  %a1 = sub i64 %a, 1
  %pp = getelementptr i64, ptr %packed, i64 %a1
  store i64 %step, ptr %pp
  %np = getelementptr i64, ptr %shape, i64 %a1
  %n = load i64, ptr %np
  %step1 = mul i64 %step, %n
  br label %loop
go:
  %tmp = call ptr @malloc(i64 %step)
  %none = icmp eq ptr %tmp, null
  br i1 %none, label %full, label %copy
full:
  call void @llvm.trap()
  unreachable
copy:
  call void @walk(ptr %tmp, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %packed, ptr %ss, i64 0,
                  i64 %total)
  call void @walk(ptr %dst, ptr %tmp, i64 %size, i64 %nd, ptr %shape, ptr %ds, ptr %packed, i64 0,
                  i64 %total)
  call void @free(ptr %tmp)
  ret void
}

define internal i64 @share(i64 %total, i64 %block, ptr %dims) {
  %gp = getelementptr i32, ptr %dims, i64 3
  %g32 = load i32, ptr %gp
  %g = zext i32 %g32 to i64
  %up = add i64 %total, %g
  %up1 = sub i64 %up, 1
  %per = udiv i64 %up1, %g
  %at = mul i64 %per, %block
  %over = icmp sgt i64 %at, %total
  %r = select i1 %over, i64 %total, i64 %at
  ret i64 %r
}

define void @graphjit_copy(ptr %params, ptr %dims, i64 %begin, i64 %end, ptr %scratch,
                           i32 %shared) {
LOAD_0_dst
LOAD_1_src
LOAD_2_size
LOAD_3_nd
ARRAY_4_shape
ARRAY_5_ds
ARRAY_6_ss
  %facts = call %Facts @compare(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds,
                                ptr %ss)
  %meet = extractvalue %Facts %facts, 0
  %total = extractvalue %Facts %facts, 3
  br i1 %meet, label %overlap, label %apart
apart:
  %first = call i64 @share(i64 %total, i64 %begin, ptr %dims)
  %last = call i64 @share(i64 %total, i64 %end, ptr %dims)
  call void @walk(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds, ptr %ss, i64 %first,
                  i64 %last)
  ret void
overlap:                        ; order matters: who has the first block does all of them
  %mine = icmp eq i64 %begin, 0
  br i1 %mine, label %all, label %out
all:
  %same = extractvalue %Facts %facts, 1
  %nested = extractvalue %Facts %facts, 2
  %easy = and i1 %same, %nested
  br i1 %easy, label %shifted, label %hard
hard:
  call void @copy_through(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds, ptr %ss,
                          i64 %total)
  ret void
shifted:
  %higher = icmp ugt ptr %dst, %src
  br i1 %higher, label %back, label %forth
back:
  call void @walk_back(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds, i64 %total)
  ret void
forth:
  call void @walk(ptr %dst, ptr %src, i64 %size, i64 %nd, ptr %shape, ptr %ds, ptr %ss, i64 0,
                  i64 %total)
  ret void
out:
  ret void
}

; A fill is a copy whose source strides are all zero.
define void @graphjit_fill(ptr %params, ptr %dims, i64 %begin, i64 %end, ptr %scratch,
                           i32 %shared) {
  %zero = alloca [8 x i64]
  store [8 x i64] zeroinitializer, ptr %zero
LOAD_0_dst
ARRAY_1_pattern
LOAD_2_size
LOAD_3_nd
ARRAY_4_shape
ARRAY_5_ds
LOAD_6_total
  %first = call i64 @share(i64 %total, i64 %begin, ptr %dims)
  %last = call i64 @share(i64 %total, i64 %end, ptr %dims)
  call void @walk(ptr %dst, ptr %pattern, i64 %size, i64 %nd, ptr %shape, ptr %ds, ptr %zero,
                  i64 %first, i64 %last)
  ret void
}
"""


def _argument(line: str) -> str:
    """Return IR that reads a parameter: LOAD its value, or for ARRAY the address of its first."""
    kind, index, name = line.split("_")
    at = f"  %{name}.p = getelementptr ptr, ptr %params, i64 {index}\n"
    if kind == "ARRAY":
        return at + f"  %{name} = load ptr, ptr %{name}.p"
    held = "ptr" if name in ("dst", "src") else "i64"
    return at + (f"  %{name}.v = load ptr, ptr %{name}.p\n  %{name} = load {held}, ptr %{name}.v")


@functools.cache
def native_memory_kernels() -> tuple[int, int]:
    """Return the addresses of the copy and the fill kernel, compiled at the first call."""
    cases = " ".join(f"i64 {size}, label %row{size}" for size in _WIDTHS)
    rows = "\n".join(
        f"row{size}:\n  call void @copy_row{8 * size}(ptr %dst, ptr %src, i64 %n, i64 %ds, "
        f"i64 %ss)\n  ret void"
        for size in _WIDTHS
    )
    lines = _COPY_IR.replace("CASES", cases).replace("ROWS", rows).splitlines()
    text = "\n".join(
        _argument(line) if line.startswith(("LOAD_", "ARRAY_")) else line for line in lines
    )
    text += "".join(_ROW_IR.format(bits=8 * size, size=size) for size in _WIDTHS)
    copy, fill = compile_ir(text, ["graphjit_copy", "graphjit_fill"])
    return copy, fill
