"""Importing modules from their sources where compiled ones are there too."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

is_pure = os.environ.get("GRAPHJIT_PURE_PYTHON", "0") not in ("", "0")


class _SourceFinder:
    """Finds graphjit's modules as Python does where nothing is compiled."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("graphjit.") or path is None:
            return None
        for folder in path:
            file = os.path.join(folder, f"{name.rpartition('.')[2]}.py")
            if os.path.exists(file):
                return spec_from_file_location(name, file)
        return None


def prefer_sources() -> None:
    """Do so from now on, if the variable GRAPHJIT_PURE_PYTHON says so."""
    if is_pure:
        sys.meta_path.insert(0, _SourceFinder)
