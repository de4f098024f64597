"""Tensors: what they are, their methods and attributes."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_WHERE = fundamental("Do it before the compiled function is called, or after.")
_AUTOGRAD = "It changes the history that autograd keeps, which tensors get when the graph runs."
_MEMORY = "A graph plans the memory of its tensors ahead."
_PLAIN = fundamental("Convert it to a plain tensor before the compiled function is called.")

ROWS = with_examples(
    (
        BreakType(
            "sparse-tensor",
            "Attempted to wrap sparse Tensor",
            "A tensor of layout {layout} is given to the function.",
            (fundamental("Convert it: x.to_dense()."), fundamental("Multiply by it outside the compiled function.")),
            code="GB0015",
            also=("GB0277",),
            cause="How many numbers it stores is another number for each tensor.",
        ),
        BreakType(
            "quantized-tensor",
            "Quantized tensor",
            "A quantized tensor is given to the function, or to what follows a graph break.",
            (
                fundamental("Call dequantize() before, and compute with the result."),
                fundamental(
                    "torch.fake_quantize_per_tensor_affine rounds as quantization does, and stays in the graph."
                ),
            ),
            code="AB0201",
            cause="torch has no such tensors without numbers, by which a graph is captured.",
        ),
        BreakType(
            "nested-tensor",
            "Attempted to wrap strided NestedTensor",
            "A nested tensor of layout {layout} is given to the function.",
            (
                fundamental("Make it with layout=torch.jagged, which is kept in the graph."),
                fundamental("Pad to one length, and use a mask."),
            ),
            code="GB0016",
            also=("GB0044", "GB0233"),
            cause="Its parts have sizes of their own, which this layout keeps beside the tensor.",
        ),
        BreakType(
            "tensor-layout",
            "Tensor in a layout of its own",
            "A tensor of layout {layout} is given to the function.",
            (fundamental("Convert it: x.to_dense()."), _WHERE),
            code="AB0115",
            cause="Its numbers do not stand in memory by size and stride.",
        ),
        BreakType(
            "view-of-changed-base",
            "View whose history was cut off",
            "A tensor is one of several views, as unbind and split make them, and what they are views of was "
            "changed in place.",
            (
                fundamental("Make a copy before the change: x.clone()."),
                user_error("Autograd refuses to go through such a view."),
            ),
            code="AB0116",
            cause="What autograd would do with it is left to eager mode.",
        ),
        BreakType(
            "tensor-subclass",
            "Unsupported tensor subclass attribute access",
            "{type} is a tensor whose attributes are looked up by its class, or whose numbers do not stand in memory.",
            (_PLAIN, fundamental("Leave `__getattr__` and its kind to torch.Tensor.")),
            code="GB0163",
            also=("GB0103", "GB0164"),
            cause="What reading an attribute does is the class's own matter.",
        ),
        BreakType(
            "opaque-subclass",
            "Tensor subclass that can't be taken apart",
            "{type} has a `__torch_dispatch__`, and {reason}: what its operators come to can't be told.",
            (
                fundamental(
                    "Give the class `__tensor_flatten__` and `__tensor_unflatten__`, which name the plain "
                    "tensors that it holds and all else that its operators depend on."
                ),
                _PLAIN,
            ),
            code="AB0117",
            also=("GB0363", "GB0362", "GB2078", "GB7685", "GB1739", "GB8843"),
            cause="A graph is made of operators on plain tensors.",
        ),
        BreakType(
            "overridden-call",
            "Call that somebody may override",
            "A function mode or tensor subclass is active, and what {function} calls inside is for it to see.",
            (
                fundamental("Call it outside the mode, or with plain tensors."),
                fundamental("Have the mode take it over by its `__torch_function__`."),
            ),
            code="AB0118",
            cause="As one step of the graph nobody would be asked of what is inside.",
        ),
        BreakType(
            "no-override-takes-it",
            "All __torch_function__ overrides returned NotImplemented due to TypeError from user code",
            "No `__torch_function__` of the arguments takes {operation}.",
            (user_error("Python answers with a TypeError: have one of the classes take the function."), _PLAIN),
            code="GB0000",
            cause="Python words the error, which depends on its version.",
        ),
        BreakType(
            "mode-not-entered",
            "Attempted to pop from empty torch function mode stack",
            "A function mode is left that the function has not entered.",
            (
                fundamental("Enter and leave it in one function, with a `with` block."),
                user_error("Where none was entered at all, torch raises an error."),
            ),
            code="GB0234",
            cause="Which modes are there is known of those that the function enters.",
        ),
        BreakType(
            "tensor-backward",
            "Unsupported Tensor.backward() call",
            "{function} runs the autograd engine.",
            (
                fundamental(
                    "Compile what gives the loss; call backward() outside, which runs the graph's own backward."
                ),
                supportable("torch.func.grad stays in the graph."),
            ),
            code="GB0123",
            also=("GB0442", "GB1042", "GB7054", "GB0181", "GB0173"),
            cause="The engine needs the history of tensors, which they get when the graph runs.",
        ),
        BreakType(
            "tensor-requires-grad",
            "Unsupported Tensor.requires_grad_() call",
            "{function} of a tensor that the function computes, or where something waits for the end of the function.",
            (fundamental("Use detach(), which gives a tensor without history."), _WHERE),
            code="GB0125",
            also=("GB0206", "GB7324", "GB8985"),
            cause=_AUTOGRAD,
        ),
        BreakType(
            "tensor-retain-grad",
            "Gradient that is kept for a tensor of the caller",
            "{function} of a tensor that has a history, and was given to the function.",
            (
                fundamental("Call it where the tensor was made."),
                fundamental("Tensors that the function makes may keep theirs."),
            ),
            code="AB0119",
            also=("GB0108",),
            cause=_AUTOGRAD,
        ),
        BreakType(
            "tensor-detach",
            "History of a tensor of the caller that is dropped",
            "{function} drops the history of a tensor that was given to the function.",
            (fundamental("Use detach(), which gives another tensor."), _WHERE),
            code="AB0120",
            cause="If the graph then raised, the history could not be taken back.",
        ),
        BreakType(
            "tensor-hook",
            "Compilation of intermediate hooks requires compiled autograd",
            "{function} puts a hook on a tensor.",
            (fundamental("Write a torch.autograd.Function whose backward does what the hook does."), _WHERE),
            code="GB0029",
            also=("GB7444",),
            cause="A hook is called by the engine, in the middle of what is one step of the graph's backward.",
        ),
        BreakType(
            "tensor-resize",
            "Unsupported Tensor.resize_() call",
            "{function} changes the size of a tensor in place.",
            (fundamental("Make a tensor of that size, and copy_ to it; reshape keeps the numbers."), _WHERE),
            code="GB0126",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-resize-as",
            "Unsupported Tensor.resize_as_() call",
            "{function} changes the size of a tensor in place.",
            (fundamental("Make a tensor of that size, and copy_ to it; reshape keeps the numbers."), _WHERE),
            code="GB0127",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-set",
            "Unsupported Tensor.set_() call",
            "{function} gives a tensor other memory.",
            (fundamental("Copy the numbers with copy_."), _WHERE),
            code="GB0128",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-share-memory",
            "Unsupported Tensor.share_memory_() call",
            "{function} moves a tensor to memory that processes share, or asks for it.",
            (_WHERE, fundamental("Share the tensor when it is made.")),
            code="GB4197",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-storage",
            "Memory below a tensor",
            "{function} gives the memory below a tensor.",
            (
                fundamental("x.numel() * x.element_size() are its bytes; x.view(dtype) reads them as another type."),
                _WHERE,
            ),
            code="AB0121",
            cause="Tensors of a graph have memory only when it runs.",
        ),
        BreakType(
            "tensor-apply",
            "Python function on each number",
            "{function} calls a Python function for each number of a tensor.",
            (
                fundamental("Write it with operators: x.sin() for x.apply_(math.sin)."),
                fundamental("torch.vmap runs a function on each row."),
            ),
            code="AB0122",
            cause="A graph is captured before its tensors have numbers.",
        ),
        BreakType(
            "named-tensor",
            "Tensor with names of dimensions",
            "{function} gives dimensions names.",
            (fundamental("Use numbers of dimensions."), _WHERE),
            code="AB0123",
            cause="Most operators of a graph know no names.",
        ),
        BreakType(
            "exports-memory",
            "Memory that is lent to another library",
            "{function} lends the memory of a tensor.",
            (_WHERE, fundamental("Return the tensor, and lend it where the function is called.")),
            code="AB0124",
            cause="Tensors of a graph have memory only when it runs.",
        ),
        BreakType(
            "pins-memory",
            "Memory that is pinned",
            "{function} moves a tensor to memory that a GPU reads.",
            (_WHERE, fundamental("Make the tensor with pin_memory=True.")),
            code="AB0125",
            cause=_MEMORY,
        ),
        BreakType(
            "tensor-method",
            "Unhandled tensor method",
            "{function} is called, which has no counterpart in a graph.",
            (_WHERE, fundamental("Ask for shape, dtype or device, which are known.")),
            code="GB6270",
            also=("GB7489", "GB0081"),
            cause="It asks for the object, or for what it is beside its numbers.",
        ),
        BreakType(
            "as-subclass",
            "Argument of `as_subclass` must be a non-dispatcher-style tensor subclass",
            "as_subclass({type}) makes a tensor whose class holds other tensors, or of one.",
            (fundamental("Call the class: it knows how its tensors are made."), _PLAIN),
            code="GB0001",
            cause="Such a class is made of the tensors that it holds.",
        ),
        BreakType(
            "attribute-of-tensor",
            "Attribute of a tensor that is not known",
            "`{name}` of a tensor is read.",
            (
                fundamental("Read it before the compiled function is called, and pass the value."),
                fundamental("Ask for shape, dtype or device, which are known."),
            ),
            code="AB0127",
            also=("GB0045",),
            cause="It tells of the object, beside its numbers.",
        ),
        BreakType(
            "gradient-of-intermediate",
            "Tensor with grad_fn()",
            "`{name}` of a tensor with a history is read.",
            (
                fundamental("x.requires_grad tells whether it has one."),
                fundamental("Read it where the compiled function is called."),
            ),
            code="GB0104",
            also=("GB0083",),
            cause="Tensors get their history when the graph runs.",
        ),
        BreakType(
            "version-of-tensor",
            "Count of writes to a tensor",
            "`_version` of a tensor is read, after something was written to.",
            (fundamental("Read it before the first write."), fundamental("Compare copies of the tensor.")),
            code="AB0128",
            cause="A graph writes as often as it needs, and not as often as the program says.",
        ),
        BreakType(
            "sets-tensor-attribute",
            "Failed to set tensor attribute",
            "`{name}` of a tensor is set.",
            (
                user_error("Where Python answers with an AttributeError, the attribute can only be read."),
                fundamental("Set it where the compiled function is called."),
            ),
            code="GB0058",
            cause="It changes what the tensor is, beside its numbers.",
        ),
        BreakType(
            "sets-data",
            "Failed to mutate tensor data attribute",
            "{operation} gives a tensor the memory of something that is no plain tensor.",
            (fundamental("Copy the numbers: x.copy_(y)."), fundamental("Give a plain tensor: y.detach().")),
            code="GB0056",
            cause=_MEMORY,
        ),
        BreakType(
            "sets-data-of-other-size",
            "Failed to mutate tensor data attribute to different dtype",
            "{operation} gives a tensor memory of another size or dtype, where its gradient was set or sizes vary.",
            (fundamental("Make a new tensor of that size."), _WHERE),
            code="GB0220",
            cause="Sizes of the program are read when the graph has run.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.tensors",
)
