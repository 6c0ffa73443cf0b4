"""Files that graphjit makes once and keeps between processes."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size


def folder() -> Path:
    """Where they are: what GRAPHJIT_CACHE_DIR names, or the user's cache folder."""
    chosen = os.environ.get("GRAPHJIT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    # Who has no SYCL hasn't it either, and still asks the backend whether it is there.
    import platformdirs

    return platformdirs.user_cache_path("graphjit")


def key(*parts: bytes | str) -> str:
    """A name for what all the parts make: other parts, another name."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def kept_file(name: str, make: Callable[[Path], None]) -> Path:
    """The file of that name, made now if it isn't there, or isn't as it was made.

    At its end is a digest of what is before, which whoever loads libraries doesn't mind.

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
    if _whole(path) is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as made:
            temporary = Path(made) / path.name
            make(temporary)
            with temporary.open("r+b") as file:
                digest = hashlib.sha256(file.read()).digest()
                file.write(digest)
            os.replace(temporary, path)
    return path


def _whole(path: Path) -> bytes | None:
    """What a file holds before the digest at its end; None if there is none, or it is damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    return body if hashlib.sha256(body).digest() == digest else None


def kept_bytes(name: str, make: Callable[[], bytes]) -> bytes:
    """What the file of that name holds, or what is made now, kept if the folder can be written."""
    try:
        found = _whole(folder() / name)
    except OSError:
        found = None
    if found is not None:
        return found
    data = make()
    try:
        kept_file(name, functools.partial(_write, data))
    except OSError:
        pass  # a read-only home: it is made anew in the next process
    return data


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)
