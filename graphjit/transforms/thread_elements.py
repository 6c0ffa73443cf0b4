"""Which element each thread of a launch touches: `kernel.pointwise` with numbers put in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from graphjit._nodes import Launch, View
from graphjit.kernel.packing import Address, pack_launch
from graphjit.kernel.pointwise import Guard, Polynomial, Touch

# Beyond this, 64-bit integers might have wrapped around.
_SAFE = 1 << 62
# A coordinate of the thread: its place along an axis of the block, of the grid of blocks, or of
# all threads.
Coordinate = tuple[str, int]


@dataclass(frozen=True)
class Elements:
    """Where the threads of a launch touch an array, one element each.

    Parameters
    ----------
    first : int
        Bytes from the start of the buffer, for the thread whose coordinates are all 0.
    steps : tuple of (Coordinate, int)
        Bytes by which each coordinate moves it.
    counts : tuple of int
        How many values of each coordinate there are, at most, among the threads that touch it.
    """

    first: int
    steps: tuple[tuple[Coordinate, int], ...]
    counts: tuple[int, ...]

    def is_same(self, other: Elements) -> bool:
        """Whether each thread touches the same element there as here."""
        return self.first == other.first and self.steps == other.steps

    def are_distinct(self, other: Elements, size: int) -> bool:
        """Whether no two threads that touch it here or there touch the same element.

        `other` has the same steps.
        """
        reach = size - 1
        counts = map(max, self.counts, other.counts)
        for (_, step), count in sorted(
            zip(self.steps, counts, strict=True), key=lambda each: abs(each[0][1])
        ):
            if count > 1:
                if abs(step) <= reach:
                    return False
                reach += abs(step) * (count - 1)
        return True


class ThreadElements:
    """What the threads of one launch touch.

    Parameters
    ----------
    launch : Launch
        The launch.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        image = pack_launch(
            launch.kernel, launch.operands, lambda view: Address(0), lambda ref, type_: 0
        )
        self._known = image.integers()
        self._of: dict[int, Elements | None] = {}

    def of(self, leaf: int) -> Elements | None:
        """What threads touch of an argument, if that is one element each and provably so.

        Parameters
        ----------
        leaf : int
            Its place among the kernel's leaves.
        """
        if leaf not in self._of:
            self._of[leaf] = self._found(leaf)
        return self._of[leaf]

    def covers(self, leaf: int) -> bool:
        """Whether every element of an argument is written.

        Parameters
        ----------
        leaf : int
            Its place among the kernel's leaves.
        """
        kernel, view = self._launch.kernel, self._launch.operands[leaf]
        if kernel.elements.obstacle or not isinstance(view, View):
            return False
        return any(_is_all(found, view) for found in self.surely_written(leaf))

    def surely_written(self, leaf: int) -> Iterator[Elements]:
        """The elements of an argument that are written whatever the threads find in memory.

        Parameters
        ----------
        leaf : int
            Its place among the kernel's leaves.
        """
        view = self._launch.operands[leaf]
        assert isinstance(view, View)
        for touch in self.touches(leaf):
            found = self._element(touch, view)
            bounded = self._counts(touch.guards)[1]
            if (
                touch.writes
                and touch.always
                and touch.size == view.layout.dtype.itemsize
                and found is not None
                and bounded is not None
                and bounded <= {coordinate for coordinate, _ in found.steps}
            ):
                yield found

    def touches(self, leaf: int) -> Iterator[Touch]:
        """The loads and stores of an argument.

        Parameters
        ----------
        leaf : int
            Its place among the kernel's leaves.
        """
        kernel = self._launch.kernel
        data = kernel.leaves[leaf].data
        return (touch for touch in kernel.elements.touches if touch.data == data)

    def _found(self, leaf: int) -> Elements | None:
        view = self._launch.operands[leaf]
        assert isinstance(view, View)
        found: Elements | None = None
        for touch in self.touches(leaf):
            each = self._element(touch, view)
            if each is None or (found is not None and not found.is_same(each)):
                return None
            if found is not None:
                counts = tuple(map(max, found.counts, each.counts))
                each = Elements(each.first, each.steps, counts)
            found = each
        return found

    def _element(self, touch: Touch, view: View) -> Elements | None:
        size = view.layout.dtype.itemsize
        if touch.offset is None:
            return None
        linear = self._linear(touch.offset)
        if linear is None:
            return None
        first, steps = linear
        # A part of an element, such as the imaginary one, counts as all of it.
        within = first % size
        if within + touch.size > size or any(step % size for _, step in steps):
            return None
        counts, _ = self._counts(touch.guards)
        return Elements(view.offset + first - within, steps, tuple(counts[c] for c, _ in steps))

    def _linear(
        self, polynomial: Polynomial
    ) -> tuple[int, tuple[tuple[Coordinate, int], ...]] | None:
        """Constant and coefficients of the coordinates that threads differ by."""
        grid, block = self._launch.grid, self._launch.block
        constant = 0
        factors: dict[Coordinate, int] = {}
        for monomial, factor in polynomial.items():
            variables = []
            for atom, index in monomial:
                if atom == "param":
                    value = self._known.get(index)
                    if value is None:
                        return None
                    factor *= value
                elif atom in ("ntid", "nctaid"):
                    factor *= (block if atom == "ntid" else grid)[index]
                elif (block if atom == "tid" else grid)[index] > 1:
                    variables.append((atom, index))
                else:
                    factor = 0
            if len(variables) > 1 or abs(factor) >= _SAFE:
                return None
            if variables:
                factors[variables[0]] = factors.get(variables[0], 0) + factor
            else:
                constant += factor
        steps: dict[Coordinate, int] = {}
        for axis in range(3):
            inner, outer = factors.get(("tid", axis), 0), factors.get(("ctaid", axis), 0)
            if block[axis] == 1 or grid[axis] == 1 or outer == inner * block[axis]:
                steps["thread", axis] = inner or outer
            else:
                steps["tid", axis], steps["ctaid", axis] = inner, outer
        return constant, tuple(steps.items())

    def _counts(
        self, guards: tuple[Guard, ...]
    ) -> tuple[dict[Coordinate, int], set[Coordinate] | None]:
        """How many values of each coordinate guards leave.

        Also the coordinates that they bound, or None if they leave out other threads as well.
        """
        grid, block = self._launch.grid, self._launch.block
        counts: dict[Coordinate, int] = {}
        for axis in range(3):
            counts["tid", axis], counts["ctaid", axis] = block[axis], grid[axis]
            counts["thread", axis] = block[axis] * grid[axis]
        bounded: set[Coordinate] | None = set()
        for guard in guards:
            bound = self._bound(guard)
            if bound is None:
                bounded = None
                continue
            coordinate, count = bound
            if coordinate is not None:
                counts[coordinate] = max(0, min(counts[coordinate], count))
                if bounded is not None:
                    bounded.add(coordinate)
        return counts, bounded

    def _bound(self, guard: Guard) -> tuple[Coordinate | None, int] | None:
        """The coordinate that a guard bounds and how many values that leaves; None if it isn't one.

        The coordinate is None if the guard always holds.
        """
        left, right = self._linear(guard.left), self._linear(guard.right)
        if left is None or right is None:
            return None
        room = right[0] - left[0]
        slopes = dict(left[1])
        for coordinate, step in right[1]:
            slopes[coordinate] = slopes.get(coordinate, 0) - step
        moving = [(coordinate, slope) for coordinate, slope in slopes.items() if slope]
        if len(moving) > 1 or abs(room) >= _SAFE:
            return None
        # An unsigned bound is one for signed numbers only if it is a positive constant.
        if not guard.signed and (any(step for _, step in right[1]) or right[0] < 0):
            return None
        if not moving:
            return (None, 0) if room > 0 and left[0] >= 0 else None
        ((coordinate, slope),) = moving
        if slope < 0 or (not guard.signed and left[0] < 0):
            return None
        return coordinate, -(-room // slope)


def _is_all(elements: Elements, view: View) -> bool:
    """Whether elements, which guards bound exactly, are all of a contiguous view."""
    layout = view.layout
    size = layout.dtype.itemsize
    moving = [(s, n) for (_, s), n in zip(elements.steps, elements.counts, strict=True) if n != 1]
    count = math.prod(n for _, n in moving)
    furthest = sum(step * (n - 1) for step, n in moving)
    return (
        layout.is_contiguous
        and elements.first == view.offset + layout.extent[0]
        and count == layout.size
        and furthest == size * (layout.size - 1)
        and all(step > 0 for step, _ in moving)
        and elements.are_distinct(elements, size)
    )
