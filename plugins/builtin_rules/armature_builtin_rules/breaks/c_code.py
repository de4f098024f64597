"""Graph breaks at parts of Python that are written in C and know nothing of tensors, by purpose."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, with_examples

_IN_C = "It is written in C, so there is no Python code to follow, and no graph operator does the same."

ROWS = with_examples(
    (
        BreakType(
            "computes-digest",
            "Hash digest of bytes",
            "{function} computes a digest of bytes.",
            (
                fundamental("Compute the digest before the compiled function is called, and pass it."),
                fundamental(
                    "Use the string or bytes themselves as the key: looking them up in a dict stays in the graph."
                ),
            ),
            code="AB0202",
            cause=_IN_C,
        ),
        BreakType(
            "compresses-bytes",
            "Compression or decompression",
            "{function} compresses or decompresses bytes.",
            (
                fundamental("Decompress before the compiled function is called, and pass the data as a tensor."),
                fundamental("Return the tensor, and compress it where the function is called."),
            ),
            code="AB0203",
            cause=_IN_C,
        ),
        BreakType(
            "asks-a-database",
            "Database access",
            "{function} accesses a database.",
            (
                fundamental(
                    "Query it before the compiled function is called, and pass the answer as numbers or a tensor."
                ),
                fundamental("Return the data, and store it where the compiled function is called."),
            ),
            code="AB0204",
            cause="In a graph it would be asked once, when the function is compiled, and its answer may change later.",
        ),
        BreakType(
            "works-on-buffer",
            "In-memory file",
            "{function} works on an in-memory file.",
            (
                fundamental("Read it before the compiled function is called: torch.frombuffer(bytes, dtype=...)."),
                fundamental("Build strings with join() and f-strings, which stay in the graph."),
            ),
            code="AB0205",
            cause=_IN_C,
        ),
        BreakType(
            "date-or-time",
            "Date or time of day",
            "{function} works with dates and times.",
            (
                fundamental("Pass numbers: date.toordinal(), datetime.timestamp(), or the year as an int."),
                fundamental("Encode dates as tensors when loading data."),
            ),
            code="AB0206",
            cause=_IN_C,
        ),
        BreakType(
            "decimal-number",
            "Decimal number",
            "{function} works with decimal numbers.",
            (
                fundamental("Convert it to a float or int before the compiled function is called."),
                fundamental("Scale to integers, as cents for an amount: int64 tensors are exact."),
            ),
            code="AB0207",
            cause="Its result depends on the precision set for the current thread.",
        ),
        BreakType(
            "packs-bytes",
            "Conversion between numbers and bytes",
            "{function} converts between numbers and bytes.",
            (
                fundamental("Outside the function, torch.frombuffer(bytes, dtype=...) creates a tensor from bytes."),
                fundamental("tensor.view(dtype) reinterprets the bytes of a tensor, and stays in the graph."),
            ),
            code="AB0208",
            cause=_IN_C,
        ),
        BreakType(
            "drives-generator",
            "Generator in progress",
            "{function} advances a generator that the caller created.",
            (
                fundamental("Pass its items as a list: list(generator)."),
                fundamental(
                    "Create the generator inside the compiled function: its body is then traced with the rest."
                ),
            ),
            code="AB0209",
            cause="How far it has got is known only when the function runs.",
        ),
        BreakType(
            "uses-network",
            "Connection to another machine or process",
            "{function} communicates with other machines or processes.",
            (
                fundamental("Receive before the compiled function is called, and pass what was received."),
                supportable(
                    "Between processes that train together, use torch.distributed's collectives, "
                    "which can be part of a graph."
                ),
            ),
            code="AB0210",
            cause="In a graph it would happen once, when the function is compiled, and not each time it runs.",
        ),
        BreakType(
            "context-variable",
            "Context variables",
            "{function} copies or enters a context of variables, or one is used otherwise than by `get` and `set`.",
            (
                fundamental("`variable.get()`, `variable.set(value)` and `variable.reset(token)` stay in the graph."),
                fundamental("Copy or enter the context before the compiled function is called."),
            ),
            code="AB0211",
            cause="Which context a thread or task is in is not known to a graph.",
            also=("GB4026",),
        ),
        BreakType(
            "parses-text",
            "Parsing or writing of a text format",
            "{function} parses or writes text in a special format.",
            (
                fundamental("Parse the text when loading data, and pass numbers or tensors."),
                fundamental("Use str methods and f-strings, which stay in the graph."),
            ),
            code="AB0212",
            cause=_IN_C,
        ),
        BreakType(
            "foreign-code",
            "Code in another language",
            "{function} calls code in another language.",
            (
                supportable("Wrap the call with torch.library.custom_op, and it is one operator of the graph."),
                fundamental("Call it before or after the compiled function."),
            ),
            code="AB0213",
            cause="What that code does to memory is not known.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.c_code",
)
