"""`core.config`: the settings of the process, typed and checked, each with a default and some with a variable.

A setting is the default of what `compile` is not told; `compile` reads it when it is called. What decides, from the
strongest: the argument of the call, `config.patch` or an assignment, the variable, `[tool.core]` of the project file,
the user's file, the default. This module imports no torch. State shared between threads: the values of `config`, a dict
that is replaced as a whole, under the GIL.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import InvalidOption, UnknownSetting
from .setting_files import SettingFile, setting_files


@dataclass(frozen=True)
class Setting:
    """One setting: the types its value may have, its default, what it means, and the variable that may set it.

    files: the project's and the user's file may set it too; choices: the texts it may be, empty for any.
    """

    types: tuple[type, ...]
    default: Any
    help: str
    variable: str = ""
    at_least: float | None = None
    files: bool = False
    choices: tuple[str, ...] = ()

    def problem(self, value: Any) -> str:
        """What is wrong with a value, as a remedy; empty when it is right."""
        if object in self.types or value is None and type(None) in self.types:
            return ""
        if isinstance(value, bool) and bool not in self.types or not isinstance(value, self._accepted()):
            named = [kind.__name__ for kind in self.types if kind is not type(None)]
            return f"pass {' or '.join(named)}" + (" or None" if type(None) in self.types else "")
        if isinstance(value, (list, tuple)) and not all(isinstance(item, str) for item in value):
            return "pass a list of names"
        if self.at_least is not None and isinstance(value, (int, float)) and value < self.at_least:
            return f"pass at least {self.at_least}"
        if self.choices and value not in self.choices:
            return f"pass one of {', '.join(map(repr, self.choices))}"
        return ""

    def _accepted(self) -> tuple[type, ...]:
        more = {float: int, tuple: list}
        return (*self.types, *(more[kind] for kind in self.types if kind in more))

    def stored(self, value: Any) -> Any:
        """A right value in the form in which it is read: lists as tuples."""
        return tuple(value) if isinstance(value, list) and tuple in self.types else value

    def unset(self, name: str) -> Any:
        """The value while nobody has set one in the process. Raises InvalidOption for a wrong one from outside."""
        text = os.environ.get(self.variable, "") if self.variable else ""
        if text:
            value = self._parsed(text)
            self._require(value, f"{self.variable}={text}")
            return value
        if self.files:
            for file in setting_files():
                if name in file.table:
                    value = file.table[name]
                    self._require(value, f"{file.spelled(name)} is {value!r}", file, name)
                    return self.stored(value)
        return self.default

    def _parsed(self, text: str) -> Any:
        """The text of a variable as a value; what can't be parsed stays text, and is refused as such."""
        if bool in self.types:
            return text != "0"
        if tuple in self.types:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if float in self.types:
            try:
                return float(text)
            except ValueError:
                return text
        return text

    def _require(self, value: Any, what: str, file: SettingFile | None = None, name: str = "") -> None:
        problem = self.problem(value)
        if not problem and file is not None and isinstance(value, dict):
            problem = f"options of a backend stand in [{'.'.join(filter(None, (file.prefix, f'{name}s.NAME')))}]"
        if problem:
            raise InvalidOption(what, instead="nothing was compiled", remedy=problem)


SETTINGS: Mapping[str, Setting] = {
    "backend": Setting((object,), "inductor", "the backend of compile() without `backend`", "CORE_BACKEND", files=True),
    "fallback": Setting(
        (tuple,),
        ("inductor", "eager"),
        "who takes the nodes that a backend does not support, in this order",
        "CORE_FALLBACK",
        files=True,
    ),
    "on_failure": Setting(
        (str,),
        "raise",
        "what a backend that fails to compile leads to",
        "CORE_ON_FAILURE",
        files=True,
        choices=("raise", "fallback"),
    ),
    "precision": Setting((str,), "eager", "the default of compile(precision=)", "CORE_PRECISION", files=True),
    "max_fallback_cost": Setting(
        (float, type(None)),
        None,
        "the largest share of a graph's cost that may fall back, None for any",
        "CORE_MAX_FALLBACK_COST",
        at_least=0,
        files=True,
    ),
    "require_certified": Setting(
        (bool,), True, 'backend="auto" considers certified backends only', "CORE_REQUIRE_CERTIFIED", files=True
    ),
    "auto_candidates": Setting((tuple,), (), 'what backend="auto" tries, empty for every installed plugin'),
    "auto_frozen": Setting((bool,), False, 'backend="auto" uses stored decisions only', "CORE_AUTO_FROZEN"),
    "auto_calls": Setting((int,), 3, 'in which call of a graph backend="auto" decides', at_least=1),
    "auto_seconds": Setting((float,), 2.0, 'how long backend="auto" times the candidates of a graph', at_least=0),
    "recompile_limit": Setting((int,), 8, "how many entries one callable may hold", at_least=1),
    "dynamic": Setting((bool, type(None)), None, "the default of compile(dynamic=)"),
    "capture_scalar_outputs": Setting(
        (bool, type(None)), None, "the default of compile(capture_scalar_outputs=); None for what fullgraph says"
    ),
    "nested": Setting((bool,), True, "the default of compile(nested=)"),
    "symbolic_sizes": Setting((bool,), True, "a size that changed becomes symbolic (dynamic=None)"),
    "symbolic_numbers": Setting((bool,), True, "an int or float that changed becomes symbolic (dynamic=None)"),
    "store_artifacts": Setting(
        (bool,), True, "keep on disk what backends can serialize", "CORE_STORE_ARTIFACTS", files=True
    ),
    "audit_guards": Setting((bool,), False, "report what a capture read and no guard holds", "CORE_AUDIT_GUARDS"),
    "check_frozen": Setting(
        (bool,), False, "before each run, compare the values of frozen weights with those compiled", "CORE_CHECK_FROZEN"
    ),
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
        return values[name] if name in values else setting.unset(name)

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
        stored = {name: SETTINGS[name].stored(value) for name, value in given.items()}
        object.__setattr__(self, "_values", {**self._values, **stored})


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
    import difflib

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


def options_of_backend(name: str) -> dict[str, Any]:
    """The options that `[tool.core.backends.NAME]` and the user's file set for a backend, the project's first."""
    wanted = name.strip().casefold().replace("-", "_")
    found: dict[str, Any] = {}
    for file in setting_files():
        for key in file.section("backends"):
            if key.strip().casefold().replace("-", "_") == wanted:
                found = {**file.section("backends", key), **found}
    return found


def unknown_keys() -> list[str]:
    """One line for each key of the files that nothing reads, for the doctor."""
    known = [*(name for name, setting in SETTINGS.items() if setting.files), "plugins", "backends"]
    lines = []
    for file in setting_files():
        for key in file.table:
            if key not in known:
                import difflib

                close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
                lines.append(f"{file.spelled(key)} is not read" + (f"; did you mean {close[0]!r}?" if close else ""))
    return lines
