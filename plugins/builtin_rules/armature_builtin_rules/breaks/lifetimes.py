"""Graph breaks at objects that the program reaches in two ways, replaces as a whole, or drops."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, with_examples

_READ = fundamental("Read it before the compiled function is called, and pass the value.")

ROWS = with_examples(
    (
        BreakType(
            "dict-of-object",
            "`__dict__` of an unsupported object",
            "`__dict__` of {type} is read.",
            (fundamental("Read attributes by name: getattr(obj, name)."), _READ),
            code="GB6999",
            torch_name="unsupported variable type for __dict__ access",
            also=("GB7637", "GB0271"),
            cause="Its contents depend on more than the program's code.",
        ),
        BreakType(
            "replaces-method",
            "Method of a class that is replaced",
            "Method `{name}` of {type} is replaced.",
            (
                fundamental("Replace it once, when the program starts."),
                fundamental("Derive a class that defines the other method."),
            ),
            code="AB0095",
            cause="Calls that were already traced used the old one.",
        ),
        BreakType(
            "weak-reference",
            "Weak reference in what has to be one graph",
            "With fullgraph=True, {reason}.",
            (
                fundamental("Keep the object alive with a variable."),
                supportable("Without fullgraph=True, the function runs eagerly where objects may be freed."),
            ),
            code="AB0112",
            also=("GB0272", "GB0276"),
            cause="When an object is freed is not known before the program runs.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.lifetimes",
)
