"""A content-addressed store of built files: the same key gives the same file, in this process and in the next."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
from filelock import FileLock

_DEFAULT_LIMIT = 2 << 30


def digest(parts: Iterable[str | bytes]) -> str:
    """Hexadecimal key of the parts; their borders count, so ("ab", "c") differs from ("a", "bc")."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()[:40]


@attrs.define(eq=False)
class Cache:
    """Files under `folder`, two levels deep, named by their key. `limit`: size in bytes above which old files go.

    Safe between threads and processes: one builds while others wait, and a file appears whole or not at all.
    """

    folder: Path
    limit: int = _DEFAULT_LIMIT
    hits: int = 0
    misses: int = 0

    def path(self, key_parts: Iterable[str | bytes], suffix: str) -> Path:
        """Where the file with this key stands or would stand. `suffix` begins with a dot."""
        key = digest(key_parts)
        return self.folder / key[:2] / f"{key}{suffix}"

    def get_or_build(self, key_parts: Iterable[str | bytes], suffix: str, build: Callable[[Path], None]) -> Path:
        """The file with this key, made by `build(path)` when it is not there. Errors: what `build` raises.

        `build` writes to the path that it is given, which is in the same folder and has the same suffix; on an error
        nothing is kept.
        """
        final = self.path(key_parts, suffix)
        if final.exists():
            self.hits += 1
            return final
        final.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{final}.lock"):
            if final.exists():  # another process built it while we waited
                self.hits += 1
                return final
            self.misses += 1
            work = Path(tempfile.mkdtemp(dir=final.parent))
            try:
                made = work / final.name
                build(made)
                os.replace(made, final)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        self.trim()
        return final

    def files(self) -> list[Path]:
        """All files of the store, locks and unfinished work left out."""
        if not self.folder.is_dir():
            return []
        return [p for p in self.folder.glob("??/*") if p.is_file() and p.suffix != ".lock"]

    def size(self) -> int:
        """Bytes taken by the files."""
        return sum(_size(p) for p in self.files())

    def trim(self) -> None:
        """Remove the files used longest ago until the store is within its limit again."""
        files = self.files()
        total = sum(_size(p) for p in files)
        if total <= self.limit:
            return
        for path in sorted(files, key=_used):
            total -= _size(path)
            _remove(path)
            if total <= self.limit * 0.8:  # leave room, so that the next build does not trim again
                return

    def clear(self) -> int:
        """Remove all files. Returns how many."""
        files = self.files()
        for path in files:
            _remove(path)
        return len(files)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another process trims too
        return 0


def _used(path: Path) -> float:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0.0
    return max(found.st_atime, found.st_mtime)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    Path(f"{path}.lock").unlink(missing_ok=True)
