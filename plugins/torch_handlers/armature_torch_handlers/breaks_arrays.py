"""Graph breaks at arrays of numpy, and at tensors made of them."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, user_error, with_examples

_TENSORS = fundamental("Use the torch function on tensors.")
_CALL_UNCOMPILED = fundamental("Call it outside the compiled function.")
_NUMBERS = "A graph is captured before its arrays have values."

ROWS = with_examples(
    (
        BreakType(
            "array-differs",
            "numpy function that differs from torch's",
            "The result of numpy's {operation} differs here in dtype, size or memory from that of torch's equivalent.",
            (_TENSORS, _CALL_UNCOMPILED),
            code="AB0189",
            cause="In the graph, the function's arrays are tensors.",
        ),
        BreakType(
            "array-errors",
            "numpy set to raise floating-point errors",
            "numpy is set to raise errors for divisions by zero and the like in {operation}, by "
            "`errstate` or a warnings filter.",
            (fundamental("Turn the errors off: numpy.errstate(all='ignore')."), _CALL_UNCOMPILED),
            code="AB0190",
            cause="Whether an error is raised depends on the values.",
        ),
        BreakType(
            "array-value",
            "Python value read from an array",
            "ndarray.{operation} returns a Python value that depends on the values in the array.",
            (fundamental("Keep computing with arrays instead of Python numbers."), _CALL_UNCOMPILED),
            code="GB0158",
            torch_name="Unsupported ndarray method call",
            cause=_NUMBERS,
        ),
        BreakType(
            "array-attribute",
            "Array attribute without an equivalent on tensors",
            "ndarray.{name} has no equivalent on tensors.",
            (_TENSORS, _CALL_UNCOMPILED),
            code="GB0157",
            torch_name="Unsupported ndarray attribute access",
            cause="In the graph, the function's arrays are tensors.",
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
            "numpy's {operation} fails on arrays without values: {message}.",
            (
                user_error("Run the function without armature: if it fails there too, the arguments are wrong."),
                _CALL_UNCOMPILED,
            ),
            code="AB0192",
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-in-numpy",
            "Tensor among the arguments of a numpy function",
            "A tensor is passed to a numpy function.",
            (fundamental("Convert it first: x.numpy()."), _TENSORS),
            code="AB0193",
            cause="numpy would ask the tensor for an array, which does not exist while the graph is captured.",
        ),
        BreakType(
            "array-dtype",
            "Array with a dtype that torch does not support",
            "An array of dtype {dtype} is used, which torch does not support, or not here.",
            (fundamental("Convert it to a dtype that torch supports: array.astype('float32')."), _CALL_UNCOMPILED),
            code="GB0185",
            torch_name="failed to convert numpy.ndarray to Tensor",
            also=("GB0250",),
            cause="In the graph, the function's arrays are tensors.",
        ),
        BreakType(
            "array-argument",
            "Object that is passed to a numpy function",
            "{type} is passed to a numpy function.",
            (fundamental("Pass arrays, numbers, strings, or lists and tuples of these."), _CALL_UNCOMPILED),
            code="AB0194",
            cause="How numpy converts such an object is not known.",
        ),
        BreakType(
            "array-as-tensor",
            "Tensor that shares an array's memory",
            "torch.from_numpy is given something other than an array whose memory can be shared here.",
            (
                fundamental("Create the tensor before the compiled function is called, and pass it."),
                fundamental("torch.tensor(array) makes a copy."),
            ),
            code="AB0195",
            also=("GB0231", "GB0232"),
            cause="Writes to one are visible in the other.",
        ),
        BreakType(
            "tensor-of-array",
            "torch.tensor of an array in an unsupported form",
            "torch.tensor is given an array, and options other than dtype and device.",
            (
                fundamental("Apply the other options afterwards: torch.tensor(array).requires_grad_()."),
                fundamental("Create the tensor before the compiled function is called."),
            ),
            code="AB0196",
            cause="The result is more than a copy of the values.",
        ),
        BreakType(
            "tensor-of-numpy-numbers",
            "Tensor from a list with numpy numbers",
            "A tensor is created from a list with numpy numbers for which torch has no dtype.",
            (
                fundamental("Convert the numbers first: float(number)."),
                fundamental("Pass a dtype that torch supports."),
            ),
            code="AB0197",
            cause="Which dtype results is decided inside torch.",
        ),
    ),
    "armature_torch_handlers.examples.arrays",
)
