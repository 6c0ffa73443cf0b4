"""A loop that is being recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from graphjit._bodies import BodyRecorder, accesses, class_of, stand_in
from graphjit._branches import cond
from graphjit._carry import CarryTree, alike, same_strides, truth
from graphjit._control import Body, Carry, Item, Loop
from graphjit._errors import TraceError
from graphjit._layout import contiguous
from graphjit._location import user_location
from graphjit._nodes import Operand, constant
from graphjit._pytrees import flatten
from graphjit._trace import Trace
from graphjit._tracers import ArrayTracer, ScalarTracer

# How often strides may change before the body is traced for good.
_MAX_LAYOUTS = 4
# From an index and a carry to the next carry and what is stacked.
Step = Callable[[Any, Any], tuple[Any, Any]]


class RecordedLoop:
    """A loop that is being recorded.

    Parameters
    ----------
    name : str
        The function's, for messages.
    trace : Trace
        Where.
    carry : pytree
        What the first iteration is given.
    is_counted : bool
        Whether that is a pair of what the user gave and a count.
    """

    def __init__(self, name: str, trace: Trace, carry: Any, is_counted: bool = False) -> None:
        self._name, self._trace = name, trace
        self._carry = CarryTree(name, trace, carry)
        if is_counted:
            names = self._carry.names
            self._carry.names = [name.replace("carry[0]", "carry", 1) for name in names]
        self._stacks: list[ArrayTracer] | None = None
        self._length = 0

    def over(self, bounds: range, step: Step) -> tuple[Any, Any]:
        """Record the loop over a range that is known.

        Returns
        -------
        carry, ys : pytree
            The last carry, and the stacks.
        """
        rest, initial = bounds, self._carry.initial
        self._length = len(bounds)
        for _ in range(_MAX_LAYOUTS):
            iteration = _Iteration(self._trace, initial, self._carry)
            following, stacks = iteration.record(step, self._stack)
            is_last = not rest or all(map(alike, initial, following))
            # The body is traced for strides: where the second iteration is given others, the first
            # is a loop by itself.
            part = rest if is_last else rest[:1]
            initial = iteration.end(
                initial if not rest else following,
                (constant(part.start), constant(part.stop)),
                None,
            )
            rest = rest[len(part) :]
            if not rest:
                return self._carry.unflatten(initial), stacks
        raise TraceError(
            f"{self._name}'s body gives its carry other strides at every iteration "
            f"(at {user_location()}); return a copy, as in x.T.copy()"
        )

    def between(self, lower: Any, upper: Any, step: Step) -> Any:
        """Record the loop over a range that only the run knows; returns the last carry."""
        bounds = self._trace.operand(lower), self._trace.operand(upper)
        return self._decided_later(bounds, None, step)

    def as_long_as(
        self,
        condition: Callable[[Any], Any],
        step: Step,
        limit: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Record the loop that goes on while a condition of the carry holds; returns the last.

        Parameters
        ----------
        condition : callable
            Takes the carry.
        step : callable
            The body.
        limit : callable, optional
            Takes the carry: where it doesn't hold, the condition isn't asked.
        """
        return self._decided_later((constant(0), constant(0)), condition, step, limit)

    def _decided_later(
        self,
        bounds: tuple[Operand, Operand],
        condition: Callable[[Any], Any] | None,
        step: Step,
        limit: Callable[[Any], Any] | None = None,
    ) -> Any:
        initial = list(self._carry.initial)
        while True:
            iteration = _Iteration(self._trace, initial, self._carry)
            tested = None
            if condition is not None:
                tested = iteration.record_condition(condition, limit)
            following, _ = iteration.record(step, lambda y, index: ())
            self._check_strides(initial, following)
            written_to = [
                (a, b)
                for a, b in zip(initial, following, strict=True)
                if isinstance(a, ArrayTracer) and b._readonly and not a._readonly
            ]
            if not written_to:
                break
            # Any iteration may be given what can't be written: the body is traced for that.
            like = [
                b if isinstance(a, ArrayTracer) and b._readonly else a
                for a, b in zip(initial, following, strict=True)
            ]
            initial = [_readonly_as(a, b) for a, b in zip(initial, like, strict=True)]
        return self._carry.unflatten(iteration.end(initial, bounds, tested))

    def _check_strides(self, initial: list[Any], following: list[Any]) -> None:
        for before, after, name in zip(initial, following, self._carry.names, strict=True):
            if isinstance(before, ArrayTracer) and not same_strides(before, after):
                raise TraceError(
                    f"{self._name}'s body changes the strides of {name} from {before.strides} to "
                    f"{after.strides} (at {user_location()}), and how often it runs isn't known; "
                    "start with a copy of the array, or return one: x.copy()"
                )

    def _stack(self, tree: Any, index: ScalarTracer) -> Any:
        """Stacks of what the body returned besides the carry."""
        leaves, structure = flatten(tree)
        values = [self._trace.traced(leaf, "what scan stacks") for leaf in leaves]
        if self._stacks is None:
            self._stacks = [self._new_stack(value) for value in values]
        for stack, value in zip(self._stacks, values, strict=True):
            stack[index] = value
        return optree.tree_unflatten(structure, self._stacks)

    def _new_stack(self, value: Any) -> ArrayTracer:
        is_array = isinstance(value, ArrayTracer)
        shape = value.shape if is_array else ()
        dtype = value.dtype if is_array else np.dtype(class_of(value))
        return self._trace.empty(contiguous((self._length, *shape), dtype))


class _Iteration:
    """The body of a loop, traced once for a carry."""

    def __init__(self, trace: Trace, initial: list[Any], carry: CarryTree) -> None:
        self._trace, self._initial, self._carry = trace, initial, carry
        self._versions = list(trace.versions)
        self._recorder = BodyRecorder(trace)
        self._recorders = [self._recorder]
        self._index = trace.carried_scalar(int, "i")
        self._inner = [
            stand_in(trace, value, name) for value, name in zip(initial, carry.names, strict=True)
        ]
        self._operands: list[list[Operand]] = []

    def record_condition(
        self, condition: Callable[[Any], Any], limit: Callable[[Any], Any] | None
    ) -> Body:
        """Record what decides whether there is another iteration."""
        carry, what = self._carry.unflatten(self._inner), "while_loop's condition"

        def both() -> Any:
            holds = truth(condition(carry), what)
            return holds if limit is None else limit(carry) & holds

        recorder, output = self._recorded(both)
        if limit is not None and not all(map(_only_reads, recorder.nodes)):
            # Where the limit is reached, nothing of it may happen.
            within = limit(carry)
            recorder, output = self._recorded(
                lambda: cond(within, lambda: truth(condition(carry), what) & True, lambda: False)
            )
        self._recorders.append(recorder)
        return recorder.body([output])

    def _recorded(self, test: Callable[[], Any]) -> tuple[BodyRecorder, Operand]:
        recorder = BodyRecorder(self._trace)
        with recorder:
            return recorder, self._trace.operand(test())

    def record(self, step: Step, stack: Callable[[Any, Any], Any]) -> tuple[list[Any], Any]:
        """Record the nodes; returns the next carry, and what `stack` makes of the rest."""
        with self._recorder:
            result, y = step(self._index, self._carry.unflatten(self._inner))
            following = self._carry.checked(result)
            # By now: once the body has ended, its numbers are refused.
            self._operands = [
                [self._trace.operand(value) for value in values]
                for values in (self._initial, self._inner, following)
            ]
            self._recorder.end_of_temporaries()
            return following, stack(y, self._index)

    def end(
        self, like: list[Any], bounds: tuple[Operand, Operand], condition: Body | None
    ) -> list[Any]:
        """Record the loop; returns what stands for its last carry, which is like `like`."""
        trace, names = self._trace, self._carry.names
        results = [stand_in(trace, value, name) for value, name in zip(like, names, strict=True)]
        self._operands.append([trace.operand(value) for value in results])
        carries = tuple(Carry(*of_one) for of_one in zip(*self._operands, strict=True))
        reads, writes = accesses(trace, self._recorders, self._versions, carries)
        trace.nodes.append(
            Loop(
                self._index._ref,
                *bounds,
                condition,
                carries,
                self._recorder.body(),
                reads,
                writes,
                user_location(),
            )
        )
        return results


def _only_reads(node: Any) -> bool:
    """Whether a node can be there once more: it changes nothing, and reads what is there."""
    return isinstance(node, Item) and not node.source.view.moving


def _readonly_as(value: Any, like: Any) -> Any:
    if not isinstance(value, ArrayTracer) or value._readonly == like._readonly:
        return value
    return ArrayTracer(value._trace, value._view, value._name, readonly=True, record=value._record)
