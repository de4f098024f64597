"""What recordings rely on: addresses compared, uses of a storage counted, values copied."""

from __future__ import annotations

import pytest
import torch

from armature.torch_abi import memory


def test_addresses_are_compared_at_their_positions() -> None:
    tensors = [torch.ones(2), 3, torch.ones(2), torch.ones(2)]
    places = [tensors[0].data_ptr(), None, tensors[2].data_ptr(), None]  # type: ignore[attr-defined]
    assert memory.same_addresses(tensors, places, [2, 0])
    assert not memory.same_addresses(tensors, [None, None, *places[:1], None], [2])
    assert memory.same_addresses(tensors, [None] * 4, [])


def test_uses_count_every_tensor_on_a_storage() -> None:
    tensor = torch.ones(4)
    number = memory.storage_number(tensor)
    before = memory.uses(number)
    alias, view = tensor.detach(), tensor[1:]
    assert memory.uses(number) == before + 2
    assert memory.storage_number(alias) == memory.storage_number(view) == number
    assert memory.uses(number) == before + 2
    del alias
    assert memory.uses(number) == before + 1
    view.untyped_storage()  # what the program asks for is not counted either
    del view
    assert memory.uses(number) == before


@pytest.mark.parametrize("enabled", [False, True])
def test_values_are_copied_without_history(enabled: bool) -> None:
    targets = [torch.zeros(2), torch.zeros(3, dtype=torch.int64)]
    values = [torch.ones(2, requires_grad=True), torch.tensor([1, 2, 3])]
    with torch.set_grad_enabled(enabled):
        memory.copy_all(targets, values)
        with pytest.raises(RuntimeError):
            memory.copy_all(targets, [torch.ones(5), torch.ones(3)])
        assert torch.is_grad_enabled() is enabled
    assert [target.tolist() for target in targets] == [[1, 1], [1, 2, 3]]
    assert not targets[0].requires_grad and targets[0].is_leaf


def test_a_storage_at_an_address_does_not_own_it() -> None:
    tensor = torch.arange(6.0)
    storage = tensor.untyped_storage()
    placed = memory.storage_at(storage.data_ptr(), storage.nbytes(), tensor.device)
    before = memory.uses(memory.storage_number(tensor))
    same = memory.tensor_in(placed, memory.Layout.of(tensor[1::2]))
    assert memory.uses(memory.storage_number(tensor)) == before
    same.fill_(9)
    assert tensor.tolist() == [0, 9, 2, 9, 4, 9]
    del same, placed
    assert tensor.tolist() == [0, 9, 2, 9, 4, 9]


def test_tensors_that_are_read_conjugated_or_negated() -> None:
    values = torch.tensor([1 + 2j, 3 - 4j])
    for tensor in (values.conj(), values.conj().imag, values.conj()[1:]):
        storage = tensor.untyped_storage()
        placed = memory.storage_at(storage.data_ptr(), storage.nbytes(), tensor.device)
        same = memory.tensor_in(placed, memory.Layout.of(tensor))
        assert torch.equal(same, tensor) and (same.is_conj(), same.is_neg()) == (tensor.is_conj(), tensor.is_neg())


def test_a_storage_is_known_to_be_gone_and_its_number_stays_its_own() -> None:
    tensor = torch.ones(4)
    number = memory.storage_number(tensor)
    seen = memory.StorageWeakRef(tensor.untyped_storage())
    assert seen.cdata == number and not seen.expired()
    del tensor
    assert seen.expired() and memory.uses(number) == 0
    assert all(memory.storage_number(torch.ones(4)) != number for _ in range(100))
