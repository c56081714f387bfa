"""The options of compile() about what a backend does not take: checked, part of the key, read from core.config."""

import pytest

import core
from core.errors import InvalidOption
from core.options import CompileOptions


def double(x):
    return x * 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("fullgraph_backend", 1),
        ("max_fallback_cost", 1.5),
        ("max_fallback_cost", -0.1),
        ("max_fallback_cost", True),
        ("on_failure", "ignore"),
        ("precision", ""),
        ("precision", 3),
        ("freeze", "yes"),
    ],
)
def test_a_wrong_value_is_an_error_of_compile_with_the_remedy(option, value):
    with pytest.raises(InvalidOption, match=option) as caught:
        core.compile(double, backend="eager", **{option: value})
    assert caught.value.remedy


@pytest.mark.parametrize(
    "options",
    [
        {"fallback": ()},
        {"fullgraph_backend": True},
        {"max_fallback_cost": 0.5},
        {"on_failure": "fallback"},
        {"precision": "ieee"},
        {"freeze": True},
    ],
)
def test_callables_with_other_options_share_no_entries(options):
    assert CompileOptions(**options).key != CompileOptions().key
    assert core.compile(double, backend="eager", **options) is not core.compile(double, backend="eager")
    assert core.compile(double, backend="eager", **options) is core.compile(double, backend="eager", **options)


def test_a_list_of_backends_gives_the_same_callable_again():
    kept = core.compile(double, backend=["eager", "aot_eager"])
    assert core.compile(double, backend=["eager", "aot_eager"]) is kept


def test_one_fallback_needs_no_list():
    assert CompileOptions(fallback="eager").fallback == ("eager",)
    assert CompileOptions(fallback=None).fallback == ()


def test_what_is_not_given_comes_from_the_settings():
    with core.config.patch(fallback=["eager"], on_failure="fallback", precision="ieee", max_fallback_cost=0.5):
        options = core.compile(double, backend="eager").callback.options
    assert (options.fallback, options.on_failure, options.precision, options.max_fallback_cost) == (
        ("eager",),
        "fallback",
        "ieee",
        0.5,
    )
