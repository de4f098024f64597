"""The store of built files: whole or not at all, built once, kept within its limit."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from armature.run.cache import Cache, digest
from armature.run.workers import Workers


def test_borders_of_key_parts_count() -> None:
    assert digest(("ab", "c")) != digest(("a", "bc"))
    assert digest(("ab", b"c")) == digest(("ab", "c"))


def test_built_once_and_found_by_the_next_process(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first = cache.get_or_build(("key",), ".txt", lambda path: path.write_text("made") and None)
    assert first.read_text() == "made" and first.suffix == ".txt"
    again = Cache(tmp_path)
    assert again.get_or_build(("key",), ".txt", pytest.fail) == first
    assert (cache.misses, again.hits) == (1, 1)


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def build(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        cache.get_or_build(("key",), ".txt", build)
    assert cache.files() == []
    assert cache.get_or_build(("key",), ".txt", lambda path: path.write_text("whole") and None).read_text() == "whole"


def test_threads_wait_for_one_build(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    builds: list[Path] = []

    def build(path: Path) -> None:
        builds.append(path)
        time.sleep(0.05)
        path.write_text("made")

    threads = [threading.Thread(target=cache.get_or_build, args=(("key",), ".txt", build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1


def test_oldest_files_go_when_the_store_is_full(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=250)
    paths = []
    for number in range(3):
        path = cache.get_or_build((str(number),), ".txt", lambda p: p.write_text("x" * 100) and None)
        if path.exists():
            os.utime(path, (number + 1, number + 1))
        paths.append(path)
    assert not paths[0].exists() and paths[2].exists()
    assert cache.size() <= 250
    assert cache.clear() == len(paths) - 1 and cache.files() == []


def test_folder_is_not_looked_through_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    entries = Cache.entries
    monkeypatch.setattr(Cache, "entries", lambda self: looks.append(1) or entries(self))
    cache = Cache(tmp_path, limit=10_000)
    for number in range(50):
        cache.get_or_build((str(number),), ".txt", lambda path: path.write_text("x" * 20) and None)
    assert 1 <= len(looks) <= 1 + 50 * 20 // 200
    for number in range(50, 100):
        cache.get_or_build((str(number),), ".txt", lambda path: path.write_text("x" * 400) and None)
    assert cache.size() <= 10_000


def test_workers_give_results_and_errors() -> None:
    workers = Workers(2)
    assert workers.submit(sum, (1, 2)).result(10) == 3
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 1, 0).result(10)
    workers.close()
    workers.close()
