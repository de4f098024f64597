"""Graph breaks at operators: what they refuse, their arguments and results, and their place in a graph."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_WHERE = fundamental("Do it before the compiled function is called, or after.")
_SAYS = user_error("Run the function without armature: if it fails there too, the arguments are wrong.")
_ARGUMENTS = fundamental("Pass tensors, numbers, strings, dtypes, devices, or lists, tuples and dicts of these.")
_TAKE_APART = supportable(
    "Mark the function with armature.trace_through, or write it in Python: then objects are taken apart."
)

ROWS = with_examples(
    (
        BreakType(
            "operator-runtime-error",
            "Operator that raises a RuntimeError",
            "{operation} rejects its arguments: {message}.",
            (
                _SAYS,
                supportable(
                    "If it works there, register a fake implementation that describes the result: "
                    "torch.library.register_fake."
                ),
            ),
            code="GB4315",
            torch_name="RuntimeError when making fake tensor call",
            also=("GB0182", "GB0240", "GB0241", "GB0242", "GB0247", "GB7299"),
            cause="An operator that raises an error has no result that could be part of the graph.",
        ),
        BreakType(
            "operator-type-error",
            "Operator that raises a TypeError",
            "{operation} rejects the types of its arguments: {message}.",
            (_SAYS, user_error("Check the operator's signature in torch's documentation.")),
            code="GB0112",
            torch_name="TypeError when making fake tensor call",
            also=("GB0245", "GB0248", "GB0285", "GB0318", "GB0319", "GB1140", "GB6735"),
            cause="An operator that raises an error has no result that could be part of the graph.",
        ),
        BreakType(
            "operator-index-error",
            "Operator that is given an index out of range",
            "{operation} rejects an index: {message}.",
            (_SAYS, user_error("Dimensions and positions count from 0 to one below the size.")),
            code="AB0129",
            cause="An operator that raises an error has no result that could be part of the graph.",
        ),
        BreakType(
            "operator-value-error",
            "Operator that rejects its arguments",
            "{operation} rejects its arguments: {message}.",
            (_SAYS, user_error("Check the arguments against torch's documentation.")),
            code="AB0130",
            cause="An operator that raises an error has no result that could be part of the graph.",
        ),
        BreakType(
            "operator-failed",
            "Operator that fails while the graph is captured",
            "{operation} fails on the tensors without values with which the graph is captured: {message}.",
            (_SAYS, fundamental("If it works without armature, call it outside the compiled function.")),
            code="GB0064",
            torch_name="Fake tensor propagation exception",
            also=("GB0048", "GB5173", "GB6663"),
            cause="An operator that raises an error has no result that could be part of the graph.",
        ),
        BreakType(
            "operator-without-fake",
            "Operator without a fake implementation",
            "{operation} can't tell the shape and dtype of its result before it has values: {message}",
            (supportable("Register a fake implementation: torch.library.register_fake."), _WHERE),
            code="GB0087",
            torch_name="NotImplementedError/UnsupportedFakeTensorException when running FX node",
            also=("GB0090", "GB0043"),
            cause="Sizes and dtypes of results have to be known when a graph is captured.",
        ),
        BreakType(
            "overlapping-write",
            "In-place operator on overlapping memory",
            "{operation} writes to a tensor whose memory overlaps with its inputs, or with itself.",
            (
                user_error("torch raises an error: write to a copy, x.clone()."),
                fundamental("Use the operator that returns a new tensor: x + y instead of x.add_(y)."),
            ),
            code="GB0072",
            torch_name="Inplace op on input tensor",
            cause="Compiled code would write in a different order.",
        ),
        BreakType(
            "writes-to-inference-tensor",
            "Write to a tensor created in inference mode",
            "Outside inference mode, {operation} writes to a tensor that was created in inference mode.",
            (
                user_error("torch raises an error: create the tensor outside inference mode, or write to a copy."),
                fundamental("Use the operator that returns a new tensor."),
            ),
            code="AB0131",
            cause="torch raises an error for this in most cases, which is left to eager mode.",
        ),
        BreakType(
            "class-as-argument",
            "Class that is passed to an operator",
            "A class is passed to a function that is a single step of the graph.",
            (_ARGUMENTS, _TAKE_APART),
            code="AB0132",
            cause="A graph has no way to refer to it.",
        ),
        BreakType(
            "function-as-argument",
            "Function that is passed to an operator",
            "{type} is passed to a function that is a single step of the graph.",
            (_ARGUMENTS, _TAKE_APART),
            code="AB0133",
            cause="A graph has no way to refer to it.",
        ),
        BreakType(
            "argument-not-in-graph",
            "Object passed to a function that is one step of the graph",
            "{type} is passed to a function that is a single step of the graph.",
            (_ARGUMENTS, _TAKE_APART),
            code="GB0055",
            torch_name="Failed to convert args/kwargs to proxy",
            also=("GB0223", "GB0243", "GB0249", "GB0286", "GB5748", "GB7489"),
            cause="A graph can hold only tensors and plain values.",
        ),
        BreakType(
            "argument-of-derived-class",
            "Container with methods of its own as an argument",
            "{type} is passed to a torch function, and defines methods that C code may call.",
            (
                fundamental("Pass a plain container: [*items], dict(items)."),
                fundamental("Hold the container in an attribute instead of deriving from it."),
            ),
            code="AB0134",
            cause="Which methods C code calls, and how often, can't be seen from outside.",
        ),
        BreakType(
            "argument-of-outside-call",
            "Argument of a call that stays outside of compiled code",
            "{type} is passed to a call that runs between compiled parts of the graph, such as a kernel launch.",
            (_ARGUMENTS, fundamental("Make the call outside of torch.func transforms.")),
            code="AB0135",
            cause="Such a call is given plain tensors, as they are when it runs.",
        ),
        BreakType(
            "numpy-number-argument",
            "numpy number that torch takes for a float",
            "A numpy number, {type}, is passed to a torch function.",
            (fundamental("Convert it: float(number)."), fundamental("Pass a tensor: torch.tensor(number).")),
            code="AB0136",
            cause="Torch functions differ in how they treat such numbers.",
        ),
        BreakType(
            "random-number-as-argument",
            "Random number that is passed to an operator",
            "{type} is passed to a function that needs its value in advance.",
            (
                fundamental("Draw a tensor: torch.rand."),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps it in the graph, as an unknown number."),
            ),
            code="AB0137",
            cause="It is drawn again in each call.",
        ),
        BreakType(
            "operator-result",
            "Function in the graph that returns an object",
            "A function that is a single step of the graph returns {type}.",
            (fundamental("Make it return tensors, numbers, or lists and tuples of these."), _TAKE_APART),
            code="GB0208",
            torch_name="torch.* op returned non-Tensor",
            also=("GB0307", "GB0314", "GB0327", "GB0345", "GB0355", "GB1724", "GB6017"),
            cause="It would return a different object when the graph runs.",
        ),
        BreakType(
            "kept-from-inner-graph",
            "Tensor stored by a function with its own graph",
            "{type}, created in a call that has its own graph, is stored somewhere instead of being returned.",
            (
                fundamental("Return the tensor from the function."),
                fundamental("Call the function outside the compiled function."),
            ),
            code="AB0138",
            also=("GB4413", "GB0067"),
            cause="Only returned values leave such a graph.",
        ),
        BreakType(
            "value-not-rebuilt",
            "Object that can't be created again after the graph",
            "{type} leaves the function or is needed after a graph break, and can't be created again there.",
            (
                fundamental("Return the values that it was created from."),
                fundamental("Create it where the compiled function is called."),
            ),
            code="GB0092",
            torch_name="Reconstruction failure",
            also=(
                "GB0019",
                "GB0093",
                "GB0100",
                "GB0101",
                "GB0116",
                "GB0197",
                "GB0205",
                "GB0370",
                "GB1297",
                "GB2483",
                "GB2533",
                "GB4778",
                "GB6053",
                "GB9528",
            ),
            cause="It outlives the call of the function, or has state that only Python can hold.",
        ),
        BreakType(
            "default-dtype-in-parts",
            "Default dtype that changes between parts of a graph",
            "The default dtype is changed in a function whose graph runs in several parts.",
            (
                fundamental("Pass a dtype to the functions that create tensors."),
                fundamental("Set it when the program starts."),
            ),
            code="AB0139",
            cause="A part may run while a different default is set.",
        ),
        BreakType(
            "may-raise-after-change",
            "Operator that may raise after a change with gradients",
            "An operator that may raise an error comes after an in-place change of a tensor that autograd records.",
            (
                fundamental("Compute the index first, then change the tensor."),
                fundamental("Use operators that return new tensors: x * 2 instead of x.mul_(2)."),
            ),
            code="AB0140",
            cause="If it raised an error, the change could not be undone: the tensor is a view, takes more than 1 MiB, "
            "shares memory with another input or retains its gradient.",
        ),
        BreakType(
            "trace-through-changes",
            "trace_through of a function with side effects",
            "{function}, marked with armature.trace_through, changes something outside itself.",
            (
                fundamental("Make it return what it computes."),
                supportable("Remove the mark: Python functions are traced anyway, side effects included."),
            ),
            code="AB0141",
            cause="It is a single step of the graph, and a graph only computes.",
        ),
        BreakType(
            "trace-through-result",
            "trace_through of a function that returns an object",
            "A function marked with armature.trace_through returns {type}.",
            (
                fundamental("Make it return tensors, numbers, or containers of these."),
                fundamental("Register the class with torch's pytree."),
            ),
            code="AB0142",
            cause="It would return a different object when the graph runs.",
        ),
        BreakType(
            "creates-wrapper-leaf",
            "New leaf of a tensor class that holds other tensors",
            "{type}(...) is created from tensors that require gradients.",
            (
                fundamental("Create it before the compiled function is called."),
                fundamental("Create it from detached tensors."),
            ),
            code="AB0143",
            cause="Created here, it would be an intermediate result and not a leaf.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.operators",
)
