"""What a plugin may import: this module, `backend_api` for back ends and lowerings, and the testing kits.

Versioned by API_VERSION (major, minor): a plugin that declares another major version is left out with a clear message.
"""

from armature.breaks.types import (
    BreakEvent,
    BreakType,
    Example,
    FrameSummary,
    Hint,
    HintKind,
    fundamental,
    ours,
    supportable,
    user_error,
    with_examples,
)
from armature.errors import ArmatureError, BackendError, invariant
from armature.events import CompileEvent, EventKind
from armature.frame.sources import (
    ArrayMemorySource,
    AttrSource,
    CallSource,
    DictOfSource,
    ItemSource,
    ObjectSource,
    ReferentSource,
    Source,
    object_source,
)
from armature.graph.data import AtenGraph, Decomposition, GraphKind, Lowering, Operator, Pass, Split
from armature.graph.known import KnownValues, NotKnown
from armature.graph.patterns import Match, Rewrite, fake_of, rewriting
from armature.graph.spellings import function_of
from armature.hookspecs import API_VERSION, hookimpl
from armature.introspection import MISSING, Subject, class_member, existing
from armature.rules.data import SKIPPED, Answer, Decision, Rule, RuleOrigin, RuleTable, Verdict
from armature.services import Services
from armature.torch_abi import collectives as functional_collectives
from armature.torch_abi import data_parallel, grad_modes
from armature.torch_abi import numpy as numpy_layer
from armature.torch_abi.altering import set_data_
from armature.torch_abi.aot import Compilers, compile_functional, min_cut
from armature.torch_abi.attention import attention_results, item_by_tensors, nested_attention
from armature.torch_abi.decomps import overload, torch_decompositions
from armature.torch_abi.effects import CHECK
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.marks import assumed_constant
from armature.torch_abi.overrides import Off
from armature.torch_abi.pytree import registered_class
from armature.torch_abi.symbols import is_unbacked
from armature.trace.data import running_graphs
from armature.trace.emit.precalls import change_early
from armature.trace.errors import GraphBreak, UserRaised
from armature.trace.handlers import Call, Handler, Polyfill, Signature, ValueType, collect, handles, opaque_function
from armature.trace.places import places_of
from armature.trace.recording.opaque_calls import call_outside
from armature.trace.recording.subgraphs import NotApart, Part, Watch, call_graphs, graph_inputs, trace_part
from armature.trace.recording.tensor_state import alter_tensor
from armature.trace.semantics.cached_functions import alike, as_begun, holds, kept, written
from armature.trace.semantics.weak_references import refer, rely_on_life
from armature.trace.trust import is_trusted
from armature.trace.values.address import AddressValue
from armature.trace.values.base import (
    Args,
    BoundMethod,
    Kwargs,
    NotConstant,
    Rebuilding,
    Tracing,
    Value,
    Write,
    attribute_of_builtin,
)
from armature.trace.values.classes import ClassValue
from armature.trace.values.constant import ConstantValue, is_atom
from armature.trace.values.context import (
    ContextValue,
    PairedContextValue,
    put_grad,
)
from armature.trace.values.exception import handled_exception
from armature.trace.values.function import BuiltinValue, ClosureValue, MethodValue
from armature.trace.values.iterator import IteratorValue
from armature.trace.values.keys import Identity, Referring
from armature.trace.values.mapping import DictValue, namespace_of
from armature.trace.values.precomputed import EarlyNumber, EarlyValue, before_the_graph, call_early
from armature.trace.values.precomputed import compute as compute_early
from armature.trace.values.precomputed import now as number_now
from armature.trace.values.sequence import ListValue, SequenceValue, TupleValue
from armature.trace.values.slices import SliceValue
from armature.trace.values.streams import Steps
from armature.trace.values.symbolic import SymbolicValue as SymbolicNumber
from armature.trace.values.tensor import TensorValue as TracedTensor
from armature.trace.values.user_object import UserObjectValue as ObjectValue

__all__ = [
    "API_VERSION",
    "CHECK",
    "MISSING",
    "SKIPPED",
    "AddressValue",
    "Answer",
    "Args",
    "ArmatureError",
    "ArrayMemorySource",
    "AtenGraph",
    "AttrSource",
    "BackendError",
    "BoundMethod",
    "BreakEvent",
    "BreakType",
    "BuiltinValue",
    "Call",
    "CallSource",
    "ClassValue",
    "ClosureValue",
    "CompileEvent",
    "Compilers",
    "ConstantValue",
    "ContextValue",
    "Decision",
    "Decomposition",
    "DictOfSource",
    "DictValue",
    "EarlyNumber",
    "EarlyValue",
    "EventKind",
    "Example",
    "FrameSummary",
    "GraphBreak",
    "GraphKind",
    "Handler",
    "Hint",
    "HintKind",
    "Identity",
    "ItemSource",
    "IteratorValue",
    "KnownValues",
    "Kwargs",
    "ListValue",
    "Lowering",
    "Match",
    "MethodValue",
    "NotApart",
    "NotConstant",
    "NotKnown",
    "ObjectSource",
    "ObjectValue",
    "Off",
    "Operator",
    "PairedContextValue",
    "Part",
    "Pass",
    "Polyfill",
    "Rebuilding",
    "ReferentSource",
    "Referring",
    "Rewrite",
    "Rule",
    "RuleOrigin",
    "RuleTable",
    "SequenceValue",
    "Services",
    "Signature",
    "SliceValue",
    "Source",
    "Split",
    "Steps",
    "Subject",
    "SymbolicNumber",
    "TracedTensor",
    "Tracing",
    "TupleValue",
    "UserRaised",
    "Value",
    "ValueType",
    "Verdict",
    "Watch",
    "Write",
    "alike",
    "alter_tensor",
    "as_begun",
    "assumed_constant",
    "attention_results",
    "attribute_of_builtin",
    "before_the_graph",
    "call_early",
    "call_graphs",
    "call_outside",
    "change_early",
    "class_member",
    "collect",
    "compile_functional",
    "compute_early",
    "data_parallel",
    "existing",
    "fake_of",
    "function_of",
    "functional_collectives",
    "fundamental",
    "grad_modes",
    "graph_inputs",
    "handled_exception",
    "handles",
    "holds",
    "hookimpl",
    "invariant",
    "is_atom",
    "is_trusted",
    "is_unbacked",
    "item_by_tensors",
    "kept",
    "min_cut",
    "namespace_of",
    "nested_attention",
    "number_now",
    "numpy_layer",
    "object_source",
    "opaque_function",
    "ours",
    "overload",
    "places_of",
    "put_grad",
    "refer",
    "registered_class",
    "rely_on_life",
    "rewriting",
    "running_graphs",
    "set_data_",
    "skip_code",
    "supportable",
    "torch_decompositions",
    "trace_part",
    "user_error",
    "with_examples",
    "written",
]
