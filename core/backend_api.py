"""What back ends and lowerings may import: loops, kernel plans, and helpers that print them.

Versioned with `plugin_api`, by its API_VERSION. That module has rules, handlers, values and passes.
"""

from armature.codegen import library, products
from armature.codegen.alternatives import (
    Alternative,
    ArgumentSpec,
    GroupSpec,
    LibrarySpec,
    Part,
    Workspace,
    given_of,
    of_arguments,
    parts_of,
)
from armature.codegen.backend import CompilesCalls, DeviceBackend, Prepares
from armature.codegen.data import KernelChoice, KernelSource, Tried
from armature.codegen.nodes import (
    Accumulate,
    Guarded,
    KernelBody,
    Let,
    PassBody,
    Statement,
    Write,
    origin_of,
    stored_early,
    walk_kernel,
)
from armature.codegen.origins import heading, place
from armature.codegen.printer import (
    PYTHON_INDEX,
    IndexPrinter,
    Lines,
    OpForm,
    position,
    print_op,
    rounded,
)
from armature.codegen.products import Product
from armature.garbage import no_collection
from armature.graph.data import GraphCall
from armature.lower import index, layout, philox
from armature.lower.builder import Builder
from armature.lower.data import (
    Buffer,
    CallInstead,
    Const,
    IndexValue,
    Load,
    Masked,
    Node,
    Op,
    Reduce,
    Scan,
    Store,
)
from armature.lower.elements import Position, compute_dtype
from armature.lower.features import AcrossRows, Features, Numbering, ProductSizes, RandomNumbers, Recurrence
from armature.lower.index import (
    Index,
    Size,
    Var,
    add,
    bounds,
    contiguous_strides,
    delinear,
    divisions,
    floordiv,
    hint,
    mul,
    numel,
    sizes,
    stride_of,
    sub,
    substitute,
    variables,
)
from armature.lower.ops import OPS, REDUCTIONS
from armature.lower.reasons import NotSupported
from armature.lower.registry import collect_lowerings, lowers
from armature.lower.values import Scalar, ScalarValue, Spec, TensorValue
from armature.run import measured
from armature.run.arenas import Arenas
from armature.run.joined import in_order, join, launches_of
from armature.run.replay import LaunchRecorder, NotRecorded
from armature.schedule.batch import Body, Row, body_of
from armature.schedule.data import Batch, FusionPair, FusionPart, FusionRule, Kernel, KernelPlan, Pass, Work
from armature.schedule.expression import Expression
from armature.schedule.rewrite import nodes_of, replace
from armature.schedule.walk import (
    depends,
    operands,
    postorder,
    rebuild,
    recomputed_operands,
    rename_node,
    rename_store,
    store_roots,
    with_operands,
)
from armature.torch_abi.attention import autocast_to
from armature.torch_abi.streams import raw_stream_getter

__all__ = [
    "OPS",
    "PYTHON_INDEX",
    "REDUCTIONS",
    "Accumulate",
    "AcrossRows",
    "Alternative",
    "Arenas",
    "ArgumentSpec",
    "Batch",
    "Body",
    "Buffer",
    "Builder",
    "CallInstead",
    "CompilesCalls",
    "Const",
    "DeviceBackend",
    "Expression",
    "Features",
    "FusionPair",
    "FusionPart",
    "FusionRule",
    "GraphCall",
    "GroupSpec",
    "Guarded",
    "Index",
    "IndexPrinter",
    "IndexValue",
    "Kernel",
    "KernelBody",
    "KernelChoice",
    "KernelPlan",
    "KernelSource",
    "LaunchRecorder",
    "Let",
    "LibrarySpec",
    "Lines",
    "Load",
    "Masked",
    "Node",
    "NotRecorded",
    "NotSupported",
    "Numbering",
    "Op",
    "OpForm",
    "Part",
    "Pass",
    "PassBody",
    "Position",
    "Prepares",
    "Product",
    "ProductSizes",
    "RandomNumbers",
    "Recurrence",
    "Reduce",
    "Row",
    "Scalar",
    "ScalarValue",
    "Scan",
    "Size",
    "Spec",
    "Statement",
    "Store",
    "TensorValue",
    "Tried",
    "Var",
    "Work",
    "Workspace",
    "Write",
    "add",
    "autocast_to",
    "body_of",
    "bounds",
    "collect_lowerings",
    "compute_dtype",
    "contiguous_strides",
    "delinear",
    "depends",
    "divisions",
    "floordiv",
    "given_of",
    "heading",
    "hint",
    "in_order",
    "index",
    "join",
    "launches_of",
    "layout",
    "library",
    "lowers",
    "measured",
    "mul",
    "no_collection",
    "nodes_of",
    "numel",
    "of_arguments",
    "operands",
    "origin_of",
    "parts_of",
    "philox",
    "place",
    "position",
    "postorder",
    "print_op",
    "products",
    "raw_stream_getter",
    "rebuild",
    "recomputed_operands",
    "rename_node",
    "rename_store",
    "replace",
    "rounded",
    "sizes",
    "store_roots",
    "stored_early",
    "stride_of",
    "sub",
    "substitute",
    "variables",
    "walk_kernel",
    "with_operands",
]
