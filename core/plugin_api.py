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
from armature.frame.data import program_of
from armature.frame.dynamic import STATIC_MARK, is_registered
from armature.frame.guards.kinds import ValueGuard
from armature.frame.guards.values import has_layout, layout, same_members
from armature.frame.rounds import remember_rounds
from armature.frame.source import Resolver
from armature.frame.sources import (
    AttrSource,
    CachedCallSource,
    CallSource,
    DictOfSource,
    FormulaSource,
    ItemSource,
    NumberedSource,
    ObjectSource,
    PartSource,
    ReferentSource,
    Source,
    TypeOfSource,
    object_source,
)
from armature.graph.constants import KnownValues, NotKnown, written_number
from armature.graph.data import AtenGraph, Decomposition, GraphKind, Lowering, Pass, Split
from armature.graph.facts import Operator
from armature.graph.frozen import frozen_values, with_all_inputs
from armature.graph.patterns import Match, Rewrite, drop_unread, fake_of, is_replaceable, replace_match, rewriting
from armature.graph.spellings import function_of, spelled
from armature.hookspecs import API_VERSION, hookimpl
from armature.introspection import MISSING, Subject, class_member, dict_of, existing, is_written_in_c
from armature.plugin_values import (
    EnteredAgain,
    PairedContextValue,
    as_index,
    call_uncompiled,
    change_before_graph,
    made_inside,
    reachable_values,
    running_graphs,
    tensor_of_class,
)
from armature.rules.data import SKIPPED, Answer, Decision, Rule, RuleOrigin, RuleTable, Verdict
from armature.services import Services
from armature.torch_abi import collectives as functional_collectives
from armature.torch_abi import data_parallel, fake_layouts, grad_modes, onednn, scripts
from armature.torch_abi import numpy as numpy_layer
from armature.torch_abi.altering import set_data_
from armature.torch_abi.aot import Compilers, compile_functional
from armature.torch_abi.attention import attention_results, item_by_tensors, nested_attention, runs_fused
from armature.torch_abi.decomps import overload, torch_decompositions, undecomposed
from armature.torch_abi.effects import CHECK
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.fake import DATA_DEPENDENT, PLAIN_TENSORS, in_transform, of_transform, version_of
from armature.torch_abi.fake_rules import AxesOfOne, FakeResult
from armature.torch_abi.functions import Function, Functions, tensors_of
from armature.torch_abi.known_strides import are_known as strides_are_known
from armature.torch_abi.marks import assumed_constant
from armature.torch_abi.overrides import Off
from armature.torch_abi.partition import min_cut
from armature.torch_abi.probes import Probed
from armature.torch_abi.pytree import registered_class
from armature.torch_abi.released import gradients_releasing
from armature.torch_abi.symbols import MATH_FUNCTIONS, is_unbacked
from armature.trace.base import (
    Args,
    BoundMethod,
    FrameView,
    Kwargs,
    NotConstant,
    Rebuilding,
    Tracing,
    Value,
    Write,
    attribute_of_builtin,
    is_not_implemented,
    raise_lacking,
    raise_missing,
    type_name,
)
from armature.trace.bytecode.instructions import Instruction, decode, loads_method
from armature.trace.data import UNCOMPILED
from armature.trace.errors import GraphBreak, SkipFrame, UserRaised
from armature.trace.handlers import (
    Call,
    Handler,
    Polyfill,
    ValueType,
    collect,
    handles,
    number_asked,
    opaque_function,
    tensor_method,
)
from armature.trace.locations import Location, locations_of
from armature.trace.recording.graph_nodes import from_fake as value_of_node
from armature.trace.recording.graph_nodes import record as record_node
from armature.trace.recording.tensor_state import AS_CAPTURED, BETWEEN_PIECES
from armature.trace.resume.liveness import successors
from armature.trace.semantics.iteration import advanced
from armature.trace.signals import TraceSignal
from armature.trace.signatures import Signature
from armature.trace.slots import ALL_SLOTS, COLLECTION_SLOTS, EQUALITY_SLOTS, NUMBER_SLOTS, is_iterable
from armature.trace.trust import is_trusted
from armature.trace.values.classes import (
    ClassMember,
    ClassValue,
    find_in_class,
    inherits,
    is_data_descriptor,
    overrides,
    rely_on_class,
)
from armature.trace.values.classes import bind as bind_attribute
from armature.trace.values.computed import (
    as_graph_number,
    computed_float,
    is_computed,
    is_runtime_number,
    kind_of_number,
)
from armature.trace.values.constant import ConstantValue
from armature.trace.values.context import (
    ContextValue,
    put_grad,
)
from armature.trace.values.derived import DerivedObjectValue, derives, native
from armature.trace.values.exception import CaughtValue, ExceptionValue, handled_exception
from armature.trace.values.floats import VaryingNumber
from armature.trace.values.floats import formula as float_before_graph
from armature.trace.values.floats import now as number_now
from armature.trace.values.function import BuiltinValue, CellValue, ClosureValue, MethodValue
from armature.trace.values.iterator import GeneratorValue, IteratorValue
from armature.trace.values.keys import Address, Identity, Referring, TracedKey, end_lookup, is_by_address, looked_up
from armature.trace.values.mapping import DictValue, items_of_mapping, namespace_of
from armature.trace.values.methods import ContainerValue, method_of
from armature.trace.values.precomputed import PrecomputedNumber, PrecomputedValue, call_before_graph, known_before_graph
from armature.trace.values.precomputed import compute as compute_before_graph
from armature.trace.values.sequence import (
    TUPLE_METHODS,
    ListValue,
    SequenceValue,
    TupleValue,
    is_named_tuple,
)
from armature.trace.values.slices import RangeValue, SliceValue
from armature.trace.values.streams import Steps, Walk
from armature.trace.values.symbolic import SymbolicValue as SymbolicNumber
from armature.trace.values.symbolic import number_of
from armature.trace.values.symbolic import symbolic as symbolic_number
from armature.trace.values.tensor import TensorValue as TracedTensor
from armature.trace.values.user_object import UserObjectValue as ObjectValue
from armature.trace.values.user_object import namesake

__all__ = [
    "ALL_SLOTS",
    "API_VERSION",
    "AS_CAPTURED",
    "BETWEEN_PIECES",
    "CHECK",
    "COLLECTION_SLOTS",
    "DATA_DEPENDENT",
    "EQUALITY_SLOTS",
    "MATH_FUNCTIONS",
    "MISSING",
    "NUMBER_SLOTS",
    "PLAIN_TENSORS",
    "SKIPPED",
    "STATIC_MARK",
    "TUPLE_METHODS",
    "UNCOMPILED",
    "Address",
    "Answer",
    "Args",
    "ArmatureError",
    "AtenGraph",
    "AttrSource",
    "AxesOfOne",
    "BackendError",
    "BoundMethod",
    "BreakEvent",
    "BreakType",
    "BuiltinValue",
    "CachedCallSource",
    "Call",
    "CallSource",
    "CaughtValue",
    "CellValue",
    "ClassMember",
    "ClassValue",
    "ClosureValue",
    "CompileEvent",
    "Compilers",
    "ConstantValue",
    "ContainerValue",
    "ContextValue",
    "Decision",
    "Decomposition",
    "DerivedObjectValue",
    "DictOfSource",
    "DictValue",
    "EnteredAgain",
    "EventKind",
    "Example",
    "ExceptionValue",
    "FakeResult",
    "FormulaSource",
    "FrameSummary",
    "FrameView",
    "Function",
    "Functions",
    "GeneratorValue",
    "GraphBreak",
    "GraphKind",
    "Handler",
    "Hint",
    "HintKind",
    "Identity",
    "Instruction",
    "ItemSource",
    "IteratorValue",
    "KnownValues",
    "Kwargs",
    "ListValue",
    "Location",
    "Lowering",
    "Match",
    "MethodValue",
    "NotConstant",
    "NotKnown",
    "NumberedSource",
    "ObjectSource",
    "ObjectValue",
    "Off",
    "Operator",
    "PairedContextValue",
    "PartSource",
    "Pass",
    "Polyfill",
    "PrecomputedNumber",
    "PrecomputedValue",
    "Probed",
    "RangeValue",
    "Rebuilding",
    "ReferentSource",
    "Referring",
    "Resolver",
    "Rewrite",
    "Rule",
    "RuleOrigin",
    "RuleTable",
    "SequenceValue",
    "Services",
    "Signature",
    "SkipFrame",
    "SliceValue",
    "Source",
    "Split",
    "Steps",
    "Subject",
    "SymbolicNumber",
    "TraceSignal",
    "TracedKey",
    "TracedTensor",
    "Tracing",
    "TupleValue",
    "TypeOfSource",
    "UserRaised",
    "Value",
    "ValueGuard",
    "ValueType",
    "VaryingNumber",
    "Verdict",
    "Walk",
    "Write",
    "advanced",
    "as_graph_number",
    "as_index",
    "assumed_constant",
    "attention_results",
    "attribute_of_builtin",
    "bind_attribute",
    "call_before_graph",
    "call_uncompiled",
    "change_before_graph",
    "class_member",
    "collect",
    "compile_functional",
    "compute_before_graph",
    "computed_float",
    "data_parallel",
    "decode",
    "derives",
    "dict_of",
    "drop_unread",
    "end_lookup",
    "existing",
    "fake_layouts",
    "fake_of",
    "find_in_class",
    "float_before_graph",
    "frozen_values",
    "function_of",
    "functional_collectives",
    "fundamental",
    "grad_modes",
    "gradients_releasing",
    "handled_exception",
    "handles",
    "has_layout",
    "hookimpl",
    "in_transform",
    "inherits",
    "invariant",
    "is_by_address",
    "is_computed",
    "is_data_descriptor",
    "is_iterable",
    "is_named_tuple",
    "is_not_implemented",
    "is_registered",
    "is_replaceable",
    "is_runtime_number",
    "is_trusted",
    "is_unbacked",
    "is_written_in_c",
    "item_by_tensors",
    "items_of_mapping",
    "kind_of_number",
    "known_before_graph",
    "layout",
    "loads_method",
    "locations_of",
    "looked_up",
    "made_inside",
    "method_of",
    "min_cut",
    "namesake",
    "namespace_of",
    "native",
    "nested_attention",
    "number_asked",
    "number_now",
    "number_of",
    "numpy_layer",
    "object_source",
    "of_transform",
    "onednn",
    "opaque_function",
    "ours",
    "overload",
    "overrides",
    "program_of",
    "put_grad",
    "raise_lacking",
    "raise_missing",
    "reachable_values",
    "record_node",
    "registered_class",
    "rely_on_class",
    "remember_rounds",
    "replace_match",
    "rewriting",
    "running_graphs",
    "runs_fused",
    "same_members",
    "scripts",
    "set_data_",
    "skip_code",
    "spelled",
    "strides_are_known",
    "successors",
    "supportable",
    "symbolic_number",
    "tensor_method",
    "tensor_of_class",
    "tensors_of",
    "torch_decompositions",
    "type_name",
    "undecomposed",
    "user_error",
    "value_of_node",
    "version_of",
    "with_all_inputs",
    "with_examples",
    "written_number",
]
