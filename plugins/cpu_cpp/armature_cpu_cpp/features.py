"""The features of this back end, as data."""

from __future__ import annotations

import torch

from armature.backend_api import REDUCTIONS, AcrossRows, Features
from armature_cpu_cpp.ops import FORMS
from armature_cpu_cpp.products import pays_by_rule
from armature_cpu_cpp.recurrent import Recurrence
from armature_cpu_cpp.scans import SCANS
from armature_cpu_cpp.vector import CPP_TYPES

FEATURES = Features(
    ops=frozenset(FORMS),
    reductions=frozenset(REDUCTIONS) - {"logsumexp"},
    dtypes=frozenset(CPP_TYPES),
    atomic_add=frozenset((torch.float32, torch.float64, torch.int32, torch.int64)),
    combining=frozenset(("max", "min", "prod")),
    scans=SCANS,
    check_index=True,
    symbolic_sizes=True,
    parallel=1,  # threads also divide the inner loop, whether it stores or not
    batch=2048,
    across=AcrossRows(most=1 << 12, parts=32, shortest=8, least=4 << 20),
    products=frozenset((torch.float32, torch.float64)),
    computes_product=pays_by_rule,
    recurrence=Recurrence(),
)
