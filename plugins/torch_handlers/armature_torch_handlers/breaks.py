"""Graph breaks that this plugin's handlers raise."""

from __future__ import annotations

from armature.plugin_api import BreakType, fundamental, supportable, user_error, with_examples
from armature_torch_handlers import breaks_arrays, breaks_collectives

_CALL_UNCOMPILED = fundamental("Call it outside the compiled function.")
_CREATE_BEFORE = fundamental("Create it before the compiled function is called, for a module in __init__.")
_FUNCTIONS = fundamental("Make the functions compute with tensors only, return new tensors, and have no side effects.")
_WHERE = fundamental("torch.where(condition, a, b) computes both sides and stays in the graph.")
_GRAPHS = "The functions that this operator calls have to be captured as separate graphs."

OWN = with_examples(
    (
        BreakType(
            "global-state",
            "Change of torch's global state",
            "{function} reads or changes state of the whole process, which has to happen in order, on every call.",
            (_CALL_UNCOMPILED, fundamental("Set it once, when the program starts.")),
            code="AB0170",
            also=("GB0230",),
            cause="In a graph it would happen once, when the function is compiled, and not each time it runs.",
        ),
        BreakType(
            "inference-mode",
            "Inference mode through a private function",
            "{operation} is called, and if an error were raised afterwards, nothing would leave inference mode.",
            (fundamental("Write `with torch.inference_mode():`, which stays in the graph."), _CALL_UNCOMPILED),
            code="AB0171",
            also=("GB0046",),
            cause="A graph has no `finally`.",
        ),
        BreakType(
            "cond-predicate",
            "torch.cond with an unsuitable predicate",
            "torch.cond is given a predicate that is neither a bool nor a tensor of one, or keyword arguments.",
            (user_error("Pass a bool, or a zero-dimensional tensor of dtype bool."), _WHERE),
            code="GB0310",
            torch_name="torch.cond: improper predicate",
            cause=_GRAPHS,
        ),
        BreakType(
            "cond-branches",
            "torch.cond with functions that can't be captured",
            "torch.cond can't be kept in the graph, because of {what}.",
            (_FUNCTIONS, _WHERE),
            code="GB0340",
            torch_name="torch.cond: unsupported branch return type",
            also=("GB0301", "GB0302", "GB0311", "GB0312", "GB0313", "GB0350", "GB0349", "GB0040", "GB0041"),
            cause=_GRAPHS,
        ),
        BreakType(
            "loop-operator",
            "Operator that runs a function repeatedly",
            "{operation} can't be kept in the graph, because of {what}.",
            (_FUNCTIONS, fundamental("Use a Python loop of known length, which is unrolled and stays in the graph.")),
            code="AB0172",
            also=(
                "GB0304",
                "GB0308",
                "GB0316",
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
            "Hint wrapper around a function with gradients",
            "{operation} is called around a function whose result requires gradients.",
            (fundamental("Call the function itself."), fundamental("Call it where gradients are disabled.")),
            code="AB0173",
            also=("GB0335", "GB0337"),
            cause="This operator has no gradients in eager mode either.",
        ),
        BreakType(
            "flex-attention-gradient",
            "flex_attention with gradients that torch does not have",
            "flex_attention is called with a mask that requires gradients, or with a block mask that "
            "lacks what the backward pass needs.",
            (
                fundamental("Build the mask from tensors that do not require gradients."),
                fundamental("Create the block mask with create_block_mask."),
            ),
            code="AB0174",
            also=("GB0356",),
            cause="Torch has no derivative for this.",
        ),
        BreakType(
            "flex-attention-arguments",
            "flex_attention that rejects its arguments",
            "flex_attention rejects its arguments: {message}.",
            (
                user_error("Run the function without armature: if it fails there too, the arguments are wrong."),
                fundamental("Check the shapes of query, key and value."),
            ),
            code="AB0175",
            cause="An operator that raises an error has no result that could be part of the graph.",
        ),
        BreakType(
            "flex-attention-function",
            "flex_attention with a function that is not a graph",
            "flex_attention is given a function that {reason}.",
            (_FUNCTIONS, _CALL_UNCOMPILED),
            code="AB0176",
            cause=_GRAPHS,
        ),
        BreakType(
            "autograd-function",
            "Autograd function that can't be traced",
            "{function}.apply is kept in the graph only if all of its forward and backward is: {met}",
            (
                fundamental(
                    "Make forward and backward compute with tensors only, and save what backward needs on the context."
                ),
                supportable("Call it where no gradient is needed: then only forward is traced."),
            ),
            code="AB0177",
            also=(
                "GB0346",
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
            cause="The backward is traced when the function is compiled.",
        ),
        BreakType(
            "autograd-context-attribute",
            "Attribute of an autograd context",
            "`{name}` of an autograd context is read or set, which torch manages.",
            (
                fundamental("Store what backward needs in your own attributes, and tensors with save_for_backward."),
                _CALL_UNCOMPILED,
            ),
            code="GB0139",
            torch_name="Unsupported autograd.Function context method",
            also=("GB0347",),
            cause="Torch sets its value when the function runs.",
        ),
        BreakType(
            "reentrant-checkpoint",
            "Reentrant activation checkpoint",
            "With use_reentrant=True, all results of the function require gradients if one input does, "
            "and none in a list or dict; here tracing would give different results.",
            (fundamental("Pass use_reentrant=False to torch.utils.checkpoint.checkpoint."), _CALL_UNCOMPILED),
            code="AB0178",
            cause="Results would require gradients differently than in eager mode.",
        ),
        BreakType(
            "transform-level",
            "Level of torch.func's transforms entered by hand",
            "{operation} enters or leaves a level of torch.func's transforms, outside a transform that is"
            " being traced.",
            (fundamental("Call torch.func.grad, vmap or the like instead of their building blocks."), _CALL_UNCOMPILED),
            code="GB0149",
            torch_name="Unsupported functorch tracing attempt",
            also=("GB9741", "GB0328"),
            cause="Levels apply to the whole process, and an error would leave them open.",
        ),
        BreakType(
            "creates-parameter",
            "torch.nn.Parameter() created in an unsupported form",
            "torch.nn.Parameter(...) is created from something other than a plain tensor, or inside a "
            "function with its own graph.",
            (_CREATE_BEFORE, user_error("Pass a tensor, and True or False for requires_grad.")),
            code="GB0226",
            torch_name="`torch.nn.Parameter()` with unsupported data type",
            also=("GB0227", "GB0228", "GB0229", "GB0235", "GB0237", "GB0244", "GB0264"),
            cause="Created here, it would be an intermediate result and not a leaf.",
        ),
        BreakType(
            "creates-buffer",
            "New buffer inside the function",
            "torch.nn.Buffer(...) is created from a tensor that requires gradients, or is not a plain one.",
            (_CREATE_BEFORE, fundamental("Detach the tensor first.")),
            code="AB0179",
            cause="Created here, it would be an intermediate result and not a leaf.",
        ),
        BreakType(
            "tensor-new",
            "Tensor.new in an unsupported form",
            "Tensor.new(...) is called with something other than sizes, a list, or a tensor of its dtype and device.",
            (
                fundamental("Call new_empty, new_tensor or new_zeros instead."),
                user_error("If torch raises an error here, pass sizes or a list."),
            ),
            code="AB0180",
            cause="What it creates depends on the types of its arguments in complicated ways.",
        ),
        BreakType(
            "foreign-memory",
            "Tensor that uses another library's memory",
            "{operation} creates a tensor that uses memory torch does not own.",
            (
                fundamental("Create the tensor before the compiled function is called, and pass it."),
                fundamental("Make a copy: torch.tensor(data)."),
            ),
            code="AB0181",
            cause="Writes to one are visible in the other.",
        ),
        BreakType(
            "storage-size",
            "Size of a storage after a change",
            "size() of a storage is read after a tensor was modified.",
            (fundamental("Read it before the change, or use x.numel() * x.element_size()."), _CALL_UNCOMPILED),
            code="AB0182",
            cause="The tensor may have been given new memory by now.",
        ),
        BreakType(
            "casts-inside",
            "Operator that computes with autocast inside",
            "{operation} is called under autocast, which casts for operators that it calls and not for itself.",
            (
                fundamental(
                    "Call it with torch.autocast(device, enabled=False): it is precise then, and in the graph."
                ),
                _CALL_UNCOMPILED,
            ),
            code="AB0227",
            cause="In a graph, whose casts were captured, it would compute without any and return another dtype.",
        ),
    ),
    "armature_torch_handlers.examples.programs",
)

ROWS = (*OWN, *breaks_collectives.ROWS, *breaks_arrays.ROWS)
