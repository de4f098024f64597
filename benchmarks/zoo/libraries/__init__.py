"""The libraries of the zoo, by name."""

from __future__ import annotations

from benchmarks.zoo.case import Library
from benchmarks.zoo.libraries import (
    of_diffusers,
    of_peft,
    of_timm,
    of_torch_geometric,
    of_torchvision,
    of_transformers,
    of_x_transformers,
)

LIBRARIES: dict[str, Library] = {
    library.name: library
    for library in (
        *of_transformers.LIBRARIES,
        of_timm.LIBRARY,
        of_torchvision.LIBRARY,
        of_diffusers.LIBRARY,
        of_torch_geometric.LIBRARY,
        of_x_transformers.LIBRARY,
        of_peft.LIBRARY,
    )
}
