"""Frames in files."""

from __future__ import annotations

from pathlib import Path

import torch

from tinyframe.frame import Frame


def load(path: str | Path) -> Frame:
    """The frame in a file."""
    return Frame(**torch.load(path, weights_only=True))


def save(frame: Frame, path: str | Path) -> None:
    """Write a frame to a file."""
    torch.save(dict(frame._columns), path)
