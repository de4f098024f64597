#!/bin/sh
# Makes the virtual environment and installs torch, the core and every plugin into it, editable.
set -eu

if [ "$TORCH" = keep ]; then
    "$PYTHON" - <<'CHECK'
import sys
try:
    import torch
except ImportError:
    sys.exit("TORCH=keep: this Python has no torch. Install one of 2.11 to 2.15, or leave TORCH unset.")
version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
if not (2, 11) <= version <= (2, 15):
    sys.exit(f"TORCH=keep: torch {torch.__version__} is out of range, armature needs 2.11 to 2.15. Leave TORCH unset.")
CHECK
    "$PYTHON" -m venv --system-site-packages "$VENV"
else
    "$PYTHON" -m venv "$VENV"
fi

pip="$VENV/bin/python -m pip --disable-pip-version-check"
$pip install --quiet --upgrade "pip>=24" "setuptools>=77" wheel
if [ "$TORCH" != keep ]; then
    echo "Installing $TORCH"
    $pip install --quiet "$TORCH"
fi
echo "Installing armature and its plugins"
editable=""
for plugin in $PLUGINS; do editable="$editable -e plugins/$plugin"; done
# --no-build-isolation: one setuptools for all, and no second download of build requirements.
# shellcheck disable=SC2086
$pip install --quiet --no-build-isolation -e ".[dev]" $editable
"$VENV/bin/armature" --version
