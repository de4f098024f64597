"""Exceptions that are caught, told, and put together."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

ROWS = with_examples(
    (
        BreakType(
            "text-of-error",
            "Text of an error that is made in C",
            "The text of {type} is asked for, by {name}.",
            (
                fundamental("Ask for its args: error.args."),
                fundamental("Make the text where the error is caught outside the compiled function."),
            ),
            code="AB0067",
            cause="C code puts it together from more than the arguments.",
        ),
        BreakType(
            "exception-traceback",
            "traceback.tb_lasti not supported",
            "`{name}` of {type} is read.",
            (
                fundamental(
                    "Read it where the compiled function is called; the exception that leaves it has the lines "
                    "of the program."
                ),
                supportable("Use the text of the exception: str(error)."),
            ),
            code="GB9625",
            also=("GB0095",),
            cause="A traceback holds the frames of the program, which are not there in a graph.",
        ),
        BreakType(
            "sets-exception-attribute",
            "Unsupported attribute assignment on Exception object",
            "Attribute `{name}` of {type} is set.",
            (
                fundamental("Set it in `__init__` of a class of your own."),
                fundamental("Set it where the exception is caught outside the compiled function."),
            ),
            code="GB0135",
            cause="Exceptions keep some of what they hold in C.",
        ),
        BreakType(
            "exception-notes",
            "Note or traceback that is put on an exception",
            "{method}() is called on {type}.",
            (
                fundamental("Put the note in the text of the exception."),
                fundamental("Call it where the exception is caught outside the compiled function."),
            ),
            code="AB0068",
            cause="Exceptions keep notes and tracebacks in C.",
        ),
        BreakType(
            "exception-group-arguments",
            "Group of exceptions made of something else",
            "{type} is made of what is no text and list of exceptions.",
            (
                user_error("Give a text, and a list of exceptions that is not empty."),
                user_error("A group of exceptions that end programs is a BaseExceptionGroup."),
            ),
            code="AB0069",
            cause="Python words the error, which depends on its version.",
        ),
        BreakType(
            "exception-group-condition",
            "Group of exceptions split by an object",
            "split() or subgroup() of a group of exceptions is given {type}.",
            (
                fundamental("Give a class, a tuple of classes, or a function that is defined with def."),
                fundamental("Loop over group.exceptions."),
            ),
            code="AB0070",
            cause="How the object is called is not known.",
        ),
        BreakType(
            "except-star-raises",
            "Exceptions raised in clauses of `except*`",
            "A clause of `except*` raises another exception, while others are left.",
            (
                fundamental("Keep the exceptions in a list, and raise after the clauses."),
                fundamental("Catch the group with `except ExceptionGroup`."),
            ),
            code="AB0071",
            cause="Python makes a new group of them, whose tracebacks it puts together.",
        ),
        BreakType(
            "except-star-of-caught",
            "Group of exceptions of the program",
            "{type}, which the function was given or has caught from Python, is split.",
            (fundamental("Split it where it is made."), fundamental("Loop over its exceptions: group.exceptions.")),
            code="AB0072",
            cause="Parts of a group share what Python keeps in C.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.exceptions",
)
