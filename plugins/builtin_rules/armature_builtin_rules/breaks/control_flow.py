"""Branches, exceptions, generators and contexts."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, ours, supportable, user_error, with_examples

ROWS = with_examples(
    (
        BreakType(
            "data-dependent-branch",
            "Data-dependent branching",
            "`{test}` is known only after the tensor is computed, and the rest of the function depends on it.",
            (
                fundamental(
                    "torch.where(condition, a, b) computes both sides and keeps the choice in the graph; "
                    "torch.cond keeps two functions."
                ),
                fundamental("If the condition does not change between calls, pass it as a Python bool."),
                supportable("Put the code around the branch in functions of its own: each is compiled."),
            ),
            code="GB0170",
            also=("GB0034", "GB0035", "GB0002", "GB0215"),
            cause="A graph has no branches: which side runs has to be known when it is captured.",
        ),
        BreakType(
            "branch-on-unknown-size",
            "Data-dependent branching on a size",
            "`{test}` asks for a size that only the numbers of a tensor tell.",
            (
                fundamental("Compute with a mask over all elements: its result has a size that is known."),
                supportable("torch._check(size > 0) tells what the size is sure to be, where that decides the branch."),
            ),
            code="AB0047",
            also=("GB0214", "GB0360"),
            cause="An operator such as nonzero gave the size; it is another one in each call.",
        ),
        BreakType(
            "branch-on-random-number",
            "Branch on a random number",
            "`{test}` depends on a number that is drawn anew in each call.",
            (
                fundamental("Draw a tensor instead, and choose with torch.where."),
                fundamental("Draw the number where the function is called, and pass the choice as a bool."),
            ),
            code="AB0048",
            cause="The graph is captured once, and the number is another one when it runs.",
        ),
        BreakType(
            "exception-leaves-frame",
            "Observed exception",
            "The function raises {exception} and does not catch it, so there is no result to compile.",
            (
                user_error("Run the function without armature: if it raises there too, see to the cause."),
                fundamental("If the exception is expected, catch it inside the function."),
            ),
            code="GB0088",
            also=(
                "GB0089",
                "GB0111",
                "GB0178",
                "GB0221",
                "GB0049",
                "GB0303",
                "GB0309",
                "GB0315",
                "GB0317",
                "GB0320",
                "GB0321",
                "GB0324",
                "GB0326",
            ),
            cause="What leaves the function is an exception, which only Python can hand to the caller.",
        ),
        BreakType(
            "raises-no-exception",
            "Failed to raise exception",
            "{type} is raised, which is no exception.",
            (
                user_error("Python answers with a TypeError: raise an exception, such as ValueError(text)."),
                user_error("Where an object of a library is raised, look at what it derives from."),
            ),
            code="GB0057",
            also=("GB0028", "GB0050", "GB0051"),
            cause="What Python makes of it is left to Python.",
        ),
        BreakType(
            "recursion-depth",
            "Calls that are nested too deep",
            "The function calls itself, or others in a ring, deeper than calls are followed.",
            (
                fundamental("Write the recursion as a loop: its rounds are as long as you like."),
                user_error("Where the recursion has no end, Python raises RecursionError in the end."),
            ),
            code="AB0049",
            cause="Each call that is followed takes a part of the stack of the compiler itself.",
        ),
        BreakType(
            "untraced-opcode",
            "Missing bytecode handler",
            "The instruction {opcode} of Python is left to Python: {reason}.",
            (
                fundamental("Move this part of the code to where the compiled function is called."),
                ours("Instructions of a new version of Python are added with the next release of armature."),
            ),
            code="GB0082",
            also=("GB0079", "GB6604"),
            cause="What it does has no counterpart in a graph, or belongs to a Python that armature does not know.",
        ),
        BreakType(
            "coroutine",
            "Coroutine that is run by hand",
            "The coroutine `{function}` is started in the function.",
            (
                fundamental("Await it where the compiled function is called, and pass what it gives."),
                supportable("Functions that a coroutine calls are compiled by themselves."),
            ),
            code="AB0050",
            cause="A coroutine runs in pieces, between which other code runs.",
        ),
        BreakType(
            "generator-left-unfinished",
            "Generator that is left in the middle",
            "{type} stands inside a `try` or `with` when the function returns.",
            (
                fundamental("Take all that it gives, for example with list(), or close() it."),
                fundamental("Leave the `try` or `with` before the generator yields."),
            ),
            code="AB0051",
            also=("GB8335",),
            cause="Python runs the rest of the block when nobody holds the generator any more, which is not "
            "known before.",
        ),
        BreakType(
            "context-left-open",
            "Context that is still open at the end",
            "{type} is entered, and not left when the function returns.",
            (
                fundamental("Write it as a `with` block."),
                fundamental("Enter it where the compiled function is called."),
            ),
            code="AB0052",
            also=("GB0066",),
            cause="What the context sets has to hold for code that runs after the graph.",
        ),
        BreakType(
            "exit-without-enter",
            "Context that is left without being entered",
            "__exit__ of {type} is called, which the function has not entered.",
            (
                user_error("Call __enter__ first; a `with` block does both."),
                fundamental("Leave it in the function that entered it."),
            ),
            code="AB0053",
            also=("GB0274",),
            cause="What it goes back to is not known here.",
        ),
        BreakType(
            "value-not-known",
            "Not a Python constant",
            "A name, number or text has to be known here, and it is {type}.",
            (
                fundamental(
                    "Pass it as an argument of the compiled function, or compute it from such arguments alone."
                ),
                fundamental("Do this step where the function is called."),
            ),
            code="GB0086",
            also=("GB0190", "GB0186", "GB0254"),
            cause="What the next step does depends on it, and a graph is captured before tensors have numbers.",
        ),
        BreakType(
            "looks-at-frames",
            "Function that looks at its callers",
            "{function} reads frames: its own, or those of the functions that called it.",
            (
                fundamental("Pass what it is to find, such as a name, as an argument."),
                supportable("armature.disable(fn) runs it eagerly without being looked at each time."),
            ),
            code="AB0054",
            also=("GB0151", "GB0291"),
            cause="It would see the frames of compiled code.",
        ),
        BreakType(
            "yield-from-object",
            "Generator that hands over to an iterator of the program",
            "`yield from` hands over to {type}, which has a method `send`, `throw` or `close` of its own.",
            (
                fundamental("Write a loop: `for item in iterator: yield item`."),
                ours("Generators themselves may be handed over to."),
            ),
            code="AB0055",
            also=("GB0061",),
            cause="Python calls those methods at times that depend on who holds the generator.",
        ),
        BreakType(
            "send-to-iterator",
            "SEND with bad type",
            "A value is sent to a generator that hands over to {type}, which takes none.",
            (
                user_error("Python answers with an AttributeError: hand over to a generator, which has `send`."),
                user_error("Ask for the next value with next(), which sends nothing."),
            ),
            code="GB0094",
            cause="What Python makes of it is left to Python.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.control_flow",
)
