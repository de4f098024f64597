"""Methods of torch's modules whose Python does something that tracing should not follow: traced in a simpler form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from armature.plugin_api import Polyfill


def weights_have_changed(self: Any) -> bool:
    """Whether a recurrent module's weights are still those in its flat list; the original asks weak references."""
    for name, held in zip(self._flat_weights_names, self._flat_weights):
        weight = getattr(self, name, None)
        if weight is not None and held is not None and held is not weight:
            return True
    return False


def polyfills() -> Iterable[Polyfill]:
    """The methods and what is traced in their place."""
    changed = getattr(nn.RNNBase, "_weights_have_changed", None)
    if changed is not None:
        yield Polyfill(changed, weights_have_changed)
