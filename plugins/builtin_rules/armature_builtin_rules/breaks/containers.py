"""Lists, dicts, sets, texts and iterators."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, user_error, with_examples

_PYTHONS = "Python words the error, which depends on its version."
_ORDER = "The order depends on hashes and on what the set has seen."
_NUMBERS = "A graph is captured before its tensors have numbers."

ROWS = with_examples(
    (
        BreakType(
            "key-of-dict",
            "Missing hash_impl override",
            "{type} is used as the key of a dict or the member of a set.",
            (
                fundamental("Use texts, numbers, or the objects' names as keys."),
                user_error("Python answers with a TypeError where the key has no hash: use a tuple for a list."),
            ),
            code="GB6890",
            also=("GB4749", "GB0203", "GB0204", "GB0364", "GB0222", "GB0196", "GB0366"),
            cause="Which keys are equal can't be told before the program runs.",
        ),
        BreakType(
            "nan-as-key",
            "NaN as a key",
            "A number that is not a number is used as the key of a dict or the member of a set.",
            (
                fundamental("Use None, or a text, for what is missing."),
                user_error("NaN equals nothing, itself included: it is found only as the same object."),
            ),
            code="AB0019",
            cause="Whether it is found depends on which object it is.",
        ),
        BreakType(
            "address-among-numbers",
            "Address as a key among numbers",
            "The address of an object is a key beside numbers, one of which may be the same.",
            (fundamental("Use the object itself as the key."), fundamental("Keep addresses in a dict of their own.")),
            code="AB0020",
            cause="An address is another number in each run of the program.",
        ),
        BreakType(
            "tensor-subclass-as-key",
            "Tensor with an equality of its own as a key",
            "{type} is used as a key, and its class says itself which are equal.",
            (
                fundamental("Use a name of the tensor as the key."),
                fundamental("Leave `__eq__` and `__hash__` to torch: tensors are found as objects."),
            ),
            code="AB0021",
            cause="Which keys are equal can't be told before the program runs.",
        ),
        BreakType(
            "index-of-object",
            "Index that is no number",
            "A list or tuple is indexed by {type}.",
            (
                user_error("Index by an int or a slice; Python answers others with a TypeError."),
                fundamental("Give the class an `__index__`."),
            ),
            code="AB0022",
            also=("GB0153", "GB0281", "GB0202", "GB0143", "GB0781", "GB7786", "GB0038"),
            cause=_PYTHONS,
        ),
        BreakType(
            "sequence-arithmetic",
            "Sum or product of a list and something else",
            "`{operation}` of a list or tuple is called with {type}.",
            (
                user_error("Add a list to a list, a tuple to a tuple; multiply by an int."),
                fundamental("Write the operator, a + b, which asks both operands."),
            ),
            code="AB0023",
            cause=_PYTHONS,
        ),
        BreakType(
            "sort-comparisons",
            "sort with non-constant keys",
            "{type} are sorted, whose comparisons leave some pairs undecided.",
            (
                fundamental("Give sorted() a key that is a number or text."),
                fundamental("Write `__lt__` for all pairs of the class."),
            ),
            code="GB0207",
            cause="Which object Python asks next, and how often, is its own matter.",
        ),
        BreakType(
            "sort-of-derived-class",
            "Sort of objects that can't be compared",
            "A list is sorted whose objects, some of classes derived from builtin types, can't be compared.",
            (
                user_error("Python answers with a TypeError: give sorted() a key."),
                user_error("Keep objects of one type in the list."),
            ),
            code="AB0024",
            cause=_PYTHONS,
        ),
        BreakType(
            "set-order",
            "Order of a set",
            "A set of objects is iterated, whose order is not fixed.",
            (
                fundamental("Use a list, a tuple or a dict, which keep the order in which they were filled."),
                fundamental("sorted(items) gives an order, for members that can be compared."),
            ),
            code="AB0025",
            cause=_ORDER,
        ),
        BreakType(
            "set-pop",
            "Member that a set chooses",
            "pop() takes a member out of a set of the caller, whose order is not fixed.",
            (fundamental("Take min(items), and remove it."), fundamental("Use a list or a deque.")),
            code="AB0026",
            cause=_ORDER,
        ),
        BreakType(
            "changed-while-iterated",
            "Dict or set that changes while it is iterated",
            "{type} is changed while it is iterated.",
            (
                fundamental("Iterate over a copy: for key in list(items)."),
                user_error("Python raises RuntimeError for most of such loops."),
            ),
            code="AB0027",
            also=("GB0198",),
            cause="Which keys come next depends on where they stand in the table.",
        ),
        BreakType(
            "sequence-with-own-length",
            "List with a length of its own",
            "{type} derives from a list or tuple, and has a `__len__` of its own.",
            (
                fundamental("Hold the list in an attribute, in place of deriving from it."),
                fundamental("Pass list(items), made outside the compiled function."),
            ),
            code="AB0028",
            cause="C code and methods of the class would tell different lengths.",
        ),
        BreakType(
            "number-with-own-equality",
            "Number with an equality of its own",
            "{type} derives from a number or text, and has an `__eq__` of its own.",
            (
                fundamental("Hold the number in an attribute, in place of deriving from it."),
                fundamental("Pass the plain number: float(value)."),
            ),
            code="AB0029",
            cause="Whether the next call has the same number could only be asked of the class.",
        ),
        BreakType(
            "set-hash-effects",
            "Set whose members do something when they are hashed",
            "A set of a derived class is read, whose members change something when their hash is asked for.",
            (fundamental("Let `__hash__` only compute."), fundamental("Keep such members in a list.")),
            code="AB0030",
            cause="Python keeps hashes and asks for none, which would be seen.",
        ),
        BreakType(
            "iterator-over-changed-list",
            "Iterator over a list that was changed",
            "{type} of the caller goes on, over a list that the function has changed.",
            (
                fundamental("Take what is needed of the iterator before the list changes."),
                fundamental("Make the iterator in the function."),
            ),
            code="AB0031",
            cause="The list changes when the graph has run, the iterator before.",
        ),
        BreakType(
            "iterator-held-by-another",
            "Iterator that another one holds",
            "A {type} of the caller goes on, over an iterator that the function uses as well.",
            (fundamental("Use one of the two iterators only."), fundamental("Make the iterators in the function.")),
            code="AB0032",
            cause="What one takes the other does not get.",
        ),
        BreakType(
            "iterator-over-unknown",
            "Iterator over an object of the program",
            "A {type} of the caller goes on, over an iterator that nothing is known of.",
            (
                fundamental("Make the {type} in the function."),
                fundamental("Take the items outside the compiled function, and pass a list."),
            ),
            code="AB0033",
            also=("GB0114", "GB0115", "GB0132", "GB0133", "GB0134", "GB0152", "GB0192", "GB2549"),
            cause="Asking it for an item changes it, which can't be put off.",
        ),
        BreakType(
            "joins-objects",
            "Text that is joined of something else",
            "join() is given {type}.",
            (
                fundamental("Give texts that do not depend on tensors."),
                user_error("Python joins texts only: ','.join(map(str, items))."),
            ),
            code="AB0034",
            cause="What the text is has to be known here.",
        ),
        BreakType(
            "method-of-constant",
            "constant-like method call with non-constant args",
            "{method} is called with an argument that is not known here.",
            (
                fundamental("Pass texts and numbers that do not depend on tensors."),
                fundamental("Do this where the compiled function is called."),
            ),
            code="GB0299",
            cause=_NUMBERS,
        ),
        BreakType(
            "iterator-of-constant",
            "constant-like method call with unsupported return type",
            "{method} gives an iterator over the characters or items of a constant.",
            (
                fundamental("Write the loop over the object itself: for letter in text."),
                fundamental("list(text) has all of them."),
            ),
            code="GB0292",
            cause="An iterator is used up by the first call.",
        ),
        BreakType(
            "contains-unknown",
            "missing sq_contains",
            "`in` asks a text for {type}.",
            (
                fundamental("Ask for texts that do not depend on tensors."),
                fundamental("Ask where the compiled function is called."),
            ),
            code="GB4411",
            cause=_NUMBERS,
        ),
        BreakType(
            "conversion-of-unknown",
            "Attempted to a str() method implemented in C/C++",
            "{function}() is given {type}.",
            (
                user_error("Where Python answers with an error, pass a number or text."),
                fundamental("Convert where the compiled function is called."),
            ),
            code="GB0005",
            also=("GB0184", "GB9198", "GB2852", "GB7968", "GB5380", "GB8315", "GB1275", "GB0459", "GB1584"),
            cause="What it is converted to has to be known here.",
        ),
        BreakType(
            "percent-format",
            "Text formatted by % with an object",
            "`text % value` is given {type}.",
            (
                fundamental("Write an f-string, which formats each value by itself."),
                fundamental("Make the text where the compiled function is called."),
            ),
            code="AB0035",
            also=("GB0020", "GB0021"),
            cause="Which methods of the object C code asks depends on the text.",
        ),
        BreakType(
            "format-arguments",
            "Text formatted with too few arguments",
            "str.format() finds no argument for field {field}.",
            (user_error("Give an argument for each field."), user_error("Number all of the fields, or none.")),
            code="AB0036",
            cause=_PYTHONS,
        ),
        BreakType(
            "format-template",
            "Text that is no format",
            "{template!r} is no format that str.format() takes.",
            (
                user_error("Write braces that are meant as such twice: {{{{ and }}}}."),
                user_error("Conversions are !r, !s and !a."),
            ),
            code="AB0037",
            cause=_PYTHONS,
        ),
        BreakType(
            "format-nested",
            "Format within a format within a format",
            "str.format() is given a field within a field within a field.",
            (user_error("Python allows one level: '{{:{{}}}}'."), fundamental("Make the inner format first.")),
            code="AB0038",
            cause=_PYTHONS,
        ),
        BreakType(
            "format-of-unknown",
            "Format that is not known",
            "A format is {type}.",
            (
                fundamental("Use a format that does not depend on tensors."),
                fundamental("Make the text where the compiled function is called."),
            ),
            code="AB0039",
            cause=_NUMBERS,
        ),
        BreakType(
            "size-of-no-ints",
            "Size of what are no ints",
            "torch.Size() is given something else than ints.",
            (user_error("Give ints, or sizes of tensors."), user_error("Round first: int(n * scale).")),
            code="AB0040",
            cause=_PYTHONS,
        ),
        BreakType(
            "mapping-proxy",
            "mapping proxy cannot be reconstructed",
            "types.MappingProxyType is given {type}.",
            (
                fundamental("Give it a dict: MappingProxyType(dict(items))."),
                fundamental("Make it outside the compiled function."),
            ),
            code="GB0199",
            cause="It shows an object whose methods may do anything.",
        ),
        BreakType(
            "match-mapping",
            "Pattern of a dict on another mapping",
            "A `case` with keys is asked of {type}.",
            (fundamental("Match a dict: match dict(items)."), fundamental("Ask for the keys with if and .get().")),
            code="AB0041",
            cause="Which methods of the mapping Python asks, and when, is its own matter.",
        ),
        BreakType(
            "match-class",
            "Pattern of a class that is none",
            "A `case` names {type} as a class.",
            (
                user_error("Name a class before the brackets."),
                user_error("Compare with a value without brackets: case Colour.RED."),
            ),
            code="AB0042",
            cause=_PYTHONS,
        ),
        BreakType(
            "match-args",
            "`__match_args__` that are no names",
            "A `case` with positions is asked of {type}, whose `__match_args__` is no tuple of texts.",
            (
                user_error("Make it a tuple: __match_args__ = ('a', 'b')."),
                fundamental("Name the attributes in the pattern: case Point(a=1)."),
            ),
            code="AB0043",
            cause=_PYTHONS,
        ),
        BreakType(
            "default-dict-init",
            "Dict of the caller that is filled anew",
            "`__init__` of {type} is called, which the function was given.",
            (
                fundamental("Make a new one: collections.defaultdict(int)."),
                fundamental("Change its entries by clear() and update()."),
            ),
            code="AB0044",
            also=("GB0097",),
            cause="It would change before the graph has run.",
        ),
        BreakType(
            "item-of-object",
            "Item of an object that has none",
            "`{operation}` is asked of {type}, whose class has no such method.",
            (
                user_error("Python answers with a TypeError: see what the name stands for."),
                user_error("Give the class the method: __getitem__, __setitem__ or __delitem__."),
            ),
            code="AB0045",
            cause=_PYTHONS,
        ),
        BreakType(
            "attribute-of-new-dict",
            "Attribute of a dict of a derived class",
            "`{name}` of {type} is read.",
            (
                fundamental("Keep such attributes in an object that holds the dict."),
                fundamental("Read it before the compiled function is called."),
            ),
            code="AB0046",
            cause="C code keeps it beside the contents.",
        ),
        BreakType(
            "next-of-iterator",
            "Iterator that is asked where it stands",
            "The next item of a {type} is asked for. It was made before this function began, or before a graph break "
            "in the loop over it.",
            (
                fundamental(
                    "Mend the graph break in the body of the loop, if there is one: the loop is then in one graph."
                ),
                fundamental("Go over a list or tuple, and make the iterator in the compiled function."),
            ),
            code="AB0200",
            cause="Code for one place of an iterator is of no use at the next, so Python asks it.",
        ),
    ),
    "armature_builtin_rules.breaks.examples.containers",
)
