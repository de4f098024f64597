"""The seam to torch's numpy layer."""

from __future__ import annotations

import operator
import warnings

import numpy as np
import pytest
import torch

from armature.torch_abi import numpy as layer


def test_memory_is_shared() -> None:
    array = np.arange(6.0).reshape(2, 3).T
    tensor = layer.as_tensor(array)
    assert tensor is not None and tensor.stride() == (1, 3)
    tensor[0, 0] = 7
    assert array[0, 0] == 7 and layer.share_memory(layer.as_array(tensor), array)
    assert layer.as_tensor(np.array(["text"])) is None and layer.as_tensor(array[::-1]) is None


def test_functions_of_the_layer() -> None:
    for fn, name in (
        (np.sum, "sum"),
        (np.exp, "exp"),
        (np.array, "array"),
        (np.linalg.norm, "norm"),
        (np.fft.fft, "fft"),
    ):
        found = layer.function_of_layer(fn)
        assert found is not None and found.__name__ == name
    assert layer.function_of_layer(np.random.rand) is None
    assert layer.function_of_layer(np.interp) is None
    assert layer.function_of_layer(np.float32) is None


def test_on_tensors() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    total = layer.in_layer(layer.function_of_layer(np.sum), "sum")  # type: ignore[arg-type]
    assert torch.equal(total(x, axis=0), x.sum(0))
    join = layer.in_layer(layer.function_of_layer(np.concatenate), "concatenate")  # type: ignore[arg-type]
    assert torch.equal(join([x, x]), torch.cat([x, x]))
    assert torch.equal(layer.method_of_layer("reshape")(x, -1), x.reshape(-1))
    assert torch.equal(layer.attribute_of_layer("T")(x), x.T)
    layer.in_layer(operator.setitem, "setitem")(x, 0, 9.0)
    assert x[0].tolist() == [9.0] * 3
    assert isinstance(total(x), torch.Tensor) and type(layer.as_scalar(total(x))) is np.float32


@pytest.mark.parametrize("name", layer.DTYPES)
def test_dtypes(name: str) -> None:
    tensor = torch.zeros(2, 3, dtype=layer.DTYPES[name]).T
    shadow = layer.shadow_of(tensor, (3, 2))
    assert shadow.dtype == np.dtype(name) and layer.as_array(tensor).strides == shadow.strides
    assert layer.shadow_of(torch.empty(1, device="meta").expand(layer.LARGEST + 1), (layer.LARGEST + 1,)) is not None
    assert layer.shadow_of(torch.empty(layer.LARGEST + 1, device="meta"), (layer.LARGEST + 1,)) is None


def test_the_layer_reports_nothing_where_numpy_would() -> None:
    with np.errstate(all="warn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert layer.reports_errors()
        with np.errstate(all="ignore"):
            assert not layer.reports_errors()
        warnings.simplefilter("ignore")
        assert not layer.reports_errors()
        with np.errstate(over="call"):
            assert layer.reports_errors()
