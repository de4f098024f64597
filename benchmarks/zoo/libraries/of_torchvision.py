"""torchvision: classification, detection, segmentation, video and optical flow."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.zoo.case import Build, Case, Library

EACH = 2  # models per file


def names() -> Iterator[str]:
    """The first models of each file, and all detectors, segmenters, video and flow models."""
    import torchvision  # noqa: PLC0415

    families: dict[str, list[str]] = defaultdict(list)
    for name in torchvision.models.list_models():
        families[torchvision.models.get_model_builder(name).__module__].append(name)
    for module, found in sorted(families.items()):
        if "quantization" in module:  # int8 kernels, which torch supports on few machines
            continue
        yield from found if module.count(".") > 2 else sorted(found, key=lambda name: (len(name), name))[:EACH]


def boxes(count: int, size: int) -> torch.Tensor:
    """`count` boxes within a picture."""
    corner = torch.rand(count, 2) * size * 0.4
    return torch.cat([corner, corner + size * 0.3 + torch.rand(count, 2) * size * 0.2], 1)


def target(name: str, size: int) -> dict[str, torch.Tensor]:
    """A detector's training target for one picture."""
    found = {"boxes": boxes(2, size), "labels": torch.tensor([1, 1])}
    if "maskrcnn" in name:
        found["masks"] = (torch.rand(2, size, size) > 0.5).to(torch.uint8)
    if "keypointrcnn" in name:
        points = torch.rand(2, 17, 3) * size * 0.5
        found["keypoints"] = torch.cat([points[..., :2], torch.ones(2, 17, 1)], -1)
    return found


def detector(name: str, size: int) -> Case:
    """A detector of two classes, two pictures, and targets in training."""
    import torchvision  # noqa: PLC0415

    sized: dict[str, Any] = {} if name.startswith("ssd") else {"min_size": size, "max_size": size}
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=2, **sized)
    side = 320 if name.startswith("ssd") else size
    images = [torch.rand(3, side, side) for _ in range(2)]
    return Case(model, (images,), train=((images, [target(name, side) for _ in images]), {}))


def pictures(name: str, shape: tuple[int, ...], count: int = 1, **options: Any) -> Case:
    """A model of pictures or videos."""
    import torchvision  # noqa: PLC0415

    model = torchvision.models.get_model(name, weights=None, **options)
    return Case(model, tuple(torch.randn(*shape) for _ in range(count)))


def ways(name: str) -> Iterator[Build]:
    """By the kind of model, small inputs first."""
    import torchvision  # noqa: PLC0415

    module = torchvision.models.get_model_builder(name).__module__
    if ".detection" in module:
        yield functools.partial(detector, name, 96)
    elif ".segmentation" in module:
        yield functools.partial(pictures, name, (2, 3, 64, 64), weights_backbone=None, num_classes=3)
    elif ".video" in module:
        for shape in ((2, 3, 4, 32, 32), (1, 3, 8, 64, 64), (1, 3, 16, 112, 112), (1, 3, 16, 224, 224)):
            yield functools.partial(pictures, name, shape, num_classes=5)
    elif "optical_flow" in module:
        yield functools.partial(pictures, name, (1, 3, 128, 128), count=2)
    else:
        for size in (64, 96):
            yield functools.partial(pictures, name, (2, 3, size, size), num_classes=10)
        for size in (64, 96, 224, 299):
            yield functools.partial(pictures, name, (2, 3, size, size), num_classes=10, image_size=size)
        for size in (224, 299):
            yield functools.partial(pictures, name, (2, 3, size, size), num_classes=10)


LIBRARY = Library("torchvision", ("torchvision",), names, ways)
