"""Numbers, texts and addresses of tensors."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, with_examples

_NUMBERS = "A graph is captured before its tensors have values."
_ADDRESS = "A tensor's address differs from call to call."

ROWS = with_examples(
    (
        BreakType(
            "tensor-item",
            "Tensor.item(): a Python number from a tensor",
            "{function} returns a Python number that depends on the value in the tensor.",
            (
                fundamental(
                    "Keep computing with tensors: a zero-dimensional tensor works in most places where a number does."
                ),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps it in the graph, as an unknown number."),
            ),
            code="GB0124",
            torch_name="Unsupported Tensor.item() call with capture_scalar_outputs=False",
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-to-list",
            "Tensor converted to a Python list",
            "{function} returns Python numbers that depend on the values in the tensor.",
            (
                fundamental("Use the tensor itself, or rows of it: `for row in x` stays in the graph."),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps it in the graph, as unknown numbers."),
            ),
            code="AB0056",
            also=("GB0109",),
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-to-numpy",
            "Conversion to a numpy array in an unsupported form",
            "{function} returns an array, in a form that can't be kept in the graph.",
            (
                supportable(
                    "`tensor.numpy()` without arguments, on a CPU tensor, stays in the graph, and so do "
                    "numpy functions on the result."
                ),
                fundamental("Convert where the compiled function is called."),
            ),
            code="AB0057",
            also=("GB0105", "GB0106"),
            cause="numpy works on memory, which the tensors of a graph have only when the graph runs.",
        ),
        BreakType(
            "number-of-tensor",
            "Tensor converted to a Python number",
            "{function} of a tensor returns a Python value that depends on the values in the tensor.",
            (
                fundamental("Leave the conversion out: arithmetic accepts a zero-dimensional tensor as it is."),
                fundamental("Convert where the result is used, outside of the compiled function."),
            ),
            code="GB0213",
            torch_name="unimplemented builtin op on tensor arguments",
            also=("GB7286", "GB3775"),
            cause=_NUMBERS,
        ),
        BreakType(
            "function-of-numbers",
            "Python number function applied to a tensor",
            "{function}() works on Python numbers, but is given a tensor.",
            (
                fundamental("Call torch's function of that name: torch.sqrt instead of math.sqrt."),
                fundamental("Convert to a number where the compiled function is called."),
            ),
            code="AB0058",
            cause=_NUMBERS,
            also=("GB0281",),
        ),
        BreakType(
            "range-of-tensor",
            "Loop whose number of iterations is in a tensor",
            "range() is given a tensor, whose value says how often the loop runs.",
            (
                fundamental("Pass the number of iterations as a Python int."),
                fundamental("torch.while_loop keeps a loop of unknown length in the graph."),
            ),
            code="AB0059",
            cause="A graph has no loops: the number of iterations has to be known when it is captured.",
        ),
        BreakType(
            "index-that-is-a-tensor",
            "List indexed by a tensor",
            "A list or tuple is indexed by a tensor, so the item depends on the tensor's value.",
            (
                fundamental("Stack the items: torch.stack(items).index_select(0, index)."),
                fundamental("Pass the index as a Python int."),
            ),
            code="GB0070",
            torch_name="Indexing list with non-scalar tensor",
            also=("GB7596", "GB0218"),
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-contains",
            "`in` on a tensor",
            "`in` checks whether the tensor contains a number.",
            (
                fundamental("Write (x == number).any(), which is a tensor and stays in the graph."),
                fundamental("Do this where the compiled function is called."),
            ),
            code="AB0060",
            cause=_NUMBERS,
        ),
        BreakType(
            "compares-tensors",
            "Comparison of whole tensors",
            "{function} returns a Python bool that depends on all values of the tensors.",
            (
                fundamental("Write (a == b).all(), which is a tensor and stays in the graph."),
                fundamental("Compare where the compiled function is called."),
            ),
            code="AB0061",
            cause=_NUMBERS,
        ),
        BreakType(
            "text-of-tensor",
            "Values of a tensor as text",
            "{function} turns the values in a tensor into text, or uses such a text.",
            (
                fundamental("Format the shape and dtype instead, which are known: f'{{x.shape}}'."),
                fundamental("Return the tensor, and build the text where the compiled function is called."),
            ),
            code="GB0569",
            torch_name="repr() on tensor",
            cause=_NUMBERS,
        ),
        BreakType(
            "format-character",
            "Tensor formatted as a character",
            "A format that ends in 'c' turns the number in a tensor into a character.",
            (
                fundamental("Format the number as a number, with 'd'."),
                fundamental("Build the text where the compiled function is called."),
            ),
            code="AB0062",
            cause="Numbers that are not characters raise an error, so the rest of the function depends on the value.",
        ),
        BreakType(
            "tensor-address",
            "Memory address of a tensor",
            "{function} reads a tensor's memory address.",
            (
                fundamental("To find out whether two names refer to the same tensor, write `a is b`."),
                fundamental("Do this where the compiled function is called."),
            ),
            code="GB5976",
            torch_name="Data pointer comparison",
            also=("GB0027",),
            cause=_ADDRESS,
        ),
        BreakType(
            "dynamic-shape-operator",
            "Operator whose result size depends on values",
            "{operation} returns a tensor whose size depends on the values in its arguments.",
            (
                fundamental("Use torch.where(mask, x, 0) or multiply by a mask: their results have a known size."),
                supportable("ARMATURE_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS=1 keeps such operators in the graph."),
            ),
            code="GB0036",
            torch_name="Dynamic shape operator",
            also=("GB0037", "GB0018"),
            cause="Sizes have to be known when a graph is captured.",
        ),
        BreakType(
            "data-dependent-operator",
            "Operator that needs a tensor's values",
            "{operation} needs the values in a tensor to determine its result.",
            (
                fundamental(
                    "Use an operator that works on tensors only, such as index_select with a tensor of positions."
                ),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps numbers that are read from tensors in the graph."),
            ),
            code="GB0033",
            torch_name="Data dependent operator",
            also=("GB0246",),
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-of-tensors",
            "Tensor created from a list of tensors",
            "{operation} is given a list of tensors, and reads the values out of them.",
            (
                fundamental("torch.stack(list) joins tensors of one dtype, and gradients flow through it."),
                fundamental("Pass Python numbers where you have them."),
            ),
            code="AB0063",
            cause=_NUMBERS,
        ),
        BreakType(
            "unknown-answer",
            "Call whose result may change",
            "{function} is called without a tensor, and nothing says what its result depends on, or "
            "whether it has side effects.",
            (
                fundamental("Call it outside the compiled function, and pass the result as an argument."),
                supportable(
                    "If the result depends only on the arguments, a plugin can say so: a Rule with "
                    "answer=Answer.OF_ARGUMENTS."
                ),
            ),
            code="AB0064",
            also=("GB0224",),
            cause="Its result may be different by the time the graph runs.",
        ),
        BreakType(
            "unknown-stride",
            "Stride along a dimension of size one",
            "{operation} is called on a tensor that the function computes. Along a dimension of size one "
            "any stride is valid, and which one an operator chooses is not known before it runs.",
            (
                fundamental("Use the stride of a dimension that is larger than one, or is_contiguous()."),
                fundamental("Do this outside the compiled function."),
            ),
            code="AB0065",
            cause="The compiler may choose a different stride than eager mode, and both are valid.",
        ),
        BreakType(
            "number-of-objects",
            "Number constructed from several objects",
            "{function} is given several arguments, one of which is an object of a user-defined class.",
            (
                fundamental("Convert the objects first: complex(float(a), float(b))."),
                fundamental("Create the number outside the compiled function."),
            ),
            code="AB0066",
            cause="Which methods of the objects are called, and in which order, is up to Python.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.data_dependent",
)
