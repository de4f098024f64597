"""Graph breaks at arrays of numpy, and at tensors made of them."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, user_error, with_examples

_TENSORS = fundamental("Use the torch function on tensors.")
_OUTSIDE = fundamental("Call it outside the compiled function.")
_NUMBERS = "A graph is captured before its arrays have numbers."

ROWS = with_examples(
    (
        BreakType(
            "array-differs",
            "numpy function that torch does differently",
            "What numpy's {operation} gives here has another dtype, size or memory than what torch has in its place.",
            (_TENSORS, _OUTSIDE),
            code="AB0189",
            cause="Arrays of the function are tensors in the graph.",
        ),
        BreakType(
            "array-errors",
            "numpy that is to raise errors of numbers",
            "numpy is to raise errors of divisions by zero and the like at {operation}, by `errstate` or a "
            "filter of warnings.",
            (fundamental("Let numpy be quiet: numpy.errstate(all='ignore')."), _OUTSIDE),
            code="AB0190",
            cause="Whether there is one depends on the numbers.",
        ),
        BreakType(
            "array-value",
            "Unsupported ndarray method call",
            "ndarray.{operation} gives a Python value that depends on what the array holds.",
            (fundamental("Keep the computation on arrays."), _OUTSIDE),
            code="GB0158",
            cause=_NUMBERS,
        ),
        BreakType(
            "array-attribute",
            "Unsupported ndarray attribute access",
            "ndarray.{name} has no counterpart on tensors.",
            (_TENSORS, _OUTSIDE),
            code="GB0157",
            cause="Arrays of the function are tensors in the graph.",
        ),
        BreakType(
            "array-branch",
            "Branch on the value of an array",
            "`{test}` is known only after the array is computed, and the rest of the function depends on it.",
            (
                fundamental("numpy.where(condition, a, b) computes both sides and stays in the graph."),
                fundamental("If the condition does not change between calls, pass it as a Python bool."),
            ),
            code="AB0191",
            cause=_NUMBERS,
        ),
        BreakType(
            "array-function-fails",
            "numpy function that raises",
            "numpy's {operation} can't be tried out on arrays without numbers: {message}.",
            (
                user_error("Run the function without armature: if it raises there too, the arguments are wrong."),
                _OUTSIDE,
            ),
            code="AB0192",
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-in-numpy",
            "Tensor among the arguments of a numpy function",
            "A tensor is passed to a function of numpy.",
            (fundamental("Convert it first: x.numpy()."), _TENSORS),
            code="AB0193",
            cause="numpy asks the tensor for an array, and the graph holds neither.",
        ),
        BreakType(
            "array-dtype",
            "failed to convert numpy.ndarray to Tensor",
            "An array of dtype {dtype} is used, of which torch has no tensors, or not here.",
            (fundamental("Convert it to numbers that torch has: array.astype('float32')."), _OUTSIDE),
            code="GB0185",
            also=("GB0250",),
            cause="Arrays of the function are tensors in the graph.",
        ),
        BreakType(
            "array-argument",
            "Object that is passed to a numpy function",
            "{type} is passed to a function of numpy.",
            (fundamental("Pass arrays, numbers, texts, or lists and tuples of these."), _OUTSIDE),
            code="AB0194",
            cause="What numpy makes of it is its own matter.",
        ),
        BreakType(
            "array-as-tensor",
            "Tensor over the memory of an array",
            "torch.from_numpy is given what is no array whose memory can be shared here.",
            (
                fundamental("Make the tensor before the compiled function is called, and pass it."),
                fundamental("torch.tensor(array) makes a copy."),
            ),
            code="AB0195",
            also=("GB0231", "GB0232"),
            cause="What is written to one is written to the other.",
        ),
        BreakType(
            "tensor-of-array",
            "Tensor made of an array in a form that is not known",
            "torch.tensor is given an array, and more than a dtype and a device.",
            (
                fundamental("Set the rest afterwards: torch.tensor(array).requires_grad_()."),
                fundamental("Make the tensor before the compiled function is called."),
            ),
            code="AB0196",
            cause="Such a tensor is more than a copy of the numbers.",
        ),
        BreakType(
            "tensor-of-numpy-numbers",
            "Tensor of a list with numbers of numpy",
            "A list with numbers of numpy is to become a tensor, and torch has no dtype for it.",
            (fundamental("Convert the numbers first: float(number)."), fundamental("Give a dtype that torch has.")),
            code="AB0197",
            cause="Which dtype comes of it is torch's own matter.",
        ),
    ),
    "armature_torch_handlers.examples.arrays",
)
