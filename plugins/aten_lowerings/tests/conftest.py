"""The kit over this plugin's rows."""

from __future__ import annotations

import pytest
import torch

import armature
from armature.testing.lowering_kit import Kit
from armature_aten_lowerings import plugin


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit(tuple(plugin.armature_lowerings()))


@pytest.fixture(autouse=True)
def fresh() -> None:
    armature.reset()
    torch.manual_seed(0)
