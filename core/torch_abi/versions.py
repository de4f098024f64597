"""Which torch and Python run, and whether armature supports them."""

from __future__ import annotations

import sys

import attrs
import torch
from packaging.version import Version

PYTHON_RANGE = ((3, 11), (3, 14))  # first supported, first unsupported
TORCH_RANGE = ("2.11", "2.16.dev0")
HASATTR_MAKES_ERRORS = sys.version_info < (3, 12)
"""Whether CPython makes an AttributeError where C code only asks if an object has an attribute."""


@attrs.frozen
class Versions:
    """Versions found at run time."""

    python: tuple[int, int, int]
    torch: Version

    @property
    def python_supported(self) -> bool:
        """Python 3.11 up to, not including, 3.14."""
        return PYTHON_RANGE[0] <= self.python[:2] < PYTHON_RANGE[1]

    @property
    def torch_supported(self) -> bool:
        """torch 2.11 up to, not including, 2.16."""
        return Version(TORCH_RANGE[0]) <= Version(self.torch.base_version) < Version(TORCH_RANGE[1])

    @property
    def supported(self) -> bool:
        """Both in range."""
        return self.python_supported and self.torch_supported


def of_process() -> Versions:
    """The versions of this process."""
    return Versions(python=sys.version_info[:3], torch=Version(torch.__version__))
