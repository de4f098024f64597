"""Graph breaks at calls that act on the outside world or query it, and at calls of unknown effect."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, ours, supportable, user_error, with_examples

_ONCE = "In a graph it would happen once, when the function is compiled, and not each time it runs."
_CALL_UNCOMPILED = fundamental("Call it outside the compiled function.")
_RULE = supportable(
    "`armature why` shows the rule, where it is defined and what it overrides; armature.rules sets another one."
)

ROWS = with_examples(
    (
        BreakType(
            "skipped-function",
            "Call of a function that a rule keeps out of graphs",
            "{function} is called, and a rule keeps it out of graphs: {reason}.",
            (_RULE, _CALL_UNCOMPILED),
            code="GB0007",
            torch_name="Attempted to call function marked as skipped",
            also=("GB0008", "GB0009", "GB0121", "GB0283"),
            cause="What it does should not be recorded in a graph.",
        ),
        BreakType(
            "disabled-function",
            "Call of a function that is marked to run eagerly",
            "{function} is called, which is marked to run eagerly: {reason}.",
            (
                fundamental("Remove the mark if the function may be compiled."),
                fundamental("Call it before or after the part that should be one graph."),
            ),
            code="GB0098",
            torch_name="Skip calling `torch.compiler.disable()`d function",
            also=("GB0099", "GB0358"),
            cause="The program says so.",
        ),
        BreakType(
            "explicit-break",
            "Graph break that the program asks for",
            "The program asks for a graph break: {message}.",
            (
                fundamental("Remove the call to keep the graph whole."),
                supportable("armature.disable(fn) runs one function eagerly, for all its callers."),
            ),
            code="GB0025",
            torch_name="Call to `torch._dynamo.graph_break()`",
            cause="The program says so.",
        ),
        BreakType(
            "function-in-c",
            "Function without Python code",
            "{function} can't be traced: {reason}.",
            (
                supportable(
                    "If it computes on tensors without side effects, put it in the graph: armature.allow_in_graph(fn)."
                ),
                supportable(
                    "Provide Python code that does the same, to be traced in its place: armature.substitute(fn)."
                ),
                _CALL_UNCOMPILED,
            ),
            code="GB0177",
            torch_name="can't handle functions not implemented in python ",
            also=(
                "GB0059",
                "GB0071",
                "GB0140",
                "GB0147",
                "GB0148",
                "GB0165",
                "GB0166",
                "GB0278",
                "GB0282",
                "GB0298",
                "GB0359",
                "GB0808",
                "GB2696",
                "GB3383",
                "GB9300",
            ),
            cause="There is no Python code to follow.",
        ),
        BreakType(
            "handler-declines",
            "Call in an unsupported form",
            "{function} is called in a form that can't be kept in the graph: {reason}.",
            (
                _RULE,
                fundamental("Call it in its usual form, with arguments by position or by their documented names."),
            ),
            code="AB0144",
            also=("GB0258", "GB0260"),
            cause="In this form there is no equivalent for it in a graph.",
        ),
        BreakType(
            "prints",
            "Printing",
            "{function} writes text for somebody to read.",
            (
                fundamental("Print where the compiled function is called, or after the part that should be one graph."),
                supportable(
                    "If the text need not appear at that exact time, call a function that prints, marked "
                    "with armature.allow_in_graph."
                ),
            ),
            code="AB0145",
            also=("GB0296",),
            cause=_ONCE,
        ),
        BreakType(
            "asks-the-user",
            "Input from a user or debugger",
            "{function} waits for somebody at a terminal or in a debugger.",
            (
                fundamental("Do this before the compiled function is called, and pass the result."),
                user_error("Remove breakpoint() from code that is benchmarked or shipped."),
            ),
            code="AB0146",
            also=("GB0030",),
            cause=_ONCE,
        ),
        BreakType(
            "runs-text",
            "Source code that is run from a string",
            "{function} runs source code that is given as a string.",
            (
                fundamental("Write the code as a function, and call it."),
                fundamental("Create the function with exec when the module is loaded, and call it here."),
            ),
            code="AB0147",
            cause="The code in a string can't be followed before it runs.",
        ),
        BreakType(
            "uses-files",
            "File that is opened, read or written",
            "{function} opens, reads or changes files.",
            (
                fundamental("Read before the compiled function is called, and pass what was read."),
                fundamental("Return the data, and write it where the compiled function is called."),
            ),
            code="AB0148",
            cause=_ONCE,
        ),
        BreakType(
            "asks-the-time",
            "Call that reads the clock or waits",
            "{function} reads the clock, or waits.",
            (
                fundamental(
                    "Measure around the compiled function, and synchronize with the GPU before reading the clock."
                ),
                supportable("torch.profiler shows each kernel with its time."),
            ),
            code="AB0149",
            cause=_ONCE,
        ),
        BreakType(
            "random-of-system",
            "Random bytes of the system",
            "{function} reads random bytes from the operating system.",
            (
                fundamental("torch.rand and similar functions stay in the graph."),
                fundamental("Ask before the compiled function is called."),
            ),
            code="AB0150",
            cause=_ONCE,
        ),
        BreakType(
            "uses-processes",
            "Process started or inspected",
            "{function} starts processes, or asks about them.",
            (_CALL_UNCOMPILED, fundamental("Read os.getpid() once, where the module is loaded.")),
            code="AB0151",
            cause=_ONCE,
        ),
        BreakType(
            "uses-threads",
            "Thread, or lock between threads",
            "{function} starts threads, waits for them, or takes a lock between threads.",
            (fundamental("Take the lock around the compiled function."), _CALL_UNCOMPILED),
            code="AB0152",
            cause="Other threads can see when it happens.",
        ),
        BreakType(
            "garbage-collector",
            "Call of the garbage collector",
            "{function} controls Python's garbage collector, or asks for its state.",
            (_CALL_UNCOMPILED, fundamental("Leave it out: the memory of a graph is planned in advance.")),
            code="AB0153",
            cause="It affects all objects of the process, including those of the compiler.",
        ),
        BreakType(
            "pickles",
            "Pickling of objects",
            "{function} pickles objects, or reads pickled ones.",
            (_CALL_UNCOMPILED, fundamental("To copy lists, dicts and modules, copy.deepcopy stays in the graph.")),
            code="AB0154",
            cause="Classes define how they are pickled, in code that may do anything.",
        ),
        BreakType(
            "changes-interpreter",
            "Change of the interpreter itself",
            "{function} changes how the Python interpreter works.",
            (_CALL_UNCOMPILED, fundamental("Set it once, when the program starts.")),
            code="AB0155",
            cause=_ONCE,
        ),
        BreakType(
            "drives-device",
            "Call that drives a device",
            "{function} controls a device, or asks for its state.",
            (
                _CALL_UNCOMPILED,
                fundamental("Leave torch.cuda.synchronize() out: reading a result waits for it anyway."),
            ),
            code="AB0156",
            also=("GB0146",),
            cause=_ONCE,
        ),
        BreakType(
            "acts-on-torch",
            "Call that acts on torch itself",
            "{function} reads or changes torch's own state, not the values of tensors.",
            (
                _CALL_UNCOMPILED,
                supportable("Torch's context managers, such as `with torch.no_grad():`, stay in the graph."),
            ),
            code="AB0157",
            cause=_ONCE,
        ),
        BreakType(
            "random-generator",
            "State of a random generator",
            "{function} reads or sets the state of a random number generator.",
            (
                fundamental("Set the seed before the compiled function is called."),
                fundamental("Torch's random functions stay in the graph, and use the generator's state at run time."),
            ),
            code="AB0158",
            also=("GB7650",),
            cause=_ONCE,
        ),
        BreakType(
            "torch-files",
            "Part of torch that works with files or processes",
            "{function} works with files, processes or text, not with tensors.",
            (_CALL_UNCOMPILED, fundamental("Load before the compiled function is called, and pass what was loaded.")),
            code="AB0159",
            cause=_ONCE,
        ),
        BreakType(
            "profiles",
            "Profiler started or stopped in the function",
            "{function} starts or stops a profiler whose records are read or handed on, or one from outside.",
            (
                fundamental("Start and stop it around the compiled function."),
                supportable("`torch.profiler.record_function` marks a part of the function, and stays in the graph."),
            ),
            code="AB0214",
            cause="A profiler records operators as they run, and none of them runs while a graph is captured.",
            also=("GB0212",),
        ),
        BreakType(
            "makes-sparse",
            "Sparse tensor created inside a function",
            "{function} creates a sparse tensor.",
            (
                fundamental("Create it before the compiled function is called."),
                ours("Compute with dense tensors and a mask."),
            ),
            code="GB0374",
            torch_name="Sparse tensor creation not supported",
            also=("GB0129", "GB0130", "GB1501"),
            cause="How many values it stores depends on the values in the tensor.",
        ),
        BreakType(
            "makes-other-layout",
            "Tensor or sequence created in an unsupported layout",
            "{function} creates an object with its own memory layout.",
            (_CALL_UNCOMPILED, fundamental("Pad to one length and use a mask instead of packed sequences.")),
            code="AB0160",
            also=("GB0014",),
            cause="A graph describes tensors by size and stride only.",
        ),
        BreakType(
            "autograd-engine",
            "Call of the autograd engine",
            "{function} runs autograd, or reads or changes what autograd keeps.",
            (
                fundamental(
                    "Compile the forward pass, and call backward() outside: it runs the compiled backward graph."
                ),
                supportable("torch.func.grad stays in the graph."),
            ),
            code="AB0161",
            also=("GB9186", "GB0371", "GB0372", "GB1381", "GB4927", "GB0225", "GB0209"),
            cause="The autograd engine needs the history of tensors, which they get only when the graph runs.",
        ),
        BreakType(
            "function-transform",
            "Unsupported transform of a function",
            "{function} transforms a function that would have to be captured as a separate graph.",
            (
                supportable("Use torch.func.grad, vmap, jacrev and similar transforms, which stay in the graph."),
                _CALL_UNCOMPILED,
            ),
            code="GB0306",
            torch_name="unsupported HigherOrderOperator",
            cause="The functions that this operator calls have to be captured as separate graphs.",
        ),
        BreakType(
            "another-compiler",
            "Call of another compiler or recorder",
            "{function} traces, compiles or records a program itself.",
            (_CALL_UNCOMPILED, fundamental("Use only one of the two for this part of the program.")),
            code="AB0162",
            also=(
                "GB0068",
                "GB0078",
                "GB0102",
                "GB0236",
                "GB0238",
                "GB0239",
                "GB0251",
                "GB0329",
                "GB2977",
                "GB3840",
                "GB4297",
                "GB4636",
                "GB5195",
                "GB6210",
            ),
            cause="It records the code that runs, and would record the compiler as well.",
        ),
        BreakType(
            "torch-script",
            "Function or module of TorchScript",
            "{function} belongs to TorchScript, which compiles and runs programs in its own way.",
            (fundamental("Call the Python function that it was created from."), _CALL_UNCOMPILED),
            code="GB4695",
            torch_name="torch.jit.script/freeze modules unsupported",
            also=("GB0357",),
            cause="It works on its own objects, outside the graph.",
        ),
        BreakType(
            "library-runtime",
            "Call of an exporter or another runtime",
            "{function} belongs to an exporter or to a runtime other than torch.",
            (
                _CALL_UNCOMPILED,
                supportable("Wrap it with torch.library.custom_op, which makes it one operator of the graph."),
            ),
            code="AB0163",
            cause="It does not compute with torch's operators.",
        ),
        BreakType(
            "library-without-tensors",
            "Library that does not compute with torch tensors",
            "{function} belongs to a library that does not compute with torch's tensors.",
            (
                _CALL_UNCOMPILED,
                supportable("Wrap it with torch.library.custom_op, which makes it one operator of the graph."),
                supportable("If the library is written in Python, armature.rules.inline(module) traces into it."),
            ),
            code="AB0164",
            also=("GB0294", "GB0293", "GB0300"),
            cause="Its computations do not consist of torch operators.",
        ),
        BreakType(
            "standard-library",
            "Part of the standard library that is left to Python",
            "{function} belongs to a part of the standard library that works by reflection, on files or "
            "on hidden state.",
            (
                _CALL_UNCOMPILED,
                supportable("If its functions have no side effects, armature.rules.inline(module) traces into it."),
            ),
            code="AB0165",
            cause=_ONCE,
        ),
        BreakType(
            "process-group",
            "Group of processes that is made or ended",
            "{function} creates or destroys a process group.",
            (fundamental("Create the group when the program starts."), _CALL_UNCOMPILED),
            code="AB0166",
            cause="All processes have to take part at the same time.",
        ),
        BreakType(
            "memory-of-tensor",
            "Direct access to a tensor's memory",
            "{function} creates a tensor from memory, or changes a tensor's memory directly.",
            (fundamental("Create a tensor of the size that you want, and copy_ to it."), _CALL_UNCOMPILED),
            code="AB0167",
            cause="A graph plans the memory of its tensors in advance.",
        ),
        BreakType(
            "imports-module",
            "Import of a module that is not loaded yet",
            "The module {module} is imported inside the function, and has not been loaded yet.",
            (
                fundamental("Import it at the top of the file."),
                user_error("If the import fails in eager mode too, install the package."),
            ),
            code="GB0069",
            torch_name="Import failure",
            cause="Loading a module runs its code, and only once.",
        ),
        BreakType(
            "import-without-package",
            "Relative import outside of a package",
            "`from .` is used in a module that does not belong to a package.",
            (
                user_error("Write the name of the package: from package import module."),
                user_error("Run the file as part of its package: python -m package.module."),
            ),
            code="AB0168",
            cause="What happens here is left to Python.",
        ),
        BreakType(
            "import-from-unclear-module",
            "Import of a name that the module does not define yet",
            "`{name}` is imported from {module}, which does not define it yet.",
            (
                fundamental("Import at the top of the file."),
                fundamental("Import the module, and read the attribute from it."),
            ),
            code="GB0022",
            torch_name="Bad import result",
            cause="A module may create attributes on demand.",
        ),
        BreakType(
            "own-builtins",
            "Call of a function with its own builtins",
            "{function} belongs to a module with its own `__builtins__`, where `len` may be a different function.",
            (
                fundamental("Define the replacements under names of their own, in the module's globals."),
                fundamental("Call it outside the compiled function."),
            ),
            code="AB0199",
            cause="Builtins are looked up once for a compiled function, in its own module.",
        ),
        BreakType(
            "own-import-function",
            "Import through a custom `__import__`",
            "The function's module defines its own `__import__`.",
            (
                fundamental("Import at the top of the file."),
                fundamental("Call that import function by name, outside the compiled function."),
            ),
            code="AB0169",
            cause="Such a function may do anything.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.world",
)
