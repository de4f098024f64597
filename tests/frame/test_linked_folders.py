"""Code is told apart by its folder, also where that is a link: a package in `src`, or installed by links to a cache."""

import os
import subprocess
import sys
from pathlib import Path

import torch

import armature

SCRIPT = """
import armature, torch
from armature.frame import skip
from armature.pipeline.callers import callers
from armature.reports.recorder import shown

def fails():
    raise ValueError("of the program")

assert "linked" in armature.__file__ and "linked" in torch.__file__
relu = torch.nn.functional.relu
print(skip.is_own(armature.compile.__code__), skip.is_own(fails.__code__), skip.is_glue_of_torch(relu.__code__))
found = armature.disable(callers)()
print(found[-1].function, any("linked/armature" in caller.file for caller in found))
try:
    armature.disable(fails)()
except ValueError as error:
    print(shown(error.with_traceback(error.__traceback__.tb_next)).splitlines()[1].split()[-1])
"""


def test_folders_that_are_links(tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for package in (armature, torch):
        (linked / package.__name__).symlink_to(Path(package.__file__).parent.resolve(), target_is_directory=True)
    environment = os.environ | {"PYTHONPATH": str(linked)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True False True", "<module> False", "fails"]
