"""What tracing knows about a tensor: its fake, its node in the graph, and the real tensor for an input."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs
import torch
from torch import nn

from armature.frame.guards.kinds import AutogradGuard
from armature.torch_abi.altering import is_parameter
from armature.torch_abi.fake import of_transform, version_of
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import Value

if TYPE_CHECKING:
    from torch import fx

    from armature.trace.base import Tracing


@attrs.define(eq=False)
class GraphTensor(Value):
    """A tensor. `node` is made when an input is first used; `real` is the program's tensor, for an input.

    kind: the class that the frame has converted the tensor to; the result is a different object. recorded: whether
    autograd recorded the conversion, given the grad mode.
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
        """Whether all sizes are numbers, not symbols."""
        return all(isinstance(size, int) for size in self.fake.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.fake.dtype

    @property
    def device(self) -> torch.device:
        """The device of the tensor in the program, which may not be the fake's."""
        return self.fake.device

    @property
    def is_written(self) -> bool:
        """Whether the frame has changed it in place."""
        return bool(version_of(self.fake))

    @property
    def is_plain(self) -> bool:
        """Whether it is one of torch's own tensors, not wrapped by a torch.func transform."""
        return self.kind is None and not is_wrapper(type(self.fake)) and not of_transform(self.fake)

    def python_type(self) -> type:
        if self.real is not None:
            return type(self.real)
        made = type(self.fake)
        if is_wrapper(made):
            return made
        return self.kind or (nn.Parameter if is_parameter(self.fake) else torch.Tensor)

    def holds(self, name: str) -> bool:
        """Whether the tensor is a computed wrapper subclass with an inner tensor of this name."""
        return self.real is None and name in self.fake.__dict__ and is_wrapper(type(self.fake))

    def describe(self) -> str:
        return f"a tensor of shape {tuple(self.fake.shape)}"

    def as_argument(self, tracer: Tracing) -> object:
        return self.node if self.node is not None else tracer.graph.lift(self)

    def as_fake(self, tracer: Tracing) -> object:
        return self.fake

    def guard_autograd(self, tracer: Tracing, always: bool = False) -> None:
        """Guard an input's place in autograd's graph. Without gradients it is a leaf: only asked for if `always`."""
        if self.real is not None and self.source is not None and (always or self.real.requires_grad):
            tracer.guards.add(AutogradGuard.of(self.source, self.real))
