"""The compiled `shim.cpp`: where it is, and how it gets there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from graphjit._errors import DeviceError
from graphjit.backends.disk_cache import kept_file, key

_SOURCE = Path(__file__).with_name("shim.cpp")
_OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-w")


def library_path() -> Path:
    """The compiled library, compiled now if it isn't there.

    Raises
    ------
    DeviceError
        If there is no C++ compiler, it fails, or there is no place for what it makes.
    """
    try:
        version = metadata.version("intel-sycl-rt")
    except metadata.PackageNotFoundError:
        raise DeviceError(
            "the sycl backend is compiled against the headers of the wheel intel-sycl-rt, which "
            "isn't installed; pip install intel-sycl-rt"
        ) from None
    name = f"shim-{key(_SOURCE.read_bytes(), version, repr(_OPTIONS), sys.prefix)}.so"
    try:
        return kept_file(name, _compile)
    except OSError as error:
        raise DeviceError(
            f"graphjit can't keep its compiled SYCL library ({error}); name a folder that can be "
            "written in the variable GRAPHJIT_CACHE_DIR"
        ) from error


def _compile(target: Path) -> None:
    # As make takes it: a compiler, and options for it.
    wanted = shlex.split(os.environ.get("CXX", ""))
    names, options = (wanted[:1], wanted[1:]) if wanted else (["c++", "g++", "clang++"], [])
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        raise DeviceError(
            "the sycl backend compiles a small library once, and there is no C++ compiler "
            f"({' or '.join(names)}); install one (g++ or clang++), or name one in the variable CXX"
        )
    command = [compiler, *options, *_OPTIONS]
    for folder in _folders():
        libraries = folder / "lib"
        command += [f"-I{folder / 'include'}", f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
    result = subprocess.run(
        [*command, str(_SOURCE), "-lsycl", "-o", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise DeviceError(
            f"{compiler} can't compile graphjit's SYCL library (status {result.returncode}):\n"
            f"{result.stderr.strip() or 'it says nothing'}"
        )


def _folders() -> list[Path]:
    """Where the wheel intel-sycl-rt put its headers and libraries."""
    found = [Path(sys.prefix)]
    for file in metadata.files("intel-sycl-rt") or ():
        if file.name == "sycl.hpp":
            found.append(Path(str(file.locate())).resolve().parents[2])
    return list(dict.fromkeys(found))
