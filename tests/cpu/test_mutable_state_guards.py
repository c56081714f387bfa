"""Mutable state behind functions, globals, closures, modules and containers is guarded: each change makes the next call
miss, and its result is eager's."""

from __future__ import annotations

import collections
import os
import sys
import types

import torch
from agreement import notices_each

X = torch.arange(6.0).reshape(2, 3)


G = 2.0


@notices_each
def test_global_value():
    def fn(x):
        return x * G

    def change():
        global G
        G = 3.0

    def ch2():
        global G
        G = X

    return fn, (X,), [change, ch2]


def helper(x):
    return x + 1


def other_helper(x):
    return x * 5


@notices_each
def test_global_function():
    def fn(x):
        return helper(x)

    def change():
        global helper
        helper = other_helper

    return fn, (X,), [change]


def helper2(x, k=1):
    return x + k


@notices_each
def test_defaults():
    def fn(x):
        return helper2(x)

    def change():
        helper2.__defaults__ = (7,)

    return fn, (X,), [change]


def helper3(x, *, k=1):
    return x + k


@notices_each
def test_kwdefaults():
    def fn(x):
        return helper3(x)

    def change():
        helper3.__kwdefaults__ = {"k": 9}

    def ch2():
        helper3.__kwdefaults__["k"] = 10

    return fn, (X,), [change, ch2]


def helper4(x):
    return x + 1


@notices_each
def test_code_swap():
    def fn(x):
        return helper4(x)

    def change():
        helper4.__code__ = (lambda x: x * 9).__code__

    return fn, (X,), [change]


@notices_each
def test_closure():
    k = 2

    def fn(x):
        return x * k

    def change():
        nonlocal k
        k = 5

    return fn, (X,), [change]


@notices_each
def test_closure_of_inlined():
    k = [2]

    def mk():
        v = 1

        def inner(x):
            return x * v * k[0]

        def setv(n):
            nonlocal v
            v = n

        return inner, setv

    inner, setv = mk()

    def fn(x):
        return inner(x)

    return fn, (X,), [lambda: setv(4), lambda: k.__setitem__(0, 9)]


@notices_each
def test_list_contents():
    l = [1, 2, [3]]

    def fn(x):
        return x * l[0] + len(l) + l[2][0] + sum(l[:2])

    return (
        fn,
        (X,),
        [
            lambda: l.__setitem__(0, 5),
            lambda: l.append(1),
            lambda: l[2].__setitem__(0, 7),
            lambda: l.__setitem__(2, (8,)),
        ],
    )


@notices_each
def test_dict_contents():
    d = {"a": 1, "b": {"c": 2}}

    def fn(x):
        return x * d["a"] + d["b"]["c"] + d.get("z", 0) + len(d) + ("q" in d)

    return (
        fn,
        (X,),
        [
            lambda: d.__setitem__("a", 5),
            lambda: d["b"].__setitem__("c", 7),
            lambda: d.__setitem__("z", 3),
            lambda: d.__setitem__("q", 1),
            lambda: d.pop("q"),
        ],
    )


@notices_each
def test_dict_order():
    d = {"a": 1, "b": 2}

    def fn(x):
        return [x * v for v in d.values()], list(d)

    def change():
        v = d.pop("a")
        d["a"] = v

    return fn, (X,), [change]


@notices_each
def test_set_contents():
    s = {1, 2}

    def fn(x):
        return x * (3 in s) + len(s)

    return fn, (X,), [lambda: s.add(3), lambda: s.discard(1)]


@notices_each
def test_deque_contents():
    d = collections.deque([1, 2])

    def fn(x):
        return x * d[0] + len(d)

    return fn, (X,), [lambda: d.appendleft(5), lambda: d.append(1)]


@notices_each
def test_environment_variable():
    def fn(x):
        return x + 1 if os.environ.get("CORE_TEST_FLAG") == "1" else x - 1

    def change():
        os.environ["CORE_TEST_FLAG"] = "1"

    def ch2():
        os.environ["CORE_TEST_FLAG"] = "0"

    def ch3():
        del os.environ["CORE_TEST_FLAG"]

    return fn, (X,), [change, ch2, ch3]


@notices_each
def test_os_getenv():
    def fn(x):
        return x + 1 if os.getenv("CORE_TEST_FLAG", "0") == "1" else x - 1

    def change():
        os.environ["CORE_TEST_FLAG"] = "1"

    def ch3():
        del os.environ["CORE_TEST_FLAG"]

    return fn, (X,), [change, ch3]


mod = types.ModuleType("usermod_x")
mod.v = 1
mod.f = lambda x: x + 1
sys.modules["usermod_x"] = mod


@notices_each
def test_module_attr():
    import usermod_x

    def fn(x):
        return usermod_x.f(x) * usermod_x.v

    def change():
        usermod_x.v = 3

    def ch2():
        usermod_x.f = lambda x: x * 4

    return fn, (X,), [change, ch2]


@notices_each
def test_imports_inside_the_function():
    def fn(x):
        import usermod_x as u
        from usermod_x import v

        return x * v * u.v

    def change():
        mod.v = 11

    def ch2():
        m = types.ModuleType("usermod_x")
        m.v = 20
        m.f = None
        sys.modules["usermod_x"] = m

    return fn, (X,), [change, ch2]


@notices_each
def test_builtin_shadow():
    def fn(x):
        return x * len([1, 2])

    def change():
        globals()["len"] = lambda l: 9

    def ch2():
        del globals()["len"]

    return fn, (X,), [change, ch2]


@notices_each
def test_a_function_attribute():
    def fn(x):
        return x * helper3.tag

    helper3.tag = 1

    def change():
        helper3.tag = 4

    return fn, (X,), [change]


@notices_each
def test_default_dtype():
    def fn(x):
        return torch.ones(2), x.to(torch.get_default_dtype())

    def change():
        torch.set_default_dtype(torch.float64)

    def ch2():
        torch.set_default_dtype(torch.float32)

    return fn, (X,), [change, ch2]


@notices_each
def test_nested_fn_defaults_global():
    def fn(x):
        def f(y, k=G):
            return y * k

        return f(x)

    def change():
        global G
        G = 6.0

    return fn, (X,), [change]


@notices_each
def test_a_module_with_getattr():
    def missing(name):
        if name.startswith("__"):  # who looks through sys.modules asks for these
            raise AttributeError(name)
        return 5

    m = types.ModuleType("lazy_mod_x")
    m.__getattr__ = missing
    sys.modules["lazy_mod_x"] = m

    def fn(x):
        import lazy_mod_x

        return x * lazy_mod_x.foo

    def change():
        m.foo = 8

    return fn, (X,), [change]
