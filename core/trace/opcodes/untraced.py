"""Opcodes that are not traced, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

ASYNC = "coroutines run eagerly; what they call is still compiled"
CLASS_BODY = "bodies of classes run eagerly: a class statement breaks the graph"
READ_AS_TWO = "decoded as the two instructions that it stands for"
INTERNAL = "never part of a function's code: CPython uses it inside"
GROUPS = "exception groups are split by Python: `except*` runs eagerly"

UNTRACED: Mapping[str, str] = {
    name: reason
    for reason, names in {
        ASYNC: "ASYNC_GEN_WRAP BEFORE_ASYNC_WITH END_ASYNC_FOR GET_AITER GET_ANEXT GET_AWAITABLE",
        CLASS_BODY: "DELETE_NAME LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_LOCALS "
        "LOAD_NAME SETUP_ANNOTATIONS STORE_NAME",
        GROUPS: "CHECK_EG_MATCH PREP_RERAISE_STAR",
        "Python merges exception groups, and makes type parameters": "CALL_INTRINSIC_2",
        "module bodies run eagerly; a function is compiled when it is called": "IMPORT_STAR",
        "it belongs to the interactive prompt": "PRINT_EXPR",
        READ_AS_TWO: "LOAD_FAST_LOAD_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST",
        INTERNAL: "INTERPRETER_EXIT RESERVED ENTER_EXECUTOR EXIT_INIT_CHECK JUMP JUMP_NO_INTERRUPT LOAD_SUPER_METHOD "
        "LOAD_ZERO_SUPER_ATTR LOAD_ZERO_SUPER_METHOD POP_BLOCK SETUP_CLEANUP SETUP_FINALLY SETUP_WITH "
        "STORE_FAST_MAYBE_NULL",
    }.items()
    for name in names.split()
}
# Opcodes that only appear in instrumented code, under a debugger or profiler.
INSTRUMENTED_PREFIX = "INSTRUMENTED_"
INSTRUMENTED = "the code is watched by a debugger or profiler"


def reason_for(opname: str) -> str | None:
    """Why an opcode is not traced, None when it is."""
    if opname.startswith(INSTRUMENTED_PREFIX):
        return INSTRUMENTED
    return UNTRACED.get(opname)
