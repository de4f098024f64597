"""Functions, classes and constructors."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples

_PYTHONS = "Python words the error, which depends on its version."
_NEW_CLASS = (
    "The class is another one in each call, and those who hear of it may keep it: bases, metaclasses, descriptors."
)
_BODY = fundamental("Define the class at the top of the file.")

ROWS = with_examples(
    (
        BreakType(
            "function-arguments",
            "failed to bind arguments when attempting to inline",
            "{function} is called with arguments that it does not take.",
            (
                user_error("Run the function without armature: Python says which argument is wrong."),
                user_error("Look at the function's signature: help(fn)."),
            ),
            code="GB7312",
            also=(
                "GB0047",
                "GB0168",
                "GB0174",
                "GB7230",
                "GB0270",
                "GB0183",
                "GB0346",
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
            "Unhandled args for method",
            "{function} is called with arguments that it does not take.",
            (
                user_error("Run the function without armature: Python says which argument is wrong."),
                user_error("Look at the method's signature: help(obj.method)."),
            ),
            code="GB0117",
            cause=_PYTHONS,
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
            "Copy of a container of a derived class",
            "{method} is called on an object whose class has a `copy` of its own.",
            (
                fundamental("Make the copy by its class: dict(settings), list(items)."),
                fundamental("Call the method that the class has: settings.copy()."),
            ),
            code="AB0002",
            cause="C code makes an object of a class that it chooses itself.",
        ),
        BreakType(
            "exception-class-with-new",
            "Exception class with a `__new__` of its own",
            "{type} is raised or made, whose class has a `__new__` of its own.",
            (
                fundamental("Do in `__init__` what `__new__` does."),
                fundamental("Raise it in a function that runs eagerly: armature.disable(fn)."),
            ),
            code="AB0003",
            cause="What an exception holds is set by C code before `__init__` runs.",
        ),
        BreakType(
            "error-with-file-name",
            "Error that keeps the name of a file",
            "{type} is made with the name of a file.",
            (
                fundamental("Put the name in the text of the error."),
                fundamental("Raise it where the file is opened, outside the compiled function."),
            ),
            code="AB0004",
            cause="C code takes the arguments apart in a way of its own.",
        ),
        BreakType(
            "exception-keywords",
            "Keyword args passed to exception constructor",
            "{type} is made with keyword arguments, which exceptions take in C.",
            (
                fundamental("Pass them by position, or put them in the text."),
                fundamental("Give the class an `__init__` that takes them."),
            ),
            code="GB0273",
            cause="C code keeps them in a way of its own.",
        ),
        BreakType(
            "enum-call",
            "Failed to construct Enum variable",
            "{type} is called with more than one value, which makes a new enum.",
            (
                fundamental("Make the enum at the top of the file."),
                fundamental("Look a member up by its value alone: Colour(1)."),
            ),
            code="GB0054",
            cause="A class that is made here would be another one in each call.",
        ),
        BreakType(
            "enum-missing",
            "Value that no member of an enum has",
            "{type} has no member for the value, and its `_missing_` gives none.",
            (
                user_error("Python answers with a ValueError: pass a value that a member has."),
                fundamental("Have `_missing_` give a member."),
            ),
            code="AB0005",
            cause=_PYTHONS,
        ),
        BreakType(
            "metaclass-call",
            "Class that is called in a way of its own",
            "{type} is called, and its metaclass says how in what is no plain function.",
            (
                fundamental("Write `__call__` of the metaclass as a method."),
                fundamental("Make the object outside the compiled function."),
            ),
            code="AB0006",
            also=("GB5458",),
            cause="There is no Python code to follow.",
        ),
        BreakType(
            "unusual-constructor",
            "Unsupported object.__new__ user-defined class construction",
            "{type} is made by a `__new__` or `__init__` that is no plain function.",
            (
                fundamental("Write `__init__` as a method."),
                fundamental("Make the object outside the compiled function."),
            ),
            code="GB2404",
            also=("GB7502", "GB3383", "GB0162", "GB0026"),
            cause="There is no Python code to follow.",
        ),
        BreakType(
            "call-of-object",
            "Call of something that is no function",
            "{type} is called.",
            (
                user_error("Where Python answers with a TypeError, see what the name stands for."),
                supportable("A plugin can teach the type: hook armature_value_types."),
            ),
            code="AB0007",
            also=("GB0255", "GB0261"),
            cause="Nothing is known of how it is called.",
        ),
        BreakType(
            "super-of-no-class",
            "1-arg super not implemented",
            "super() is given {type}, which is no class.",
            (
                user_error("Inside a method, write super() without arguments."),
                user_error("Give the class first, then the object: super(Class, self)."),
            ),
            code="GB0280",
            also=("GB0113", "GB0006"),
            cause=_PYTHONS,
        ),
        BreakType(
            "super-of-no-object",
            "super() of a class alone",
            "super() is given a class and no object, which gives an object to be bound later.",
            (
                user_error("Inside a method, write super() without arguments."),
                fundamental("Give the object too: super(Class, self)."),
            ),
            code="AB0012",
            cause="What it is bound to is known only where it is looked up in a class.",
        ),
        BreakType(
            "new-of-no-class",
            "Object made of what is no class of its kind",
            "{function} is given {type}, which is no class that it makes objects of.",
            (
                user_error("Give the class whose object is to be made."),
                user_error("Call the class itself: Class(...)."),
            ),
            code="AB0008",
            cause=_PYTHONS,
        ),
        BreakType(
            "iter-of-no-callable",
            "iter() of what can't be called",
            "iter(function, sentinel) is given {type}, which can't be called.",
            (
                user_error("Give a function first; iter(items) takes no second argument."),
                user_error("Pass the method itself, without brackets: iter(file.readline, '')."),
            ),
            code="AB0009",
            cause=_PYTHONS,
        ),
        BreakType(
            "class-statement",
            "LOAD_BUILD_CLASS bytecode not supported",
            "The function has the statement of class {name}, which Python is left to make.",
            (_BODY, fundamental("Make the class in a function that runs before, and pass it in.")),
            code="GB0075",
            also=("GB8977", "GB1319"),
            cause=_NEW_CLASS,
        ),
        BreakType(
            "class-by-type",
            "Class made by type()",
            "type() is called with a name, bases and a namespace; Python is left to make the class.",
            (_BODY, fundamental("Call type() with these outside the compiled function, once.")),
            code="AB0010",
            cause=_NEW_CLASS,
        ),
        BreakType(
            "isinstance-of-no-class",
            "builtin isinstance() cannot determine type of argument",
            "isinstance() or issubclass() is given {type}, which is no class or tuple of classes.",
            (
                user_error("Give a class, a tuple of classes, or a union such as `int | None`."),
                fundamental("Where an object answers by `__instancecheck__`, call its method by name."),
            ),
            code="GB0175",
            also=("GB0194", "GB0195", "GB4393"),
            cause=_PYTHONS,
        ),
        BreakType(
            "isinstance-of-protocol",
            "Question whether an object fits a protocol",
            "isinstance() is asked of protocol {type}, and the object does not have all that it lists.",
            (
                fundamental("Ask hasattr() for the attribute that matters."),
                fundamental("Derive the class from the protocol."),
            ),
            code="AB0014",
            cause="Attributes that are not there now may be there in the next call.",
        ),
        BreakType(
            "list-of-subclasses",
            "List of subclasses, of what makes its own",
            "`__subclasses__()` is asked of {type}, which is no class, or whose metaclass says what they are.",
            (
                user_error("Where Python answers with a TypeError, give a class."),
                fundamental("Keep a list of the classes, filled where they are defined."),
            ),
            code="AB0011",
            cause="Only the plain list of a class can be checked before each call.",
        ),
        BreakType(
            "update-wrapper",
            "functools.wraps",
            "functools.wraps is put on {type}, which is no function made here.",
            (
                fundamental("Put it on a function that is defined with def."),
                fundamental("Wrap the function at the top of the file."),
            ),
            code="GB0187",
            cause="It changes an object that the function has not made, or that keeps attributes in C.",
        ),
        BreakType(
            "grad-mode-decorator",
            "Grad mode as a decorator inside the function",
            "{function} is used as a decorator without brackets, in the function.",
            (fundamental("Write a `with` block."), fundamental("Decorate the function at the top of the file.")),
            code="AB0016",
            cause="What it makes is a function of torch's own, which sets the mode beside the graph.",
        ),
        BreakType(
            "star-arguments",
            "Variadic function call with bad args/kwargs type",
            "A call has * or ** before {type}, which can't be unpacked.",
            (
                user_error("Put * before a list or tuple, ** before a dict."),
                user_error("Pass a single argument without a star."),
            ),
            code="GB0167",
            cause=_PYTHONS,
        ),
        BreakType(
            "keywords-merged",
            "Keyword argument given twice",
            "A call has ** before {type}, which names an argument that was named before, or is no mapping.",
            (
                user_error("Merge the dicts first: {{**first, **second}}."),
                user_error("Take the argument out of one of them."),
            ),
            code="AB0018",
            cause=_PYTHONS,
        ),
    ),
    "armature_builtin_rules.breaks.examples.calls",
)
