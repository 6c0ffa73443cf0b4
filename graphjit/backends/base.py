"""What a backend is: devices, memory, and Schedules turned into Executables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphjit._layout import Layout
from graphjit._memory import Allocator, Memory

if TYPE_CHECKING:
    from graphjit._options import Options
    from graphjit.backends.executable import Executable
    from graphjit.schedule.schedule import Schedule


@dataclass(frozen=True)
class Device:
    """A device that graphs run on.

    Parameters
    ----------
    backend : str
        Name of its backend: ``"cpu"``, ``"cuda"`` or ``"sycl"``.
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


class Backend(Protocol):
    """One way to run graphs."""

    name: str
    # Whether its compiler makes one operation, rounded once, of a product and a sum.
    contracts: bool

    def devices(self) -> tuple[Device, ...]:
        """Devices that are there now."""

    def allocate(self, device: Device, nbytes: int, stream: Any = None) -> Memory:
        """Uninitialised memory; raises DeviceMemoryError where there is not enough."""

    def allocator(self, device: Device, nbytes: int) -> Allocator:
        """What makes memory of one size."""

    def adopt(
        self, device: Device, address: int, nbytes: int, owner: object, stream: Any = None
    ) -> Memory:
        """Memory that somebody else owns and wrote on a stream, kept alive through `owner`."""

    def upload(
        self,
        device: Device,
        source: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Copy a host array to device address `target`; returns when done with `source`."""

    def download(
        self, device: Device, source: int, layout: Layout, stream: Any
    ) -> np.ndarray[Any, Any]:
        """A fresh host array of the elements at device address `source`; waits for them."""

    def copy(
        self,
        device: Device,
        source: int,
        source_layout: Layout,
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Copy elements on the device; the regions may overlap, as in NumPy's assignment."""

    def fill(
        self,
        device: Device,
        value: np.ndarray[Any, Any],
        target: int,
        layout: Layout,
        stream: Any,
    ) -> None:
        """Set every element at device address `target` to a 0-d host array's value."""

    def export_dlpack(self, array: Any, stream: Any, options: dict[str, Any]) -> Any:
        """The DLPack capsule of an Array whose elements are ready on `stream`."""

    def check(self, schedule: Schedule) -> None:
        """Raise UnsupportedKernelError if a node can't run here; touches no device."""

    def build(self, schedule: Schedule, device: Device, options: Options) -> Executable:
        """Instantiate a schedule.

        Parameters
        ----------
        schedule : Schedule
            What to run.
        device : Device
            Where.
        options : Options
            How arguments are bound, and which ways to run faster are allowed.
        """

    def synchronize(self, device: Device) -> None:
        """Wait until the device has nothing left to do."""
