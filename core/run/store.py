"""One folder of built files that only its owner can access, each named by its key and the checksum of its content."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

import attrs
from filelock import FileLock, Timeout

KEY_DIGITS, CHECKSUM_DIGITS = 40, 32
NAME = re.compile(rf"([0-9a-f]{{{KEY_DIGITS}}})-([0-9a-f]{{{CHECKSUM_DIGITS}}})(\.\w+)")
WORK = "work-"
PATIENCE = 600  # seconds to wait for another process that builds the same file: it may have been stopped
ABANDONED = 24 * 3600  # age in seconds of a work folder whose process must be dead
ROOM = 16 << 20  # bytes that must fit for a folder to count as writable: a kernel and its compiler's temporary files
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Unusable(Exception):
    """A folder can't hold kernels; the text says why."""


def checksum(key: str, file: BufferedReader) -> str:
    """Hexadecimal checksum of a file under a key; it depends on the content and on the key."""
    return hashlib.file_digest(file, lambda: hashlib.sha256(key.encode())).hexdigest()[:CHECKSUM_DIGITS]


def trusted(folder: Path) -> bool:
    """Whether we own a folder, and nobody else can add or rename files in it."""
    try:
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & OTHERS_WRITE


@attrs.frozen
class Entry:
    """A built file. checksum: of its key and the content it was stored with."""

    path: Path
    key: str
    checksum: str
    suffix: str

    @classmethod
    def of(cls, path: Path) -> Entry | None:
        """The entry that a path names; None for other files."""
        found = NAME.fullmatch(path.name)
        return cls(path, *found.groups()) if found else None

    def fault(self) -> str | None:
        """Why the file must not be loaded: another owner, writable by others, or changed content."""
        try:
            # Don't follow a link, which may lead to anyone's file, and don't wait for the writer of a pipe.
            number = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return f"it can't be read: {error.strerror}"
        facts = os.fstat(number)
        if not stat.S_ISREG(facts.st_mode):
            os.close(number)
            return "it is not a regular file"
        with open(number, "rb") as file:
            if facts.st_uid != os.geteuid():
                return f"it belongs to the user {facts.st_uid}"
            if facts.st_mode & OTHERS_WRITE:
                return "other users may write to it"
            try:
                found = checksum(self.key, file)
            except OSError as error:
                return f"it can't be read: {error.strerror}"
        return None if found == self.checksum else "its content is not what was stored"

    @property
    def size(self) -> int:
        """Bytes; 0 once another process has removed the file."""
        try:
            return self.path.lstat().st_size
        except OSError:
            return 0

    @property
    def used(self) -> float:
        """When the file was last read or written, in seconds since the epoch."""
        try:
            facts = self.path.lstat()
        except OSError:
            return 0.0
        return max(facts.st_atime, facts.st_mtime)

    def remove(self) -> None:
        """Remove the file, or a folder in its place, and the lock of its key; has no effect in a read-only folder."""
        for path in (self.path, self.path.with_name(f"{self.key}.lock")):
            try:
                if path.is_dir() and not path.is_symlink():
                    self._remove_folder(path)
                path.unlink(missing_ok=True)
            except OSError:
                return

    def _remove_folder(self, path: Path) -> None:
        """Remove a folder with all that is in it. One that we may not empty only gets another name: that of abandoned
        work, in place of the new folder."""
        aside = tempfile.mkdtemp(prefix=f"{WORK}{self.key}-", dir=path.parent)
        path.rename(aside)
        os.chmod(aside, 0o700)
        shutil.rmtree(aside, ignore_errors=True)


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can access, or make an existing one private. Raises Unusable."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode):
            raise Unusable(f"{folder} is not a folder")
        if facts.st_uid != os.geteuid():
            raise Unusable(f"{folder} belongs to the user {facts.st_uid}")
        if stat.S_IMODE(facts.st_mode) != 0o700:
            folder.chmod(0o700)
            if folder.lstat().st_mode & OTHERS_WRITE:
                raise Unusable(f"{folder} stays writable for other users")
    except OSError as error:
        raise Unusable(f"{folder}: {error.strerror}") from error


@attrs.frozen
class Store:
    """Built files under `folder`, in folders named by the first two digits of their keys.

    A file appears under its name whole or not at all, so that neither a killed process nor a full disk leaves a broken
    one that could be loaded; its checksum shows later changes.
    """

    folder: Path

    def open(self) -> None:
        """Create the folder if it is missing. Raises Unusable if files in it can't be trusted or can't be executed."""
        make_private(self.folder)
        # A library on such a file system can be read but not loaded.
        if os.statvfs(self.folder).f_flag & getattr(os, "ST_NOEXEC", 0):
            raise Unusable(f"{self.folder} is on a file system mounted with noexec")

    def check_writable(self) -> None:
        """Raises Unusable if a file of the usual size can't be written."""
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(bytes(ROOM))
        except OSError as error:
            raise Unusable(f"{self.folder}: {error.strerror}") from error

    def candidates(self, key: str, suffix: str) -> list[Entry]:
        """Files with this key. There are several if processes built it at once, or if one is bad."""
        place = self.folder / key[:2]
        if not trusted(place):
            return []
        try:
            names = [name for name in os.listdir(place) if name.startswith(key)]
        except OSError:
            return []
        found = (Entry.of(place / name) for name in names)
        return [entry for entry in found if entry is not None and entry.suffix == suffix]

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Allow one process at a time to build a file. This only saves work: without locks, several build it."""
        lock = FileLock(self.folder / key[:2] / f"{key}.lock", timeout=PATIENCE, mode=0o600)
        try:
            lock.acquire()
        except (Timeout, OSError, NotImplementedError):
            yield
            return
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def work(self, key: str) -> Iterator[Path]:
        """A folder to build the file in, removed afterwards together with those left by killed processes.

        Raises Unusable, OSError.
        """
        place = self.folder / key[:2]
        for left in place.glob(f"{WORK}{key}-*"):
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{WORK}{key}-", dir=place))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prepare(self, key: str) -> None:
        """Create the folder for files with this key. Raises Unusable."""
        make_private(self.folder / key[:2])

    def put(self, made: Path, key: str, suffix: str) -> Entry:
        """Give a built file its name. Raises Unusable if something else has the name; OSError."""
        with made.open("rb") as file:
            content = checksum(key, file)
        made.chmod(stat.S_IMODE(made.stat().st_mode) & 0o700)
        final = self.folder / key[:2] / f"{key}-{content}{suffix}"
        try:
            os.replace(made, final)
        except OSError as error:
            raise Unusable(f"{final}: {error.strerror}") from error
        return Entry(final, key, content, suffix)

    def entries(self) -> list[Entry]:
        """All built files, whether good or bad."""
        found = (Entry.of(path) for path in self.folder.glob("??/*"))
        return [entry for entry in found if entry is not None]

    def remove_abandoned(self, age: float = ABANDONED) -> None:
        """Remove work folders left by killed processes, if they are older than `age` seconds."""
        for folder in self.folder.glob(f"??/{WORK}*"):
            try:
                old = time.time() - folder.stat().st_mtime > age
            except FileNotFoundError:
                continue
            if old:
                shutil.rmtree(folder, ignore_errors=True)
