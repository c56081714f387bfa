"""`core.config`: the settings of the process, typed and checked, each with a default and some with a variable.

A setting is the default of what `compile` is not told; `compile` reads it when it is called. This module imports no
torch. State shared between threads: the values of `config`, a dict that is replaced as a whole, under the GIL.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import InvalidOption, UnknownSetting


@dataclass(frozen=True)
class Setting:
    """One setting: the types its value may have, its default, what it means, and the variable that may set it."""

    types: tuple[type, ...]
    default: Any
    help: str
    variable: str = ""
    at_least: int | None = None

    def problem(self, value: Any) -> str:
        """What is wrong with a value, as a remedy; empty when it is right."""
        if object in self.types or value is None and type(None) in self.types:
            return ""
        if isinstance(value, bool) and bool not in self.types or not isinstance(value, self.types):
            named = [kind.__name__ for kind in self.types if kind is not type(None)]
            return f"pass {' or '.join(named)}" + (" or None" if type(None) in self.types else "")
        if self.at_least is not None and value is not None and value < self.at_least:
            return f"pass at least {self.at_least}"
        return ""

    def unset(self) -> Any:
        """The value while nobody has set one."""
        text = os.environ.get(self.variable, "") if self.variable else ""
        if not text:
            return self.default
        return text != "0" if bool in self.types else text


SETTINGS: Mapping[str, Setting] = {
    "backend": Setting((object,), "inductor", "the backend of compile() without `backend`", "CORE_BACKEND"),
    "recompile_limit": Setting((int,), 8, "how many entries one callable may hold", at_least=1),
    "dynamic": Setting((bool, type(None)), None, "the default of compile(dynamic=)"),
    "capture_scalar_outputs": Setting((bool,), False, "the default of compile(capture_scalar_outputs=)"),
    "nested": Setting((bool,), True, "the default of compile(nested=)"),
    "symbolic_sizes": Setting((bool,), True, "a size that changed becomes symbolic (dynamic=None)"),
    "symbolic_numbers": Setting((bool,), True, "an int or float that changed becomes symbolic (dynamic=None)"),
    "audit_guards": Setting((bool,), False, "report what a capture read and no guard holds", "CORE_AUDIT_GUARDS"),
    "strict": Setting((bool,), False, "what would fall back raises", "CORE_STRICT"),
    "disable": Setting((bool,), False, "compile() returns what it is given", "CORE_DISABLE"),
}
"""Name -> setting, in the order in which they are listed."""


class Config:
    """The settings as attributes. Assigning checks name and type; deleting goes back to the default."""

    __slots__ = ("_values",)

    _values: dict[str, Any]

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        setting = _setting(name, AttributeError)
        values = self._values
        return values[name] if name in values else setting.unset()

    def __setattr__(self, name: str, value: Any) -> None:
        self._replace({name: value})

    def __delattr__(self, name: str) -> None:
        _setting(name, AttributeError)
        object.__setattr__(self, "_values", {key: value for key, value in self._values.items() if key != name})

    def __dir__(self) -> list[str]:
        return sorted([*object.__dir__(self), *SETTINGS])

    def __iter__(self) -> Iterator[str]:
        return iter(SETTINGS)

    def __repr__(self) -> str:
        return "\n".join(f"{name} = {getattr(self, name)!r}  # {SETTINGS[name].help}" for name in SETTINGS)

    def patch(self, changes: Mapping[str, Any] | str | None = None, value: Any = None, /, **more: Any) -> Patch:
        """Settings for a while: `with config.patch(recompile_limit=2):`, or as a decorator of a function.

        Also `patch("recompile_limit", 2)` and `patch({"recompile_limit": 2})`. Raises InvalidOption at once.
        """
        given = {changes: value} if isinstance(changes, str) else dict(changes or {})
        given.update(more)
        for name, wanted in given.items():
            _check(name, wanted)
        return Patch(self, given)

    def as_dict(self) -> dict[str, Any]:
        """Every setting and its present value."""
        return {name: getattr(self, name) for name in SETTINGS}

    def _replace(self, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            _check(name, value)
        object.__setattr__(self, "_values", {**self._values, **given})


class Patch:
    """A context manager, usable again and nested, and a decorator."""

    def __init__(self, config: Config, given: Mapping[str, Any]) -> None:
        self._config = config
        self._given = given
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> Config:
        self._before.append(self._config._values)
        self._config._replace(self._given)
        return self._config

    def __exit__(self, *raised: object) -> None:
        before = self._before.pop()
        now = {name: value for name, value in self._config._values.items() if name not in self._given}
        now.update({name: before[name] for name in self._given if name in before})
        object.__setattr__(self._config, "_values", now)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def patched(*args: Any, **kwargs: Any) -> Any:
            with Patch(self._config, self._given):
                return fn(*args, **kwargs)

        return patched


def _setting(name: str, error: type[Exception] = InvalidOption) -> Setting:
    found = SETTINGS.get(name)
    if found is not None:
        return found
    if name.startswith("_") and error is AttributeError:
        raise AttributeError(name)
    close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
    raise UnknownSetting(
        f"core.config has no setting {name!r}",
        instead="nothing was changed",
        remedy=f"did you mean {close[0]!r}?" if close else f"the settings are {', '.join(SETTINGS)}",
    )


def _check(name: str, value: Any) -> None:
    problem = _setting(name).problem(value)
    if problem:
        raise InvalidOption(f"core.config.{name} = {value!r}", instead="nothing was changed", remedy=problem)


config = Config()
"""The settings of this process."""
