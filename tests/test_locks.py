"""Gates, and properties that are computed once: what a fork or the end of the process meets."""

from __future__ import annotations

import os
import threading
import time

import pytest

from graphjit._cached_property import cached_property
from graphjit._locks import Gate

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def gate():
    return Gate()


def _in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_closing_a_gate_waits_for_those_inside(gate):
    events = []
    inside, go_on = threading.Event(), threading.Event()

    def work():
        gate.enter()
        inside.set()
        go_on.wait()
        events.append("left")
        gate.leave()

    thread = _in_thread(work)
    inside.wait()
    threading.Timer(0.05, go_on.set).start()
    gate.close()
    events.append("closed")
    thread.join()
    assert events == ["left", "closed"]


def test_a_closed_gate_lets_in_who_closed_it_and_others_once_it_is_open(gate):
    events = []

    def work():
        gate.enter()
        events.append("in")
        gate.leave()

    gate.close()
    thread = _in_thread(work)
    time.sleep(0.05)
    gate.enter()
    events.append("keeper")
    gate.leave()
    gate.open()
    thread.join()
    assert events == ["keeper", "in"]


def test_nobody_waits_at_a_gate_for_ever(gate):
    started = time.monotonic()
    gate.close()
    thread = _in_thread(lambda: (gate.enter(), gate.leave()))
    thread.join(10)
    assert not thread.is_alive()
    assert 0.9 < time.monotonic() - started < 5


def test_a_fork_leaves_the_child_an_open_gate(gate):
    inside, go_on = threading.Event(), threading.Event()

    def work():
        gate.enter()
        inside.set()
        go_on.wait()
        gate.leave()

    thread = _in_thread(work)
    inside.wait()
    pid = os.fork()
    if pid == 0:
        started = time.monotonic()
        gate.close()
        os._exit(time.monotonic() - started > 0.5)
    go_on.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0


def test_a_property_is_computed_once():
    class Counter:
        count = 0

        @cached_property
        def value(self):
            self.count += 1
            return self.count

    counter = Counter()
    assert (counter.value, counter.value, counter.__dict__["value"]) == (1, 1, 1)
    assert isinstance(Counter.value, cached_property)


def test_a_fork_while_a_property_is_computed_leaves_no_lock():
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def value(self):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                go_on.wait()
            return 1

    slow = Slow()
    thread = _in_thread(lambda: slow.value)
    inside.wait()
    pid = os.fork()
    if pid == 0:
        threading.Timer(5, os._exit, (1,)).start()
        os._exit(slow.value - 1)
    go_on.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0
