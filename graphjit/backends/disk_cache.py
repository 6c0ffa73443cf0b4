"""Files that graphjit makes once and keeps between processes."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs


def folder() -> Path:
    """Where they are: what GRAPHJIT_CACHE_DIR names, or the user's cache folder."""
    chosen = os.environ.get("GRAPHJIT_CACHE_DIR")
    return Path(chosen) if chosen else platformdirs.user_cache_path("graphjit")


def key(*parts: bytes | str) -> str:
    """A name for what all the parts make: other parts, another name."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def kept_file(name: str, make: Callable[[Path], None]) -> Path:
    """The file of that name, made now if it isn't there.

    Parameters
    ----------
    name : str
        Its name, with all in it that it depends on.
    make : callable
        Writes it, to the path that it is given. Other processes may be at the same: each file
        appears at once and whole, and whoever is last replaces what is alike.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    OSError
        If the folder can't be written.
    """
    path = folder() / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as made:
            temporary = Path(made) / path.name
            make(temporary)
            os.replace(temporary, path)
    return path


def kept_bytes(name: str, make: Callable[[], bytes]) -> bytes:
    """What the file of that name holds, or what is made now, kept if the folder can be written."""
    try:
        return (folder() / name).read_bytes()
    except OSError:
        data = make()
    try:
        kept_file(name, functools.partial(_write, data))
    except OSError:
        pass  # a read-only home: it is made anew in the next process
    return data


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)
