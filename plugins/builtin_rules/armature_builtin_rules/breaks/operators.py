"""Operators: what they refuse, are given and give, and what stands around them in a graph."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_WHERE = fundamental("Do it before the compiled function is called, or after.")
_SAYS = user_error("Run the function without armature: if it raises there too, the arguments are wrong.")
_ARGUMENTS = fundamental("Pass tensors, numbers, texts, dtypes, devices, or lists, tuples and dicts of these.")
_TAKE_APART = supportable("armature.trace_through(fn) takes objects apart; a function in Python does so too.")

ROWS = with_examples(
    (
        BreakType(
            "operator-runtime-error",
            "RuntimeError when making fake tensor call",
            "{operation} refuses its arguments: {message}.",
            (
                _SAYS,
                supportable(
                    "If it works there, a fake implementation tells what it gives: torch.library.register_fake."
                ),
            ),
            code="GB4315",
            also=("GB5173", "GB0240", "GB0241", "GB0242", "GB0247", "GB0182"),
            cause="An operator that raises gives nothing that could stand in the graph.",
        ),
        BreakType(
            "operator-type-error",
            "TypeError when making fake tensor call",
            "{operation} refuses the types of its arguments: {message}.",
            (_SAYS, user_error("Look at the operator's signature in the documentation of torch.")),
            code="GB0112",
            also=("GB5195", "GB0319", "GB6735"),
            cause="An operator that raises gives nothing that could stand in the graph.",
        ),
        BreakType(
            "operator-index-error",
            "Operator that is given an index out of range",
            "{operation} refuses an index: {message}.",
            (_SAYS, user_error("Dimensions and positions count from 0 to one below the size.")),
            code="AB0129",
            cause="An operator that raises gives nothing that could stand in the graph.",
        ),
        BreakType(
            "operator-value-error",
            "Operator that refuses values",
            "{operation} refuses its arguments: {message}.",
            (_SAYS, user_error("Look at what the documentation of torch says of the arguments.")),
            code="AB0130",
            cause="An operator that raises gives nothing that could stand in the graph.",
        ),
        BreakType(
            "operator-failed",
            "Fake tensor propagation exception",
            "{operation} raises when it is run on tensors without numbers: {message}.",
            (_SAYS, fundamental("If it works there, call it outside the compiled function.")),
            code="GB0064",
            also=("GB0048", "GB0080", "GB2922"),
            cause="An operator that raises gives nothing that could stand in the graph.",
        ),
        BreakType(
            "operator-without-fake",
            "NotImplementedError/UnsupportedFakeTensorException when running FX node",
            "{operation} does not say what it gives before it has numbers: {message}",
            (supportable("Register a fake implementation: torch.library.register_fake."), _WHERE),
            code="GB0087",
            also=("GB0090", "GB0043"),
            cause="Sizes and dtypes of results are known when a graph is captured.",
        ),
        BreakType(
            "overlapping-write",
            "Inplace op on input tensor",
            "{operation} writes to a tensor whose memory overlaps with what it reads, or with itself.",
            (
                user_error("torch raises an error: write to a copy, x.clone()."),
                fundamental("Write the operator that gives a new tensor: x + y for x.add_(y)."),
            ),
            code="GB0072",
            cause="The compiled code would write in another order.",
        ),
        BreakType(
            "writes-to-inference-tensor",
            "Write to a tensor of inference mode",
            "{operation} writes to a tensor that was made in inference mode, outside of that mode.",
            (
                user_error("torch raises an error: make the tensor outside of the mode, or a copy of it."),
                fundamental("Write the operator that gives a new tensor."),
            ),
            code="AB0131",
            cause="What torch makes of it is left to eager mode.",
        ),
        BreakType(
            "class-as-argument",
            "Class that is passed to an operator",
            "A class is passed to a function that is one step of the graph.",
            (_ARGUMENTS, _TAKE_APART),
            code="AB0132",
            cause="The text of a graph has no name for it.",
        ),
        BreakType(
            "function-as-argument",
            "Function that is passed to an operator",
            "{type} is passed to a function that is one step of the graph.",
            (_ARGUMENTS, _TAKE_APART),
            code="AB0133",
            also=("GB0301",),
            cause="The text of a graph has no name for it.",
        ),
        BreakType(
            "argument-not-in-graph",
            "Failed to convert args/kwargs to proxy",
            "{type} is passed to a function that is one step of the graph.",
            (_ARGUMENTS, _TAKE_APART),
            code="GB0055",
            also=("GB0236", "GB0238", "GB0239", "GB6210", "GB2520", "GB3840", "GB0243", "GB0223"),
            cause="A graph holds tensors and plain values.",
        ),
        BreakType(
            "argument-of-derived-class",
            "Container with methods of its own as an argument",
            "{type} is passed to a function of torch, and has methods of its own that C code may ask.",
            (
                fundamental("Pass a plain container: [*items], dict(items)."),
                fundamental("Hold the container in an attribute, in place of deriving from it."),
            ),
            code="AB0134",
            cause="Which methods C code asks, and how often, is its own matter.",
        ),
        BreakType(
            "argument-of-outside-call",
            "Argument of a call that stays outside of compiled code",
            "{type} is passed to a call that is made between compiled parts of the graph.",
            (_ARGUMENTS, fundamental("Make the call outside of transforms of torch.func.")),
            code="AB0135",
            cause="Such a call is made with plain tensors, as they are when it runs.",
        ),
        BreakType(
            "numpy-number-argument",
            "Number of numpy that torch takes for a float",
            "A number of numpy, {type}, is passed to a function of torch.",
            (fundamental("Convert it: float(number)."), fundamental("Pass a tensor: torch.tensor(number).")),
            code="AB0136",
            cause="Functions of torch differ in what they make of it.",
        ),
        BreakType(
            "random-number-as-argument",
            "Random number that is passed to an operator",
            "{type} is passed to a function that needs it before it runs.",
            (
                fundamental("Draw a tensor: torch.rand."),
                supportable("ARMATURE_CAPTURE_SCALAR_OUTPUTS=1 keeps it in the graph, as a number that is not known."),
            ),
            code="AB0137",
            cause="It is drawn anew in each call.",
        ),
        BreakType(
            "operator-result",
            "torch.* op returned non-Tensor",
            "A function that is one step of the graph gives {type}.",
            (fundamental("Have it give tensors, numbers, or lists and tuples of these."), _TAKE_APART),
            code="GB0208",
            also=("GB0251", "GB0355", "GB0314"),
            cause="What it gives when it runs is another object.",
        ),
        BreakType(
            "kept-from-inner-graph",
            "Tensor that a function with its own graph keeps",
            "{type}, made in a call that has a graph of its own, is kept in another way than as its result.",
            (
                fundamental("Return the tensor from the function."),
                fundamental("Call the function outside the compiled function."),
            ),
            code="AB0138",
            also=("GB4413", "GB0067"),
            cause="Only results leave such a graph.",
        ),
        BreakType(
            "value-not-rebuilt",
            "Reconstruction failure",
            "{type} is to leave the function, or is needed after a break, and can't be made again.",
            (fundamental("Return what it was made of."), fundamental("Make it where the compiled function is called.")),
            code="GB0092",
            also=(
                "GB0093",
                "GB0019",
                "GB0116",
                "GB0122",
                "GB0197",
                "GB0205",
                "GB0212",
                "GB0279",
                "GB0370",
                "GB1297",
                "GB2533",
                "GB4778",
                "GB9528",
                "GB0100",
            ),
            cause="It lives between the calls of the function, or has a state that only Python keeps.",
        ),
        BreakType(
            "default-dtype-in-parts",
            "Default dtype that changes between parts of a graph",
            "The default dtype is changed in a function whose graph is run in parts.",
            (
                fundamental("Give dtypes to the functions that make tensors."),
                fundamental("Set it when the program starts."),
            ),
            code="AB0139",
            cause="A part may run when the default is another one.",
        ),
        BreakType(
            "may-raise-after-change",
            "Operator that may raise after a change with gradients",
            "An operator that may raise follows a change of a tensor whose history autograd keeps.",
            (
                fundamental("Compute the index first, then change the tensor."),
                fundamental("Write operators that give new tensors: x * 2 for x.mul_(2)."),
            ),
            code="AB0140",
            cause="If it raised, the history could not be taken back.",
        ),
        BreakType(
            "trace-through-changes",
            "Function to be traced through that changes something",
            "{function}, given to armature.trace_through, changes something outside of it.",
            (
                fundamental("Have it return what it computes."),
                supportable("Leave the mark away: calls of Python functions are followed, changes included."),
            ),
            code="AB0141",
            cause="It is one step of the graph, which only computes.",
        ),
        BreakType(
            "trace-through-result",
            "Function to be traced through that gives an object",
            "A function given to armature.trace_through gives {type}.",
            (
                fundamental("Have it give tensors, numbers, or containers of these."),
                fundamental("Register the class with torch's pytree."),
            ),
            code="AB0142",
            cause="What it gives when it runs is another object.",
        ),
        BreakType(
            "creates-wrapper-leaf",
            "Tensor of a class that holds tensors, as a new leaf",
            "{type}(...) is made of tensors that need gradients.",
            (
                fundamental("Make it before the compiled function is called."),
                fundamental("Make it of detached tensors."),
            ),
            code="AB0143",
            cause="Made here it would be an intermediate result.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.operators",
)
