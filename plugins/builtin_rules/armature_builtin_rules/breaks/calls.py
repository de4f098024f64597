"""Functions, classes and constructors."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_PYTHONS = "Python raises an error here, whose wording depends on its version, so Python is left to raise it."
_NEW_CLASS = "Each call creates a different class, and its bases, metaclass and descriptors may keep a reference to it."
_BODY = fundamental("Define the class at the top of the file.")

ROWS = with_examples(
    (
        BreakType(
            "function-arguments",
            "Arguments that do not match a function's signature",
            "{function} is called with arguments that do not match its signature.",
            (
                user_error("Run the function without armature: Python says which argument is wrong."),
                user_error("Check the function's signature: help(fn)."),
            ),
            code="GB7312",
            torch_name="failed to bind arguments when attempting to inline",
            also=(
                "GB0047",
                "GB0168",
                "GB0174",
                "GB7230",
                "GB0270",
                "GB0183",
                "GB0262",
                "GB0263",
                "GB0154",
                "GB0155",
                "GB0268",
            ),
            cause=_PYTHONS,
        ),
        BreakType(
            "method-arguments",
            "Arguments that do not match a method's signature",
            "{function} is called with arguments that do not match its signature.",
            (
                user_error("Run the function without armature: Python says which argument is wrong."),
                user_error("Check the method's signature: help(obj.method)."),
            ),
            code="GB0117",
            torch_name="Unhandled args for method",
            cause=_PYTHONS,
            also=("GB8887",),
        ),
        BreakType(
            "method-of-another-type",
            "Method called on an object of another type",
            "{method} is called with a first argument that is not of its class.",
            (user_error("Call it as a method of the object: text.upper()."), user_error("Convert the object first.")),
            code="AB0001",
            cause=_PYTHONS,
        ),
        BreakType(
            "copy-of-derived-class",
            "Result whose class is decided in C",
            "{method} is called on an object whose class derives from a builtin type.",
            (
                fundamental("Call it on a plain object: dict(settings), str(name)."),
                fundamental("Define the method in the class, in Python."),
            ),
            code="AB0002",
            cause="C code calls the class to make a copy, and returns a text in which nothing changes as it is.",
        ),
        BreakType(
            "exception-class-with-new",
            "Exception class that defines `__new__`",
            "{type} is created or raised, and its class defines `__new__`.",
            (
                fundamental("Do in `__init__` what `__new__` does."),
                fundamental("Raise it in a function that runs eagerly: armature.disable(fn)."),
            ),
            code="AB0003",
            cause="C code fills in an exception before `__init__` runs.",
        ),
        BreakType(
            "error-with-file-name",
            "Exception that stores the name of a file",
            "{type} is created with the name of a file.",
            (
                fundamental("Put the name in the error's message."),
                fundamental("Raise it where the file is opened, outside the compiled function."),
            ),
            code="AB0004",
            cause="C code interprets these arguments in its own way.",
        ),
        BreakType(
            "exception-keywords",
            "Exception created with keyword arguments",
            "{type} is created with keyword arguments, which C code handles.",
            (
                fundamental("Pass them by position, or put them in the message."),
                fundamental("Define an `__init__` that accepts them."),
            ),
            code="GB0273",
            torch_name="Keyword args passed to exception constructor",
            cause="C code stores them in its own way.",
        ),
        BreakType(
            "enum-call",
            "Enum created inside a function",
            "{type} is called with more than one value, which creates a new enum.",
            (
                fundamental("Define the enum at the top of the file."),
                fundamental("Look a member up by its value alone: Colour(1)."),
            ),
            code="GB0054",
            torch_name="Failed to construct Enum variable",
            cause="A class that is created here would be a different one in each call.",
        ),
        BreakType(
            "enum-missing",
            "Value that is not in an enum",
            "{type} has no member for the value, and its `_missing_` gives none.",
            (
                user_error("Python raises a ValueError: pass the value of one of its members."),
                fundamental("Have `_missing_` return a member."),
            ),
            code="AB0005",
            cause=_PYTHONS,
        ),
        BreakType(
            "metaclass-call",
            "Metaclass whose `__call__` is not a plain function",
            "{type} is called, and its metaclass defines `__call__` by something other than a plain function.",
            (
                fundamental("Write `__call__` of the metaclass as a method."),
                fundamental("Create the object outside the compiled function."),
            ),
            code="AB0006",
            also=("GB5458",),
            cause="There is no Python code to follow.",
        ),
        BreakType(
            "unusual-constructor",
            "Object created by a constructor that is not a plain function",
            "{type} is created by a `__new__` or `__init__` that is not a plain function.",
            (
                fundamental("Write `__init__` as a method."),
                fundamental("Create the object outside the compiled function."),
            ),
            code="GB2404",
            torch_name="Unsupported object.__new__ user-defined class construction",
            also=("GB7502", "GB0162", "GB0026"),
            cause="There is no Python code to follow.",
        ),
        BreakType(
            "call-of-object",
            "Call of something that is not a function",
            "{type} is called, and armature does not know how to follow such a call.",
            (
                user_error("If Python raises a TypeError here, check what the name refers to."),
                supportable("A plugin can teach the type: hook armature_value_types."),
            ),
            code="AB0007",
            also=("GB0255", "GB0261"),
            cause="The type may define what a call does in C.",
        ),
        BreakType(
            "super-of-no-class",
            "super() with something other than a class",
            "super() is given {type}, which is not a class.",
            (
                user_error("Inside a method, write super() without arguments."),
                user_error("Pass the class first, then the object: super(Class, self)."),
            ),
            code="GB0280",
            torch_name="1-arg super not implemented",
            also=("GB0113", "GB0006"),
            cause=_PYTHONS,
        ),
        BreakType(
            "super-of-no-object",
            "super() with a class and no object",
            "super() is called with a class but no object, which returns an object that is bound later.",
            (
                user_error("Inside a method, write super() without arguments."),
                fundamental("Pass the object as well: super(Class, self)."),
            ),
            code="AB0012",
            cause="What it will be bound to is known only when it is looked up in a class.",
        ),
        BreakType(
            "new-of-no-class",
            "`__new__` called with an unsuitable class",
            "{function} is given {type}, which is not a class whose objects it can create.",
            (
                user_error("Pass the class whose object you want to create."),
                user_error("Call the class itself: Class(...)."),
            ),
            code="AB0008",
            cause=_PYTHONS,
        ),
        BreakType(
            "iter-of-no-callable",
            "iter() with a sentinel, of something that can't be called",
            "iter(function, sentinel) is given {type}, which can't be called.",
            (
                user_error(
                    "Pass a function as the first argument; to iterate over items, write "
                    "iter(items) without a second one."
                ),
                user_error("Pass the method itself, without brackets: iter(file.readline, '')."),
            ),
            code="AB0009",
            cause=_PYTHONS,
        ),
        BreakType(
            "class-statement",
            "Class statement inside a function",
            "The function contains a class statement, which creates the class {name}.",
            (_BODY, fundamental("Create the class in a function that runs earlier, and pass it in.")),
            code="GB0075",
            torch_name="LOAD_BUILD_CLASS bytecode not supported",
            also=("GB8977", "GB1319"),
            cause=_NEW_CLASS,
        ),
        BreakType(
            "class-by-type",
            "Class created by type()",
            "type() is called with a name, bases and a namespace, and creates a new class.",
            (_BODY, fundamental("Call type() once, outside the compiled function.")),
            code="AB0010",
            cause=_NEW_CLASS,
        ),
        BreakType(
            "class-of-parametrized",
            "Parametrization that is registered or removed",
            "{function} gives a module a class of its own, or takes that class away.",
            (
                fundamental("Register parametrizations when the module is made, and remove them outside."),
                fundamental("Compute the parameter and pass it on: F.linear(x, symmetric(layer.weight))."),
            ),
            code="AB0226",
            cause=_NEW_CLASS,
        ),
        BreakType(
            "isinstance-of-no-class",
            "isinstance() with something other than a class",
            "isinstance() or issubclass() is given {type}, which is neither a class nor a tuple of classes.",
            (
                user_error("Pass a class, a tuple of classes, or a union such as `int | None`."),
                fundamental("If the object defines `__instancecheck__`, call that method by name."),
            ),
            code="GB0175",
            torch_name="builtin isinstance() cannot determine type of argument",
            also=("GB0194", "GB0195", "GB4393"),
            cause=_PYTHONS,
        ),
        BreakType(
            "isinstance-of-protocol",
            "isinstance() with a protocol",
            "isinstance() is called with the protocol {type}, and the object lacks some of its attributes.",
            (
                fundamental("Check the attribute that matters with hasattr()."),
                fundamental("Derive the class from the protocol."),
            ),
            code="AB0014",
            cause="Attributes that are missing now may exist in the next call.",
        ),
        BreakType(
            "list-of-subclasses",
            "`__subclasses__()` of something other than an ordinary class",
            "`__subclasses__()` is called on {type}, which is not a class, or whose metaclass overrides it.",
            (
                user_error("If Python raises a TypeError here, pass a class."),
                fundamental("Keep your own list of the classes, filled where they are defined."),
            ),
            code="AB0011",
            cause="Only Python's own list of subclasses can be checked before each call.",
        ),
        BreakType(
            "update-wrapper",
            "functools.wraps on something other than a function defined here",
            "functools.wraps is applied to {type}, which is neither a function nor an object of a class created here.",
            (
                fundamental("Apply it to a function that is defined with def."),
                fundamental("Wrap the function at the top of the file."),
            ),
            code="GB0187",
            torch_name="functools.wraps",
            cause="It changes an object that the function has not created, or copies what a class has.",
        ),
        BreakType(
            "grad-mode-decorator",
            "Grad mode used as a decorator inside the function",
            "{function} is used as a decorator, without parentheses, inside the function.",
            (fundamental("Write a `with` block."), fundamental("Decorate the function at the top of the file.")),
            code="AB0016",
            cause="It makes one of torch's own wrapper functions, which switches the mode outside the graph.",
        ),
        BreakType(
            "star-arguments",
            "Call with * or ** of an unsuitable object",
            "A call unpacks {type} with * or **, which is not possible.",
            (
                user_error("Use * with a list or tuple, and ** with a dict."),
                user_error("Pass a single argument without a star."),
            ),
            code="GB0167",
            torch_name="Variadic function call with bad args/kwargs type",
            cause=_PYTHONS,
        ),
        BreakType(
            "keywords-merged",
            "Keyword argument given twice",
            "A call unpacks {type} with **, which repeats an argument that is already given, or is not a mapping.",
            (
                user_error("Merge the dicts first: {{**first, **second}}."),
                user_error("Remove the argument from one of them."),
            ),
            code="AB0018",
            cause=_PYTHONS,
        ),
    ),
    "armature_builtin_rules.breaks.examples.calls",
)
