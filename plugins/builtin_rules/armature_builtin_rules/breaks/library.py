"""Modules of the standard library: random numbers, patterns, copies, bytes, results that are kept."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, user_error, with_examples

_AGAIN = "It is another one in each call."
_NUMBERS = "A graph is captured before its tensors have numbers."
_BYTES = "A tensor may lie over the same bytes, and nothing tells of one."

ROWS = with_examples(
    (
        BreakType(
            "seed-from-system",
            "random.Random() with improper arguments",
            "{function} takes its seed from the system.",
            (
                fundamental("Give a seed: random.Random(0)."),
                fundamental("Make the generator outside the compiled function."),
            ),
            code="GB0297",
            cause=_AGAIN,
        ),
        BreakType(
            "random-choice-from",
            "Random choice among other things than a list",
            "A generator is to choose from {type}.",
            (
                fundamental("Choose from a list: choices(list(items), k=2)."),
                fundamental("Choose where the compiled function is called."),
            ),
            code="AB0073",
            cause="Which methods of the object the generator asks is its own matter.",
        ),
        BreakType(
            "random-state-unknown",
            "Random choice by a generator in any state",
            "{function}() is asked of a generator whose state is another one in each call.",
            (
                fundamental("Make a generator with a seed in the function: random.Random(0)."),
                fundamental("random.random() and randint() stay in the graph as numbers that are not known."),
            ),
            code="AB0074",
            cause="What is chosen decides what is computed.",
        ),
        BreakType(
            "random-call-fails",
            "Random draw that raises",
            "{function}() of a generator raises.",
            (
                user_error("Run the function without armature: if it raises there too, the arguments are wrong."),
                fundamental("Draw where the compiled function is called."),
            ),
            code="AB0075",
            cause="The generator may have drawn before it raised.",
        ),
        BreakType(
            "random-after-own-code",
            "Random draw after code of the program",
            "{type} draws a number after code that is one step of the graph.",
            (fundamental("Draw the number first."), fundamental("Give the code a generator of its own.")),
            code="AB0076",
            cause="Numbers are drawn before the graph runs, and that code may see the generator as it was.",
        ),
        BreakType(
            "pattern-argument",
            "Pattern that is matched with an unknown text",
            "{method} is given a text that is not known here.",
            (
                fundamental("Match texts that do not depend on tensors."),
                fundamental("Match where the compiled function is called."),
            ),
            code="AB0077",
            cause=_NUMBERS,
        ),
        BreakType(
            "pattern-of-locale",
            "Pattern that depends on the locale",
            "A pattern with re.LOCALE is asked.",
            (
                fundamental("Leave re.LOCALE away, which works for bytes only."),
                fundamental("Match where the compiled function is called."),
            ),
            code="AB0078",
            cause="The locale is a setting of the process.",
        ),
        BreakType(
            "match-in-changing-text",
            "Match in bytes that may change",
            "A match in {type} is read.",
            (fundamental("Match a copy: bytes(data)."), fundamental("Read the match where it is made.")),
            code="AB0079",
            cause=_BYTES,
        ),
        BreakType(
            "copies-object",
            "copy.deepcopy()",
            "An object can't be copied here: {reason}.",
            (
                fundamental("Copy it outside the compiled function."),
                fundamental("Leave the copying to a function that makes the object anew."),
            ),
            code="GB0179",
            cause="Classes say themselves how they are copied, in code that may do anything.",
        ),
        BreakType(
            "deep-copies-tensor",
            "Attempted to copy.deepcopy a tensor",
            "A view, or a tensor with a gradient, attributes or the like, is deep-copied.",
            (
                fundamental("Use x.clone(), or x.detach().clone()."),
                fundamental("Copy it outside the compiled function."),
            ),
            code="GB4198",
            cause="A copy shares memory with copies of what the tensor shared memory with.",
        ),
        BreakType(
            "cached-function",
            "Function that keeps results, and does more",
            "{function} keeps its results, and {reason}.",
            (
                fundamental("Let the function only compute, from its arguments."),
                fundamental("Call it outside the compiled function."),
            ),
            code="AB0080",
            cause="Whether it runs at all depends on the calls before.",
        ),
        BreakType(
            "changes-bytearray",
            "Bytes of the caller that are changed",
            "A bytearray that the function was given is changed.",
            (fundamental("Return the new bytes."), fundamental("Make the bytearray in the function.")),
            code="AB0081",
            cause=_BYTES,
        ),
        BreakType(
            "bytes-after-change",
            "Bytes that are read after a tensor was changed",
            "Bytes of the caller are read after the function has changed a tensor.",
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
                fundamental("Make the tensor before the compiled function is called."),
            ),
            code="AB0083",
            cause="A tensor over its memory would have to be one over the program's.",
        ),
        BreakType(
            "buffer-operator",
            "Bytes with something else",
            "`{operation}` is asked of bytes and {type}.",
            (
                user_error("Where Python answers with a TypeError, give bytes."),
                fundamental("Convert both to bytes first."),
            ),
            code="AB0084",
            cause="Python words the error, which depends on its version.",
        ),
        BreakType(
            "buffer-resize",
            "Bytes that change their size under a view",
            "{type} is resized, of which views may be there.",
            (
                user_error("Where Python answers with a BufferError, release() the view first."),
                fundamental("Make a new bytearray."),
            ),
            code="AB0085",
            cause="When a view ends is not known before the program runs.",
        ),
        BreakType(
            "memoryview-of-changing",
            "View of bytes that may change",
            "A memoryview of what may change is given to the function.",
            (
                fundamental("Pass a copy: bytes(view)."),
                fundamental("Make a tensor of it before the compiled function is called."),
            ),
            code="AB0086",
            cause=_BYTES,
        ),
        BreakType(
            "exception-of-caller",
            "Question for the error that a caller handles",
            "sys.{function}() is called, while a caller of the function handles an error.",
            (
                fundamental("Pass the error as an argument."),
                fundamental("Call the compiled function outside of the `except` block."),
            ),
            code="AB0087",
            cause="Which error that is is another one in each call.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.library",
)
