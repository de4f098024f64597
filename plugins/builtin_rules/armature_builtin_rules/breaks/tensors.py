"""Tensors: what they are, their methods and attributes."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_WHERE = fundamental("Do it before the compiled function is called, or after.")
_AUTOGRAD = "It changes what autograd records, and tensors get their history only when the graph runs."
_MEMORY = "A graph plans the memory of its tensors in advance."
_PLAIN = fundamental("Convert it to a plain tensor before the compiled function is called.")

ROWS = with_examples(
    (
        BreakType(
            "sparse-tensor",
            "Attempted to wrap sparse Tensor",
            "The function is given a tensor of layout {layout}.",
            (fundamental("Convert it: x.to_dense()."), fundamental("Multiply by it outside the compiled function.")),
            code="GB0015",
            also=("GB0277",),
            cause="The number of values it stores differs from tensor to tensor.",
        ),
        BreakType(
            "quantized-tensor",
            "Quantized tensor",
            "The function, or the code after a graph break, is given a quantized tensor.",
            (
                fundamental("Call dequantize() first, and compute with the result."),
                fundamental(
                    "torch.fake_quantize_per_tensor_affine rounds as quantization does, and stays in the graph."
                ),
            ),
            code="AB0201",
            cause="Graphs are captured with tensors without values, and torch has no quantized ones.",
        ),
        BreakType(
            "nested-tensor",
            "Attempted to wrap strided NestedTensor",
            "The function is given a nested tensor of layout {layout}.",
            (
                fundamental("Create it with layout=torch.jagged, which stays in the graph."),
                fundamental("Pad to one length, and use a mask."),
            ),
            code="GB0016",
            also=("GB0044", "GB0233"),
            cause="Its parts have different sizes, which this layout stores outside the tensor.",
        ),
        BreakType(
            "tensor-layout",
            "Tensor in an unsupported layout",
            "The function is given a tensor of layout {layout}.",
            (fundamental("Convert it: x.to_dense()."), _WHERE),
            code="AB0115",
            cause="Its values are not stored by size and stride.",
        ),
        BreakType(
            "view-of-changed-base",
            "View that autograd can no longer follow",
            "A tensor is one of several views, as unbind and split create them, and its base was modified in place.",
            (
                fundamental("Make a copy before the change: x.clone()."),
                user_error("Autograd refuses to go through such a view."),
            ),
            code="AB0116",
            cause="Only eager mode can say what autograd makes of it.",
        ),
        BreakType(
            "tensor-subclass",
            "Unsupported tensor subclass attribute access",
            "{type} is a tensor whose class looks up attributes itself, or whose values are not in memory.",
            (_PLAIN, fundamental("Leave `__getattr__` and similar methods to torch.Tensor.")),
            code="GB0163",
            also=("GB0103", "GB0164"),
            cause="The class may do anything when an attribute is read.",
        ),
        BreakType(
            "opaque-subclass",
            "Tensor subclass that can't be taken apart",
            "{type} has a `__torch_dispatch__`, and {reason}: there is no way to tell which operators it runs.",
            (
                fundamental(
                    "Give the class `__tensor_flatten__` and `__tensor_unflatten__`, which name the plain "
                    "tensors that it holds and all else that its operators depend on."
                ),
                _PLAIN,
            ),
            code="AB0117",
            also=("GB0363", "GB0362", "GB2078", "GB7685", "GB1739", "GB8843"),
            cause="A graph consists of operators on plain tensors.",
        ),
        BreakType(
            "overridden-call",
            "Call that somebody may override",
            "A function mode or tensor subclass is active, and has to see what {function} calls inside.",
            (
                fundamental("Call it outside the mode, or with plain tensors."),
                fundamental("Handle the function in the mode's `__torch_function__`."),
            ),
            code="AB0118",
            cause="As a single step of the graph, its inner calls would not reach the mode or the subclass.",
        ),
        BreakType(
            "no-override-takes-it",
            "All __torch_function__ overrides returned NotImplemented due to TypeError from user code",
            "None of the arguments' `__torch_function__` methods handles {operation}.",
            (user_error("Python raises a TypeError: make one of the classes handle the function."), _PLAIN),
            code="GB0000",
            cause="Python raises an error here, whose wording depends on its version, so Python is left to raise it.",
        ),
        BreakType(
            "mode-not-entered",
            "Attempted to pop from empty torch function mode stack",
            "A torch function mode is exited that the function has not entered.",
            (
                fundamental("Enter and exit it in one function, with a `with` block."),
                user_error("If no mode was entered at all, torch raises an error."),
            ),
            code="GB0234",
            cause="Only the modes that the function enters itself are known.",
        ),
        BreakType(
            "tensor-backward",
            "Unsupported Tensor.backward() call",
            "{function} runs the autograd engine.",
            (
                fundamental(
                    "Compile what computes the loss, and call backward() outside: it runs the compiled backward graph."
                ),
                supportable("torch.func.grad stays in the graph."),
            ),
            code="GB0123",
            also=("GB0442", "GB1042", "GB7054", "GB0181", "GB0173"),
            cause="The autograd engine needs the history of tensors, which they get only when the graph runs.",
        ),
        BreakType(
            "tensor-requires-grad",
            "Unsupported Tensor.requires_grad_() call",
            "{function} is called on a tensor that the function computes, or while a change waits for the"
            " end of the function.",
            (fundamental("Use detach(), which returns a tensor without history."), _WHERE),
            code="GB0125",
            also=("GB0206", "GB7324", "GB8985"),
            cause=_AUTOGRAD,
        ),
        BreakType(
            "tensor-retain-grad",
            "Gradient that is kept for a tensor of the caller",
            "{function} is called on a tensor with a history that was given to the function.",
            (
                fundamental("Call it where the tensor was created."),
                fundamental("On tensors that the function computes itself, it stays in the graph."),
            ),
            code="AB0119",
            also=("GB0108",),
            cause=_AUTOGRAD,
        ),
        BreakType(
            "tensor-detach",
            "In-place detach of the caller's tensor",
            "{function} drops the history of a tensor that was given to the function.",
            (fundamental("Use detach(), which returns a new tensor."), _WHERE),
            code="AB0120",
            cause="If the graph then raised an error, the history could not be restored.",
        ),
        BreakType(
            "tensor-hook",
            "Compilation of intermediate hooks requires compiled autograd",
            "{function} registers a hook on a tensor.",
            (fundamental("Write a torch.autograd.Function whose backward does what the hook does."), _WHERE),
            code="GB0029",
            also=("GB7444",),
            cause="Autograd calls the hook in the middle of what is a single step of the compiled backward.",
        ),
        BreakType(
            "tensor-resize",
            "Unsupported Tensor.resize_() call",
            "{function} changes the size of a tensor in place.",
            (fundamental("Create a tensor of that size, and copy_ to it; to keep the values, use reshape."), _WHERE),
            code="GB0126",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-resize-as",
            "Unsupported Tensor.resize_as_() call",
            "{function} changes the size of a tensor in place.",
            (fundamental("Create a tensor of that size, and copy_ to it; to keep the values, use reshape."), _WHERE),
            code="GB0127",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-set",
            "Unsupported Tensor.set_() call",
            "{function} gives a tensor other memory.",
            (fundamental("Copy the values with copy_."), _WHERE),
            code="GB0128",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-share-memory",
            "Unsupported Tensor.share_memory_() call",
            "{function} moves a tensor to shared memory, or checks whether it is there.",
            (_WHERE, fundamental("Share the tensor when it is created.")),
            code="GB4197",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-storage",
            "Memory behind a tensor",
            "{function} returns the memory behind a tensor.",
            (
                fundamental(
                    "Its size in bytes is x.numel() * x.element_size(); x.view(dtype) reads the bytes as another type."
                ),
                _WHERE,
            ),
            code="AB0121",
            cause="The tensors of a graph have memory only while the graph runs.",
        ),
        BreakType(
            "tensor-apply",
            "Python function applied to each element",
            "{function} calls a Python function for each element of a tensor.",
            (
                fundamental("Use operators: x.sin() instead of x.apply_(math.sin)."),
                fundamental("torch.vmap runs a function on each row."),
            ),
            code="AB0122",
            cause="A graph is captured before its tensors have values.",
        ),
        BreakType(
            "named-tensor",
            "Tensor with named dimensions",
            "{function} works with named dimensions.",
            (fundamental("Refer to dimensions by number."), _WHERE),
            code="AB0123",
            cause="Most operators do not support names in a graph.",
        ),
        BreakType(
            "exports-memory",
            "Memory that is shared with another library",
            "{function} shares the memory of a tensor with another library.",
            (_WHERE, fundamental("Return the tensor, and share it where the compiled function is called.")),
            code="AB0124",
            cause="The tensors of a graph have memory only while the graph runs.",
        ),
        BreakType(
            "pins-memory",
            "Pinned memory",
            "{function} moves a tensor to pinned memory, which a GPU can read directly.",
            (_WHERE, fundamental("Create the tensor with pin_memory=True.")),
            code="AB0125",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-method",
            "Unhandled tensor method",
            "{function} is called, which has no equivalent in a graph.",
            (_WHERE, fundamental("Use shape, dtype or device, which are known.")),
            code="GB6270",
            also=("GB7489", "GB0081"),
            cause="It concerns the tensor object, not the values in it.",
        ),
        BreakType(
            "as-subclass",
            "Argument of `as_subclass` must be a non-dispatcher-style tensor subclass",
            "as_subclass({type}) converts to or from a tensor class that holds other tensors.",
            (fundamental("Call the class itself, which knows how to create its tensors."), _PLAIN),
            code="GB0001",
            cause="Objects of such a class consist of the tensors that they hold.",
        ),
        BreakType(
            "attribute-of-tensor",
            "Attribute of a tensor that is not known",
            "The attribute `{name}` of a tensor is read.",
            (
                fundamental("Read it before the compiled function is called, and pass the value."),
                fundamental("Use shape, dtype or device, which are known."),
            ),
            code="AB0127",
            also=("GB0045",),
            cause="It describes the tensor object, not the values in it.",
        ),
        BreakType(
            "gradient-of-intermediate",
            "Tensor with grad_fn()",
            "`{name}` of a tensor with a history is read.",
            (
                fundamental("To find out whether there is a history, read x.requires_grad."),
                fundamental("Read it where the compiled function is called."),
            ),
            code="GB0104",
            also=("GB0083",),
            cause="Tensors get their history only when the graph runs.",
        ),
        BreakType(
            "version-of-tensor",
            "Count of writes to a tensor",
            "`_version` of a tensor is read after the function has written to a tensor.",
            (fundamental("Read it before the first write."), fundamental("Compare copies of the tensor.")),
            code="AB0128",
            cause="A graph may write more or less often than the program does.",
        ),
        BreakType(
            "sets-tensor-attribute",
            "Failed to set tensor attribute",
            "`{name}` of a tensor is set.",
            (
                user_error("If Python raises an AttributeError here, the attribute is read-only."),
                fundamental("Set it where the compiled function is called."),
            ),
            code="GB0058",
            cause="It changes the tensor object, not the values in it.",
        ),
        BreakType(
            "sets-data",
            "Failed to mutate tensor data attribute",
            "{operation} gives a tensor the memory of something other than a plain tensor.",
            (fundamental("Copy the values: x.copy_(y)."), fundamental("Assign a plain tensor: y.detach().")),
            code="GB0056",
            cause=_MEMORY,
        ),
        BreakType(
            "sets-data-of-other-size",
            "Failed to mutate tensor data attribute to different dtype",
            "{operation} gives a tensor memory of a different size or dtype, while its gradient is set or sizes vary.",
            (fundamental("Create a new tensor of that size."), _WHERE),
            code="GB0220",
            cause="The program's sizes are read only after the graph has run.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.tensors",
)
