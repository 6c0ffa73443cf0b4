"""Abstract values: what a graph needs to know of its arguments."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from graphjit._layout import Layout
from graphjit._locks import make_lock
from graphjit.backends.base import Device


@dataclass(frozen=True, eq=False)
class ArrayAval:
    """What a graph needs to know of an array; equal ones are one object (see `array_aval`).

    Parameters
    ----------
    layout : Layout
        Shape, strides and dtype.
    device : Device
        Where it is used.
    readonly : bool
        Whether kernels may not write it.
    record : bool
        Whether it is a structured scalar.
    """

    layout: Layout
    device: Device
    readonly: bool
    record: bool

    @property
    def fields(self) -> tuple[Layout, Device, bool, bool]:
        """What makes it equal to another, which may be gone."""
        return self.layout, self.device, self.readonly, self.record

    def __str__(self) -> str:
        if self.record:
            return f"a record of {self.layout.dtype}"
        text = f"{self.layout.dtype}[{','.join(map(str, self.layout.shape))}]"
        if self.layout.order != "C":
            text += f" with strides {self.layout.strides}"
        return f"read-only {text}" if self.readonly else text


@dataclass(frozen=True)
class ScalarAval:
    """What a graph needs to know of a number: its class."""

    type: type

    def __str__(self) -> str:
        return self.type.__name__


Aval = ArrayAval | ScalarAval

_known: weakref.WeakValueDictionary[tuple[Layout, Device, bool, bool], ArrayAval] = (
    weakref.WeakValueDictionary()
)
_lock = make_lock()


def array_aval(
    layout: Layout, device: Device, readonly: bool = False, record: bool = False
) -> ArrayAval:
    """The one aval of these properties.

    Keys of calls are tuples of avals; since equal avals are one object, they hash and compare by
    identity, at a tenth of the cost of comparing layouts.
    """
    key = (layout, device, readonly, record)
    found = _known.get(key)
    if found is None:
        with _lock:
            found = _known.get(key)
            if found is None:
                found = _known[key] = ArrayAval(*key)
    return found
