"""The native half of the worker pool: how workers claim chunks, sleep and are woken.

One job at a time is published as `generation << 32 | chunks left` in a single word. Whoever wins a
compare-and-swap on that word owns a chunk, and the caller waits for chunks, never for workers, so
a worker that is late, asleep or gone costs nothing and the caller alone can finish any job.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from graphjit.backends.cpu.native import compile_ir, prelude
from graphjit.backends.cpu.sleep_native import SLEEP_IR

ENTRY_SIZE = 64
HEADER_SIZE = 256
ENTRY_LOCK = 8
ENTRY_SCRATCH = 16
WORKERS = 200
"""Where things are in the native structures below, in bytes."""

# Who waits spins for so long, then offers the CPU to others for so long, then sleeps.
_SPIN_NS = 10_000
_YIELD_NS = 40_000

TYPES = """
; state: 0 awake, 1 asleep or about to be; whoever changes 1 to 0 owes the lock a release
%Entry = type { i32, i32, ptr, ptr, [40 x i8] }            ; state, -, lock, scratch
; function, params, dims, blocks, blocks a chunk, chunks, shared, late relocations and their number;
; without a function, params are as many tasks as there are chunks
%Record = type { ptr, ptr, [6 x i32], i64, i64, i32, i32, ptr, i64 }
%Task = type { ptr, i64 }                                ; first part, parts
%Part = type { ptr, i64, i64 }                           ; record, blocks: first, one after last
%Pool = type { i64, [56 x i8], ptr, [56 x i8], i64, [56 x i8], i32, i32, i32, [52 x i8],
               [0 x %Entry] }    ; word; record; chunks done; sleepers, stop, workers; entries
"""

_POOL_IR = """
; Claim and run one chunk of the published job; false where there is none.
define internal i1 @help(ptr %pool, ptr %e) {
entry:
  br label %look
look:
  %w = load atomic i64, ptr %pool acquire, align 8
  %r = trunc i64 %w to i32
  %none = icmp eq i32 %r, 0
  br i1 %none, label %idle, label %claim
claim:                          ; the record is only followed once the swap has succeeded:
  %recp = getelementptr %Pool, ptr %pool, i32 0, i32 2  ; before, it may belong to a later job
  %rec = load atomic ptr, ptr %recp monotonic, align 8
  %w1 = sub i64 %w, 1
  %c = cmpxchg ptr %pool, i64 %w, i64 %w1 seq_cst monotonic
  %ok = extractvalue {i64, i1} %c, 1
  br i1 %ok, label %run, label %look
run:
  %fp = getelementptr %Record, ptr %rec, i32 0, i32 0
  %f = load ptr, ptr %fp
  %pp = getelementptr %Record, ptr %rec, i32 0, i32 1
  %params = load ptr, ptr %pp
  %dims = getelementptr %Record, ptr %rec, i32 0, i32 2
  %bp = getelementptr %Record, ptr %rec, i32 0, i32 3
  %blocks = load i64, ptr %bp
  %cp = getelementptr %Record, ptr %rec, i32 0, i32 4
  %chunk = load i64, ptr %cp
  %np = getelementptr %Record, ptr %rec, i32 0, i32 5
  %chunks = load i32, ptr %np
  %dp = getelementptr %Record, ptr %rec, i32 0, i32 6
  %shared = load i32, ptr %dp
  %scp = getelementptr %Entry, ptr %e, i32 0, i32 3
  %scratch = load ptr, ptr %scp
  %i = sub i32 %chunks, %r
  %i64 = zext i32 %i to i64
  %several = icmp eq ptr %f, null
  br i1 %several, label %task, label %chunk.of
task:
  %tp = getelementptr %Task, ptr %params, i64 %i64
  %part0 = load ptr, ptr %tp
  %tnp = getelementptr %Task, ptr %tp, i32 0, i32 1
  %parts = load i64, ptr %tnp
  br label %part
part:
  %k = phi i64 [ 0, %task ], [ %k1, %part ]
  %part.p = getelementptr %Part, ptr %part0, i64 %k
  %own = load ptr, ptr %part.p
  %obp = getelementptr %Part, ptr %part.p, i32 0, i32 1
  %own.begin = load i64, ptr %obp
  %oep = getelementptr %Part, ptr %part.p, i32 0, i32 2
  %own.end = load i64, ptr %oep
  %own.f = load ptr, ptr %own
  %opp = getelementptr %Record, ptr %own, i32 0, i32 1
  %own.params = load ptr, ptr %opp
  %own.dims = getelementptr %Record, ptr %own, i32 0, i32 2
  %odp = getelementptr %Record, ptr %own, i32 0, i32 6
  %own.shared = load i32, ptr %odp
  call void %own.f(ptr %own.params, ptr %own.dims, i64 %own.begin, i64 %own.end, ptr %scratch,
      i32 %own.shared)
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %parts
  br i1 %more, label %part, label %ran
chunk.of:
  %begin = mul i64 %i64, %chunk
  %end0 = add i64 %begin, %chunk
  %over = icmp sgt i64 %end0, %blocks
  %end = select i1 %over, i64 %blocks, i64 %end0
  call void %f(ptr %params, ptr %dims, i64 %begin, i64 %end, ptr %scratch, i32 %shared)
  br label %ran
ran:
  %donep = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %d = atomicrmw add ptr %donep, i64 1 seq_cst  ; from here on the record may be gone
  %d1 = add i64 %d, 1
  %all = zext i32 %chunks to i64
  %last = icmp eq i64 %d1, %all
  br i1 %last, label %tell, label %out
tell:
  %caller = call ptr @caller_of(ptr %pool)
  %t = call i1 @rouse(ptr %pool, ptr %caller)
  br label %out
out:
  ret i1 true
idle:
  ret i1 false
}

define void @graphjit_pool_worker(ptr %pool, i32 %index) {
entry:
  %e = call ptr @entry_of(ptr %pool, i32 %index)
  %stopp = getelementptr %Pool, ptr %pool, i32 0, i32 7
  br label %busy
busy:
  %stop = load atomic i32, ptr %stopp seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %work
work:
  %did = call i1 @help(ptr %pool, ptr %e)
  br i1 %did, label %busy, label %idle
idle:
  %t0 = call i64 @now()
  %polite = add i64 %t0, SPIN_NS
  %limit = add i64 %t0, YIELD_NS
  br label %spin
spin:
  %n = phi i32 [ 0, %idle ], [ %n1, %again ]
  %r = call i32 @left(ptr %pool)
  %some = icmp ne i32 %r, 0
  br i1 %some, label %busy, label %pause
pause:
  call void @relax()
  %n1 = add i32 %n, 1
  %n63 = and i32 %n1, 63
  %look = icmp eq i32 %n63, 0
  br i1 %look, label %clock, label %again
again:
  br label %spin
clock:
  %st = load atomic i32, ptr %stopp seq_cst, align 4
  %std = icmp ne i32 %st, 0
  br i1 %std, label %out, label %clock2
clock2:
  %t = call i64 @now()
  %rude = icmp slt i64 %t, %polite
  br i1 %rude, label %again, label %yield
yield:                          ; where CPUs are short, the one who has the work may wait for this
  %y = call i32 @graphjit_yield()
  %tired = icmp sgt i64 %t, %limit
  br i1 %tired, label %sleep, label %again
sleep:
  call void @announce_sleep(ptr %pool, ptr %e)
  %r2 = call i32 @left(ptr %pool)
  %st2 = load atomic i32, ptr %stopp seq_cst, align 4
  %why = or i32 %r2, %st2
  %up = icmp ne i32 %why, 0
  br i1 %up, label %stay, label %park
stay:
  call void @retract_sleep(ptr %pool, ptr %e)
  br label %busy
park:
  %l = call ptr @lock_of(ptr %e)
  %got = call i32 @graphjit_lock_acquire(ptr %l, i32 1)
  %r3 = call i32 @left(ptr %pool)
  %chain = icmp sgt i32 %r3, 1
  br i1 %chain, label %others, label %busy
others:                         ; a tree of wakes: no thread pays for more than four
  call void @wake(ptr %pool, i32 4)
  br label %busy
out:
  ret void
}

; Wait until all chunks are done; false where the deadline passed or a signal came first.
define internal i1 @wait(ptr %pool, i64 %all, i64 %deadline) {
entry:
  %donep = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %caller = call ptr @caller_of(ptr %pool)
  %d0 = load atomic i64, ptr %donep seq_cst, align 8
  %fin0 = icmp eq i64 %d0, %all
  br i1 %fin0, label %done, label %start
start:
  %t0 = call i64 @now()
  %polite = add i64 %t0, SPIN_NS
  %limit = add i64 %t0, YIELD_NS
  br label %spin
spin:
  %n = phi i32 [ 0, %start ], [ %n1, %again ]
  %d = load atomic i64, ptr %donep seq_cst, align 8
  %fin = icmp eq i64 %d, %all
  br i1 %fin, label %done, label %pause
pause:
  call void @relax()
  %n1 = add i32 %n, 1
  %n63 = and i32 %n1, 63
  %check = icmp eq i32 %n63, 0
  br i1 %check, label %clock, label %again
again:
  br label %spin
clock:
  %t1 = call i64 @now()
  %rude = icmp slt i64 %t1, %polite
  br i1 %rude, label %again, label %yield
yield:
  %y = call i32 @graphjit_yield()
  %tired = icmp sgt i64 %t1, %limit
  br i1 %tired, label %sleep, label %again
sleep:
  %t = call i64 @now()
  %rest = sub i64 %deadline, %t
  %late = icmp slt i64 %rest, 1000
  br i1 %late, label %out, label %nap
nap:
  %us = sdiv i64 %rest, 1000
  call void @announce_sleep(ptr %pool, ptr %caller)
  %d2 = load atomic i64, ptr %donep seq_cst, align 8
  %fin2 = icmp eq i64 %d2, %all
  br i1 %fin2, label %retract, label %park
park:
  %l = call ptr @lock_of(ptr %caller)
  %got = call i32 @graphjit_lock_acquire_timed(ptr %l, i64 %us, i32 1)
  %woken = icmp eq i32 %got, 1
  br i1 %woken, label %look, label %retract
retract:
  call void @retract_sleep(ptr %pool, ptr %caller)
  br label %look
look:
  %again_ok = phi i1 [ true, %park ], [ false, %retract ]
  %d3 = load atomic i64, ptr %donep seq_cst, align 8
  %fin3 = icmp eq i64 %d3, %all
  br i1 %fin3, label %done, label %spurious
spurious:
  br i1 %again_ok, label %sleep, label %out
done:
  ret i1 true
out:
  ret i1 false
}

; Publish a job and take part in it: 0 when it is finished, 1 when to call again with `resume`.
define i32 @graphjit_pool_run(ptr %pool, ptr %rec, i1 %resume, i64 %deadline) {
entry:
  %np = getelementptr %Record, ptr %rec, i32 0, i32 5
  %chunks = load i32, ptr %np
  %all = zext i32 %chunks to i64
  %recp = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %caller = call ptr @caller_of(ptr %pool)
  br i1 %resume, label %loop, label %publish
publish:
  store atomic ptr %rec, ptr %recp monotonic, align 8
  %donep = getelementptr %Pool, ptr %pool, i32 0, i32 4
  store atomic i64 0, ptr %donep monotonic, align 8
  %w = load atomic i64, ptr %pool monotonic, align 8
  %gen = and i64 %w, -4294967296
  %gen1 = add i64 %gen, 4294967296
  %w1 = or i64 %gen1, %all
  store atomic i64 %w1, ptr %pool seq_cst, align 8
  %spare = sub i32 %chunks, 1
  %few = icmp slt i32 %spare, 4
  %limit = select i1 %few, i32 %spare, i32 4
  call void @wake(ptr %pool, i32 %limit)
  br label %loop
loop:
  %did = call i1 @help(ptr %pool, ptr %caller)
  br i1 %did, label %clock, label %join
clock:
  %t = call i64 @now()
  %late = icmp sgt i64 %t, %deadline
  br i1 %late, label %pausing, label %loop
join:
  %fin = call i1 @wait(ptr %pool, i64 %all, i64 %deadline)
  br i1 %fin, label %finished, label %pausing
pausing:
  ret i32 1
finished:
  store atomic ptr null, ptr %recp monotonic, align 8
  ret i32 0
}

; Drop the chunks nobody has claimed and wait for the others.
define void @graphjit_pool_cancel(ptr %pool) {
entry:
  %recp = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %rec = load atomic ptr, ptr %recp monotonic, align 8
  %none = icmp eq ptr %rec, null
  br i1 %none, label %out, label %drop
drop:
  %w = load atomic i64, ptr %pool seq_cst, align 8
  %w0 = and i64 %w, -4294967296
  %c = cmpxchg ptr %pool, i64 %w, i64 %w0 seq_cst seq_cst
  %ok = extractvalue {i64, i1} %c, 1
  br i1 %ok, label %count, label %drop
count:
  %lost = and i64 %w, 4294967295
  %donep = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %d = atomicrmw add ptr %donep, i64 %lost seq_cst
  %np = getelementptr %Record, ptr %rec, i32 0, i32 5
  %chunks = load i32, ptr %np
  %all = zext i32 %chunks to i64
  br label %join
join:
  %t = call i64 @now()
  %deadline = add i64 %t, 1000000000
  %fin = call i1 @wait(ptr %pool, i64 %all, i64 %deadline)
  br i1 %fin, label %finished, label %join
finished:
  store atomic ptr null, ptr %recp monotonic, align 8
  br label %out
out:
  ret void
}

; Make every worker return as soon as its chunk is done.
define void @graphjit_pool_stop(ptr %pool) {
  %stopp = getelementptr %Pool, ptr %pool, i32 0, i32 7
  store atomic i32 1, ptr %stopp seq_cst, align 4
  call void @wake(ptr %pool, i32 2147483647)
  ret void
}
"""


class NativePool:
    """The pool's native functions."""

    def __init__(self) -> None:
        text = prelude() + TYPES + SLEEP_IR + _POOL_IR
        for name, value in (("SPIN_NS", _SPIN_NS), ("YIELD_NS", _YIELD_NS)):
            text = text.replace(name, str(value))
        names = ("worker", "run", "cancel", "stop")
        functions = compile_ir(text, [f"graphjit_pool_{name}" for name in names])
        worker, self.run, cancel, stop = functions
        pointer = ctypes.c_void_p
        self.worker: Any = ctypes.CFUNCTYPE(None, pointer, ctypes.c_int32)(worker)
        self.cancel: Any = ctypes.CFUNCTYPE(None, pointer)(cancel)
        self.stop: Any = ctypes.CFUNCTYPE(None, pointer)(stop)


@functools.cache
def native_pool() -> NativePool:
    """Return the functions, compiled at the first call."""
    return NativePool()
