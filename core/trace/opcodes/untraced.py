"""Opcodes that are not traced, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

ASYNC = "coroutines run eagerly; what they call is still compiled"
MODULE_BODY = "module bodies run eagerly; a function is compiled when it is called"
CLASS_BODY = "bodies of classes run eagerly: a class statement breaks the graph"
READ_AS_TWO = "decoded as the two instructions that it stands for"
INTERNAL = "never part of a function's code: CPython uses it inside"

GROUPS = "exception groups are split by Python: `except*` runs eagerly"

UNTRACED: Mapping[str, str] = {
    "ASYNC_GEN_WRAP": ASYNC,
    "BEFORE_ASYNC_WITH": ASYNC,
    "END_ASYNC_FOR": ASYNC,
    "GET_AITER": ASYNC,
    "GET_ANEXT": ASYNC,
    "GET_AWAITABLE": ASYNC,
    "DELETE_NAME": CLASS_BODY,
    "LOAD_CLASSDEREF": CLASS_BODY,
    "LOAD_FROM_DICT_OR_DEREF": CLASS_BODY,
    "LOAD_FROM_DICT_OR_GLOBALS": CLASS_BODY,
    "LOAD_LOCALS": CLASS_BODY,
    "LOAD_NAME": CLASS_BODY,
    "SETUP_ANNOTATIONS": CLASS_BODY,
    "STORE_NAME": CLASS_BODY,
    "CHECK_EG_MATCH": GROUPS,
    "PREP_RERAISE_STAR": GROUPS,
    "CALL_INTRINSIC_2": "Python merges exception groups, and makes type parameters",
    "IMPORT_STAR": MODULE_BODY,
    "PRINT_EXPR": "it belongs to the interactive prompt",
    "INTERPRETER_EXIT": INTERNAL,
    "LOAD_FAST_LOAD_FAST": READ_AS_TWO,
    "STORE_FAST_LOAD_FAST": READ_AS_TWO,
    "STORE_FAST_STORE_FAST": READ_AS_TWO,
    "RESERVED": INTERNAL,
    "ENTER_EXECUTOR": INTERNAL,
    "EXIT_INIT_CHECK": INTERNAL,
    "JUMP": INTERNAL,
    "JUMP_NO_INTERRUPT": INTERNAL,
    "LOAD_SUPER_METHOD": INTERNAL,
    "LOAD_ZERO_SUPER_ATTR": INTERNAL,
    "LOAD_ZERO_SUPER_METHOD": INTERNAL,
    "POP_BLOCK": INTERNAL,
    "SETUP_CLEANUP": INTERNAL,
    "SETUP_FINALLY": INTERNAL,
    "SETUP_WITH": INTERNAL,
    "STORE_FAST_MAYBE_NULL": INTERNAL,
}
# Opcodes that only appear in instrumented code, under a debugger or profiler.
INSTRUMENTED_PREFIX = "INSTRUMENTED_"
INSTRUMENTED = "the code is watched by a debugger or profiler"


def reason_for(opname: str) -> str | None:
    """Why an opcode is not traced, None when it is."""
    if opname.startswith(INSTRUMENTED_PREFIX):
        return INSTRUMENTED
    return UNTRACED.get(opname)
