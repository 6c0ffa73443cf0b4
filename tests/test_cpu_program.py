"""Native replay: hand-made kernels, the worker pool, interruption, fork and exit."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from graphjit.backends.cpu import pool as pool_module
from graphjit.backends.cpu.items import MIN_PARALLEL_WORK, Step
from graphjit.backends.cpu.native import compile_ir, prelude
from graphjit.backends.cpu.pool import Pool, default_num_threads
from graphjit.backends.cpu.program import Program
from graphjit.kernel.packing import ParamImage, Relocation

SIGNATURE = "(ptr %params, ptr %dims, i64 %begin, i64 %end, ptr %scratch, i32 %shared)"


def parameter(index, name, kind="ptr"):
    return f"""
  %{name}.p = getelementptr ptr, ptr %params, i64 {index}
  %{name}.v = load ptr, ptr %{name}.p
  %{name} = load {kind}, ptr %{name}.v"""


def blocks(body):
    """A loop over the blocks, `%b`."""
    return f"""
  br label %head
head:
  %b = phi i64 [ %begin, %entry ], [ %b1, %tail ]
  %in = icmp slt i64 %b, %end
  br i1 %in, label %body, label %out
body:{body}
  br label %tail
tail:
  %b1 = add i64 %b, 1
  br label %head
out:
  ret void
}}
"""


# target[b] = a * source[n - 1 - b] + 1, so that blocks of one step need all of the step before.
MIRROR = (
    f"define void @test_mirror{SIGNATURE} {{\nentry:"
    + parameter(0, "target")
    + parameter(1, "source")
    + parameter(2, "n", "i64")
    + parameter(3, "a", "double")
    + blocks("""
  %last = sub i64 %n, 1
  %j = sub i64 %last, %b
  %sp = getelementptr double, ptr %source, i64 %j
  %s = load double, ptr %sp
  %m = fmul double %a, %s
  %r = fadd double %m, 1.0
  %tp = getelementptr double, ptr %target, i64 %b
  store double %r, ptr %tp""")
)

# Count block b in counts[b] after waiting for `ns`, with b kept in the scratch meanwhile.
COUNT = (
    f"define void @test_count{SIGNATURE} {{\nentry:"
    + parameter(0, "counts")
    + parameter(1, "ns", "i64")
    + blocks("""
  store volatile i64 %b, ptr %scratch
  %far = getelementptr i8, ptr %scratch, i64 992
  store volatile i64 %b, ptr %far
  %t0 = call i64 @now()
  %t1 = add i64 %t0, %ns
  br label %wait
wait:
  %t = call i64 @now()
  %early = icmp slt i64 %t, %t1
  br i1 %early, label %wait, label %go
go:
  %k = load volatile i64, ptr %scratch
  %k2 = load volatile i64, ptr %far
  %kk = and i64 %k, %k2
  %cp = getelementptr i64, ptr %counts, i64 %kk
  %c = load i64, ptr %cp
  %c1 = add i64 %c, 1
  store i64 %c1, ptr %cp""")
)

# Copy the 8 bytes of each of 5 parameters, the launch dimensions and the shared size to out.
DUMP = (
    f"define void @test_dump{SIGNATURE} {{\nentry:"
    + parameter(0, "out")
    + "".join(
        parameter(k, f"v{k}", "i64")
        + f"\n  %o{k} = getelementptr i64, ptr %out, i64 {k}\n  store i64 %v{k}, ptr %o{k}"
        for k in range(1, 6)
    )
    + """
  %od = getelementptr i64, ptr %out, i64 6
  %d = load [6 x i32], ptr %dims
  store [6 x i32] %d, ptr %od
  %os = getelementptr i64, ptr %out, i64 9
  store i32 %shared, ptr %os
  ret void
}
"""
)
MIRROR_AT, COUNT_AT, DUMP_AT = compile_ir(
    prelude() + MIRROR + COUNT + DUMP, ["test_mirror", "test_count", "test_dump"]
)

POINTERS = (Relocation(0, 0, 0, 8), Relocation(8, 1, 0, 8))


def mirror(n, flip=False, parallel=True):
    data = struct.pack("=QQqd", 0, 0, n, 0.0)
    pointers = (Relocation(0, 1, 0, 8), Relocation(8, 0, 0, 8)) if flip else POINTERS
    image = ParamImage(data, (0, 8, 16, 24), (*pointers, Relocation(24, 2, None, 8)))
    return Step(MIRROR_AT, image, (1, 1, 1), (n, 1, 1), name="mirror", parallel=parallel)


def count(grid, ns=0, parallel=True):
    image = ParamImage(struct.pack("=Qq", 0, ns), (0, 8), (Relocation(0, 0, 0, 8),))
    return Step(COUNT_AT, image, (1, 1, 1), grid, 0, 1000, "count", parallel)


_bound = []  # keeps the arrays alive


def bind(program, *values):
    _bound.append(values)
    for index, value in enumerate(values):
        if isinstance(value, np.ndarray):
            struct.pack_into("=Q", program.slot_buffer, 8 * index, value.ctypes.data)
        else:
            struct.pack_into("=d", program.slot_buffer, 8 * index, value)


def mirrored(source, a, steps):
    target, other = None, source
    for _ in range(steps):
        target = a * other[::-1] + 1
        other = target
    return target


@pytest.fixture(params=[1, 2, 5], ids="{} threads".format)
def pool(request):
    pool = Pool(request.param)
    yield pool
    pool.close()


@pytest.mark.parametrize("parallel", [False, True, 10, 10**6])
@pytest.mark.parametrize("n", [1, 7, 1000])
def test_each_step_sees_all_of_the_step_before(pool, n, parallel):
    program = Program([mirror(n, bool(k % 2), parallel) for k in range(51)], 3, pool)
    source, target = np.random.default_rng(n).random(n), np.zeros(n)
    expected = mirrored(source, 0.5, 51)
    bind(program, target, source, 0.5)
    program.run()
    assert np.allclose(target, expected, rtol=1e-12)


def test_every_block_runs_once_with_scratch_of_its_own(pool):
    grid = (13, 7, 11)
    program = Program([count(grid, ns) for ns in (0, 500)] * 20, 1, pool)
    counts = np.zeros(grid, np.int64)
    bind(program, counts)
    for _ in range(3):
        program.run()
    assert (counts == 120).all()


def test_no_steps():
    Program([], 0).run()


def test_relocations_of_every_size():
    data = bytes([0xEE]) * 48
    sizes = {1: 1, 2: 2, 3: 4, 4: 8}
    scalars = [Relocation(8 * k, k, None, size) for k, size in sizes.items()]
    relocations = (Relocation(0, 0, 0, 8), *scalars, Relocation(40, 0, -24, 8))
    image = ParamImage(data, tuple(range(0, 48, 8)), relocations)
    program = Program([Step(DUMP_AT, image, (3, 4, 5), (6, 7, 8), 99)], 5)
    out = np.zeros(10, np.int64)
    for value in (0x0123456789ABCDEF, 0x7FEDCBA987654321):
        struct.pack_into("=5q", program.slot_buffer, 0, out.ctypes.data, *[value] * 4)
        program.run()
        for k, size in sizes.items():
            got = out[k : k + 1].tobytes()
            assert got == struct.pack("=q", value)[:size] + data[size:8]
        assert out[5] == out.ctypes.data - 24
        assert out[6:9].view(np.int32).tolist() == [3, 4, 5, 6, 7, 8]
        assert out[9] == 99


def image_of(*relocations):
    return ParamImage(bytes(16), (0, 8), relocations)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step(DUMP_AT, image_of(), (1, 1, 1), (0, 1, 1), name="k"), "'k' has bad block"),
        (Step(DUMP_AT, image_of(), (1, 1, 1), (2**31, 1, 1)), "bad block"),
        (Step(DUMP_AT, image_of(Relocation(0, 2, 0, 8)), (1,) * 3, (1,) * 3), "slot 2 of 2"),
        (Step(DUMP_AT, image_of(Relocation(9, 0, 0, 8)), (1,) * 3, (1,) * 3), "outside"),
        (Step(DUMP_AT, image_of(Relocation(0, 0, 0, 4)), (1,) * 3, (1,) * 3), "4 bytes"),
        (Step(DUMP_AT, image_of(Relocation(0, 0, None, 3)), (1,) * 3, (1,) * 3), "3 bytes"),
    ],
)
def test_wrong_steps_are_refused(step, message):
    with pytest.raises(ValueError, match=message):
        Program([step], 2)


def test_close(pool):
    program = Program([mirror(100)], 3, pool)
    program.close()
    program.close()
    with pytest.raises(RuntimeError, match="closed"):
        program.run()


def test_pool_starts_again_after_close(pool):
    program = Program([count((100, 1, 1))], 1, pool)
    counts = np.zeros(100, np.int64)
    bind(program, counts)
    for _ in range(3):
        program.run()
        pool.close()
        pool.close()
    assert (counts == 3).all()


def test_number_of_threads(monkeypatch):
    monkeypatch.delenv("GRAPHJIT_NUM_THREADS", raising=False)
    assert 1 <= default_num_threads() <= os.cpu_count()
    monkeypatch.setenv("GRAPHJIT_NUM_THREADS", "3")
    assert Pool().num_threads == 3
    monkeypatch.setenv("GRAPHJIT_NUM_THREADS", "many")
    with pytest.raises(ValueError, match="'many'"):
        Pool()
    with pytest.raises(ValueError, match="at least one"):
        Pool(0)


def workers_of(pool):
    return [thread for thread in pool.crew()._threads if thread.is_alive()]


def test_threads_start_only_when_a_step_needs_them():
    pool = Pool(3)
    small = Program([mirror(100, parallel=MIN_PARALLEL_WORK - 1)], 3, pool)
    bind(small, np.zeros(100), np.zeros(100), 1.0)
    small.run()
    assert pool._crew is None
    large = Program([mirror(100, parallel=MIN_PARALLEL_WORK)], 3, pool)
    bind(large, np.zeros(100), np.zeros(100), 1.0)
    large.run()
    assert len(workers_of(pool)) == 2
    threads = pool.crew()._threads
    pool.close()
    assert not any(thread.is_alive() for thread in threads)


def test_uneven_blocks_are_shared_among_the_workers():
    pool = Pool(4)
    program = Program([count((64, 1, 1), 1_000_000)], 1, pool)
    bind(program, np.zeros(64, np.int64))
    program.run()
    start, cpu = time.perf_counter(), time.process_time()
    program.run()
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    if len(os.sched_getaffinity(0)) > 1 and used > 1.5 * wall:
        assert wall < 0.06
    pool.close()


def test_idle_workers_sleep():
    pool = Pool(4)
    program = Program([count((64, 1, 1))], 1, pool)
    bind(program, np.zeros(64, np.int64))
    program.run()
    time.sleep(0.05)
    cpu = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - cpu < 0.05
    pool.close()


def test_sleeping_workers_are_woken():
    pool = Pool(3)
    counts = np.zeros(60, np.int64)
    program = Program([count((60, 1, 1), 20_000)], 1, pool)
    bind(program, counts)
    for _ in range(40):
        program.run()
        time.sleep(0.001)
    assert (counts == 40).all()
    pool.close()


def test_programs_replayed_from_several_threads():
    pool = Pool(3)
    shared_counts = np.zeros(500, np.int64)
    shared = Program([count((500, 1, 1))], 1, pool)
    alone = Program([count((500, 1, 1), parallel=False)], 1, pool)
    serial_counts = np.zeros(500, np.int64)
    bind(shared, shared_counts)
    bind(alone, serial_counts)
    failures = []

    def work(seed):
        n = 50 + 13 * seed
        program = Program([mirror(n, bool(k % 2)) for k in range(21)], 3, pool)
        for turn in range(30):
            source, target = np.random.default_rng(turn).random(n), np.zeros(n)
            expected = mirrored(source, 0.25, 21)
            bind(program, target, source, 0.25)
            program.run()
            shared.run()
            alone.run()
            if not np.allclose(target, expected):
                failures.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (shared_counts == 240).all()
    assert (serial_counts == 240).all()
    pool.close()


class Interrupted(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an interval timer")
@pytest.mark.parametrize(
    "steps",
    [
        [count((4, 1, 1), 10_000_000, False)] * 25,
        [count((1000, 1, 1), 1_000_000)],
        [count((4, 1, 1), 250_000_000)],
    ],
    ids=["between steps", "within a step", "waiting for workers"],
)
def test_an_exception_from_a_signal_ends_a_long_replay(pool, steps):
    program = Program([*steps, count((2000, 1, 1))], 1, pool)
    counts = np.zeros(2000, np.int64)
    bind(program, counts)

    def handler(number, frame):
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0.06)
        with pytest.raises(Interrupted):
            program.run()
        assert time.perf_counter() - start < 0.7
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    # Neither this program nor another one of the pool is disturbed by what was dropped.
    after = counts.copy()
    other = Program([count((300, 1, 1))], 1, pool)
    others = np.zeros(300, np.int64)
    bind(other, others)
    other.run()
    assert (others == 1).all()
    assert (counts == after).all()
    assert counts[-1] == 0
    counts[:] = 0
    if steps[0].grid[0] < 1000:
        program.run()
        assert (counts[1000:] == 1).all()
        assert (counts[:4] == len(steps) + 1).all()


def test_replay_pauses_and_goes_on():
    pool = Pool(2)
    counts = np.zeros(40, np.int64)
    program = Program([count((40, 1, 1), 4_000_000)] * 2 + [count((40, 1, 1), 0, False)], 1, pool)
    bind(program, counts)
    program.run()
    assert (counts == 3).all()
    pool.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_replays():
    pool = Pool(3)
    counts = np.zeros(200, np.int64)
    programs = [Program([count((200, 1, 1), 0, way)], 1, pool) for way in (True, False)]
    for program in programs:
        bind(program, counts)
        program.run()
    stop = threading.Event()

    def busy():
        other = Program([count((200, 1, 1), 10_000)], 1, pool)
        bind(other, np.zeros(200, np.int64))
        while not stop.is_set():
            other.run()

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                counts[:] = 0
                for program in programs:
                    program.run()
                os._exit(0 if (counts == 2).all() and len(workers_of(pool)) == 2 else 1)
            _, status = os.waitpid(child, 0)
            assert status == 0
    finally:
        stop.set()
        thread.join()
    counts[:] = 0
    for program in programs:
        program.run()
    assert (counts == 2).all()
    pool.close()


EXIT = """
import atexit, struct, sys, threading, time
import numpy as np
sys.path.insert(0, {folder!r})
from test_cpu_program import Pool, Program, bind, count

counts = np.zeros(64, np.int64)
def late():
    program.run()
    print("late", counts.min(), flush=True)
if {late}:
    atexit.register(late)
pool = Pool(4)
program = Program([count((64, 1, 1), 100_000)], 1, pool)
bind(program, counts)
program.run()
def busy():
    while True:
        program.run()
if {busy}:
    threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.05)
print("end", flush=True)
"""


@pytest.mark.parametrize(("busy", "late"), [(False, False), (False, True), (True, False)])
def test_the_interpreter_exits_quietly(busy, late):
    folder = os.path.dirname(os.path.abspath(__file__))
    code = EXIT.format(folder=folder, busy=busy, late=late)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.split() == (["end", "late", "2"] if late else ["end"])


def test_a_pool_without_threads_left_still_works(monkeypatch):
    class Unstartable(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pool_module.threading, "Thread", Unstartable)
    pool = Pool(4)
    counts = np.zeros(100, np.int64)
    program = Program([count((100, 1, 1))], 1, pool)
    bind(program, counts)
    program.run()
    assert (counts == 1).all()
    pool.close()


def test_slot_buffer_is_stable():
    program = Program([], 4)
    assert ctypes.sizeof(program.slot_buffer) == 32
