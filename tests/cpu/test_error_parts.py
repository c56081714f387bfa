"""The parts of an error, and the errors that no other test raises."""

import pytest
import torch

import core
from core.errors import CoreError, UserLine


def test_an_error_says_what_where_what_happened_instead_and_what_to_change():
    error = CoreError("it broke", where=UserLine("model.py", 12, "forward"), instead="nothing", remedy="mend it")
    assert str(error).splitlines() == [
        "[CORE-E000] it broke",
        "  at: model.py:12 in forward",
        "  instead: nothing",
        "  remedy: mend it",
    ]


def test_parts_that_are_not_known_are_left_out():
    assert str(CoreError("it broke")) == "[CORE-E000] it broke"


def test_every_error_of_a_backend_is_a_backend_error_and_every_error_a_core_error():
    for name in ("BackendNotInstalled", "BackendFailed", "BackendMisbehaved", "BackendUnavailable"):
        assert issubclass(getattr(core, name), core.BackendError)
    assert issubclass(core.BackendError, CoreError)
    assert core.BackendError.id == "CORE-B000"


def test_the_recompile_limit_raises_under_fullgraph_with_the_failing_guard():
    def scaled(x, factor):
        return x * len(factor)

    compiled = core.compile(scaled, backend="eager", fullgraph=True, recompile_limit=2)
    x = torch.ones(2)
    compiled(x, "a")
    compiled(x, "ab")
    with pytest.raises(core.RecompileLimit) as raised:
        compiled(x, "abc")
    assert raised.value.id == "CORE-C003"
    assert "compiled 2 times" in raised.value.what and "L['factor']" in raised.value.what
    assert "recompile_limit" in raised.value.remedy
    assert torch.equal(compiled(x, "ab"), torch.full((2,), 2.0))  # the entries stay


def test_the_recompile_limit_warns_once_and_runs_uncompiled_without_fullgraph():
    def scaled(x, factor):
        return x * len(factor)

    compiled = core.compile(scaled, backend="eager", recompile_limit=1)
    x = torch.ones(2)
    compiled(x, "a")
    with pytest.warns(UserWarning, match="recompile_limit=1"):
        assert torch.equal(compiled(x, "ab"), torch.full((2,), 2.0))
    assert torch.equal(compiled(x, "abc"), torch.full((2,), 3.0))
    assert len(compiled.entries()) == 1


def test_a_refusal_under_fullgraph_names_line_reason_and_remedy():
    def choose(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(core.Unsupported) as raised:
        core.compile(choose, backend="eager", fullgraph=True)(torch.ones(2))
    assert raised.value.id == "CORE-C001"
    assert raised.value.where.line == choose.__code__.co_firstlineno + 1
    assert "value of a tensor" in raised.value.what and "torch.where" in raised.value.remedy


def test_the_kind_of_a_wrong_option_is_told_by_its_class():
    with pytest.raises(ValueError, match="CORE-O001"):
        core.compile(lambda x: x, mode="fastest")
