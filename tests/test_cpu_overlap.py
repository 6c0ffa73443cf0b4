"""Steps of the CPU that run at the same time: which, in which order, and with what results."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphjit as gj
from graphjit.backends.cpu import overlap, steps
from graphjit.backends.cpu.items import MIN_PARALLEL_WORK, Step, Together
from graphjit.backends.cpu.native import compile_ir, prelude
from graphjit.backends.cpu.overlap import overlapped
from graphjit.backends.cpu.pool import Pool
from graphjit.backends.cpu.program import Program
from graphjit.kernel.packing import ParamImage, Relocation

from .programs import grid, increment
from .test_cpu_program import SIGNATURE, bind, count, mirror, mirrored, parameter
from .test_properties import STEP, Eager, Traced, run

LARGE = MIN_PARALLEL_WORK


def step(work: int, late: bool = False) -> Step:
    return Step(1, ParamImage(b"", (), ()), (1, 1, 1), (8, 1, 1), parallel=work, is_late=late)


def tasks_of(item: Any) -> list[list[Step]]:
    return [list(task) for task in item.tasks] if isinstance(item, Together) else [[item]]


@st.composite
def dags(draw: Any) -> tuple[list[Step], set[tuple[int, int]]]:
    n = draw(st.integers(0, 40))
    work = st.sampled_from((0, 100, 3000, 20_000, LARGE, 10 * LARGE))
    late = st.sampled_from((False,) * 9 + (True,))
    made = [step(draw(work), draw(late)) for _ in range(n)]
    pairs = st.tuples(st.integers(0, max(0, n - 1)), st.integers(1, 6))
    edges = {(a, a + b) for a, b in draw(st.lists(pairs, max_size=2 * n)) if a + b < n}
    return made, edges


@given(dags(), st.integers(1, 5))
def test_every_step_once_and_after_what_it_waits_for(dag, threads):
    made, edges = dag
    number = {id(each): index for index, each in enumerate(made)}
    assert len(number) == len(made)
    place = {}
    for position, item in enumerate(overlapped(made, edges, threads)):
        if isinstance(item, Together):
            assert threads > 1 and len(item.tasks) > 1
            assert not any(each.is_late for task in item.tasks for each in task)
        for task, members in enumerate(tasks_of(item)):
            for index, each in enumerate(members):
                assert number[id(each)] not in place
                place[number[id(each)]] = position, task, index
    assert place.keys() == set(range(len(made)))
    for before, after in edges:
        first, then = place[before], place[after]
        # In an earlier item, or earlier in the same task.
        assert first[0] < then[0] or (first[:2] == then[:2] and first[2] < then[2])


def test_chains_are_tasks_though_written_one_after_another():
    made = [step(1000) for _ in range(8 * 50)]
    edges = [(n, n + 1) for n in range(len(made) - 1) if n % 50 != 49]
    (item,) = overlapped(made, edges, 4)
    assert sorted(tasks_of(item), key=lambda task: made.index(task[0])) == [
        made[k : k + 50] for k in range(0, 400, 50)
    ]


def test_what_is_before_and_after_chains_stands_alone():
    chains, length = 4, 30
    made = [step(1000) for _ in range(2 + chains * length)]
    edges = []
    for chain in range(chains):
        own = range(1 + chain * length, 1 + (chain + 1) * length)
        edges += [(0, own[0]), *pairwise(own), (own[-1], len(made) - 1)]
    first, middle, last = overlapped(made, edges, 2)
    assert first is made[0] and last is made[-1]
    assert [len(task) for task in tasks_of(middle)] == [length] * chains


def test_many_small_steps_are_few_tasks_of_equal_work():
    made = [step(100 * (1 + n % 7)) for n in range(1000)]
    (item,) = overlapped(made, (), 2)
    works = [sum(each.parallel for each in task) for task in tasks_of(item)]
    assert len(works) == 16 and max(works) - min(works) <= 700


def test_large_steps_of_one_level_overlap():
    made = [step(LARGE), step(5 * LARGE), step(10)]
    (item,) = overlapped(made, (), 2)
    assert tasks_of(item) == [[each] for each in made]
    assert overlapped(made, [(0, 1), (1, 2)], 2) == made


@pytest.mark.parametrize(
    ("made", "threads"),
    [
        ([step(LARGE)] * 2, 1),
        ([step(100)] * 20, 8),
        ([step(LARGE), step(LARGE, late=True)], 4),
    ],
    ids=["one thread", "too little to do", "depends on what the device decided"],
)
def test_what_stays_in_order(made, threads):
    assert overlapped(made, (), threads) == made


@pytest.fixture(params=[1, 2, 5], ids="{} threads".format)
def pool(request):
    pool = Pool(request.param)
    yield pool
    pool.close()


def counting(slot: int, grid: tuple[int, int, int], ns: int = 0, parallel: Any = True) -> Step:
    made = count(grid, ns, parallel)
    image = replace(made.image, relocations=(Relocation(0, slot, 0, 8),))
    return replace(made, image=image)


def test_tasks_run_their_steps_in_order_and_every_block_once(pool):
    chain = tuple(mirror(1000, bool(k % 2), False) for k in range(21))
    few, many = (3, 1, 2), (13, 7, 11)
    together = Together(
        (
            chain,
            (counting(3, many, 500),),
            (counting(4, few, parallel=False), counting(4, few, parallel=False)),
            (counting(5, few, parallel=False),),
        )
    )
    program = Program([counting(3, many), together, counting(4, few), together], 6, pool)
    source, target = np.random.default_rng(0).random(1000), np.zeros(1000)
    counts = [np.zeros(shape, np.int64) for shape in (many, few, few)]
    bind(program, target, source, 0.5, *counts)
    expected = mirrored(source, 0.5, 21)
    # A second chain starts from what the first left in the source.
    again = mirrored(mirrored(source, 0.5, 20), 0.5, 21)
    for replay in range(1, 4):
        program.run()
        for found, each in zip(counts, (3, 5, 2), strict=True):
            assert (found == each * replay).all()
        if replay == 1:
            np.testing.assert_allclose(target, again, rtol=1e-12)
            assert not np.allclose(target, expected, rtol=1e-12)


def test_an_exception_from_a_signal_ends_a_replay_of_tasks(pool):
    # 50 ms a task, so that Python runs between them.
    tasks = tuple((counting(0, (1, 1, 1), 50_000_000, False),) * 2 for _ in range(40))
    program = Program([Together(tasks)], 1, pool)
    counts = np.zeros((1, 1, 1), np.int64)
    bind(program, counts)
    before = signal.signal(signal.SIGALRM, lambda *_: 1 / 0)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        start = time.perf_counter()
        with pytest.raises(ZeroDivisionError):
            program.run()
        assert time.perf_counter() - start < 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    done = int(counts[0, 0, 0])
    time.sleep(0.2)
    assert counts[0, 0, 0] == done


@pytest.mark.parametrize("least", [1, 20, 10**9])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, min_size=4, max_size=24), st.booleans())
def test_random_programs_that_overlap_equal_eager_order(monkeypatch, least, program, alias):
    with monkeypatch.context() as patch:
        # Whatever can overlap does: as large steps, as small ones, or some of each.
        patch.setattr(overlap, "MIN_PARALLEL_WORK", min(least, 20))
        patch.setattr(overlap, "_WORTHWHILE", 0)
        patch.setattr(overlap, "_is_large", lambda step: step.parallel >= least)
        patch.setattr(steps, "overlapped", lambda each, edges, _: overlapped(each, edges, 3))
        rng = np.random.default_rng(len(program))
        expected = [rng.integers(-4, 5, 24).astype(float) for _ in range(2)]
        with gj.use_backend("cpu"):
            mine = [gj.array(a) for a in expected]

        @gj.graphed(optimize=False)
        def traced(x, y):
            return run(Traced, program, [x, x if alias else y], 2.0)

        wants = run(Eager, program, [expected[0], expected[0 if alias else 1]], 2.0)
        with gj.use_backend("cpu"):
            gots = traced(*mine)
        for got, want in zip(gots, wants, strict=True):
            np.testing.assert_array_equal(got.copy_to_host(), want)
        for got, want in zip(mine, expected, strict=True):
            np.testing.assert_array_equal(got.copy_to_host(), want)


def test_one_task_is_refused():
    with pytest.raises(ValueError, match="1 tasks"):
        Program([Together(((step(1),),))], 0)


# Say that one is there; wait up to 10 s for the other; note whether it came.
MEET = (
    f"define void @test_meet{SIGNATURE} {{\nentry:"
    + parameter(0, "mine")
    + parameter(1, "other")
    + parameter(2, "met")
    + """
  store atomic i64 1, ptr %mine seq_cst, align 8
  %t0 = call i64 @now()
  %t1 = add i64 %t0, 10000000000
  br label %wait
wait:
  %there = load atomic i64, ptr %other seq_cst, align 8
  %came = icmp ne i64 %there, 0
  %t = call i64 @now()
  %late = icmp sgt i64 %t, %t1
  %over = or i1 %came, %late
  br i1 %over, label %done, label %wait
done:
  store i64 %there, ptr %met
  ret void
}
"""
)


def test_tasks_run_at_the_same_time():
    (address,) = compile_ir(prelude() + MEET, ["test_meet"])

    def meet(*slots: int) -> Step:
        places = tuple(Relocation(8 * k, slot, 0, 8) for k, slot in enumerate(slots))
        image = ParamImage(bytes(24), (0, 8, 16), places)
        return Step(address, image, (1, 1, 1), (1, 1, 1), parallel=False)

    pool = Pool(2)
    program = Program([Together(((meet(0, 1, 2),), (meet(1, 0, 3),)))], 4, pool)
    arrays = [np.zeros(1, np.int64) for _ in range(4)]
    bind(program, *arrays)
    program.run()
    pool.close()
    assert [int(each[0]) for each in arrays] == [1, 1, 1, 1]


def test_chains_of_launches(monkeypatch):
    """A graph whose chains were written one after another."""
    n, made = 4096, []

    def overlapping(each: Any, edges: Any, threads: int) -> Any:
        made.append(overlapped(each, edges, 2))
        return made[-1]

    monkeypatch.setattr(steps, "overlapped", overlapping)

    @gj.graphed(optimize=False)
    def chains(*arrays):
        for x in arrays:
            for _ in range(10):
                increment[grid(n, 128), 128](x)

    with gj.use_backend("cpu"):
        arrays = [gj.zeros(n) for _ in range(6)]
        chains(*arrays)
    for x in arrays:
        assert (x.copy_to_host() == 10).all()
    ((item,),) = made
    assert [len(task) for task in tasks_of(item)] == [10] * 6
