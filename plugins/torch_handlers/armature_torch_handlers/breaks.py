"""Graph breaks that this plugin's handlers raise."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples
from armature_torch_handlers import breaks_arrays, breaks_collectives

_OUTSIDE = fundamental("Call it outside the compiled function.")
_EARLY = fundamental("Make it before the compiled function is called, in __init__ for a module.")
_FUNCTIONS = fundamental(
    "Have the functions compute with tensors only, give tensors that are their own, and change nothing."
)
_WHERE = fundamental("torch.where(condition, a, b) computes both sides and stays in the graph.")
_GRAPHS = "Functions that an operator calls have to be graphs of their own."

OWN = with_examples(
    (
        BreakType(
            "global-state",
            "Change of torch's global state",
            "{function} changes or reads state of the whole process, which must happen at its time and each time.",
            (_OUTSIDE, fundamental("Set it once, when the program starts.")),
            code="AB0170",
            also=("GB0230", "GB4026"),
            cause="It would happen when the function is compiled, once, and not each time when it runs.",
        ),
        BreakType(
            "inference-mode",
            "Inference mode by a private function",
            "{operation} is called, after which nothing leaves inference mode where an error goes past.",
            (fundamental("Write `with torch.inference_mode():`, which stays in the graph."), _OUTSIDE),
            code="AB0171",
            also=("GB0046",),
            cause="A graph has no `finally`.",
        ),
        BreakType(
            "cond-predicate",
            "torch.cond: improper predicate",
            "torch.cond is given a predicate that is neither a bool nor a tensor of one, or keyword arguments.",
            (user_error("Give a bool, or a tensor of dtype bool without dimensions."), _WHERE),
            code="GB0310",
            cause=_GRAPHS,
        ),
        BreakType(
            "cond-branches",
            "torch.cond: unsupported branch return type",
            "torch.cond can't be kept in the graph, because of {what}.",
            (_FUNCTIONS, _WHERE),
            code="GB0340",
            also=("GB0302", "GB0311", "GB0312", "GB0313", "GB0350", "GB0349", "GB0040", "GB0041"),
            cause=_GRAPHS,
        ),
        BreakType(
            "loop-operator",
            "Operator that runs a function again and again",
            "{operation} can't be kept in the graph, because of {what}.",
            (_FUNCTIONS, fundamental("A loop in Python whose length is known is unrolled, and stays in the graph.")),
            code="AB0172",
            also=(
                "GB0304",
                "GB0308",
                "GB0316",
                "GB0318",
                "GB0322",
                "GB0323",
                "GB0325",
                "GB0339",
                "GB0341",
                "GB0342",
                "GB0343",
            ),
            cause=_GRAPHS,
        ),
        BreakType(
            "hints-wrapper",
            "Operator around a function, with gradients",
            "{operation} is called around a function whose result wants gradients.",
            (fundamental("Call the function itself."), fundamental("Call it where gradients are off.")),
            code="AB0173",
            also=("GB0335", "GB0337", "GB0345"),
            cause="Eager mode gives this operator no gradients.",
        ),
        BreakType(
            "flex-attention-gradient",
            "flex_attention with gradients that torch does not have",
            "flex_attention is called with a mask that wants gradients, or with blocks that do not say where "
            "keys stand.",
            (
                fundamental("Make the mask of tensors without gradients."),
                fundamental("Make the blocks with create_block_mask."),
            ),
            code="AB0174",
            also=("GB0356",),
            cause="torch has no derivative for it.",
        ),
        BreakType(
            "flex-attention-arguments",
            "flex_attention that refuses its arguments",
            "flex_attention refuses its arguments: {message}.",
            (
                user_error("Run the function without armature: if it raises there too, the arguments are wrong."),
                fundamental("Look at the shapes of query, key and value."),
            ),
            code="AB0175",
            cause="An operator that raises gives nothing that could stand in the graph.",
        ),
        BreakType(
            "flex-attention-function",
            "flex_attention of a function that is no graph",
            "flex_attention is given a function that {reason}.",
            (_FUNCTIONS, _OUTSIDE),
            code="AB0176",
            cause=_GRAPHS,
        ),
        BreakType(
            "autograd-function",
            "Autograd function that can't be traced",
            "{function}.apply goes in the graph with all that its forward and backward do, or not at all: {met}",
            (
                fundamental(
                    "Have forward and backward compute with tensors only, and keep what backward needs on the context."
                ),
                supportable("Call it where no gradient is wanted: then only forward is traced."),
            ),
            code="AB0177",
            also=(
                "GB0085",
                "GB0138",
                "GB0144",
                "GB0145",
                "GB0348",
                "GB0352",
                "GB2019",
                "GB2464",
                "GB4372",
                "GB6297",
            ),
            cause="Backward is traced when the function is compiled.",
        ),
        BreakType(
            "autograd-context-attribute",
            "Unsupported autograd.Function context method",
            "`{name}` of an autograd context is read or set, which torch keeps.",
            (
                fundamental("Keep what backward needs in attributes of your own, and tensors by save_for_backward."),
                _OUTSIDE,
            ),
            code="GB0139",
            also=("GB0347",),
            cause="Torch gives it a value when the function runs.",
        ),
        BreakType(
            "reentrant-checkpoint",
            "Activation checkpoint that treats gradients in its own way",
            "With use_reentrant=True, all results of the function want gradients if one of its inputs does, and "
            "none in a list or dict; traced, this one gives others.",
            (fundamental("Call torch.utils.checkpoint.checkpoint with use_reentrant=False."), _OUTSIDE),
            code="AB0178",
            cause="Results would want gradients in another way than in eager mode.",
        ),
        BreakType(
            "transform-level",
            "Unsupported functorch tracing attempt",
            "{operation} enters or leaves a level of torch.func's transforms, outside of a transform that is traced.",
            (fundamental("Call torch.func.grad, vmap or the like in place of what they are made of."), _OUTSIDE),
            code="GB0149",
            also=("GB9741", "GB0328"),
            cause="Levels hold for the process, and nothing leaves them where an error goes past.",
        ),
        BreakType(
            "creates-parameter",
            "`torch.nn.Parameter()` with unsupported data type",
            "torch.nn.Parameter(...) is made of what is no plain tensor, or inside a graph of a function.",
            (_EARLY, user_error("Give a tensor, and True or False for requires_grad.")),
            code="GB0226",
            also=("GB0227", "GB0228", "GB0229", "GB0235", "GB0237", "GB0244", "GB0264"),
            cause="Made here it would be an intermediate result.",
        ),
        BreakType(
            "creates-buffer",
            "New buffer inside the function",
            "torch.nn.Buffer(...) is made of a tensor that wants gradients or is no plain one.",
            (_EARLY, fundamental("Detach the tensor first.")),
            code="AB0179",
            cause="Made here it would be an intermediate result.",
        ),
        BreakType(
            "tensor-new",
            "Tensor made by `new` in a form that is not known",
            "Tensor.new(...) is called with something else than sizes, a list, or a tensor of its dtype and device.",
            (
                fundamental("Call new_empty, new_tensor or new_zeros, which say what they make."),
                user_error("Where torch raises an error, give sizes or a list."),
            ),
            code="AB0180",
            cause="What it makes depends on the types of its arguments, in ways of its own.",
        ),
        BreakType(
            "foreign-memory",
            "Tensor over memory of another library",
            "{operation} makes a tensor over memory that torch does not own.",
            (
                fundamental("Make the tensor before the compiled function is called, and pass it."),
                fundamental("Make a copy: torch.tensor(data)."),
            ),
            code="AB0181",
            cause="What is written to one is written to the other.",
        ),
        BreakType(
            "storage-size",
            "Size of a storage after a change",
            "size() of a storage is asked for after a tensor was changed.",
            (fundamental("Ask first, or ask for x.numel() * x.element_size()."), _OUTSIDE),
            code="AB0182",
            cause="What was written to may have other memory now.",
        ),
    ),
    "armature_torch_handlers.examples.programs",
)

ROWS = (*OWN, *breaks_collectives.ROWS, *breaks_arrays.ROWS)
