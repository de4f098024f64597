"""`python -m benchmarks.opinfo`."""

from __future__ import annotations

from benchmarks.opinfo.app import run

if __name__ == "__main__":
    run()
