"""What a call frees is there for the next one, in a process that has freed no large tensor before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource

import torch
from torch import nn

import armature

network = nn.Sequential(
    nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 49, 128),
)
images = torch.randn(32, 1, 28, 28)
compiled = armature.compile(network)

def step():
    network.zero_grad(set_to_none=True)
    compiled(images).square().mean().backward()

for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep memory by other rules")
def test_a_training_step_gets_no_memory_from_the_system_again() -> None:
    """Else its 12 MiB, some 3000 pages, came and went with each step."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=600)
    assert int(done.stdout) < 10 * 500
