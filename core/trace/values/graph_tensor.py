"""What is known of a tensor: its fake, its node in the graph, and the tensor of the program where it is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs
import torch
from torch import nn

from armature.frame.guards.kinds import AutogradGuard
from armature.torch_abi.altering import is_parameter
from armature.torch_abi.fake import of_transform, version_of
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.values.base import Value

if TYPE_CHECKING:
    from torch import fx

    from armature.trace.values.base import Tracing


@attrs.define(eq=False)
class GraphTensor(Value):
    """A tensor. `node` is made when an input is first used; `real` is the tensor of the program, for an input.

    kind: of a tensor that the frame has given a class, that class; it is another object than the one it was made of.
    recorded: whether autograd recorded that, as the mode was.
    """

    fake: torch.Tensor
    node: fx.Node | None = None
    real: torch.Tensor | None = None
    written: dict[str, Value] = attrs.field(factory=dict)  # attributes to set on the tensor at the end of the frame
    kind: type | None = None
    recorded: bool = True

    is_tensor: ClassVar[bool] = True
    mutable: ClassVar[bool] = True
    plain_items: ClassVar[bool] = True

    @property
    def shape(self) -> torch.Size:
        """Sizes, in elements."""
        return self.fake.shape

    @property
    def has_static_shape(self) -> bool:
        """Whether all sizes are numbers, and none a symbol."""
        return all(isinstance(size, int) for size in self.fake.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.fake.dtype

    @property
    def device(self) -> torch.device:
        """Where the tensor is in the program, not where the fake is."""
        return self.fake.device

    @property
    def is_written(self) -> bool:
        """Whether the frame has changed it in place."""
        return bool(version_of(self.fake))

    @property
    def is_plain(self) -> bool:
        """Whether it is one of torch's own tensors, of no transform of torch.func."""
        return self.kind is None and not is_wrapper(type(self.fake)) and not of_transform(self.fake)

    def python_type(self) -> type:
        if self.real is not None:
            return type(self.real)
        made = type(self.fake)
        if is_wrapper(made):
            return made
        return self.kind or (nn.Parameter if is_parameter(self.fake) else torch.Tensor)

    def holds(self, name: str) -> bool:
        """Whether the tensor, which the graph computes, holds others and has an attribute of that name."""
        return self.real is None and name in self.fake.__dict__ and is_wrapper(type(self.fake))

    def describe(self) -> str:
        return f"a tensor of shape {tuple(self.fake.shape)}"

    def as_argument(self, tracer: Tracing) -> object:
        return self.node if self.node is not None else tracer.lift(self)

    def as_fake(self, tracer: Tracing) -> object:
        return self.fake

    def guard_autograd(self, tracer: Tracing) -> None:
        """Rely on how an input stands in autograd's graph; one without gradients is a leaf in any case."""
        if self.real is not None and self.source is not None and self.real.requires_grad:
            tracer.guards.add(AutogradGuard(self.source, self.real.is_leaf, self.real.retains_grad))
