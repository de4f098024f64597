"""Numbers, texts and addresses of tensors."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, with_examples

_NUMBERS = "A graph is captured before its tensors have numbers."
_ADDRESS = "Where a tensor lies in memory is another place in each call."

ROWS = with_examples(
    (
        BreakType(
            "tensor-item",
            "Unsupported Tensor.item() call with capture_scalar_outputs=False",
            "{function} gives a Python number that depends on what the tensor holds.",
            (
                fundamental(
                    "Keep the computation on tensors: one without dimensions works in most places where a number does."
                ),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps it in the graph, as a number that is not known."),
            ),
            code="GB0124",
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-to-list",
            "Numbers of a tensor as a list",
            "{function} gives Python numbers that depend on what the tensor holds.",
            (
                fundamental("Use the tensor itself, or rows of it: `for row in x` stays in the graph."),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps it in the graph, as numbers that are not known."),
            ),
            code="AB0056",
            also=("GB0109",),
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-to-numpy",
            "Array that is made beside the graph",
            "{function} gives an array, in a form that is not kept in the graph.",
            (
                supportable(
                    "`tensor.numpy()` without arguments of a tensor on the CPU stays in the graph, and so do "
                    "functions of numpy on its result."
                ),
                fundamental("Convert where the compiled function is called."),
            ),
            code="AB0057",
            also=("GB0105", "GB0106"),
            cause="numpy works on memory, which the tensors of a graph have only when it runs.",
        ),
        BreakType(
            "number-of-tensor",
            "unimplemented builtin op on tensor arguments",
            "{function} of a tensor gives a Python value that depends on what the tensor holds.",
            (
                fundamental("Leave the conversion out: arithmetic takes a tensor without dimensions as it is."),
                fundamental("Convert where the result is used, outside of the compiled function."),
            ),
            code="GB0213",
            also=("GB7286", "GB3775"),
            cause=_NUMBERS,
        ),
        BreakType(
            "function-of-numbers",
            "Function of Python on a tensor",
            "{function}() works on Python numbers, and is given a tensor.",
            (
                fundamental("Call the function of torch with that name: torch.sqrt for math.sqrt."),
                fundamental("Convert to a number where the compiled function is called."),
            ),
            code="AB0058",
            cause=_NUMBERS,
        ),
        BreakType(
            "range-of-tensor",
            "Loop whose number of rounds is in a tensor",
            "range() is given a tensor, whose number says how often the loop runs.",
            (
                fundamental("Pass the number of rounds as a Python int."),
                fundamental("torch.while_loop keeps a loop of unknown length in the graph."),
            ),
            code="AB0059",
            cause="A graph has no loops: how many rounds there are has to be known when it is captured.",
        ),
        BreakType(
            "index-that-is-a-tensor",
            "Indexing list with non-scalar tensor",
            "A list or tuple is indexed by a tensor, so which item that is depends on its number.",
            (
                fundamental("Stack the items: torch.stack(items).index_select(0, index)."),
                fundamental("Pass the index as a Python int."),
            ),
            code="GB0070",
            also=("GB7596", "GB0218"),
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-contains",
            "Question whether a tensor holds a number",
            "`in` asks whether the tensor holds a number.",
            (
                fundamental("(x == number).any() is a tensor, and stays in the graph."),
                fundamental("Ask where the compiled function is called."),
            ),
            code="AB0060",
            cause=_NUMBERS,
        ),
        BreakType(
            "compares-tensors",
            "Comparison of whole tensors",
            "{function} gives a Python bool out of all numbers of tensors.",
            (
                fundamental("(a == b).all() is a tensor, and stays in the graph."),
                fundamental("Compare where the compiled function is called."),
            ),
            code="AB0061",
            cause=_NUMBERS,
        ),
        BreakType(
            "text-of-tensor",
            "repr() on tensor",
            "{function} makes a text of the numbers of a tensor, or asks about such a text.",
            (
                fundamental("Write about shape and dtype, which are known: f'{{x.shape}}'."),
                fundamental(
                    "Return the tensor, and make the text where the function is called; a text that is only "
                    "made and returned stays compiled."
                ),
            ),
            code="GB0569",
            also=("GB2483", "GB6053"),
            cause=_NUMBERS,
        ),
        BreakType(
            "format-character",
            "Character by the number in a tensor",
            "A format that ends in 'c' makes a character of the number in a tensor.",
            (
                fundamental("Format the number as a number, with 'd'."),
                fundamental("Make the text where the function is called."),
            ),
            code="AB0062",
            cause="Numbers that are no character raise an error, so the rest of the function depends on it.",
        ),
        BreakType(
            "tensor-address",
            "Data pointer comparison",
            "{function} asks where a tensor lies in memory.",
            (
                fundamental("`a is b` asks whether two are one tensor."),
                fundamental("Ask where the compiled function is called."),
            ),
            code="GB5976",
            also=("GB0027",),
            cause=_ADDRESS,
        ),
        BreakType(
            "dynamic-shape-operator",
            "Dynamic shape operator",
            "{operation} gives a tensor whose size depends on what its arguments hold.",
            (
                fundamental("torch.where(mask, x, 0) and products with a mask have a size that is known."),
                supportable("ARMATURE_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS=1 keeps such operators in the graph."),
            ),
            code="GB0036",
            also=("GB0037", "GB0018"),
            cause="Sizes are known when a graph is captured; this one is not.",
        ),
        BreakType(
            "data-dependent-operator",
            "Data dependent operator",
            "{operation} needs the numbers of a tensor to say what it gives.",
            (
                fundamental(
                    "Take an operator that stays with tensors: index_select with a tensor of positions, for one."
                ),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps numbers in the graph that tensors hold."),
            ),
            code="GB0033",
            also=("GB0246",),
            cause=_NUMBERS,
        ),
        BreakType(
            "tensor-of-tensors",
            "Tensor of a list of tensors",
            "{operation} is given a list of tensors, and would take the numbers out of them.",
            (
                fundamental("torch.stack(list) joins tensors of one dtype, and keeps their history."),
                fundamental("Give Python numbers where they are known."),
            ),
            code="AB0063",
            cause=_NUMBERS,
        ),
        BreakType(
            "unknown-answer",
            "Call whose answer may change",
            "{function} was called without a tensor, and nothing says what its result depends on, if it has no effect.",
            (
                fundamental("Ask outside the compiled function and pass the answer as an argument."),
                supportable(
                    "If it depends on its arguments alone, a plugin can say so: a Rule with answer=Answer.OF_ARGUMENTS."
                ),
            ),
            code="AB0064",
            also=("GB0224",),
            cause="The answer that it gives now may be another one when the graph runs.",
        ),
        BreakType(
            "unknown-stride",
            "Stride along a dimension of size one",
            "{operation} is asked of a tensor that the function computes. Along a dimension of size one any "
            "stride is right, and which one an operator chooses is not known before it runs.",
            (
                fundamental("Ask for the stride of a dimension that is larger than one, or for is_contiguous()."),
                fundamental("Ask outside the compiled function."),
            ),
            code="AB0065",
            cause="The compiler may choose another stride than eager mode, and both are right.",
        ),
        BreakType(
            "number-of-objects",
            "Number that is made of several objects",
            "{function} is given several arguments, one of which is an object of the program.",
            (
                fundamental("Convert the objects first: complex(float(a), float(b))."),
                fundamental("Make the number outside the compiled function."),
            ),
            code="AB0066",
            cause="Which methods of the objects Python asks, and in which order, is its own matter.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.data_dependent",
)
