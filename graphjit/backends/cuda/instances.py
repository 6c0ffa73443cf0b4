"""The instantiated graphs of one executable, and which of them a call launches.

Binding a call costs the least of: nothing, where an instance is bound to its pointers already;
repointing the nodes that use what changed (about 0.8 µs each); or copying arguments that many nodes
use into static buffers. A set of pointers gets an instance of its own once it has cost as much as
one: whatever comes, that costs about twice what knowing the future would have, at most (about,
since the costs of some calls stand for all).

Compiled where there is a C compiler (see `setup.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from sys import is_finalizing
from typing import Any

from cuda.bindings import driver

from graphjit._errors import ClosedError
from graphjit._locks import Turn
from graphjit._memory import Memory
from graphjit.backends.binding_stats import BindingStats
from graphjit.backends.cuda.calls import current_context, launch, load, repoint
from graphjit.backends.cuda.driver import activate, check
from graphjit.backends.cuda.image import BoundImage
from graphjit.backends.cuda.nodes import Instance, KernelNode, StaticInput

# Microseconds, on an H200: repointing a node; an instance and each of its nodes; a copy.
_REPOINT = 0.8
_INSTANCE = 20.0
_INSTANCE_NODE = 4.0
_COPY = 2.5
_COPY_BYTES = 1.5e6  # in a microsecond
_MAX_INSTANCES = 8
# Of so many calls that repoint or copy, the costs of one are noted.
_SAMPLED = 8
# Sets of words that are remembered.
_MAX_KNOWN = 128


# Named, since Cython takes the bare types for ones of C in signatures of compiled functions.
Words = list[int]
Key = tuple[int, ...]
Statics = tuple[StaticInput, ...]
Nodes = list[KernelNode]


class Instances:
    """The instantiated graphs of one executable.

    Parameters
    ----------
    device : int
        The GPU's number.
    graph : CUgraph
        What to instantiate; it is destroyed with this object.
    nodes : list of KernelNode
        Its nodes.
    words : int
        How many there are: one for each slot but the arena's.
    memory : list of Memory
        What the graph itself uses: replays on different streams must not overlap.
    allocate : callable
        Makes memory of so many bytes.
    static : tuple of StaticInput
        Arguments that may be copied.
    inputs : {"auto", "copy", "rebind"}
        Whether they are.
    is_only : bool
        Whether there can be no second instance of the graph.
    """

    __slots__ = (
        "_allocate",
        "_always",
        "_bound",
        "_context",
        "_device",
        "_exec",
        "_graph",
        "_handle",
        "_known",
        "_latest",
        "_launched",
        "_launching",
        "_mark",
        "_memory",
        "_nodes",
        "_paying",
        "_permanent",
        "_previous",
        "_price",
        "_single",
        "_stream",
        "_turn",
        "_unpaid",
        "_users",
        "copied",
        "rebound",
        "recalled",
        "repointed",
        "same",
    )

    def __init__(
        self,
        device: int,
        graph: Any,
        nodes: list[KernelNode],
        words: int,
        memory: list[Memory],
        allocate: Callable[[int], Memory],
        static: Statics,
        inputs: str,
        is_only: bool = False,
    ) -> None:
        self._graph: Any = None
        self._exec: Instance | None = None
        # By words: an instance that is bound to them for good, or what binding them has cost so
        # far, in microseconds.
        self._known: dict[Key, Any] = {}
        self._turn = Turn("the replay of a graph")
        load()
        self._device = device
        self._context = current_context()
        self._nodes = nodes
        self._memory = memory
        self._allocate = allocate
        self._users = [[n for n in nodes if word in n.image.words] for word in range(words)]
        self._always = static if inputs == "copy" else ()
        self._paying = tuple(s for s in static if inputs == "auto" and self._pays(s))
        self._single = nodes[0] if len(nodes) == 1 and not self._paying else None
        self._price = float("inf") if is_only else _INSTANCE + _INSTANCE_NODE * len(nodes)
        self._mark = self._unpaid = 0
        # The instance that is repointed, and what it is bound to.
        self._exec = Instance(check(driver.cuGraphInstantiate(graph, 0), "instantiating a graph"))
        self._graph = graph  # ours to destroy from here on
        self._bound: Words | None = None
        # How many of those are instances.
        self._permanent = 0
        # The words of the last call, if they are all that it was bound to, and what it launched.
        self._latest: Words | None = None
        # The same of the call before, if that instance is still bound to them.
        self._previous: Words | None = None
        self._launched: Instance = self._exec
        self._launching: Instance = self._exec
        self._stream: Any = None
        self._handle = 0
        self.same = self.recalled = self.rebound = self.copied = self.repointed = 0

    def launch(self, pointers: Words, scalars: Key, stream: Any) -> None:
        """Replay once; returns when the replay is queued.

        Parameters
        ----------
        pointers : list of int
            The first slots: arguments, closures and results. It is kept.
        scalars : tuple of int
            The last slots.
        stream : int or None
            The stream.
        """
        if current_context() != self._context:
            activate(self._device)  # some calls of the driver crash without
        self._turn.enter()
        try:
            if stream is not self._stream:
                self._change_stream(stream)
            if scalars:
                pointers += scalars
            if pointers == self._latest:
                self.same += 1
            elif pointers == self._previous:
                self._swap()
            else:
                self._change(pointers, stream)
            error = launch(self._launching.address, self._handle)
            if error:
                check((driver.CUresult(error),), "launching a graph")
            if self._always:
                self._copy_back(pointers, stream)
        finally:
            self._turn.leave()

    def _swap(self) -> None:
        """Go back to what was launched before the last: `u = step(u)` takes two in turns."""
        self._latest, self._previous = self._previous, self._latest
        self._launching, self._launched = self._launched, self._launching
        self.recalled += 1

    def _change(self, words: Words, stream: Any) -> None:
        """Choose what to launch for words that aren't those of the last two calls, and bind it."""
        before, launched, copied = self._latest, self._launching, self.copied
        # If this raises, nothing is known of what is bound; and the other instance may go.
        self._latest = self._previous = None
        if self._always:
            self._launching = self._choose_copied(words, self._always, stream)
        else:
            self._launching = self._choose(words, stream)
        if copied == self.copied:  # else the next call must copy anew
            self._latest = words
        if launched is not self._launching and launched.is_open:
            self._previous, self._launched = before, launched

    def _choose(self, words: Words, stream: Any) -> Instance:
        """What to launch for these words, bound to them."""
        if self._permanent:
            found = self._known.get(tuple(words))
            if isinstance(found, Instance):
                self.recalled += 1
                return found
        return self._bind(words, stream)

    def _choose_copied(self, words: Words, copied: Statics, stream: Any) -> Instance:
        """The same, with some arguments copied: the words may well be those that are bound."""
        words = self._copy(words, copied, stream)
        if words == self._bound and self._exec is not None:
            self.same += 1
            return self._exec
        return self._choose(words, stream)

    def stats(self) -> BindingStats:
        """How the calls were bound."""
        return BindingStats(
            self.same,
            self.recalled,
            self.rebound,
            self.copied,
            self.repointed,
            self._permanent + (self._exec is not None),
        )

    def memory(self) -> list[Memory]:
        """The memory that replays use besides arguments and results."""
        static = {id(item): item.memory for item in (*self._always, *self._paying)}
        return [*self._memory, *(memory for memory in static.values() if memory is not None)]

    def close(self) -> None:
        """Destroy the graph; a second call does nothing."""
        self._turn.enter()
        try:
            instances = [*self._known.values(), self._exec]
            self._known, self._exec = {}, None
            self._permanent = 0
            self._latest = self._previous = None
            graph, self._graph = self._graph, None
            self._memory, self._paying, self._always = [], (), ()
        finally:
            self._turn.leave()
        for instance in instances:
            if isinstance(instance, Instance):
                instance.destroy()
        if graph is not None:
            driver.cuGraphDestroy(graph)

    def __del__(self) -> None:
        # By then the driver's functions are gone, as names of modules are, and all else goes.
        if is_finalizing is not None and not is_finalizing():
            self.close()

    def _change_stream(self, stream: Any) -> None:
        """Order this stream's replays after those of the one before: they share the memory."""
        if stream != self._stream:
            for memory in self._memory:
                memory.used_on(stream, True)
            self._handle = 0 if stream is None else int(stream)
        self._stream = stream

    def _bind(self, words: Words, stream: Any) -> Instance:
        """What to launch for words that no instance is bound to for good."""
        if self._exec is None:
            raise ClosedError("this compiled function was closed")
        node = self._single
        if node is not None and self._unpaid + 1 < _SAMPLED:
            # What is done below, in the case of one node.
            node.image.bind(words)
            address = self._exec.address
            if repoint(address, node.address, node.params, node.params_address) == 0:
                self._unpaid += 1
                self.rebound += 1
                self.repointed += 1
                self._bound = words
                return self._exec
        # No generator in here: a compiled function that holds one makes a scope at every call.
        copied = self._to_copy(words) if self._paying else ()
        stale = self._stale(words, copied)
        self._unpaid += 1
        if self._unpaid == _SAMPLED:
            # It is enough to look at some of the calls: those that come again are met.
            self._unpaid = 0
            cost = _REPOINT * len(stale)
            if copied:
                cost += sum(map(_copying, copied))
            key = tuple(words)
            spent = self._known.get(key, 0.0) + _SAMPLED * cost
            if spent >= self._price:
                return self._instantiate(key)
            if len(self._known) >= _MAX_KNOWN:
                self._forget()
            self._known[key] = spent
        if copied:
            return self._choose_copied(words, copied, stream)
        self._repoint(words, stale)
        return self._exec

    def _forget(self) -> None:
        """Forget what was spent on words that have no instance."""
        self._known = {w: found for w, found in self._known.items() if isinstance(found, Instance)}

    def _to_copy(self, words: Words) -> Statics:
        """The arguments to be copied, of those that it pays to copy."""
        return tuple(static for static in self._paying if self._would_copy(static, words))

    def _would_copy(self, static: StaticInput, words: Words) -> bool:
        """Whether an argument that it pays to copy isn't what is bound, or its copy."""
        word = words[static.slot]
        if static.memory is not None and static.memory.address == word:
            return False
        return self._bound is None or self._bound[static.slot] != word

    def _stale(self, words: Words, copied: Statics) -> list[KernelNode]:
        """The nodes that use what isn't bound, besides what is to be copied."""
        if self._bound is None or len(self._nodes) == 1:
            return self._nodes
        saved = {static.slot for static in copied} if copied else None
        self._mark += 1
        found = []
        bound = self._bound
        for place in range(len(words)):
            if words[place] != bound[place] and (saved is None or place not in saved):
                for item in self._users[place]:
                    node: KernelNode = item
                    if node.mark != self._mark:
                        node.mark = self._mark
                        found.append(node)
        return found

    def _instantiate(self, key: Key) -> Instance:
        """An instance for good."""
        words = list(key)
        for node in self._nodes:
            node.image.bind(words)
            params = driver.cuGraphKernelNodeSetParams(node.handle, node.params)
            check(params, "binding a graph")
        made = Instance(check(driver.cuGraphInstantiate(self._graph, 0), "instantiating a graph"))
        mine = [known for known, found in self._known.items() if isinstance(found, Instance)]
        for oldest in mine[: max(0, len(mine) + 1 - _MAX_INSTANCES)]:
            self._known.pop(oldest).destroy()
        self._known.pop(key, None)  # to be the latest
        self._known[key] = made
        self._permanent = min(len(mine) + 1, _MAX_INSTANCES)
        self.rebound += 1
        self.repointed += len(self._nodes)
        return made

    def _repoint(self, words: Words, stale: Nodes) -> None:
        self._bound = None  # until all nodes are repointed
        instance = self._exec
        assert instance is not None
        for item in stale:
            node: KernelNode = item
            image: BoundImage = node.image
            image.bind(words)
            error = repoint(instance.address, node.address, node.params, node.params_address)
            if error:
                check((driver.CUresult(error),), "repointing a graph")
        self._bound = words
        if stale:
            self.rebound += 1
            self.repointed += len(stale)

    def _pays(self, static: StaticInput) -> bool:
        """Whether copying an argument costs less than repointing all that use it."""
        if static.written:
            return False
        return _copying(static) < _REPOINT * len(self._users[static.slot])

    def _copy(self, words: Words, static: Statics, stream: Any) -> Words:
        """Copy arguments into their static buffers; the words with those in place of them."""
        replaced = list(words)
        for item in static:
            if item.memory is None:
                item.memory = self._allocate(item.nbytes)
            # All replays follow each other: what the buffer held before has been used.
            item.memory.used_on(stream, True)
            item.copy(words[item.slot], item.memory.address, stream)
            replaced[item.slot] = item.memory.address
        self.copied += 1
        return replaced

    def _copy_back(self, given: Words, stream: Any) -> None:
        for item in self._always:
            if item.written:
                assert item.memory is not None
                item.copy(item.memory.address, given[item.slot], stream)


def _copying(static: StaticInput) -> float:
    return _COPY + static.nbytes / _COPY_BYTES
