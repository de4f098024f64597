"""Graph breaks at exceptions: catching them, their texts, and how they are made."""

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
            "Traceback of an exception",
            "The attribute `{name}` of {type} is read.",
            (
                fundamental(
                    "Read it where the compiled function is called: exceptions that leave it have the program's lines."
                ),
                supportable("Use the exception's message: str(error)."),
            ),
            code="GB9625",
            torch_name="traceback.tb_lasti not supported",
            also=("GB0095",),
            cause="A traceback refers to the program's frames, which do not exist in a graph.",
        ),
        BreakType(
            "sets-exception-attribute",
            "Attribute set on an exception",
            "Attribute `{name}` of {type} is set.",
            (
                fundamental("Set it in the `__init__` of your own exception class."),
                fundamental("Set it where the exception is caught outside the compiled function."),
            ),
            code="GB0135",
            torch_name="Unsupported attribute assignment on Exception object",
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
    ),
    "armature_builtin_rules.breaks.examples.exceptions",
)
