"""How threads of the pool sleep and are woken: each has an entry with a lock of its own.

Who is about to sleep says so first and then looks once more for work; who ends that state, before
or after the thread is really asleep, owes it one release of its lock.
"""

SLEEP_IR = """
define internal ptr @entry_of(ptr %pool, i32 %index) alwaysinline {
  %e = getelementptr %Pool, ptr %pool, i32 0, i32 10, i32 %index
  ret ptr %e
}

define internal ptr @caller_of(ptr %pool) alwaysinline {
  %wp = getelementptr %Pool, ptr %pool, i32 0, i32 8
  %n = load i32, ptr %wp
  %e = call ptr @entry_of(ptr %pool, i32 %n)
  ret ptr %e
}

define internal i32 @left(ptr %pool) alwaysinline {
  %w = load atomic i64, ptr %pool seq_cst, align 8
  %r = trunc i64 %w to i32
  ret i32 %r
}

define internal void @announce_sleep(ptr %pool, ptr %e) {
  %sp = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %old = atomicrmw add ptr %sp, i32 1 seq_cst
  store atomic i32 1, ptr %e seq_cst, align 4
  ret void
}

; True where this call ended the sleep of `e` (or its intention to sleep).
define internal i1 @end_sleep(ptr %pool, ptr %e) {
  %s = load atomic i32, ptr %e seq_cst, align 4
  %asleep = icmp eq i32 %s, 1
  br i1 %asleep, label %try, label %no
try:
  %c = cmpxchg ptr %e, i32 1, i32 0 seq_cst seq_cst
  %ok = extractvalue {i32, i1} %c, 1
  br i1 %ok, label %yes, label %no
yes:
  %sp = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %old = atomicrmw sub ptr %sp, i32 1 seq_cst
  ret i1 true
no:
  ret i1 false
}

define internal ptr @lock_of(ptr %e) alwaysinline {
  %lp = getelementptr %Entry, ptr %e, i32 0, i32 2
  %l = load ptr, ptr %lp
  ret ptr %l
}

define internal i1 @rouse(ptr %pool, ptr %e) {
  %mine = call i1 @end_sleep(ptr %pool, ptr %e)
  br i1 %mine, label %wake, label %out
wake:
  %l = call ptr @lock_of(ptr %e)
  call void @graphjit_lock_release(ptr %l)
  br label %out
out:
  ret i1 %mine
}

; Take back an announced sleep. Where someone was quicker, their release must be consumed.
define internal void @retract_sleep(ptr %pool, ptr %e) {
  %mine = call i1 @end_sleep(ptr %pool, ptr %e)
  br i1 %mine, label %out, label %consume
consume:
  %l = call ptr @lock_of(ptr %e)
  %r = call i32 @graphjit_lock_acquire(ptr %l, i32 1)
  br label %out
out:
  ret void
}

define internal void @wake(ptr %pool, i32 %limit) {
entry:
  %sp = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %s = load atomic i32, ptr %sp seq_cst, align 4
  %wp = getelementptr %Pool, ptr %pool, i32 0, i32 8
  %n = load i32, ptr %wp
  %any = icmp sgt i32 %s, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %more = phi i32 [ %limit, %entry ], [ %more1, %next ]
  %in = icmp slt i32 %i, %n
  %want = icmp sgt i32 %more, 0
  %go = and i1 %in, %want
  br i1 %go, label %next, label %out
next:
  %e = call ptr @entry_of(ptr %pool, i32 %i)
  %woke = call i1 @rouse(ptr %pool, ptr %e)
  %w = zext i1 %woke to i32
  %more1 = sub i32 %more, %w
  %i1 = add i32 %i, 1
  br label %loop
out:
  ret void
}
"""
