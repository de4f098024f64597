"""Parts of Python that are written in C and know nothing of tensors, by what they are used for."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, with_examples

_IN_C = "It is written in C: there is no Python code to follow, and a graph has no operator that does it."

ROWS = with_examples(
    (
        BreakType(
            "computes-digest",
            "Digest of bytes",
            "{function} computes a digest of bytes.",
            (
                fundamental("Compute the digest before the compiled function is called, and pass it."),
                fundamental("Look up by the text or bytes themselves, as in a dict: that is kept in the graph."),
            ),
            code="AB0202",
            cause=_IN_C,
        ),
        BreakType(
            "compresses-bytes",
            "Bytes that are compressed or unpacked",
            "{function} compresses bytes, or unpacks what is compressed.",
            (
                fundamental("Unpack before the compiled function is called, and pass a tensor of what was unpacked."),
                fundamental("Return the tensor, and compress it where the function is called."),
            ),
            code="AB0203",
            cause=_IN_C,
        ),
        BreakType(
            "asks-a-database",
            "Question to a database",
            "{function} works on a database.",
            (
                fundamental("Ask before the compiled function is called, and pass the answer as numbers or a tensor."),
                fundamental("Return what is to be stored, and store it where the function is called."),
            ),
            code="AB0204",
            cause="It would be asked when the function is compiled, once; the next answer may be another one.",
        ),
        BreakType(
            "works-on-buffer",
            "File in memory",
            "{function} works on a file in memory.",
            (
                fundamental("Read it before the compiled function is called: torch.frombuffer(bytes, dtype=...)."),
                fundamental("Build texts with join() and f-strings, which are kept in the graph."),
            ),
            code="AB0205",
            cause=_IN_C,
        ),
        BreakType(
            "date-or-time",
            "Date or time of day",
            "{function} is of the module for dates and times of day.",
            (
                fundamental("Pass numbers: date.toordinal(), datetime.timestamp(), or the year as an int."),
                fundamental("Encode dates as tensors where data is loaded."),
            ),
            code="AB0206",
            cause=_IN_C,
        ),
        BreakType(
            "decimal-number",
            "Decimal number",
            "{function} is of the module for decimal numbers.",
            (
                fundamental("Convert it to a float or int before the compiled function is called."),
                fundamental("Scale to integers, as cents for an amount: int64 tensors are exact."),
            ),
            code="AB0207",
            cause="Its result depends on the precision that the thread has set.",
        ),
        BreakType(
            "packs-bytes",
            "Numbers in bytes",
            "{function} reads numbers from bytes, or writes them as bytes.",
            (
                fundamental("torch.frombuffer(bytes, dtype=...) makes a tensor of bytes, outside the function."),
                fundamental("tensor.view(dtype) reads the same bytes as other numbers, and is kept in the graph."),
            ),
            code="AB0208",
            cause=_IN_C,
        ),
        BreakType(
            "drives-generator",
            "Generator in progress",
            "{function} drives a generator that the caller has made.",
            (
                fundamental("Pass what it gives as a list: list(generator)."),
                fundamental("Make the generator in the compiled function: its body is then traced with the rest."),
            ),
            code="AB0209",
            cause="Where it stands in its code is known only when the function runs.",
        ),
        BreakType(
            "uses-network",
            "Connection to another machine or process",
            "{function} is of a module that waits for other machines or processes.",
            (
                fundamental("Receive before the compiled function is called, and pass what was received."),
                supportable("Between processes that train together, torch.distributed has collectives for graphs."),
            ),
            code="AB0210",
            cause="It would happen when the function is compiled, once, and not each time when it runs.",
        ),
        BreakType(
            "context-variable",
            "Variable of a context",
            "{function} reads or sets a variable of the context in which the program runs.",
            (
                fundamental("Read it before the compiled function is called, and pass the value as an argument."),
                fundamental("Keep the value in an attribute of the module: it is guarded."),
            ),
            code="AB0211",
            cause="Which value it has depends on the thread and task that runs, and no guard asks for that.",
        ),
        BreakType(
            "parses-text",
            "Text in a format of its own",
            "{function} works on a text in a format of its own.",
            (
                fundamental("Read the text where data is loaded, and pass numbers or tensors."),
                fundamental("Methods of str, and f-strings, are kept in the graph."),
            ),
            code="AB0212",
            cause=_IN_C,
        ),
        BreakType(
            "foreign-code",
            "Code of another language",
            "{function} calls code of another language.",
            (
                supportable("Wrap the call with torch.library.custom_op, and it is one operator of the graph."),
                fundamental("Call it before or after the compiled function."),
            ),
            code="AB0213",
            cause="What it does to memory is not known.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.c_code",
)
