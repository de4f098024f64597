"""A content-addressed store of built files: the same key yields the same file, in this process and in the next."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import attrs

from armature.errors import ArmatureWarning, NoKernelFolder
from armature.run.store import KEY_DIGITS, Entry, Store, Unusable

_DEFAULT_LIMIT = 2 << 30
# fraction of the limit that may be built before the folder's size is determined again, which is slow for a large folder
UNSEEN = 0.02
# A subfolder of the one in the settings, which may have other contents and permissions: the store is ours alone.
STORE = "kernels"

T = TypeVar("T")


def digest(parts: Iterable[str | bytes]) -> str:
    """Hexadecimal key of the parts. Their boundaries count, so ("ab", "c") differs from ("a", "bc")."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()[:KEY_DIGITS]


def remove_in(process: int, folder: Path) -> None:
    """Remove a folder when the process that made it ends, but not when a fork of it does."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@attrs.define(eq=False)
class Cache:
    """Built files below `folder`, named by key and checksum. `limit`: size in bytes above which old files are removed.

    A file is checked before it is used: a bad one is removed and built again (`rebuilt` says which and why). If the
    folder can't be used, files are built in a temporary one, which is removed when the process ends, with one warning.
    Safe between threads and processes: one builds while others wait, and a file appears whole or not at all.
    """

    folder: Path
    limit: int = _DEFAULT_LIMIT
    hits: int = 0
    misses: int = 0
    rebuilt: list[str] = attrs.field(factory=list)
    _temporary: Store | None = attrs.field(default=None, init=False)
    # bytes built by this process since the folder's size was last determined
    _unseen: int = attrs.field(default=0, init=False)
    _allowed: int = attrs.field(default=0, init=False)  # most bytes that may be built before that is done again
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @property
    def store(self) -> Store:
        """The subfolder that holds the files."""
        return Store(self.folder.absolute() / STORE)

    def problem(self) -> str | None:
        """Why the folder can't be used; None if it can. The folder is created to find out."""
        return self._unusable() or _unwritable(self.store, None)

    def holds(self, key_parts: Iterable[str | bytes], suffix: str) -> bool:
        """Whether there is a file with this key; it may turn out to be bad. `suffix` begins with a dot."""
        key = digest(key_parts)
        return any(store.candidates(key, suffix) for store in self._stores(self._unusable()))

    def get_or_build(self, key_parts: Iterable[str | bytes], suffix: str, build: Callable[[Path], None]) -> Path:
        """The file with this key, made by `build(path)` if there is no good one. Errors: as `load`."""
        return self.load(key_parts, suffix, build, lambda path: path)

    def load(
        self, key_parts: Iterable[str | bytes], suffix: str, build: Callable[[Path], None], read: Callable[[Path], T]
    ) -> T:
        """The result of `read(path)` for the file with this key, made by `build(path)` if there is no good one.

        `build` writes to the path that it is given, in a folder of its own and with the same suffix; on an error
        nothing is stored. A stored file that `read` refuses is built again. Errors: those of `build` and, for a new
        file, `read`; NoKernelFolder.
        """
        key, reason = digest(key_parts), self._unusable()
        for store in self._stores(reason):
            found = self._stored(store, key, suffix, read)
            if found:
                return found[0]
        if reason is None and self._temporary is None:
            try:
                return self._built(self.store, key, suffix, build, read)
            except Exception as error:
                reason = _unwritable(self.store, error)
                if reason is None:
                    raise
        return self._built(self._opened_temporary(reason), key, suffix, build, read)

    def files(self) -> list[Path]:
        """All built files, without locks and unfinished work."""
        return [entry.path for entry in self.entries()]

    def entries(self) -> list[Entry]:
        """All built files of the folder, good or bad."""
        return self.store.entries()

    def size(self) -> int:
        """Bytes taken by the files."""
        return sum(entry.size for entry in self.entries())

    def trim(self) -> None:
        """Remove the least recently used files until the store is within its limit, and abandoned work."""
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        self._unseen, self._allowed = 0, max(0, min(self.limit - total, int(self.limit * UNSEEN)))
        if total <= self.limit:
            return
        self.store.remove_abandoned()
        for entry in sorted(entries, key=lambda entry: entry.used):
            total -= entry.size
            entry.remove()
            if total <= self.limit * 0.8:  # leave room, so that the next build does not trim again
                return

    def clear(self) -> int:
        """Remove all files. Returns how many."""
        entries = self.entries()
        for entry in entries:
            entry.remove()
        self.store.remove_abandoned()
        return len(entries)

    def _stores(self, reason: str | None) -> list[Store]:
        """The stores to search for files. problem: why the folder of the settings can't be used, if so."""
        stores = [] if reason else [self.store]
        return stores if self._temporary is None else [*stores, self._temporary]

    def _unusable(self) -> str | None:
        """Why files of the folder can't be used, None if they can. The folder is created if it is missing."""
        # "~" is left when the home folder can't be found.
        if str(self.folder).startswith("~"):
            return "there is no home folder"
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.store.open()
        except FileExistsError as error:
            return f"{error.filename} is not a folder"
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        except Unusable as unusable:
            return str(unusable)
        return None

    def _stored(self, store: Store, key: str, suffix: str, read: Callable[[Path], T]) -> tuple[T] | None:
        """The result of `read` for a good file with this key; bad ones are removed."""
        for entry in store.candidates(key, suffix):
            fault = entry.fault()
            if fault is None:
                try:
                    found = (read(entry.path),)
                except Exception as error:
                    fault = f"it can't be loaded: {error}"
                else:
                    self.hits += 1
                    return found
            self.rebuilt.append(f"{entry.path} is built again: {fault}")
            entry.remove()
        return None

    def _built(
        self, store: Store, key: str, suffix: str, build: Callable[[Path], None], read: Callable[[Path], T]
    ) -> T:
        store.prepare(key)
        with store.locked(key):
            found = self._stored(store, key, suffix, read)  # another process may have built it while we waited
            if found:
                return found[0]
            self.misses += 1
            with store.work(key) as folder:
                made = folder / f"{key}{suffix}"
                build(made)
                entry = store.put(made, key, suffix)
        self._unseen += entry.size
        if self._unseen > self._allowed:
            self.trim()
        return read(entry.path)

    def _opened_temporary(self, reason: str | None) -> Store:
        """The temporary store, made on first use. Raises NoKernelFolder."""
        with self._lock:
            if self._temporary is None or not self._temporary.folder.is_dir():  # the process we forked from has ended
                try:
                    store = Store(Path(tempfile.mkdtemp(prefix="armature-")))
                    atexit.register(remove_in, os.getpid(), store.folder)
                    store.open()
                except (OSError, Unusable) as error:
                    raise NoKernelFolder(folder=self.folder, reason=reason, error=error) from error
                if reason and self._temporary is None:
                    _tell(self.folder, reason, store.folder)
                self._temporary = store
            return self._temporary


def _unwritable(store: Store, error: Exception | None) -> str | None:
    """Why a folder can't be written, which may be the cause of a failed build; None if it can."""
    try:
        if isinstance(error, Unusable):
            raise error
        store.check_writable()
    except Unusable as unusable:
        return str(unusable)
    return None


def _tell(asked: Path, reason: str, used: Path) -> None:
    text = (
        f"kernels can't be kept in {asked} ({reason}): they are built in {used}, removed when the process ends. "
        "ARMATURE_CACHE_DIR names another folder."
    )
    # Print a single line: the warning is not about a place in the program, and a line of this file would not help.
    warnings.warn_explicit(text, ArmatureWarning, "armature", 0)
