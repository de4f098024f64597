"""Calls that act on the world, or ask it."""

from __future__ import annotations

import builtins
import gc
import linecache
import math
import os
import pickle
import sys
import threading
import time
import types
import warnings
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

import armature


def prints(x: Tensor) -> Tensor:
    print("the largest is", x.shape)
    return x + 1


def prints_mended(x: Tensor) -> Tensor:
    return x + 1


def asks_the_user(x: Tensor) -> Tensor:
    try:
        return x + len(input())
    except (OSError, EOFError):
        return x


def asks_the_user_mended(x: Tensor) -> Tensor:
    return x


def runs_text(x: Tensor) -> Tensor:
    return eval("x + 1", {"x": x})  # type: ignore[no-any-return]


def runs_text_mended(x: Tensor) -> Tensor:
    return x + 1


def uses_files(x: Tensor) -> Tensor:
    with open(os.devnull) as file:
        return x + len(file.read())


def uses_files_mended(x: Tensor) -> Tensor:
    return x + 0


def asks_the_time(x: Tensor) -> Tensor:
    begin = time.perf_counter()
    y = x * 2
    return y + 0 * (time.perf_counter() - begin)


def asks_the_time_mended(x: Tensor) -> Tensor:
    return x * 2 + 0


def random_of_system(x: Tensor) -> Tensor:
    return x + len(os.urandom(4))


def random_of_system_mended(x: Tensor) -> Tensor:
    return x + 4


def uses_processes(x: Tensor) -> object:
    return x + 1, os.getpid() > 0


def uses_processes_mended(x: Tensor) -> object:
    return x + 1, True


def garbage_collector(x: Tensor) -> Tensor:
    gc.collect()
    return x + 1


def garbage_collector_mended(x: Tensor) -> Tensor:
    return x + 1


def pickles(x: Tensor) -> object:
    return x + 1, pickle.loads(pickle.dumps([1, 2]))


def pickles_mended(x: Tensor) -> object:
    return x + 1, [1, 2]


def changes_interpreter(x: Tensor) -> Tensor:
    sys.setswitchinterval(0.005)
    return x + 1


def changes_interpreter_mended(x: Tensor) -> Tensor:
    return x + 1


@armature.disable
def left_alone(x: Tensor) -> Tensor:
    return x * 2


def disabled_function(x: Tensor) -> Tensor:
    return left_alone(x) + 1  # type: ignore[no-any-return]


def disabled_function_mended(x: Tensor) -> Tensor:
    return x * 2 + 1


def explicit_break(x: Tensor) -> Tensor:
    y = x + 1
    armature.graph_break("looking at y")
    return y * 2


def explicit_break_mended(x: Tensor) -> Tensor:
    return (x + 1) * 2


def function_in_c(x: Tensor) -> object:
    return x + 1, sys.getallocatedblocks() > 0


def function_in_c_mended(x: Tensor) -> object:
    return x + 1, True


LOCK = threading.Lock()


def acts_on_torch(x: Tensor) -> Tensor:
    torch.clear_autocast_cache()
    return x + 1


def acts_on_torch_mended(x: Tensor) -> Tensor:
    return x + 1


def torch_files(x: Tensor) -> object:
    return x + 1, torch.hub.get_dir() != ""


def torch_files_mended(x: Tensor) -> object:
    return x + 1, True


def profiles(x: Tensor) -> object:
    with torch.profiler.profile() as recorded:
        y = x + 1
    return y, len(recorded.key_averages()) > 0


def profiles_mended(x: Tensor) -> object:
    with torch.profiler.record_function("step"):
        return x + 1, True


def makes_sparse(x: Tensor) -> Tensor:
    return x.to_sparse().to_dense() + 1


def makes_sparse_mended(x: Tensor) -> Tensor:
    return x + 1


def makes_other_layout(x: Tensor) -> Tensor:
    packed = torch.nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([2]), batch_first=True)
    return torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0] + 1


def makes_other_layout_mended(x: Tensor) -> Tensor:
    return x[None] + 1


def autograd_engine(x: Tensor) -> Tensor:
    w = x.detach().requires_grad_()
    torch.autograd.backward(w.sin().sum())
    return w.grad  # type: ignore[return-value]


def autograd_engine_mended(x: Tensor) -> Tensor:
    return torch.func.grad(lambda w: w.sin().sum())(x)  # type: ignore[no-any-return]


def another_compiler(x: Tensor) -> Tensor:
    return torch.jit.trace(lambda y: y + 1, (x,))(x)  # type: ignore[no-any-return]


def another_compiler_mended(x: Tensor) -> Tensor:
    return x + 1


def global_state(x: Tensor) -> Tensor:
    torch.set_flush_denormal(False)
    return x + 1


def global_state_mended(x: Tensor) -> Tensor:
    return x + 1


def standard_library(x: Tensor) -> object:
    return x + 1, linecache.getline("no such file", 1)


def standard_library_mended(x: Tensor) -> object:
    return x + 1, ""


def process_group(x: Tensor) -> Tensor:
    try:
        torch.distributed.destroy_process_group()
    except (AssertionError, ValueError):
        return x + 1
    return x


def process_group_mended(x: Tensor) -> Tensor:
    return x + 1


def memory_of_tensor(x: Tensor) -> Tensor:
    y = x * 2
    return torch.resize_as_(y, x) + 1


def memory_of_tensor_mended(x: Tensor) -> Tensor:
    return x * 2 + 1


def imports_module(x: Tensor) -> object:
    import colorsys

    return x + 1, colorsys.rgb_to_hsv(1, 0, 0)


def imports_module_inputs() -> tuple[object, ...]:
    sys.modules.pop("colorsys", None)
    return (torch.ones(3),)


def imports_module_mended(x: Tensor) -> object:
    return x + 1, (0.0, 1.0, 1)


def import_without_package(x: Tensor) -> Tensor:
    scope: dict[str, Any] = {}
    return WITHOUT_PACKAGE(x, scope)  # type: ignore[no-any-return]


def _without_package() -> Any:
    scope: dict[str, Any] = {"__name__": "loose"}
    text = "def f(x, scope):\n    try:\n        from . import near\n    except ImportError:\n        return x + 1\n"
    exec(compile(text, "loose.py", "exec"), scope)  # a module that was read by hand, as notebooks do
    return scope["f"]


WITHOUT_PACKAGE = _without_package()


def import_without_package_mended(x: Tensor) -> Tensor:
    return x + 1


def handler_declines(x: Tensor) -> Any:
    try:
        warnings.warn()  # type: ignore[call-overload]
    except TypeError:
        return x + 1


def handler_declines_mended(x: Tensor) -> object:
    warnings.warn("x is small", stacklevel=1)
    return x + 1


def uses_threads(x: Tensor) -> object:
    threading.Lock()
    return x + 1


def uses_threads_mended(x: Tensor) -> object:
    return x + 1


def drives_device(x: Tensor) -> object:
    return x + torch.backends.mkldnn.is_available() * 0


def drives_device_mended(x: Tensor) -> object:
    return x + 0


def function_transform(x: Tensor) -> object:
    return torch.func.linearize(torch.sin, x)[0]


def function_transform_mended(x: Tensor) -> object:
    return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[0]


def library_without_tensors(x: Tensor) -> object:
    return x + torch.from_numpy(np.unwrap(x.numpy()))


def library_without_tensors_mended(x: Tensor) -> object:
    turns = torch.round(x.diff() / (2 * torch.pi)).cumsum(-1) * (2 * torch.pi)
    return x + torch.cat((x[:, :1], x[:, 1:] - turns), -1)


def _with_own_builtins() -> Any:
    scope: dict[str, Any] = {"__builtins__": {"len": lambda items: 7}, "__name__": "sandbox"}
    exec("def f(x):\n    return x + len([1])\n", scope)
    return scope["f"]


IN_SANDBOX = _with_own_builtins()


def own_builtins(x: Tensor) -> object:
    return IN_SANDBOX(x)


def own_builtins_mended(x: Tensor) -> Any:
    return x + 7


def report(x: Tensor) -> Tensor:
    return x * 3


def skipped_function(x: Tensor) -> object:
    return report(x) + 1


def skipped_function_called(fn: Any, x: Tensor) -> object:
    with armature.rules.skip(report):
        return fn(x)


def skipped_function_mended(x: Tensor) -> object:
    return report(x) + 1


def skipped_function_mended_called(fn: Any, x: Tensor) -> object:
    return fn(x)


GENERATOR = torch.Generator()


def random_generator(x: Tensor) -> object:
    return x + GENERATOR.get_state().numel()


def random_generator_mended(x: Tensor) -> object:
    return x + torch.rand(3) * 0


def torch_script(x: Tensor) -> object:
    return x + (len(torch._C._jit_get_all_schemas()) > 0)


def torch_script_mended(x: Tensor) -> object:
    return x + hasattr(torch.ops.aten, "add")


SETTINGS = types.ModuleType("settings_of_app")
SETTINGS.__name__ = "app.settings"
PART = types.ModuleType("app.settings.part")
PART.width = 2  # type: ignore[attr-defined]


def import_from_unclear_module(x: Tensor) -> object:
    from settings_of_app import part  # type: ignore[import-not-found]  # noqa: PLC0415

    return x + part.width


def import_from_unclear_module_called(fn: Any, x: Tensor) -> object:
    with mock.patch.dict(sys.modules, {"settings_of_app": SETTINGS, "app.settings.part": PART}):
        return fn(x)


def import_from_unclear_module_mended(x: Tensor) -> object:
    return x + PART.width


def imports_math(x: Tensor) -> object:
    import math  # noqa: PLC0415

    return x + math.pi


OWN_IMPORT = {**vars(builtins), "__import__": lambda *names: __import__(*names)}
own_import_function = types.FunctionType(imports_math.__code__, {"__builtins__": OWN_IMPORT})


def own_import_function_mended(x: Tensor) -> object:
    return x + math.pi


RUNTIME = types.ModuleType("torch2trt")
exec("def infer(x):\n    return x * 2", RUNTIME.__dict__)


def library_runtime(x: Tensor) -> object:
    return RUNTIME.infer(x) + 1


def library_runtime_mended(x: Tensor) -> object:
    return x * 2 + 1
