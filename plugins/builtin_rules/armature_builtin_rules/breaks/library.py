"""Graph breaks at modules of the standard library: random numbers, patterns, copies, bytes, cached results."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, user_error, with_examples

_RESEEDED = "The seed is different in each call."
_NUMBERS = "A graph is captured before its tensors have values."
_BYTES = "A tensor may share the same memory, and there is no way to find out."

ROWS = with_examples(
    (
        BreakType(
            "seed-from-system",
            "Random generator seeded by the operating system",
            "{function} takes its seed from the operating system.",
            (
                fundamental("Pass a seed: random.Random(0)."),
                fundamental("Create the generator outside the compiled function."),
            ),
            code="GB0297",
            torch_name="random.Random() with improper arguments",
            cause=_RESEEDED,
        ),
        BreakType(
            "random-choice-from",
            "Random choice from something other than a list",
            "A random number generator is asked to choose from {type}.",
            (
                fundamental("Choose from a list: choices(list(items), k=2)."),
                fundamental("Choose where the compiled function is called."),
            ),
            code="AB0073",
            cause="Which methods of the object the generator calls is up to Python.",
        ),
        BreakType(
            "random-state-unknown",
            "Random choice by a generator whose state is unknown",
            "{function}() is called on a generator whose state differs from call to call.",
            (
                fundamental("Create a generator with a seed inside the function: random.Random(0)."),
                fundamental("random.random() and randint() stay in the graph, as unknown numbers."),
            ),
            code="AB0074",
            cause="The choice decides what is computed.",
        ),
        BreakType(
            "random-call-fails",
            "Random draw that raises",
            "{function}() of a random number generator raises an exception.",
            (
                user_error("Run the function without armature: if it fails there too, the arguments are wrong."),
                fundamental("Draw where the compiled function is called."),
            ),
            code="AB0075",
            cause="The generator may have advanced before it raised.",
        ),
        BreakType(
            "random-after-own-code",
            "Random draw after opaque code of the program",
            "{type} draws a number after code that runs as one opaque step of the graph.",
            (fundamental("Draw the number first."), fundamental("Give that code its own generator.")),
            code="AB0076",
            cause="Numbers are drawn before the graph runs, and that code may depend on the generator's earlier state.",
        ),
        BreakType(
            "pattern-argument",
            "Regular expression on an unknown text",
            "{method} is given a string that is not known here.",
            (
                fundamental("Match strings that do not depend on tensors."),
                fundamental("Match where the compiled function is called."),
            ),
            code="AB0077",
            cause=_NUMBERS,
        ),
        BreakType(
            "pattern-of-locale",
            "Regular expression that depends on the locale",
            "A regular expression compiled with re.LOCALE is used.",
            (
                fundamental("Leave re.LOCALE out; it works for bytes only."),
                fundamental("Match where the compiled function is called."),
            ),
            code="AB0078",
            cause="The locale is a setting of the whole process, and may change.",
        ),
        BreakType(
            "match-in-changing-text",
            "Match in bytes that may change",
            "A match in {type} is read, and the bytes may have changed since.",
            (fundamental("Match a copy: bytes(data)."), fundamental("Read the match where it is created.")),
            code="AB0079",
            cause=_BYTES,
        ),
        BreakType(
            "copies-object",
            "copy.deepcopy() of an object",
            "An object can't be copied here: {reason}.",
            (
                fundamental("Copy it outside the compiled function."),
                fundamental("Create a new object in place of a copy."),
            ),
            code="GB0179",
            torch_name="copy.deepcopy()",
            cause="Classes define how they are copied, in code that may do anything.",
        ),
        BreakType(
            "deep-copies-tensor",
            "copy.deepcopy() of a tensor",
            "A tensor is deep-copied that is a view, or has a gradient, attributes or the like.",
            (
                fundamental("Use x.clone(), or x.detach().clone()."),
                fundamental("Copy it outside the compiled function."),
            ),
            code="GB4198",
            torch_name="Attempted to copy.deepcopy a tensor",
            cause="Copies share memory with each other as the originals did, which a graph can't reproduce.",
        ),
        BreakType(
            "cached-function",
            "Cached function with side effects",
            "{function} caches its results, and {reason}.",
            (
                fundamental("Make the function compute from its arguments only, without side effects."),
                fundamental("Call it outside the compiled function."),
            ),
            code="AB0080",
            cause="Whether it runs at all depends on earlier calls.",
        ),
        BreakType(
            "changes-bytearray",
            "Bytes of the caller that are changed",
            "A bytearray that the function was given is modified.",
            (fundamental("Return the new bytes."), fundamental("Create the bytearray inside the function.")),
            code="AB0081",
            cause=_BYTES,
        ),
        BreakType(
            "bytes-after-change",
            "Bytes that are read after a tensor was changed",
            "The caller's bytes are read after the function has modified a tensor.",
            (fundamental("Read the bytes first."), fundamental("Pass a copy: bytes(data).")),
            code="AB0082",
            cause=_BYTES,
        ),
        BreakType(
            "buffer-as-argument",
            "Bytes that are passed to an operator",
            "{type} is passed to a function of torch.",
            (
                fundamental("Pass a list: torch.tensor(list(data))."),
                fundamental("Create the tensor before the compiled function is called."),
            ),
            code="AB0083",
            cause="The result would have to share the program's memory.",
        ),
        BreakType(
            "buffer-operator",
            "Operator on bytes and something else",
            "`{operation}` is applied to bytes and {type}.",
            (
                user_error("If Python raises a TypeError here, pass bytes."),
                fundamental("Convert both to bytes first."),
            ),
            code="AB0084",
            cause="Python raises an error here, whose wording depends on its version, so Python is left to raise it.",
        ),
        BreakType(
            "buffer-resize",
            "Resize of bytes that may have views",
            "{type} is resized while memoryviews of it may exist.",
            (
                user_error("If Python raises a BufferError here, call release() on the view first."),
                fundamental("Create a new bytearray."),
            ),
            code="AB0085",
            cause="When a view is released is not known before the program runs.",
        ),
        BreakType(
            "memoryview-of-changing",
            "View of bytes that may change",
            "The function is given a memoryview of memory that may change.",
            (
                fundamental("Pass a copy: bytes(view)."),
                fundamental("Create a tensor from it before the compiled function is called."),
            ),
            code="AB0086",
            cause=_BYTES,
        ),
        BreakType(
            "exception-of-caller",
            "Exception that a caller is handling",
            "sys.{function}() is called while a caller of the function is handling an exception.",
            (
                fundamental("Pass the exception as an argument."),
                fundamental("Call the compiled function outside of the `except` block."),
            ),
            code="AB0087",
            cause="Which exception that is differs from call to call.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.library",
)
