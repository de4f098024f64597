"""A built kernel as a file: a line of JSON, then the cubin."""

from __future__ import annotations

import json
from pathlib import Path

import attrs


@attrs.frozen
class Binary:
    """A built kernel. shared: bytes of shared memory of one program; block: threads of one program."""

    name: str
    cubin: bytes
    shared: int
    block: int

    def write(self, path: Path) -> None:
        """One line of JSON, then the cubin."""
        head = json.dumps({"name": self.name, "shared": self.shared, "block": self.block})
        path.write_bytes(head.encode() + b"\n" + self.cubin)

    @classmethod
    def read(cls, path: Path) -> Binary:
        """Read a file made by `write`."""
        head, cubin = path.read_bytes().split(b"\n", 1)
        return cls(cubin=cubin, **json.loads(head))
