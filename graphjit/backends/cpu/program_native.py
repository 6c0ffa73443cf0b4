"""The native half of a program: its tables in memory, and the loop over them."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any

from graphjit.backends.cpu.native import compile_ir, prelude
from graphjit.backends.cpu.pool_native import TYPES

_PAUSE_NS = 50_000_000

_REPLAY_IR = """
%Relocation = type { ptr, ptr, i64, i64 }                  ; target, slot, addend, size
; records, count, next (-1: from the start), in the middle of it, scratch, relocations, their number
%Program = type { ptr, i64, i64, i64, ptr, ptr, i64 }

; Write what slots hold by now.
define internal void @relocate(ptr %first, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %in = icmp slt i64 %i, %n
  br i1 %in, label %body, label %out
body:
  %r = getelementptr %Relocation, ptr %first, i64 %i
  %target = load ptr, ptr %r
  %sp = getelementptr %Relocation, ptr %r, i32 0, i32 1
  %slot = load ptr, ptr %sp
  %ap = getelementptr %Relocation, ptr %r, i32 0, i32 2
  %a = load i64, ptr %ap
  %zp = getelementptr %Relocation, ptr %r, i32 0, i32 3
  %size = load i64, ptr %zp
  %v = load i64, ptr %slot, align 1
  %s = add i64 %v, %a
  switch i64 %size, label %eight [ i64 4, label %four  i64 2, label %two  i64 1, label %one ]
eight:
  store i64 %s, ptr %target, align 1
  br label %next
four:
  %s4 = trunc i64 %s to i32
  store i32 %s4, ptr %target, align 1
  br label %next
two:
  %s2 = trunc i64 %s to i16
  store i16 %s2, ptr %target, align 1
  br label %next
one:
  %s1 = trunc i64 %s to i8
  store i8 %s1, ptr %target, align 1
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}

; 0 when finished, 1 when to be called again, 2 when after what the host does.
define i32 @graphjit_replay(ptr %program, ptr %pool) {
entry:
  %t0 = call i64 @now()
  %deadline = add i64 %t0, PAUSE_NS
  %rp = getelementptr %Program, ptr %program, i32 0, i32 0
  %records = load ptr, ptr %rp
  %cp = getelementptr %Program, ptr %program, i32 0, i32 1
  %count = load i64, ptr %cp
  %nextp = getelementptr %Program, ptr %program, i32 0, i32 2
  %next = load i64, ptr %nextp
  %midp = getelementptr %Program, ptr %program, i32 0, i32 3
  %mid = load i64, ptr %midp
  %scp = getelementptr %Program, ptr %program, i32 0, i32 4
  %scratch = load ptr, ptr %scp
  %fresh = icmp slt i64 %next, 0
  br i1 %fresh, label %relocate, label %again
relocate:
  %rlp = getelementptr %Program, ptr %program, i32 0, i32 5
  %relocations = load ptr, ptr %rlp
  %rnp = getelementptr %Program, ptr %program, i32 0, i32 6
  %relocations_n = load i64, ptr %rnp
  call void @relocate(ptr %relocations, i64 %relocations_n)
  br label %loop
again:
  %was_mid = icmp ne i64 %mid, 0
  store i64 0, ptr %midp
  br label %loop
loop:
  %i = phi i64 [ 0, %relocate ], [ %next, %again ], [ %following, %clock ]
  %resume = phi i1 [ false, %relocate ], [ %was_mid, %again ], [ false, %clock ]
  %in = icmp slt i64 %i, %count
  br i1 %in, label %step, label %finished
step:
  %rec = getelementptr %Record, ptr %records, i64 %i
  %np = getelementptr %Record, ptr %rec, i32 0, i32 5
  %chunks = load i32, ptr %np
  %lp = getelementptr %Record, ptr %rec, i32 0, i32 7
  %late = load ptr, ptr %lp
  %lnp = getelementptr %Record, ptr %rec, i32 0, i32 8
  %late_n = load i64, ptr %lnp
  call void @relocate(ptr %late, i64 %late_n)
  %i1 = add i64 %i, 1
  %bp = getelementptr %Record, ptr %rec, i32 0, i32 3
  %blocks = load i64, ptr %bp
  %many = icmp sgt i32 %chunks, 1
  br i1 %many, label %spread, label %single
single:
  switch i32 %chunks, label %alone [ i32 0, label %jump  i32 -1, label %host ]
host:
  store i64 %i1, ptr %nextp
  ret i32 2
jump:                                                       ; unless a slot has the value
  %jp = getelementptr %Record, ptr %rec, i32 0, i32 4
  %to = load i64, ptr %jp
  %tp = load ptr, ptr %rec
  %always = icmp eq ptr %tp, null
  br i1 %always, label %leap, label %test
test:
  %word = load i64, ptr %tp
  %stays = icmp eq i64 %word, %blocks
  br i1 %stays, label %clock, label %leap
leap:
  br label %clock
alone:
  %fp = getelementptr %Record, ptr %rec, i32 0, i32 0
  %f = load ptr, ptr %fp
  %pp = getelementptr %Record, ptr %rec, i32 0, i32 1
  %params = load ptr, ptr %pp
  %dims = getelementptr %Record, ptr %rec, i32 0, i32 2
  %dp = getelementptr %Record, ptr %rec, i32 0, i32 6
  %shared = load i32, ptr %dp
  call void %f(ptr %params, ptr %dims, i64 0, i64 %blocks, ptr %scratch, i32 %shared)
  br label %clock
spread:
  %run = inttoptr i64 POOL_RUN to ptr
  %state = call i32 %run(ptr %pool, ptr %rec, i1 %resume, i64 %deadline)
  %paused = icmp ne i32 %state, 0
  br i1 %paused, label %middle, label %clock
clock:
  %following = phi i64 [ %i1, %alone ], [ %i1, %spread ], [ %i1, %test ], [ %to, %leap ]
  %t = call i64 @now()
  %overdue = icmp sgt i64 %t, %deadline
  br i1 %overdue, label %between, label %loop
between:
  store i64 %following, ptr %nextp
  ret i32 1
middle:
  store i64 %i, ptr %nextp
  store i64 1, ptr %midp
  ret i32 1
finished:
  ret i32 0
}
"""

SIZES = (8, 4, 2, 1)
PROGRAM = struct.Struct("=QqqqQQq")
RECORD = struct.Struct("=QQ6iqqiiQq")
RELOCATION = struct.Struct("=QQqq")
TASK = struct.Struct("=Qq")
PART = struct.Struct("=Qqq")
PROGRAM_RELOCATIONS = 40
RECORD_PARAMS = 8
RECORD_LATE = 64
CURSOR = struct.Struct("=qqQ")
CALLS = 2
"""What the replay returns where Python is to be called."""
CURSOR_OFFSET = 16


@functools.cache
def native_replay(pool_run: int) -> Any:
    """The native function that replays a program, given the address of the pool's."""
    text = _REPLAY_IR.replace("PAUSE_NS", str(_PAUSE_NS)).replace("POOL_RUN", str(pool_run))
    (address,) = compile_ir(prelude() + TYPES + text, ["graphjit_replay"])
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(address)
