"""`python -m benchmarks.zoo`."""

from __future__ import annotations

from benchmarks.zoo.app import run

if __name__ == "__main__":
    run()
