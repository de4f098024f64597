"""A user's function as back end, `fn(graph_module, example_inputs) -> callable`, called as torch.compile calls it.

Its failures are errors of the program, not fallbacks: they are raised with the line of the compiled function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import fx

from armature.errors import BackendFunctionFailed
from armature.pipeline.session import Compilation
from armature.torch_abi.aot import standing_for
from armature.torch_abi.fake import is_fake, like
from armature.trace.data import GraphInput


@attrs.frozen(eq=False)
class UsersBackend:
    """The function, for the graph of one frame."""

    fn: Callable[..., Any]
    record: Compilation

    def __call__(self, module: fx.GraphModule, inputs: tuple[GraphInput, ...]) -> Callable[..., Any]:
        """The function's callable for the graph. Errors: BackendFunctionFailed."""
        examples = [self.example(given) for given in inputs]
        fakes = [given.fake for given in inputs]
        pairs = [
            (real, fake)
            for real, fake in zip(examples, fakes, strict=True)
            if isinstance(real, torch.Tensor) and is_fake(fake) and real is not fake
        ]
        try:
            with standing_for(pairs):
                run = self.fn(module, examples)
        except Exception as error:
            raise self.fault.error(f"raised {type(error).__name__}: {error}") from error
        if not callable(run):
            raise self.fault.error(f"returned {run!r:.80} of type {type(run).__qualname__}, which can't be called")
        if run == module.forward:
            return module.forward
        results: Any = module.graph.output_node().args[0]
        return checked(run, len(results), self.fault)

    def example(self, given: GraphInput) -> object:
        """The example inputs of this call: tensors of the program, SymInt and the like for symbolic numbers.

        Inputs that do not exist yet (numbers drawn before the graph runs, results of another graph) are tensors of
        zeros.
        """
        if not isinstance(given.fake, torch.Tensor):
            return given.fake
        real = None if given.real is None else given.real()
        return like(given.fake) if real is None else real

    @property
    def fault(self) -> Fault:
        """The context that its errors report."""
        name = getattr(self.fn, "__qualname__", None) or type(self.fn).__qualname__
        return Fault(name, self.record.function, self.record.where)


@attrs.frozen
class Fault:
    """The context that a back end's errors report: its name, the compiled function and its location."""

    backend: str
    function: str
    where: str

    def error(self, problem: str) -> BackendFunctionFailed:
        """The error to raise."""
        return BackendFunctionFailed(where=self.where, backend=self.backend, problem=problem, function=self.function)


def checked(run: Callable[..., Any], count: int, fault: Fault) -> Callable[..., tuple[Any, ...] | list[Any]]:
    """Wrap a back end's callable to raise an error if it does not return the graph's results."""

    def call(*args: Any) -> tuple[Any, ...] | list[Any]:
        results: tuple[Any, ...] | list[Any] = run(*args)
        if type(results) not in (tuple, list) or len(results) != count:
            what = f"{len(results)} results" if type(results) in (tuple, list) else f"a {type(results).__qualname__}"
            raise fault.error(f"made a callable that returned {what}; the graph returns a tuple of {count}")
        return results

    return call
