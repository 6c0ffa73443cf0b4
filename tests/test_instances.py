"""Which instance of a CUDA graph is launched, and bound to what: without a GPU.

The module is loaded from its source, with a driver that only keeps what a real one would: an
instance has a copy of its nodes' parameters from when it was made or a node was repointed last.
"""

from __future__ import annotations

import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest

import graphjit
from graphjit._memory import Memory

FOLDER = Path(graphjit.__file__).parent / "backends" / "cuda"


class Handle(int):
    """What the driver gives: something with an address."""


class Image:
    def __init__(self, words):
        self.words = frozenset(words)
        self.bound = ()

    def bind(self, words):
        self.bound = tuple(words[word] for word in sorted(self.words))


class Driver:
    """The driver's functions, and what was launched with what."""

    CUresult = staticmethod(int)

    def __init__(self):
        self.count = 1000
        self.graph, self.executables, self.launched = {}, {}, []
        self.memory = {}

    def cuGraphKernelNodeSetParams(self, node, params):
        self.graph[int(node)] = params.image.bound
        return (0,)

    def cuGraphInstantiate(self, graph, flags):
        self.count += 1
        self.executables[self.count] = dict(self.graph)
        return 0, Handle(self.count)

    def cuGraphExecDestroy(self, executable):
        del self.executables[int(executable)]  # a second time is an error

    def cuGraphDestroy(self, graph):
        self.executables.clear()
        return (0,)

    def repoint(self, executable, node, params, address):
        self.executables[executable][node] = params.image.bound
        return 0

    def launch(self, executable, stream):
        self.launched.append((dict(self.executables[executable]), stream))
        return 0


class Buffer(Memory):
    def used_on(self, stream, written):
        self.stream = stream


@pytest.fixture
def cuda(monkeypatch):
    driver = Driver()
    for name in ("nodes", "instances"):
        full = f"graphjit.backends.cuda.{name}"
        spec = spec_from_file_location(full, FOLDER / f"{name}.py")
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, full, module)
        spec.loader.exec_module(module)
        module.driver = driver
    module.launch, module.repoint, module.load = driver.launch, driver.repoint, lambda: None
    module.check = lambda result, what: result[1] if len(result) > 1 else None
    module.current_context = lambda: 1
    return module, driver


class Program:
    """Instances of a graph whose nodes use some words each, and what a launch must see."""

    def __init__(self, cuda, nodes, pointers, scalars, inputs, written=()):
        self.module, self.driver = cuda
        self.pointers, self.scalars, self.inputs = pointers, scalars, inputs
        self.written = frozenset(written)
        made = []
        for index, words in enumerate(nodes):
            image = Image(words)
            params = SimpleNamespace(image=image, getPtr=lambda: 0)
            self.driver.graph[index] = ()
            made.append(self.module.KernelNode(Handle(index), image, params))
        self.nodes = nodes
        self.copies = []

        def copy(source, target, stream):
            self.copies.append((source, target))
            self.driver.memory[target] = self.driver.memory.get(source)

        # The last pointer is a result.
        static = tuple(
            self.module.StaticInput(slot, 64, copy, slot in self.written)
            for slot in range(pointers - 1)
        )
        addresses = iter(range(10**9, 2 * 10**9, 64))
        self.instances = self.module.Instances(
            0,
            object(),
            made,
            pointers + scalars,
            [Buffer(1, 1, None)],
            lambda nbytes: Buffer(next(addresses), nbytes, None),
            static,
            inputs,
        )

    def call(self, pointers, scalars, stream=None):
        """Launch, and check that every node sees the contents that the caller gave."""
        memory = self.driver.memory
        for address in pointers:
            memory[address] = object()  # contents change between calls
        given = dict(memory)
        self.instances.launch(list(pointers), tuple(scalars), stream)
        seen, where = self.driver.launched[-1]
        assert where == (0 if stream is None else stream)
        expected = (*pointers, *scalars)
        for index, words in enumerate(self.nodes):
            for word, value in zip(sorted(words), seen[index], strict=True):
                if self._may_be_copied(word):
                    # The argument itself, or a copy of what it holds now.
                    assert memory[value] is given[expected[word]]
                else:
                    assert value == expected[word]
        if self.inputs == "copy":
            back = {target for _, target in self.copies[-len(self.written) :]}
            assert not self.written or back == {pointers[slot] for slot in self.written}
        self.copies.clear()

    def _may_be_copied(self, word):
        if word >= self.pointers - 1 or self.inputs == "rebind":
            return False
        return self.inputs == "copy" or word not in self.written


@pytest.mark.parametrize("inputs", ["auto", "rebind", "copy"])
@pytest.mark.parametrize("seed", range(12))
def test_every_launch_sees_what_was_given(cuda, inputs, seed):
    rng = random.Random(seed)
    pointers, scalars = rng.randint(1, 4), rng.choice([0, 0, 1, 2])
    count = rng.choice([1, 1, 2, 5, 12])
    nodes = [
        rng.sample(range(pointers + scalars), rng.randint(0, pointers + scalars))
        for _ in range(count)
    ]
    written = [slot for slot in range(pointers - 1) if rng.random() < 0.3]
    program = Program(cuda, nodes, pointers, scalars, inputs, written)
    pool = [64 * (k + 1) for k in range(rng.choice([2, 3, 6, 40]))]
    last = None
    for _ in range(1200):
        style = rng.random()
        if last is None or style < 0.3:
            last = [rng.choice(pool) for _ in range(pointers)]
        elif style < 0.6:  # fed back: rotated
            last = last[1:] + last[:1]
        stream = 7 if rng.random() < 0.02 else None
        values = [rng.choice([1, 2, rng.getrandbits(32)]) for _ in range(scalars)]
        program.call(last, values, stream)
        stats = program.instances.stats()
        assert stats.instances <= program.module._MAX_INSTANCES + 1
        assert len(program.driver.executables) == stats.instances
    assert len(program.instances._known) <= program.module._MAX_KNOWN


def test_two_bindings_in_turns_get_an_instance_each(cuda):
    program = Program(cuda, [[0, 1], [0, 1]], 2, 0, "auto")
    for step in range(400):
        program.call((64, 128) if step % 2 else (128, 64), ())
    stats = program.instances.stats()
    assert stats.instances == 2  # the one that is repointed stays bound to the other
    assert stats.recalled > 300
    before = stats.same
    for _ in range(10):
        program.call((64, 128), ())
    assert program.instances.stats().same == before + 10


def test_an_argument_of_many_nodes_is_copied(cuda):
    program = Program(cuda, [[0, 1]] * 50, 2, 0, "auto")
    for step in range(50):
        program.call((64 * (step + 2), 64), ())
    stats = program.instances.stats()
    assert stats.copied == 50 and stats.rebound == 1 and stats.nodes == 50


def test_what_was_closed_says_so(cuda):
    program = Program(cuda, [[0]], 2, 0, "auto")
    program.call((64, 128), ())
    program.instances.close()
    program.instances.close()
    for pointers in ((64, 128), (128, 64)):
        with pytest.raises(graphjit.ClosedError):
            program.instances.launch(list(pointers), (), None)
    assert not program.driver.executables


def test_a_failed_repoint_leaves_nothing_bound(cuda):
    module, driver = cuda
    program = Program(cuda, [[0], [1], [0, 1]], 2, 0, "rebind")
    program.call((64, 128), ())
    fails = iter([0, 1])

    def failing(executable, node, params, address):
        if next(fails):
            return 1
        return driver.repoint(executable, node, params, address)

    def check(result, what):
        if result[0]:
            raise RuntimeError(what)
        return result[1] if len(result) > 1 else None

    module.repoint, module.check = failing, check
    with pytest.raises(RuntimeError, match="repointing"):
        program.instances.launch([192, 256], (), None)
    module.repoint = driver.repoint
    for pointers in ((64, 128), (192, 256), (64, 128)):
        program.call(pointers, ())


def test_parameters_are_written_where_the_driver_reads_them():
    """Of random images, with one slot that never changes and without; compiled if it is."""
    import ctypes

    from graphjit.backends.cuda.image import BoundImage
    from graphjit.kernel.packing import ParamImage, Relocation

    rng = random.Random(0)
    for _ in range(300):
        count, slots = rng.randint(1, 12), rng.randint(1, 6)
        fixed = rng.choice([None, *range(slots)])
        relocations = tuple(
            Relocation(8 * k, rng.randrange(slots), rng.choice([None, 0, 5, -7, 1 << 40]), 8)
            for k in range(count)
            if rng.random() < 0.7
        )
        data = ParamImage(bytes(8 * count), tuple(range(0, 8 * count, 8)), relocations)
        values = [rng.getrandbits(64) for _ in range(slots)]
        order = tuple(rng.sample(range(count), count))
        image = BoundImage(data, order, fixed, values[fixed] if fixed is not None else 0)
        image.bind([value for slot, value in enumerate(values) if slot != fixed])
        pointers = (ctypes.c_void_p * count).from_address(image.address)
        got = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]
        expected = [0] * count
        for r in relocations:
            expected[r.target // 8] = (values[r.slot] + (r.addend or 0)) % 2**64
        assert got == [expected[index] for index in order]
        moving = {r.slot for r in relocations if r.slot != fixed}
        assert image.words == {slot - (fixed is not None and slot > fixed) for slot in moving}
