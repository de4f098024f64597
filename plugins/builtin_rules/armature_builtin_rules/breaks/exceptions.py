"""Exceptions that are caught, told, and put together."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

ROWS = with_examples(
    (
        BreakType(
            "text-of-error",
            "Message of an exception that is built in C",
            "The message of {type} is read, by {name}.",
            (
                fundamental("Read the exception's arguments: error.args."),
                fundamental("Build the text where the exception is caught outside the compiled function."),
            ),
            code="AB0067",
            cause="C code builds the message from more than the exception's arguments.",
        ),
        BreakType(
            "exception-traceback",
            "traceback.tb_lasti not supported",
            "The attribute `{name}` of {type} is read.",
            (
                fundamental(
                    "Read it where the compiled function is called: exceptions that leave it have the program's lines."
                ),
                supportable("Use the exception's message: str(error)."),
            ),
            code="GB9625",
            also=("GB0095",),
            cause="A traceback refers to the program's frames, which do not exist in a graph.",
        ),
        BreakType(
            "sets-exception-attribute",
            "Unsupported attribute assignment on Exception object",
            "Attribute `{name}` of {type} is set.",
            (
                fundamental("Set it in the `__init__` of your own exception class."),
                fundamental("Set it where the exception is caught outside the compiled function."),
            ),
            code="GB0135",
            cause="C code stores some of an exception's state.",
        ),
        BreakType(
            "exception-notes",
            "Note or traceback added to an exception",
            "{method}() is called on {type}.",
            (
                fundamental("Put the note in the exception's message."),
                fundamental("Call it where the exception is caught outside the compiled function."),
            ),
            code="AB0068",
            cause="Notes and tracebacks are stored by C code.",
        ),
        BreakType(
            "exception-group-arguments",
            "Exception group with invalid arguments",
            "{type} is created from something other than a message and a list of exceptions.",
            (
                user_error("Pass a message, and a list of exceptions that is not empty."),
                user_error("For exceptions that end programs, such as KeyboardInterrupt, use BaseExceptionGroup."),
            ),
            code="AB0069",
            cause="Python raises an error here, whose wording depends on its version, so Python is left to raise it.",
        ),
        BreakType(
            "exception-group-condition",
            "Exception group split by an object",
            "split() or subgroup() of an exception group is given {type}.",
            (
                fundamental("Pass a class, a tuple of classes, or a function defined with def."),
                fundamental("Loop over group.exceptions."),
            ),
            code="AB0070",
            cause="How such an object is called is not known.",
        ),
        BreakType(
            "except-star-raises",
            "Exceptions raised in clauses of `except*`",
            "An `except*` clause raises an exception while others are still unhandled.",
            (
                fundamental("Collect the exceptions in a list, and raise after the `except*` clauses."),
                fundamental("Catch the group with `except ExceptionGroup`."),
            ),
            code="AB0071",
            cause="Python combines them in a new group, and merges their tracebacks.",
        ),
        BreakType(
            "except-star-of-caught",
            "Exception group from outside the function",
            "{type}, which the function was given or caught from other code, is split.",
            (fundamental("Split it where it is created."), fundamental("Loop over its exceptions: group.exceptions.")),
            code="AB0072",
            cause="The parts of a group share state that Python keeps in C.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.exceptions",
)
