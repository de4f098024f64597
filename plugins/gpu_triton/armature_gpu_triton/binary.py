"""A built kernel as a file: a line of JSON, then the cubin.

A cubin is an ELF file. The attributes in its section `.nv.info`, each with a format, a number and a value, include the
bytes of local memory per thread, which hold the values that don't fit in registers (spills).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import attrs

NO_CONTENT = 8  # type of a section without contents in the file
# in .nv.info: the format of attributes that state their size, and the number of the attribute that is read
SIZED, FRAME_SIZE = 4, 0x11


def sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of an ELF file's sections."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, of_names = struct.unpack_from("<HHH", cubin, 58)
    rows = [struct.unpack_from("<IIQQQQ", cubin, table + size * k) for k in range(count)]
    names = rows[of_names][4]
    for name, kind, _, _, start, length in rows:
        end = cubin.index(b"\0", names + name)
        yield cubin[names + name : end].decode(), b"" if kind == NO_CONTENT else cubin[start : start + length]


def attributes(cubin: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes of the file's functions, those with a size of their own."""
    for name, content in sections(cubin):
        at = 0
        while name == ".nv.info" and at + 4 <= len(content):
            form, kind, size = struct.unpack_from("<BBH", content, at)
            at += 4
            if form == SIZED:
                yield kind, content[at : at + size]
                at += size


@attrs.frozen
class Binary:
    """A built kernel. shared: bytes of shared memory of one program; block: threads of one program."""

    name: str
    cubin: bytes
    shared: int
    block: int

    @property
    def spilled(self) -> int:
        """Bytes of local memory per thread."""
        frames = (struct.unpack("<II", value)[1] for kind, value in attributes(self.cubin) if kind == FRAME_SIZE)
        return max(frames, default=0)

    def write(self, path: Path) -> None:
        """One line of JSON, then the cubin."""
        head = json.dumps({"name": self.name, "shared": self.shared, "block": self.block})
        path.write_bytes(head.encode() + b"\n" + self.cubin)

    @classmethod
    def read(cls, path: Path) -> Binary:
        """Read a file made by `write`."""
        head, cubin = path.read_bytes().split(b"\n", 1)
        return cls(cubin=cubin, **json.loads(head))
