"""Calls that act on the world, or ask it, and calls that nothing is known of."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, ours, supportable, user_error, with_examples

_ONCE = "It would happen when the function is compiled, once, and not each time when it runs."
_OUTSIDE = fundamental("Call it outside the compiled function.")
_RULE = supportable(
    "`armature why` shows the rule, where it stands and what it overruled; armature.rules gives another."
)

ROWS = with_examples(
    (
        BreakType(
            "skipped-function",
            "Attempted to call function marked as skipped",
            "{function} is called, and a rule says to leave it alone: {reason}.",
            (_RULE, _OUTSIDE),
            code="GB0007",
            also=("GB0008", "GB0009"),
            cause="What it does is not to be recorded.",
        ),
        BreakType(
            "disabled-function",
            "Skip calling `torch.compiler.disable()`d function",
            "{function} is called, which is to run eagerly: {reason}.",
            (
                fundamental("Take the mark away where the function may be compiled."),
                fundamental("Call it before or after what is to be one graph."),
            ),
            code="GB0098",
            also=("GB0099", "GB0358"),
            cause="The program says so.",
        ),
        BreakType(
            "explicit-break",
            "Call to `torch._dynamo.graph_break()`",
            "The program asks for a graph break: {message}.",
            (
                fundamental("Remove the call to keep the graph whole."),
                supportable("armature.disable(fn) runs one function eagerly, for all its callers."),
            ),
            code="GB0025",
            also=("GB0269", "GB4297", "GB4636"),
            cause="The program says so.",
        ),
        BreakType(
            "function-in-c",
            "can't handle functions not implemented in python ",
            "{function} is called: {reason}.",
            (
                supportable(
                    "If it computes on tensors without side effects, put it in the graph: armature.allow_in_graph(fn)."
                ),
                supportable(
                    "Python that does the same can be traced in its place: armature.substitute(fn); a plugin "
                    "can give handlers."
                ),
                _OUTSIDE,
            ),
            code="GB0177",
            also=("GB0059", "GB0071", "GB0147", "GB0148", "GB0193", "GB0278", "GB0140", "GB0298", "GB0808"),
            cause="There is no Python code to follow.",
        ),
        BreakType(
            "handler-declines",
            "Call in a form that is not known",
            "{function} is called in a form that is left to Python: {reason}.",
            (
                _RULE,
                fundamental(
                    "Call it in its usual form, with arguments by position or by the names of its documentation."
                ),
            ),
            code="AB0144",
            also=("GB0307", "GB0258", "GB0260"),
            cause="What it does in this form has no counterpart in a graph.",
        ),
        BreakType(
            "prints",
            "Text that is printed",
            "{function} writes text: {reason}.",
            (
                fundamental("Print where the compiled function is called, or after the part that is to be one graph."),
                supportable(
                    "If the text need not come at its time, armature.allow_in_graph of a function that prints "
                    "keeps it in the graph."
                ),
            ),
            code="AB0145",
            also=("GB0296",),
            cause=_ONCE,
        ),
        BreakType(
            "asks-the-user",
            "Question to somebody at a terminal",
            "{function} waits for an answer: {reason}.",
            (
                fundamental("Ask before the compiled function is called, and pass the answer."),
                user_error("Take breakpoint() out of code that is measured or shipped."),
            ),
            code="AB0146",
            also=("GB0030",),
            cause=_ONCE,
        ),
        BreakType(
            "runs-text",
            "Text that is run as a program",
            "{function} is called: {reason}.",
            (
                fundamental("Write the program as a function, and call it."),
                fundamental("Make the function with exec where the module is loaded, and call it here."),
            ),
            code="AB0147",
            cause="A text has no code that can be followed before it runs.",
        ),
        BreakType(
            "uses-files",
            "File that is opened, read or written",
            "{function} is called: {reason}.",
            (
                fundamental("Read before the compiled function is called, and pass what was read."),
                fundamental("Return what is to be written."),
            ),
            code="AB0148",
            cause=_ONCE,
        ),
        BreakType(
            "asks-the-time",
            "Question what time it is",
            "{function} is called: {reason}.",
            (
                fundamental("Measure around the compiled function; a GPU has to be waited for as well."),
                supportable("torch.profiler shows each kernel with its time."),
            ),
            code="AB0149",
            cause=_ONCE,
        ),
        BreakType(
            "random-of-system",
            "Random bytes of the system",
            "{function} is called: {reason}.",
            (
                fundamental("torch.rand and its kind are kept in the graph."),
                fundamental("Ask before the compiled function is called."),
            ),
            code="AB0150",
            cause=_ONCE,
        ),
        BreakType(
            "uses-processes",
            "Process that is started or asked for",
            "{function} is called: {reason}.",
            (_OUTSIDE, fundamental("Read os.getpid() once, where the module is loaded.")),
            code="AB0151",
            cause=_ONCE,
        ),
        BreakType(
            "uses-threads",
            "Thread, or lock between threads",
            "{function} is called: {reason}.",
            (fundamental("Take the lock around the compiled function."), _OUTSIDE),
            code="AB0152",
            cause="Other threads see when it happens.",
        ),
        BreakType(
            "garbage-collector",
            "Call of the garbage collector",
            "{function} is called: {reason}.",
            (_OUTSIDE, fundamental("Leave it out: memory of a graph is planned ahead.")),
            code="AB0153",
            cause="It acts on all objects of the process, those of the compiler among them.",
        ),
        BreakType(
            "pickles",
            "Objects that are written or read as bytes",
            "{function} writes objects as bytes, or reads them.",
            (_OUTSIDE, fundamental("copy.deepcopy of lists, dicts and modules is kept in the graph.")),
            code="AB0154",
            cause="Classes say themselves how they are written, in code that may do anything.",
        ),
        BreakType(
            "changes-interpreter",
            "Change of the interpreter itself",
            "{function} is called: {reason}.",
            (_OUTSIDE, fundamental("Set it once, when the program starts.")),
            code="AB0155",
            cause=_ONCE,
        ),
        BreakType(
            "drives-device",
            "Call that drives a device",
            "{function} is called: {reason}.",
            (_OUTSIDE, fundamental("Leave torch.cuda.synchronize() out: results wait for themselves.")),
            code="AB0156",
            also=("GB0146", "GB0248", "GB0249", "GB0285", "GB0286"),
            cause=_ONCE,
        ),
        BreakType(
            "acts-on-torch",
            "Call that acts on torch itself",
            "{function} is called: {reason}.",
            (_OUTSIDE, supportable("Contexts of torch, as `with torch.no_grad():`, stay in the graph.")),
            code="AB0157",
            cause=_ONCE,
        ),
        BreakType(
            "random-generator",
            "State of a random generator",
            "{function} is called: {reason}.",
            (
                fundamental("Set the seed before the compiled function is called."),
                fundamental("Numbers that torch draws are kept in the graph, from the state in which it runs."),
            ),
            code="AB0158",
            also=("GB7650",),
            cause=_ONCE,
        ),
        BreakType(
            "torch-files",
            "Part of torch that works with files or processes",
            "{function} is called: {reason}.",
            (_OUTSIDE, fundamental("Load before the compiled function is called, and pass what was loaded.")),
            code="AB0159",
            cause=_ONCE,
        ),
        BreakType(
            "makes-sparse",
            "Sparse tensor creation not supported",
            "{function} makes a sparse tensor.",
            (
                fundamental("Make it before the compiled function is called."),
                ours("Compute with dense tensors and a mask."),
            ),
            code="GB0374",
            also=("GB0129", "GB0130", "GB1501"),
            cause="How many numbers it stores depends on what the tensor holds.",
        ),
        BreakType(
            "makes-other-layout",
            "Tensor or sequence in a layout of its own",
            "{function} makes something whose memory is laid out in a way of its own.",
            (_OUTSIDE, fundamental("Pad to one length and use a mask, in place of packed sequences.")),
            code="AB0160",
            also=("GB0245", "GB0014"),
            cause="A graph describes tensors by size and stride alone.",
        ),
        BreakType(
            "autograd-engine",
            "Call of the autograd engine",
            "{function} is called: {reason}.",
            (
                fundamental("Compile the forward; call backward() outside, which runs the graph's own backward."),
                supportable("torch.func.grad stays in the graph."),
            ),
            code="AB0161",
            also=(
                "GB9186",
                "GB0165",
                "GB0166",
                "GB0371",
                "GB0372",
                "GB0373",
                "GB1140",
                "GB1381",
                "GB1724",
                "GB4927",
                "GB5748",
                "GB6663",
                "GB7299",
                "GB0225",
                "GB0209",
            ),
            cause="The engine needs the history of tensors, which they get when the graph runs.",
        ),
        BreakType(
            "function-transform",
            "unsupported HigherOrderOperator",
            "{function} is called: {reason}.",
            (supportable("torch.func.grad, vmap, jacrev and their kind stay in the graph."), _OUTSIDE),
            code="GB0306",
            also=("GB6017", "GB0327"),
            cause="Functions that an operator calls have to be graphs of their own.",
        ),
        BreakType(
            "another-compiler",
            "Call of another compiler or recorder",
            "{function} is called: {reason}.",
            (_OUTSIDE, fundamental("Choose one of them for this part of the program.")),
            code="AB0162",
            also=("GB0068", "GB0102", "GB0078", "GB0329", "GB2977"),
            cause="It records what runs, and would record the compiler.",
        ),
        BreakType(
            "torch-script",
            "torch.jit.script/freeze modules unsupported",
            "{function} is called: {reason}.",
            (fundamental("Call the Python function that it was made from."), _OUTSIDE),
            code="GB4695",
            also=("GB0265", "GB0266", "GB0267"),
            cause="It works on objects of its own, beside the graph.",
        ),
        BreakType(
            "library-runtime",
            "Call of another runtime",
            "{function} is called: {reason}.",
            (_OUTSIDE, supportable("Wrap it with torch.library.custom_op, and it is one operator of the graph.")),
            code="AB0163",
            cause="It computes beside torch.",
        ),
        BreakType(
            "library-without-tensors",
            "Library that knows no tensors",
            "{function} is called: {reason}.",
            (
                _OUTSIDE,
                supportable("Wrap it with torch.library.custom_op, and it is one operator of the graph."),
                supportable("armature.rules.inline(module) traces into a library written in Python."),
            ),
            code="AB0164",
            also=("GB0294", "GB0293", "GB0300"),
            cause="What it computes is not made of operators.",
        ),
        BreakType(
            "standard-library",
            "Part of the standard library that is left to Python",
            "{function} is called: {reason}.",
            (_OUTSIDE, supportable("armature.rules.inline(module) traces into it, if its functions only compute.")),
            code="AB0165",
            cause=_ONCE,
        ),
        BreakType(
            "process-group",
            "Group of processes that is made or ended",
            "{function} is called: {reason}.",
            (fundamental("Make the group when the program starts."), _OUTSIDE),
            code="AB0166",
            also=("GB0210",),
            cause="All processes have to do it at the same time.",
        ),
        BreakType(
            "memory-of-tensor",
            "Memory of a tensor that is changed beside the operators",
            "{function} is called: {reason}.",
            (fundamental("Make a tensor of the size that is wanted, and copy_ to it."), _OUTSIDE),
            code="AB0167",
            cause="A graph plans the memory of its tensors ahead.",
        ),
        BreakType(
            "imports-module",
            "Import failure",
            "Module {module} is imported in the function, and is not loaded yet.",
            (
                fundamental("Import it at the top of the file."),
                user_error("Where the import fails in eager mode too, install the package."),
            ),
            code="GB0069",
            cause="Loading a module runs its code, once.",
        ),
        BreakType(
            "import-without-package",
            "Relative import outside of a package",
            "`from .` is written in a module that says of no package that it belongs to it.",
            (
                user_error("Write the name of the package: from package import module."),
                user_error("Run the file as a part of its package: python -m package.module."),
            ),
            code="AB0168",
            cause="What Python makes of it is left to Python.",
        ),
        BreakType(
            "import-from-unclear-module",
            "Bad import result",
            "`{name}` is imported from {module}, which does not have it at hand.",
            (
                fundamental("Import at the top of the file."),
                fundamental("Import the module, and read the attribute from it."),
            ),
            code="GB0022",
            cause="A module may make what it is asked for.",
        ),
        BreakType(
            "own-builtins",
            "Call of a function with builtins of its own",
            "{function} is of a module with `__builtins__` of its own, so `len` may be another function there.",
            (
                fundamental("Give the module's functions under names of its own, in its globals."),
                fundamental("Call it outside the compiled function."),
            ),
            code="AB0199",
            cause="Builtins are looked up once for a compiled function, in its own module.",
        ),
        BreakType(
            "own-import-function",
            "Import by a function of the program",
            "The function's module has an `__import__` of its own.",
            (
                fundamental("Import at the top of the file."),
                fundamental("Call the function that is to do the import by its name, outside."),
            ),
            code="AB0169",
            cause="It may do anything.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.world",
)
