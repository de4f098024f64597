"""The vector instructions of this machine, and the compiler's flags for them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import attrs
import torch


@attrs.frozen
class Isa:
    """A set of vector instructions: its name, the width of a register in bytes, the compiler flags that enable it."""

    name: str
    register_bytes: int
    flags: tuple[str, ...]


AVX512 = Isa(
    "avx512", 64,
    ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mlzcnt",
     "-mprefer-vector-width=512"),
)  # fmt: skip
AVX2 = Isa("avx2", 32, ("-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mlzcnt"))
BASELINE = Isa("baseline", 16, ())
NEEDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "avx512": frozenset(["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c", "bmi2", "abm"]),
        "avx2": frozenset(["avx2", "fma", "f16c", "bmi2", "abm"]),
        "baseline": frozenset(),
    }
)
BY_NAME: Mapping[str, Isa] = MappingProxyType({isa.name: isa for isa in (AVX512, AVX2, BASELINE)})


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """The features in the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def best(flags: frozenset[str]) -> Isa:
    """The widest set supported by these features."""
    return next(isa for isa in (AVX512, AVX2, BASELINE) if NEEDS[isa.name] <= flags)


def vendor(cpuinfo: str) -> str:
    """The maker of the processor in the text of /proc/cpuinfo; "" if it does not say."""
    named = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("vendor_id"))
    return next(named, "")


@cache
def has_slow_library() -> bool:
    """Whether MKL, which torch calls for products of matrices, leaves half of each vector unused: on processors of AMD
    it takes vectors of 256 bits where there are some of 512."""
    if detect().register_bytes < AVX512.register_bytes or not torch.backends.mkl.is_available():
        return False
    return vendor(Path("/proc/cpuinfo").read_text()) == "AuthenticAMD"


GATHERS = "-DARMATURE_GATHER"
SLOW_GATHERS = Path("/sys/devices/system/cpu/vulnerabilities/gather_data_sampling")


def with_gathers(isa: Isa, reported: str) -> Isa:
    """The set with its gather instructions, unless the system reports that a mitigation makes them slower than loads
    lane by lane. They are measured with AVX-512 only."""
    if isa is not AVX512 or not reported.startswith("Not affected"):
        return isa
    return attrs.evolve(isa, flags=(*isa.flags, GATHERS))


@cache
def detect() -> Isa:
    """The widest set of this machine. The baseline if the system does not tell (systems other than Linux)."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return BASELINE
    try:
        found = best(cpu_flags(Path("/proc/cpuinfo").read_text()))
    except OSError:
        return BASELINE
    try:
        return with_gathers(found, SLOW_GATHERS.read_text())
    except OSError:
        return found
