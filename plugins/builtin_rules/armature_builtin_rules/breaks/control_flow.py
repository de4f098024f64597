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
            cause="A graph has no branches: which side runs has to be known when the graph is captured.",
        ),
        BreakType(
            "branch-on-unknown-size",
            "Data-dependent branching on a size",
            "`{test}` depends on a size that depends on the values in a tensor.",
            (
                fundamental("Compute with a mask over all elements, so that the size of the result is known."),
                supportable("If the size always satisfies the condition, say so with torch._check(size > 0)."),
            ),
            code="AB0047",
            also=("GB0214", "GB0360"),
            cause="An operator such as nonzero produced the size, which differs from call to call.",
        ),
        BreakType(
            "branch-on-random-number",
            "Branch on a random number",
            "`{test}` depends on a random number that is drawn again in each call.",
            (
                fundamental("Draw a tensor instead, and choose with torch.where."),
                fundamental("Draw the number where the compiled function is called, and pass the choice as a bool."),
            ),
            code="AB0048",
            cause="The graph is captured once, and the number will be different when it runs.",
        ),
        BreakType(
            "exception-leaves-frame",
            "Exception that leaves the compiled function",
            "The function raises {exception} and does not catch it, so it has no result to compile.",
            (
                user_error("Run the function without armature: if it raises there too, fix the cause."),
                fundamental("If the exception is expected, catch it inside the function."),
            ),
            code="GB0088",
            torch_name="Observed exception",
            also=(
                "GB0049",
                "GB0089",
                "GB0111",
                "GB0178",
                "GB0193",
                "GB0216",
                "GB0221",
                "GB0303",
                "GB0309",
                "GB0315",
                "GB0317",
                "GB0320",
                "GB0321",
                "GB0324",
                "GB0326",
                "GB0336",
            ),
            cause="An exception leaves the function, and only Python can pass it to the caller.",
        ),
        BreakType(
            "raises-no-exception",
            "Raise of something that is not an exception",
            "{type} is raised, which is not an exception.",
            (
                user_error("Python raises a TypeError: raise an exception, such as ValueError(message)."),
                user_error("If the object comes from a library, check what its class derives from."),
            ),
            code="GB0057",
            torch_name="Failed to raise exception",
            also=("GB0028", "GB0050", "GB0051"),
            cause="What happens here is left to Python.",
        ),
        BreakType(
            "recursion-depth",
            "Calls that are nested too deeply",
            "The function calls itself, directly or through others, to a greater depth than armature follows.",
            (
                fundamental("Write the recursion as a loop, which may have any number of iterations."),
                user_error("If the recursion never ends, Python eventually raises a RecursionError."),
            ),
            code="AB0049",
            cause="Following a call takes space on the compiler's own stack.",
        ),
        BreakType(
            "untraced-opcode",
            "Unsupported Python instruction",
            "Python's instruction {opcode} is not compiled: {reason}.",
            (
                fundamental("Move this part of the code to where the compiled function is called."),
                ours("Instructions of a new version of Python are added in a later release of armature."),
            ),
            code="GB0082",
            torch_name="Missing bytecode handler",
            also=("GB6604",),
            cause="It has no equivalent in a graph, or belongs to a version of Python that armature does not support.",
        ),
        BreakType(
            "coroutine",
            "Coroutine that is run by hand",
            "The coroutine `{function}` is started inside the compiled function.",
            (
                fundamental("Await it where the compiled function is called, and pass the result."),
                supportable("Functions that a coroutine calls are still compiled, each by itself."),
            ),
            code="AB0050",
            cause="A coroutine runs in pieces, and other code runs in between.",
            also=("GB0079",),
        ),
        BreakType(
            "generator-left-unfinished",
            "Generator that is left in the middle",
            "{type} is suspended inside a `try` or `with` when the function returns.",
            (
                fundamental("Exhaust the generator, for example with list(), or call its close()."),
                fundamental("Leave the `try` or `with` before the generator yields."),
            ),
            code="AB0051",
            also=("GB8335",),
            cause="Python runs the rest of the block once nothing refers to the generator any more, and "
            "when that is can't be known in advance.",
        ),
        BreakType(
            "context-left-open",
            "Context that is still open at the end",
            "{type} is entered, and has not been exited when the function returns.",
            (
                fundamental("Write it as a `with` block."),
                fundamental("Enter it where the compiled function is called."),
            ),
            code="AB0052",
            cause="What the context changes has to stay in effect for code that runs after the graph.",
        ),
        BreakType(
            "exit-without-enter",
            "Context that is exited without being entered",
            "`__exit__` is called on {type}, which the function has not entered.",
            (
                user_error("Call __enter__ first; a `with` block does both."),
                fundamental("Exit it in the function that entered it."),
            ),
            code="AB0053",
            also=("GB0274",),
            cause="The state to go back to is not known here.",
        ),
        BreakType(
            "value-not-known",
            "Name, number or string that is not known while tracing",
            "A name, number or string has to be known here, but it is {type}.",
            (
                fundamental(
                    "Pass it as an argument of the compiled function, or compute it from such arguments alone."
                ),
                fundamental("Do this step where the compiled function is called."),
            ),
            code="GB0086",
            torch_name="Not a Python constant",
            also=("GB0186", "GB0190", "GB0254", "GB2520", "GB2922"),
            cause="The next step depends on it, and a graph is captured before tensors have values.",
        ),
        BreakType(
            "looks-at-frames",
            "Function that looks at its callers",
            "{function} inspects the call stack: its own frame, or those of its callers.",
            (
                fundamental("Pass what it looks for, such as a name, as an argument."),
                supportable(
                    "Mark the function that calls it with armature.disable, and it runs eagerly "
                    "without being traced first."
                ),
            ),
            code="AB0054",
            also=("GB0151", "GB0291"),
            cause="It would find the frames of compiled code there.",
        ),
        BreakType(
            "yield-from-object",
            "`yield from` with a user-defined iterator",
            "`yield from` delegates to {type}, which defines its own `send`, `throw` or `close`.",
            (
                fundamental("Write a loop: `for item in iterator: yield item`."),
                ours("Delegate to a generator, which stays in the graph."),
            ),
            code="AB0055",
            also=("GB0061",),
            cause="When Python calls those methods depends on whoever uses the generator.",
        ),
        BreakType(
            "send-to-iterator",
            "Value sent to an iterator that does not accept any",
            "A value is sent to a generator that delegates to {type}, which does not accept values.",
            (
                user_error("Python raises an AttributeError: delegate to a generator, which has a `send` method."),
                user_error("Get the next value with next(), which sends nothing."),
            ),
            code="GB0094",
            torch_name="SEND with bad type",
            cause="What happens here is left to Python.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.control_flow",
)
