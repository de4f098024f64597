"""Settings: where they come from, what they refuse, and how far a change reaches."""

from __future__ import annotations

import threading
from pathlib import Path

import attrs
import pytest
import torch

from armature import config
from armature.config import Config
from armature.errors import BadSetting, UnknownSetting


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("ARMATURE_STRICT", "1", "strict", True),
        ("ARMATURE_STRICT", "off", "strict", False),
        ("ARMATURE_DISABLE_PLUGINS", "one, two", "disabled_plugins", frozenset({"one", "two"})),
        ("ARMATURE_PLUGIN_ORDER", "one,two", "plugin_order", ("one", "two")),
        ("ARMATURE_SHOW", "aten loops", "show", frozenset({"aten", "loops"})),
        ("ARMATURE_CACHE_DIR", "/tmp/kernels", "cache_dir", Path("/tmp/kernels")),
        ("ARMATURE_THREADS", "3", "threads", 3),
        ("ARMATURE_RECOMPILE_LIMIT", "2", "recompile_limit", 2),
        ("CXX", "clang++-18", "cpp_compiler", "clang++-18"),
        ("ARMATURE_CPP_FLAGS", "-O1 '-DNAME=a b'", "cpp_flags", ("-O1", "-DNAME=a b")),
        ("ARMATURE_CPU_THREADS", "5", "cpu_threads", 5),
    ],
)
def test_a_variable_is_read(variable: str, text: str, name: str, value: object) -> None:
    assert getattr(Config.from_env({variable: text}), name) == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [("ARMATURE_STRICT", "maybe"), ("ARMATURE_THREADS", "many"), ("ARMATURE_RECOMPILE_LIMIT", "0")],
)
def test_a_wrong_variable_is_named(variable: str, text: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Config.from_env({variable: text})
    assert text in str(caught.value)


def test_defaults_hold_without_variables() -> None:
    config = Config.from_env({})
    assert not config.strict
    assert config.recompile_limit == 8
    assert config.cpu_threads == torch.get_num_threads()
    assert config.cache_dir.name == "armature"
    assert config.threads >= 1


def test_every_setting_has_a_variable_and_a_help() -> None:
    fields = attrs.fields(Config)
    variables = [field.metadata["env"] for field in fields]
    assert len(set(variables)) == len(variables)
    assert all(field.metadata["help"].endswith(".") for field in fields)
    assert all(name.startswith("ARMATURE_") or name == "CXX" for name in variables)


def test_settings_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Config().strict = True  # type: ignore[misc]


def test_patch_lasts_for_its_body_and_nests() -> None:
    before = config.current().recompile_limit
    with config.patch(recompile_limit=3):
        with config.patch(fuse=False):
            assert (config.current().recompile_limit, config.current().fuse) == (3, False)
        assert config.current().fuse
    assert config.current().recompile_limit == before


def test_patch_is_undone_by_an_exception() -> None:
    before = config.current()
    with pytest.raises(RuntimeError), config.patch(fuse=False):
        raise RuntimeError
    assert config.current() == before


def test_patch_reaches_this_thread_only_and_update_all() -> None:
    seen: list[tuple[bool, int]] = []

    def look() -> None:
        seen.append((config.current().fuse, config.current().recompile_limit))

    before = config.settings().base
    try:
        config.update(recompile_limit=5)
        with config.patch(fuse=False):
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
    finally:
        config.settings().base = before
    assert seen == [(True, 5)]


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownSetting, match="recompile_limit"), config.patch(recompile_limits=3):
        pass


@pytest.mark.parametrize("changes", [{"threads": "4"}, {"strict": 1}, {"threads": 0}, {"cpp_flags": "-O2"}])
def test_a_value_of_the_wrong_kind_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadSetting, match=next(iter(changes))), config.patch(**changes):
        pass


def test_collections_are_taken_in_any_form() -> None:
    with config.patch(disabled_plugins=["one"], cpp_flags=["-O2"]) as changed:
        assert changed.disabled_plugins == frozenset({"one"})
        assert changed.cpp_flags == ("-O2",)
