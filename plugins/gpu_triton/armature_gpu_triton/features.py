"""The features of this back end."""

from __future__ import annotations

import torch

from armature.backend_api import OPS, REDUCTIONS, AcrossRows, Features
from armature_gpu_triton import autotune
from armature_gpu_triton.flexible import FLEX_ATTENTION
from armature_gpu_triton.ops import FORMS, TYPES
from armature_gpu_triton.random_numbers import CudaRandomNumbers
from armature_gpu_triton.scans import SCANS
from armature_gpu_triton.spec import MOST_ARGUMENTS

RANDOM = CudaRandomNumbers()
FEATURES = Features(
    ops=frozenset(OPS) & frozenset(FORMS),
    reductions=frozenset(REDUCTIONS),
    dtypes=frozenset(TYPES),
    scans=SCANS,
    atomic_add=frozenset((torch.float16, torch.float32, torch.float64, torch.int32, torch.int64)),
    check_index=True,
    symbolic_sizes=True,
    parallel=32,
    across=AcrossRows(most=autotune.PERSISTENT_REREAD, parts=256, shortest=8, least=1 << 23),
    batch=MOST_ARGUMENTS,
    random=RANDOM,
    scalars=True,
    products=frozenset((torch.float16, torch.bfloat16, torch.float32, torch.int8)),
    graph_calls=frozenset((FLEX_ATTENTION,)),
    builds_apart=True,
)
