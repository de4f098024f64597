"""Files of the store that must not be loaded, folders that can't be used, and writers that are killed or meet a full disk."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from armature.errors import ArmatureWarning, NoKernelFolder
from armature.run import store as stores
from armature.run.cache import Cache

KEY = ("key",)


def writes(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text) and None


def refuse_to_build(path: Path) -> None:
    raise AssertionError(f"built {path}")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 2, len(content) // 2 + 4):
        content[at] ^= 0xFF
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def open_to_others(path: Path) -> None:
    path.chmod(0o666)


def lead_elsewhere(path: Path) -> None:
    moved = path.rename(path.parent.parent.parent / "elsewhere")
    path.symlink_to(moved)


def lead_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def lead_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def close_to_all(path: Path) -> None:
    path.chmod(0)
    if os.geteuid() == 0:  # who may read everything: the content is to be bad as well
        empty(path)


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_full_folder(path: Path) -> None:
    become_folder(path)
    (path / "inner").mkdir()
    (path / "inner" / "file").write_text("text")
    path.chmod(0)


def become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_socket(path: Path) -> None:
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


CONTENT = (flip, cut, empty, open_to_others, close_to_all)
KIND = (lead_elsewhere, lead_nowhere, lead_to_itself, become_folder, become_full_folder, become_pipe, become_socket)


@pytest.mark.parametrize("spoil", [*CONTENT, *KIND])
def test_bad_file_is_built_again(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    path = Cache(tmp_path).get_or_build(KEY, ".txt", writes("what was stored"))
    spoil(path)
    cache = Cache(tmp_path)
    assert cache.get_or_build(KEY, ".txt", writes("what was stored")).read_text() == "what was stored"
    assert (cache.hits, cache.misses) == (0, 1)
    assert len(cache.rebuilt) == 1 and str(path) in cache.rebuilt[0]
    again = Cache(tmp_path)
    again.get_or_build(KEY, ".txt", refuse_to_build)
    assert again.rebuilt == [] and len(again.files()) == 1


@pytest.mark.parametrize("spoil", KIND)
def test_store_with_a_bad_file_is_measured_and_emptied(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    spoil(cache.get_or_build(KEY, ".txt", writes("what was stored")))
    assert cache.size() < 1 << 20
    assert cache.clear() == 1 and cache.files() == []


def test_what_cannot_be_removed_is_passed_over_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    path = Cache(tmp_path).get_or_build(KEY, ".txt", writes("made"))
    become_folder(path)
    monkeypatch.setattr(stores.Entry, "_remove_folder", lambda entry, path: None)
    cache = Cache(tmp_path)
    for _ in range(2):
        assert cache.get_or_build(KEY, ".txt", writes("made")).read_text() == "made"
    assert cache.misses == 2 and len(recwarn) == 1 and str(path) in str(recwarn[0].message)


@pytest.mark.parametrize("become", [become_folder, become_full_folder, become_pipe])
def test_lock_that_is_no_file_stops_nothing(become: Callable[[Path], None], tmp_path: Path) -> None:
    path = Cache(tmp_path).get_or_build(KEY, ".txt", writes("made"))
    lock = path.with_name(f"{path.name.partition('-')[0]}.lock")
    path.unlink()
    lock.touch()
    become(lock)
    assert Cache(tmp_path).get_or_build(KEY, ".txt", writes("made")).read_text() == "made"


def test_good_file_under_another_key_is_not_loaded(tmp_path: Path) -> None:
    """Two files whose names were exchanged: each is what was stored, and neither is what its key stands for."""
    cache = Cache(tmp_path)
    one, two = (cache.get_or_build((key,), ".txt", writes(key)) for key in ("one", "two"))
    entry = stores.Entry.of(two)
    assert entry is not None
    other = stores.Entry.of(one)
    assert other is not None
    os.replace(one, two.with_name(f"{entry.key}-{other.checksum}.txt"))
    two.unlink()
    assert cache.get_or_build(("two",), ".txt", writes("two")).read_text() == "two"
    assert "is not what was stored" in cache.rebuilt[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_others_is_not_loaded(tmp_path: Path) -> None:
    path = Cache(tmp_path).get_or_build(KEY, ".txt", writes("theirs"))
    os.chown(path, 12345, -1)
    cache = Cache(tmp_path)
    assert cache.get_or_build(KEY, ".txt", writes("ours")).read_text() == "ours"
    assert "belongs to the user 12345" in cache.rebuilt[0]
    os.chown(cache.store.folder, 12345, -1)  # they can put any file in it
    cache = Cache(tmp_path)
    with pytest.warns(ArmatureWarning, match="belongs to the user 12345"):
        found = cache.get_or_build(KEY, ".txt", writes("built anew"))
    assert found.read_text() == "built anew" and tmp_path not in found.parents


def test_folders_and_files_are_the_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "new" / "cache")
        cache.get_or_build(KEY, ".txt", writes("made"))
    finally:
        os.umask(before)
    below = [cache.folder, *cache.folder.rglob("*")]
    assert len(below) >= 4
    assert {mode(path) for path in below if path.is_dir()} == {0o700}
    assert all(mode(path) & 0o077 == 0 for path in below)


def test_rights_of_the_store_are_taken_back_and_those_of_a_folder_that_was_there_left(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    cache = Cache(tmp_path)
    cache.store.folder.mkdir(mode=0o777)
    cache.store.folder.chmod(0o777)
    cache.get_or_build(KEY, ".txt", writes("made"))
    assert (mode(tmp_path), mode(cache.store.folder)) == (0o755, 0o700)


def test_unusable_folder_gives_a_temporary_one_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache")
    with pytest.warns(ArmatureWarning) as told:
        first = cache.get_or_build(("one",), ".txt", writes("one"))
        second = cache.get_or_build(("two",), ".txt", writes("two"))
    assert len(told) == 1 and "\n" not in str(told[0].message)
    assert f"{tmp_path / 'file'} is not a folder" in str(told[0].message)
    assert cache.get_or_build(("one",), ".txt", refuse_to_build) == first
    folder = first.parent.parent
    assert folder == second.parent.parent and folder.parent == Path(tempfile.gettempdir())
    assert mode(folder) == 0o700


def test_temporary_folder_goes_with_its_process_and_not_with_a_fork(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    script = f"""
import os, sys, warnings
from pathlib import Path
from armature.run.cache import Cache
warnings.simplefilter("ignore")
path = Cache(Path({str(tmp_path / "cache")!r})).get_or_build(("key",), ".txt", lambda p: p.write_text("made") and None)
if os.fork() == 0:
    sys.exit()
os.wait()
print(path, path.exists())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    path, existed = done.stdout.split()
    assert existed == "True"
    assert not Path(path).parent.parent.exists()


def test_home_that_cannot_be_found_out_is_no_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.warns(ArmatureWarning, match="no home folder"):
        Cache(Path("~/.cache/armature")).get_or_build(KEY, ".txt", writes("made"))
    assert list(tmp_path.iterdir()) == []


def test_nowhere_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(NoKernelFolder, match="TMPDIR"):
        Cache(tmp_path / "file" / "cache").get_or_build(KEY, ".txt", writes("made"))


def test_failed_build_is_not_the_folder_s_fault(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    builds: list[Path] = []

    def build(path: Path) -> None:
        builds.append(path)
        raise OSError(errno.ENOENT, "no compiler")

    with pytest.raises(OSError, match="no compiler"):
        Cache(tmp_path).get_or_build(KEY, ".txt", build)
    assert len(builds) == 1 and not recwarn.list


def test_disk_that_fills_up_in_the_middle_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is not stored, and built in the temporary folder."""
    cache = Cache(tmp_path)
    good = cache.get_or_build(("good",), ".txt", writes("good"))

    def full(self: stores.Store) -> None:
        raise stores.Unusable("No space left on device")

    def build(path: Path) -> None:
        path.write_text("half")
        if tmp_path in path.parents:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stores.Store, "check_writable", full)
    with pytest.warns(ArmatureWarning, match="No space left"):
        found = cache.get_or_build(KEY, ".txt", build)
    assert tmp_path not in found.parents and cache.files() == [good]
    assert cache.get_or_build(("good",), ".txt", refuse_to_build) == good  # what is there is still used
    assert not list(cache.store.folder.rglob(f"{stores.WORK}*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount a disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk(small_disk: Path) -> None:
    cache = Cache(small_disk)
    good = cache.get_or_build(("good",), ".txt", writes("good"))
    with pytest.warns(ArmatureWarning, match="No space left"):
        found = cache.get_or_build(KEY, ".txt", writes("x" * (1 << 20)))
    assert found.stat().st_size == 1 << 20 and small_disk not in found.parents
    assert cache.files() == [good]
    assert (small_disk / "kernels").stat().st_size >= 0 and os.statvfs(small_disk).f_bavail > 0


def test_folder_that_libraries_cannot_be_run_from(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,noexec", str(small_disk)], check=True)
    with pytest.warns(ArmatureWarning, match="noexec"):
        found = Cache(small_disk).get_or_build(KEY, ".txt", writes("made"))
    assert small_disk not in found.parents


def test_read_only_folder_is_read(small_disk: Path) -> None:
    good = Cache(small_disk).get_or_build(("good",), ".txt", writes("good"))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    cache = Cache(small_disk)
    assert cache.get_or_build(("good",), ".txt", refuse_to_build) == good
    with pytest.warns(ArmatureWarning, match="Read-only"):
        assert cache.get_or_build(KEY, ".txt", writes("made")).read_text() == "made"


def test_files_may_be_no_larger_than_a_limit(tmp_path: Path) -> None:
    """A write that the system cuts short, in every folder: an error, and nothing that could be loaded."""
    script = f"""
import resource, signal, warnings
from pathlib import Path
from armature.run.cache import Cache
warnings.simplefilter("ignore")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
cache = Cache(Path({str(tmp_path)!r}))
try:
    cache.get_or_build(("key",), ".txt", lambda path: path.write_text("x" * (1 << 20)) and None)
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(errno.EFBIG)
    assert Cache(tmp_path).files() == []


WRITER = """
import sys
from pathlib import Path
from armature.run.cache import Cache
cache = Cache(Path(sys.argv[1]))
def build(path):
    with path.open("wb", buffering=0) as file:
        for _ in range(64):
            file.write(b"x" * 16384)
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    cache.get_or_build((str(number),), ".txt", build)
"""


def writer(folder: Path, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(count)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_writers_that_are_killed_leave_nothing_that_could_be_loaded(tmp_path: Path) -> None:
    stored = 0
    for attempt in range(8):
        with writer(tmp_path, 100_000) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(0.01 + 0.017 * attempt)
            process.send_signal(signal.SIGKILL)
        cache = Cache(tmp_path)
        assert [entry.fault() for entry in cache.entries()] == [None] * len(cache.entries())
        assert all(entry.size == 1 << 20 for entry in cache.entries())
        stored = max(stored, len(cache.entries()))
        cache.clear()
    assert stored > 0
    # What the killed ones left is no obstacle, and goes when the same file is built, or with time.
    cache = Cache(tmp_path)
    cache.get_or_build(("0",), ".txt", writes("made"))
    cache.store.remove_abandoned(age=0)
    assert not list(cache.store.folder.rglob(f"{stores.WORK}*"))


@pytest.mark.slow
def test_processes_at_once_build_each_file_once(tmp_path: Path) -> None:
    script = WRITER + "print(cache.misses)"
    command = [sys.executable, "-c", script, str(tmp_path), "20"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    built = [int(process.communicate(timeout=120)[0].split()[-1]) for process in both]
    assert [process.returncode for process in both] == [0, 0, 0]
    assert sum(built) == 20
    entries = Cache(tmp_path).entries()
    assert len(entries) == 20 and all(entry.fault() is None for entry in entries)


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(self: object) -> None:
        raise NotImplementedError("no locks here")

    monkeypatch.setattr(stores.FileLock, "acquire", acquire)
    assert Cache(tmp_path).get_or_build(KEY, ".txt", writes("made")).read_text() == "made"


def test_file_that_cannot_be_read_is_built_again_once(tmp_path: Path) -> None:
    """Whole, and made for another machine: what loads it refuses it."""
    Cache(tmp_path).get_or_build(KEY, ".txt", writes("old machine"))

    def read(path: Path) -> str:
        text = path.read_text()
        if text != "this machine":
            raise OSError("version GLIBC_9.99 not found")
        return text

    cache = Cache(tmp_path)
    assert cache.load(KEY, ".txt", writes("this machine"), read) == "this machine"
    assert "GLIBC_9.99" in cache.rebuilt[0] and len(cache.files()) == 1
    with pytest.raises(OSError, match="GLIBC"):
        cache.load(("other",), ".txt", writes("still another"), read)
