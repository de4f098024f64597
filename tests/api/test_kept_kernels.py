"""Kernels on disk, as the next process finds them: good, spoilt, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from armature.run.cache import Cache

# Prints how many kernels were taken from the disk and how many built; what the compiled function computes is checked.
SCRIPT = """
import warnings
import armature, torch
from armature import config
from armature.pipeline.stages import new_context
from armature.plugins import manager

def f(x):
    return torch.tanh(x * 3) + x

x = torch.randn(1000)
torch.testing.assert_close(armature.compile(f)(x), f(x))
cache = new_context(config.current(), manager().tables(), 0).cache
print("kernels", cache.hits, cache.misses, len(cache.rebuilt))
"""


def start(folder: Path, strict: bool = True) -> subprocess.Popen[str]:
    environment = os.environ | {"ARMATURE_CACHE_DIR": str(folder), "ARMATURE_STRICT": str(int(strict))}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> tuple[tuple[int, ...], str]:
    """Kernels found, built, and found bad; and what the process said besides."""
    said, warned = process.communicate(timeout=120)
    assert process.returncode == 0, warned
    return tuple(map(int, said.split()[1:])), warned


def flip_four_bytes(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(b"\x7fELF") + 0x18  # the entry and the tables that the loader goes by
    for place in range(at + 8, at + 12):
        content[place] ^= 0xFF
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.slow
def test_spoilt_kernels_are_built_again(tmp_path: Path) -> None:
    """Without strict mode, in which a kernel that can't be loaded would fall back to eager."""
    assert outcome(start(tmp_path, strict=False)) == ((0, 1, 0), "")
    for spoil in (flip_four_bytes, truncate):
        (path,) = Cache(tmp_path).files()
        assert path.suffix == ".so"
        spoil(path)
        assert outcome(start(tmp_path, strict=False)) == ((0, 1, 1), "")
    assert outcome(start(tmp_path)) == ((1, 0, 0), "")


@pytest.mark.slow
def test_folder_that_cannot_be_made_costs_one_line_and_no_kernel(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found, warned = outcome(start(tmp_path / "file" / "cache", strict=False))
    assert found == (0, 1, 0)
    assert len(warned.splitlines()) == 1 and "kernels can't be kept" in warned


@pytest.mark.slow
def test_processes_at_once_share_one_build(tmp_path: Path) -> None:
    found = [outcome(process) for process in [start(tmp_path) for _ in range(2)]]
    assert [warned for _, warned in found] == [""] * 2
    assert sum(built for (_, built, _), _ in found) == 1
    assert all(bad == 0 for (_, _, bad), _ in found)


@pytest.mark.slow
def test_full_disk_costs_one_line_and_no_kernel(tmp_path: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount a disk")
    try:
        found, warned = outcome(start(tmp_path, strict=False))
        assert Cache(tmp_path).files() == []
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
    assert found == (0, 2, 0)  # tried there, then built elsewhere
    assert len(warned.splitlines()) == 1 and "No space left" in warned
