"""core.config: settings with types, defaults, variables and patches."""

import pytest
import torch

import core
from core.settings import SETTINGS, Config


def add(x, k):
    return x + len(k)


def test_a_setting_is_the_default_of_what_compile_is_not_told():
    with core.config.patch(recompile_limit=2, backend="eager"):
        compiled = core.compile(add)
    assert compiled.callback.options.recompile_limit == 2
    assert compiled.callback.options.backend == "eager"
    assert core.compile(add, backend="eager", recompile_limit=3).callback.options.recompile_limit == 3
    assert core.compile(add, backend="eager").callback.options.recompile_limit == 8


@pytest.mark.parametrize("name", ["recompile_limt", "fullgraph", "anything"])
def test_an_unknown_setting_is_an_error_that_names_what_looks_alike(name):
    with pytest.raises(core.UnknownSetting, match=name):
        setattr(core.config, name, 1)
    with pytest.raises(core.UnknownSetting):
        getattr(core.config, name)
    with pytest.raises(core.UnknownSetting):
        core.config.patch(**{name: 1})
    assert not hasattr(core.config, name)
    assert core.UnknownSetting.id == "CORE-O002"


def test_the_error_of_a_misspelt_setting_has_the_right_name():
    with pytest.raises(core.InvalidOption, match="did you mean 'recompile_limit'"):
        core.config.recompile_limt = 1


@pytest.mark.parametrize(
    "name, value", [("recompile_limit", 0), ("recompile_limit", True), ("recompile_limit", "8"), ("nested", 1),
                    ("dynamic", "yes"), ("strict", None)]
)  # fmt: skip
def test_a_value_of_another_type_is_an_error_and_changes_nothing(name, value):
    before = core.config.as_dict()
    with pytest.raises(core.InvalidOption, match=name):
        setattr(core.config, name, value)
    with pytest.raises(core.InvalidOption):
        core.config.patch({name: value})
    assert core.config.as_dict() == before


def test_patches_nest_and_end_with_their_block_or_function():
    assert core.config.recompile_limit == 8
    with core.config.patch("recompile_limit", 4):
        with core.config.patch({"recompile_limit": 5}, nested=False):
            assert (core.config.recompile_limit, core.config.nested) == (5, False)
        assert (core.config.recompile_limit, core.config.nested) == (4, True)
    assert core.config.recompile_limit == 8

    @core.config.patch(recompile_limit=6)
    def limit():
        return core.config.recompile_limit

    assert (limit(), core.config.recompile_limit, limit.__name__) == (6, 8, "limit")


def test_a_patch_ends_also_when_its_block_raises_and_keeps_other_changes():
    config = Config()
    with pytest.raises(KeyError), config.patch(recompile_limit=2):
        config.nested = False
        raise KeyError
    assert (config.recompile_limit, config.nested) == (8, False)
    del config.nested
    assert config.nested is True


def test_variables_give_the_value_until_one_is_set(monkeypatch):
    config = Config()
    monkeypatch.setenv("CORE_AUDIT_GUARDS", "1")
    assert config.audit_guards is True
    monkeypatch.setenv("CORE_AUDIT_GUARDS", "0")
    assert config.audit_guards is False
    config.audit_guards = True
    assert config.audit_guards is True


def test_every_setting_is_listed_with_its_meaning():
    listed = repr(core.config).splitlines()
    assert len(listed) == len(SETTINGS) == len(list(core.config))
    assert all(setting.help in line for setting, line in zip(SETTINGS.values(), listed))
    assert set(SETTINGS) <= set(dir(core.config))


def test_symbolic_sizes_and_numbers_can_be_turned_off():
    def scaled(x, n):
        return x * n

    x = torch.ones(4)
    with core.config.patch(symbolic_numbers=False, symbolic_sizes=False):
        compiled = core.compile(scaled, backend="eager")
        for n in (2, 3, 4):
            assert torch.equal(compiled(x, n), x * n)
        for size in (5, 6):
            compiled(torch.ones(size), 2)
    assert len(compiled.entries()) == 5
    core.reset()
    for n in (2, 3, 4):
        compiled(x, n)
    assert len(compiled.entries()) == 2


def test_strict_and_disable_follow_the_setting():
    with core.config.patch(disable=True):
        assert core.compile(add, backend="eager") is add
    with core.config.patch(strict=False):
        assert core.config.strict is False


def test_the_default_backend_can_be_set_and_put_back(monkeypatch):
    monkeypatch.delenv("CORE_BACKEND", raising=False)
    assert core.get_default_backend() == "inductor"
    core.set_default_backend("eager")
    try:
        assert core.get_default_backend() == "eager"
        assert core.compile(add).callback.options.backend == "eager"
        with pytest.raises(core.BackendNotInstalled):
            core.set_default_backend("no-such-backend")
        assert core.get_default_backend() == "eager"
    finally:
        core.set_default_backend(None)
    assert core.get_default_backend() == "inductor"
