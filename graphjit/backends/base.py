"""What a backend is: devices, memory, and Schedules turned into Executables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphjit._layout import Layout

if TYPE_CHECKING:
    from graphjit.schedule.schedule import Schedule


@dataclass(frozen=True)
class Device:
    """A device that graphs run on.

    Parameters
    ----------
    backend : str
        Name of its backend: ``"cpu"`` or ``"cuda"``.
    index : int
        Its number within the backend.
    name : str
        What the maker calls it.
    """

    backend: str
    index: int
    name: str

    def __str__(self) -> str:
        return f"{self.backend}:{self.index}"


class Memory(Protocol):
    """A piece of device memory that is freed when nothing refers to it."""

    @property
    def address(self) -> int:
        """Device address of the first byte."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    # Stream it belongs to: where it can be used without a word.
    stream: Any
    # Set when another library is given the address: the memory is not reused then.
    exported: bool

    def used_on(self, stream: Any) -> None:
        """Note that work on a stream uses the memory, which must be over before it is reused."""


class Executable(Protocol):
    """A Schedule instantiated on a device."""

    def run(self, pointers: Sequence[int], scalars: Sequence[Any], stream: Any) -> None:
        """Replay once.

        Parameters
        ----------
        pointers : sequence of int
            Lowest address of each buffer in `Schedule.externals`, in order.
        scalars : sequence
            Value of each scalar in `Schedule.scalars`, in order.
        stream : object
            Stream handle on a backend that has streams; None for the default one.
        """

    def close(self) -> None:
        """Free what the executable owns; a second call does nothing."""


class Backend(Protocol):
    """One way to run graphs."""

    name: str

    def devices(self) -> tuple[Device, ...]:
        """Devices that are there now."""

    def allocate(self, device: Device, nbytes: int, stream: Any = None) -> Memory:
        """Uninitialised memory; raises DeviceMemoryError where there is not enough."""

    def adopt(self, device: Device, address: int, nbytes: int, owner: object) -> Memory:
        """Memory that somebody else owns, kept alive through `owner`."""

    def upload(
        self, source: np.ndarray[Any, Any], target: int, layout: Layout, stream: Any
    ) -> None:
        """Copy a host array to device address `target`; returns when done with `source`."""

    def download(self, source: int, layout: Layout, stream: Any) -> np.ndarray[Any, Any]:
        """A fresh host array of the elements at device address `source`; waits for them."""

    def copy(
        self, source: int, source_layout: Layout, target: int, layout: Layout, stream: Any
    ) -> None:
        """Copy elements on the device; the regions may overlap, as in NumPy's assignment."""

    def fill(self, value: np.ndarray[Any, Any], target: int, layout: Layout, stream: Any) -> None:
        """Set every element at device address `target` to a 0-d host array's value."""

    def export_dlpack(self, array: Any, stream: Any, options: dict[str, Any]) -> Any:
        """The DLPack capsule of an Array whose elements are ready on `stream`."""

    def check(self, schedule: Schedule) -> None:
        """Raise UnsupportedKernelError if a node can't run here; touches no device."""

    def build(self, schedule: Schedule, device: Device) -> Executable:
        """Instantiate a schedule."""

    def synchronize(self, device: Device) -> None:
        """Wait until the device has nothing left to do."""
