"""Lists, dicts, sets, texts and iterators."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, user_error, with_examples

_PYTHONS = "Python raises an error here, whose wording depends on its version, so Python is left to raise it."
_ORDER = "The order of a set depends on hashes and on the set's history."
_NUMBERS = "A graph is captured before its tensors have values."

ROWS = with_examples(
    (
        BreakType(
            "key-of-dict",
            "Object as a dict key or member of a set",
            "{type} is used as a dict key or as a member of a set.",
            (
                fundamental("Use strings, numbers, or the objects' names as keys."),
                user_error("If the key is not hashable, Python raises a TypeError: use a tuple instead of a list."),
            ),
            code="GB6890",
            torch_name="Missing hash_impl override",
            also=("GB4749", "GB0203", "GB0204", "GB0364", "GB0222", "GB0196", "GB0366"),
            cause="Which keys are equal is not known before the program runs.",
        ),
        BreakType(
            "nan-as-key",
            "NaN as a key",
            "A NaN is used as a dict key or as a member of a set.",
            (
                fundamental("Use None or a string for missing values."),
                user_error(
                    "NaN does not equal anything, not even itself, so it is found only if it is the same object."
                ),
            ),
            code="AB0019",
            cause="Whether it is found depends on which NaN object it is, not on its value.",
        ),
        BreakType(
            "address-among-numbers",
            "Address of an object as a key among numbers",
            "The address of an object made in the call is a key alongside numbers, and may be equal to one of them.",
            (fundamental("Use the object itself as the key."), fundamental("Keep addresses in a separate dict.")),
            code="AB0020",
            cause="An object's address is different in each run of the program.",
        ),
        BreakType(
            "tensor-subclass-as-key",
            "Tensor subclass with its own equality as a key",
            "{type} is used as a key, and its class defines its own equality.",
            (
                fundamental("Use the tensor's name as the key."),
                fundamental("Leave `__eq__` and `__hash__` to torch: tensors are then found by identity."),
            ),
            code="AB0021",
            cause="Which keys are equal is not known before the program runs.",
        ),
        BreakType(
            "index-of-object",
            "Index that is not a number",
            "A list or tuple is indexed by {type}.",
            (
                user_error("Index with an int or a slice; Python raises a TypeError for anything else."),
                fundamental("Give the class an `__index__`."),
            ),
            code="AB0022",
            also=("GB0153", "GB0202", "GB0143", "GB0781", "GB7786", "GB0038"),
            cause=_PYTHONS,
        ),
        BreakType(
            "sequence-arithmetic",
            "Sum or product of a list and something else",
            "The `{operation}` method of a list or tuple is called with {type}.",
            (
                user_error("Add a list to a list, a tuple to a tuple; multiply by an int."),
                fundamental("Write the operator, a + b, which tries both operands."),
            ),
            code="AB0023",
            cause=_PYTHONS,
        ),
        BreakType(
            "sort-comparisons",
            "Sorting by comparisons that are not decided",
            "{type} are sorted, and their comparison does not decide all pairs.",
            (
                fundamental("Pass sorted() a key that returns a number or string."),
                fundamental("Define `__lt__` for all pairs of objects of the class."),
            ),
            code="GB0207",
            torch_name="sort with non-constant keys",
            cause="Which objects are compared, and how often, is up to Python.",
        ),
        BreakType(
            "sort-of-derived-class",
            "Sorting of objects that can't be compared",
            "A list is sorted whose items, some of classes derived from builtin types, can't be compared.",
            (
                user_error("Python raises a TypeError: pass a key to sorted()."),
                user_error("Keep objects of one type in the list."),
            ),
            code="AB0024",
            cause=_PYTHONS,
        ),
        BreakType(
            "set-order",
            "Order of a set",
            "A set of objects is iterated, and its order is not fixed.",
            (
                fundamental("Use a list, a tuple or a dict, which keep insertion order."),
                fundamental("Iterate over sorted(items), if the members can be compared."),
            ),
            code="AB0025",
            cause=_ORDER,
        ),
        BreakType(
            "set-pop",
            "pop() of a set",
            "pop() removes a member from one of the caller's sets, and the order of a set is not fixed.",
            (
                fundamental("Choose the member yourself, such as min(items), and remove it."),
                fundamental("Use a list or a deque."),
            ),
            code="AB0026",
            cause=_ORDER,
        ),
        BreakType(
            "changed-while-iterated",
            "Dict or set that changes during iteration",
            "{type} is changed during iteration over it.",
            (
                fundamental("Iterate over a copy: for key in list(items)."),
                user_error("Python raises a RuntimeError for most loops of this kind."),
            ),
            code="AB0027",
            also=("GB0198",),
            cause="Which keys come next depends on their positions in the hash table.",
        ),
        BreakType(
            "sequence-with-own-length",
            "List or tuple subclass with its own `__len__`",
            "{type} derives from list or tuple, and defines its own `__len__`.",
            (
                fundamental("Hold the list in an attribute instead of deriving from it."),
                fundamental("Pass list(items), made outside the compiled function."),
            ),
            code="AB0028",
            cause="C code and the class's methods would report different lengths.",
        ),
        BreakType(
            "set-hash-effects",
            "Set whose members have side effects when hashed",
            "A set subclass is read, whose members change something whenever they are hashed.",
            (fundamental("Keep `__hash__` free of side effects."), fundamental("Keep such members in a list.")),
            code="AB0030",
            cause="Python caches hashes and does not call `__hash__` again, and that difference would be visible.",
        ),
        BreakType(
            "iterator-over-changed-list",
            "Iterator over a list that was changed",
            "{type} that the caller made continues, over a list that the function has changed.",
            (
                fundamental("Take what you need from the iterator before the list changes."),
                fundamental("Make the iterator in the function."),
            ),
            code="AB0031",
            cause="The list is changed after the graph has run, but the iterator would advance before it.",
        ),
        BreakType(
            "iterator-held-by-another",
            "Iterator that another iterator uses too",
            "A {type} that the caller made continues, over an iterator that the function uses as well.",
            (fundamental("Use only one of the two iterators."), fundamental("Make the iterators in the function.")),
            code="AB0032",
            cause="Items that one of them takes are missing from the other.",
        ),
        BreakType(
            "iterator-over-unknown",
            "Iterator over an unsupported iterator",
            "A {type} that the caller made continues, over an iterator whose type is not known.",
            (
                fundamental("Make the {type} in the function."),
                fundamental("Take the items outside the compiled function, and pass a list."),
            ),
            code="AB0033",
            also=("GB0114", "GB0115", "GB0132", "GB0133", "GB0134", "GB0152", "GB0192", "GB2549"),
            cause="Taking an item changes the iterator, which can't be postponed until the graph has run.",
        ),
        BreakType(
            "method-of-constant",
            "Method of a constant with an unknown argument",
            "{method} is called with an argument that is not known here.",
            (
                fundamental("Pass strings and numbers that do not depend on tensors."),
                fundamental("Do this where the compiled function is called."),
            ),
            code="GB0299",
            torch_name="constant-like method call with non-constant args",
            cause=_NUMBERS,
        ),
        BreakType(
            "iterator-of-constant",
            "Iterator over a constant that a method returns",
            "{method} returns an iterator over the characters or items of a constant.",
            (
                fundamental("Loop over the object itself: for letter in text."),
                fundamental("Use a list of the items: list(text)."),
            ),
            code="GB0292",
            torch_name="constant-like method call with unsupported return type",
            cause="An iterator is used up by the first call.",
        ),
        BreakType(
            "contains-unknown",
            "`in` on a string with an unknown value",
            "`in` searches a string for {type}.",
            (
                fundamental("Search for strings that do not depend on tensors."),
                fundamental("Do this where the compiled function is called."),
            ),
            code="GB4411",
            torch_name="missing sq_contains",
            cause=_NUMBERS,
        ),
        BreakType(
            "conversion-of-unknown",
            "Conversion to a number or text whose result is not known",
            "{function}() is given {type}, whose result is not known here.",
            (
                user_error("If Python raises an error here, pass a number or a string."),
                fundamental("Convert where the compiled function is called."),
            ),
            code="GB0005",
            torch_name="Attempted to a str() method implemented in C/C++",
            also=("GB0184", "GB9198", "GB2852", "GB7968", "GB5380", "GB8315", "GB1275", "GB0459", "GB1584"),
            cause="The result of the conversion has to be known when the graph is captured.",
        ),
        BreakType(
            "percent-format",
            "% formatting with an object",
            "`text % value` is given {type}.",
            (
                fundamental("Use an f-string, which formats each value separately."),
                fundamental("Build the text where the compiled function is called."),
            ),
            code="AB0035",
            also=("GB0020", "GB0021"),
            cause="Which of the object's methods C code calls depends on the format string.",
        ),
        BreakType(
            "format-arguments",
            "str.format() with too few arguments",
            "str.format() finds no argument for field {field}.",
            (user_error("Pass an argument for each field."), user_error("Number either all of the fields or none.")),
            code="AB0036",
            cause=_PYTHONS,
        ),
        BreakType(
            "format-template",
            "Invalid format string",
            "{template!r} is not a format string that str.format() accepts.",
            (
                user_error("Write literal braces twice: {{{{ and }}}}."),
                user_error("The conversions are !r, !s and !a."),
            ),
            code="AB0037",
            cause=_PYTHONS,
        ),
        BreakType(
            "format-nested",
            "Format fields that are nested too deeply",
            "str.format() is given a field inside a field inside another field.",
            (
                user_error("Python allows one level of nesting: '{{:{{}}}}'."),
                fundamental("Build the inner format first."),
            ),
            code="AB0038",
            cause=_PYTHONS,
        ),
        BreakType(
            "format-of-unknown",
            "Format specification that depends on tensors",
            "A format specification is {type}, whose text is not known here.",
            (
                fundamental("Use a format specification that does not depend on tensors."),
                fundamental("Build the text where the compiled function is called."),
            ),
            code="AB0039",
            cause=_NUMBERS,
        ),
        BreakType(
            "size-of-no-ints",
            "torch.Size of something other than ints",
            "torch.Size() is given something other than ints.",
            (user_error("Pass ints, or sizes of tensors."), user_error("Round first: int(n * scale).")),
            code="AB0040",
            cause=_PYTHONS,
        ),
        BreakType(
            "mapping-proxy",
            "types.MappingProxyType of something other than a dict",
            "types.MappingProxyType is given {type}.",
            (
                fundamental("Pass a dict: MappingProxyType(dict(items))."),
                fundamental("Create it outside the compiled function."),
            ),
            code="GB0199",
            torch_name="mapping proxy cannot be reconstructed",
            cause="It is a view of an object whose methods may do anything.",
        ),
        BreakType(
            "match-mapping",
            "Mapping pattern on something other than a dict",
            "A `case` with keys is matched against {type}.",
            (fundamental("Match a dict: match dict(items)."), fundamental("Look the keys up with `if` and .get().")),
            code="AB0041",
            cause="Which methods of the mapping are called, and when, is up to Python.",
        ),
        BreakType(
            "match-class",
            "Class pattern that does not name a class",
            "A `case` names {type}, which is not a class, as if it were one.",
            (
                user_error("Name a class before the parentheses."),
                user_error("To compare with a value, write it without parentheses: case Colour.RED."),
            ),
            code="AB0042",
            cause=_PYTHONS,
        ),
        BreakType(
            "match-args",
            "`__match_args__` that is not a tuple of names",
            "A `case` with positional patterns is matched against {type}, whose `__match_args__` is not a"
            " tuple of strings.",
            (
                user_error("Make it a tuple: __match_args__ = ('a', 'b')."),
                fundamental("Name the attributes in the pattern: case Point(a=1)."),
            ),
            code="AB0043",
            cause=_PYTHONS,
        ),
        BreakType(
            "default-dict-init",
            "`__init__` of an existing dict",
            "`__init__` is called again on {type} that the function was given.",
            (
                fundamental("Make a new one: collections.defaultdict(int)."),
                fundamental("Change its entries with clear() and update()."),
            ),
            code="AB0044",
            also=("GB0097",),
            cause="The dict would change before the graph has run.",
        ),
        BreakType(
            "item-of-object",
            "Subscript of an object that has no items",
            "`{operation}` is needed of {type}, whose class does not define it.",
            (
                user_error("Python raises a TypeError: check what the name refers to."),
                user_error("Give the class the method: __getitem__, __setitem__ or __delitem__."),
            ),
            code="AB0045",
            cause=_PYTHONS,
        ),
        BreakType(
            "special-method-result",
            "Special method with an unusual result",
            "`{method}` returns {type}, which Python does not accept.",
            (
                user_error("Return an int from __len__, __hash__ and __index__, and a bool from __bool__."),
                user_error("A length is not negative."),
            ),
            code="AB0215",
            cause=_PYTHONS,
        ),
        BreakType(
            "attribute-of-new-dict",
            "Attribute of an object that derives from dict",
            "The attribute `{name}` of {type} is read.",
            (
                fundamental("Keep such attributes in an object that holds the dict."),
                fundamental("Read it before the compiled function is called."),
            ),
            code="AB0046",
            cause="C code stores it outside the object's contents.",
        ),
        BreakType(
            "next-of-iterator",
            "Iterator that is already in progress",
            "The next item is taken from a {type} that was created before this function began, or before "
            "a graph break in the loop over it.",
            (
                fundamental(
                    "Fix the graph break in the body of the loop, if there is one: the loop is then part of one graph."
                ),
                fundamental("Loop over a list or tuple, or create the iterator inside the compiled function."),
            ),
            code="AB0200",
            cause="Code compiled for one position of an iterator is of no use at the next, so the item is"
            " taken by Python.",
            also=("GB0279",),
        ),
    ),
    "armature_builtin_rules.breaks.examples.containers",
)
