"""Mutable state of classes and objects is guarded: each change makes the next call miss, and its result is eager's."""

from __future__ import annotations

import dataclasses
import enum
import functools

import torch
from agreement import notices_each

X = torch.arange(6.0).reshape(2, 3)


def family():
    class A:
        c = 2

        def m(self, x):
            return x * self.c

        @property
        def p(self):
            return 3

        @classmethod
        def cm(cls, x):
            return x + cls.c

        @staticmethod
        def sm(x):
            return x + 1

    class B(A):
        pass

    return A, B


def helper2(x, k=1):
    return x + k


@notices_each
def test_class_attr():
    A, B = family()
    a = B()

    def fn(x):
        return a.m(x)

    def change():
        A.c = 7

    def ch2():
        B.c = 8

    def ch3():
        a.c = 9

    def ch4():
        del a.c

    def ch5():
        del B.c

    return fn, (X,), [change, ch2, ch3, ch4, ch5]


@notices_each
def test_method_swap():
    A, B = family()
    a = B()

    def fn(x):
        return a.m(x)

    def change():
        B.m = lambda self, x: x - 1

    def ch2():
        A.m = lambda self, x: x - 2

    def ch3():
        a.m = lambda x: x - 3

    def ch4():
        del a.m
        del B.m

    return fn, (X,), [change, ch3, ch4, ch2]


class C1:
    @property
    def p(self):
        return 3

    @classmethod
    def cm(cls, x):
        return x + 1

    @staticmethod
    def sm(x):
        return x + 1


@notices_each
def test_property_swap():
    a = C1()

    def fn(x):
        return x * a.p

    def change():
        C1.p = property(lambda s: 8)

    def ch2():
        C1.p = 5

    return fn, (X,), [change, ch2]


@notices_each
def test_classmethod_swap():
    a = C1()

    def fn(x):
        return C1.cm(x) + a.cm(x) + a.sm(x) + C1.sm(x)

    def change():
        C1.cm = classmethod(lambda c, x: x * 8)

    def ch2():
        C1.sm = staticmethod(lambda x: x * 3)

    return fn, (X,), [change, ch2]


class D1:
    n = 1


@notices_each
def test_class_attr_via_class():
    def fn(x):
        return x * D1.n

    def change():
        D1.n = 6

    return fn, (X,), [change]


@notices_each
def test_class_swap_of_instance():
    class P:
        def f(self, x):
            return x + 1

    class Q:
        def f(self, x):
            return x + 2

    o = P()

    def fn(x):
        return o.f(x)

    def change():
        o.__class__ = Q

    return fn, (X,), [change]


@notices_each
def test_base_classes():
    class P:
        def f(self, x):
            return x + 1

    class Q:
        def f(self, x):
            return x + 2

    class R(P):
        pass

    o = R()

    def fn(x):
        return o.f(x)

    def change():
        R.__bases__ = (Q,)

    return fn, (X,), [change]


@notices_each
def test_instance_attr():
    A, B = family()
    o2 = A()
    o2.v = 1

    def fn(x):
        return x * o2.v

    def change():
        o2.v = 5

    def ch2():
        o2.v = X

    return fn, (X,), [change, ch2]


@notices_each
def test_missing_attr():
    A, B = family()
    o = A()

    def fn(x):
        return x * getattr(o, "zz", 1) + (5 if hasattr(o, "yy") else 0)

    def change():
        o.zz = 4

    def ch2():
        o.yy = 4

    def ch3():
        del o.yy

    def ch4():
        A.yy = 1

    def ch5():
        del A.yy

    return fn, (X,), [change, ch2, ch3, ch4, ch5]


@notices_each
def test_tuple_elem():
    A, B = family()
    o = A()
    o.t = (1, X)

    def fn(x):
        return x * o.t[0] + o.t[1]

    def change():
        o.t = (2, X)

    def ch2():
        o.t = (2, X + 1)

    def ch3():
        o.t = (2, X + 1, 3)

    return fn, (X,), [change, ch2, ch3]


@notices_each
def test_a_partial():
    p = functools.partial(helper2, k=3)
    o = D1()
    o.held = p

    def fn(x):
        return o.held(x)

    def change():
        o.held = functools.partial(helper2, k=4)

    def ch2():
        o.held.keywords["k"] = 6

    return fn, (X,), [change, ch2]


@notices_each
def test_slots():
    class S:
        __slots__ = ("a", "b")

    s = S()
    s.a = 1

    def fn(x):
        return x * s.a * getattr(s, "b", 2)

    def change():
        s.a = 4

    def ch2():
        s.b = 3

    return fn, (X,), [change, ch2]


@notices_each
def test_a_class_with_getattr():
    class S:
        def __getattr__(self, n):
            return 3

    s = S()

    def fn(x):
        return x * s.q

    def change():
        s.q = 4

    def ch2():
        del s.q
        S.__getattr__ = lambda self, n: 7

    return fn, (X,), [change, ch2]


@notices_each
def test_tensor_global_meta():
    A, B = family()
    o = A()
    o.t = X.clone()

    def fn(x):
        return x + o.t if o.t.requires_grad is False else x * o.t.detach()

    def change():
        o.t.requires_grad_()

    def ch2():
        o.t = o.t.detach().double()

    def ch3():
        o.t = torch.ones(3)

    def ch4():
        o.t = torch.ones(3, 2).t()

    return fn, (X,), [change, ch2, ch3, ch4]


@notices_each
def test_an_enum_member():
    A, B = family()

    class E(enum.Enum):
        A = 1
        B = 2

    o = A()
    o.e = E.A

    def fn(x):
        return x + 1 if o.e is E.A else x - 1

    def change():
        o.e = E.B

    return fn, (X,), [change]


@notices_each
def test_the_class_that_isinstance_sees():
    A, B = family()
    o = A()
    o.v = A()

    def fn(x):
        return x + 1 if isinstance(o.v, B) else x - 1

    def change():
        o.v = B()

    def ch2():
        o.v = 3

    return fn, (X,), [change, ch2]


@notices_each
def test_an_attribute_that_is_none():
    A, B = family()
    o = A()
    o.v = None

    def fn(x):
        return x if o.v is None else x + o.v

    def change():
        o.v = 1

    def ch2():
        o.v = X

    def ch3():
        o.v = None

    return fn, (X,), [change, ch2, ch3]


@notices_each
def test_identity():
    A, B = family()
    o = A()
    o.a = [1]
    o.b = o.a

    def fn(x):
        return x + 1 if o.a is o.b else x - 1

    def change():
        o.b = [1]

    def ch2():
        o.a = o.b

    return fn, (X,), [change, ch2]


@notices_each
def test_tensor_identity():
    A, B = family()
    o = A()
    o.a = X
    o.b = X

    def fn(x):
        return x + 1 if o.a is o.b else x - 1

    def change():
        o.b = X.clone()

    def ch2():
        o.a = o.b

    return fn, (X,), [change, ch2]


@notices_each
def test_a_dataclass():
    @dataclasses.dataclass
    class P:
        a: int = 1
        b: object = None

    p = P()

    def fn(x):
        return x * p.a if p.b is None else x + p.b

    def change():
        p.a = 4

    def ch2():
        p.b = 2

    return fn, (X,), [change, ch2]


@notices_each
def test_a_dict_subclass():
    class DD(dict):
        k = 1

    d = DD(a=1)

    def fn(x):
        return x * d["a"] * d.k + len(d)

    def change():
        d["a"] = 3

    def ch2():
        d.k = 5

    def ch3():
        d["z"] = 5

    def ch4():
        DD.__getitem__ = lambda s, k: 77

    return fn, (X,), [change, ch2, ch3, ch4]


@notices_each
def test_metaclass_attr():
    class M(type):
        q = 3

        @property
        def r(cls):
            return cls.z

    class K(metaclass=M):
        z = 1

    def fn(x):
        return x * K.q + K.r

    def change():
        M.q = 5

    def ch2():
        K.z = 7

    return fn, (X,), [change, ch2]


@notices_each
def test_bound_method_arg():
    A, B = family()
    o = A()
    o.c = 1
    o2 = A()
    o2.c = 3
    h = A()
    h.f = o.m

    def fn(x):
        return h.f(x)

    def change():
        o.c = 4

    def ch2():
        h.f = o2.m

    return fn, (X,), [change, ch2]


@notices_each
def test_a_string_attribute():
    A, B = family()
    o = A()
    o.mode = "a"

    def fn(x):
        return {"a": x + 1, "b": x - 1}[o.mode]

    def change():
        o.mode = "b"

    return fn, (X,), [change]


@notices_each
def test_the_init_of_a_class_made_inside():
    class K:
        def __init__(self, v):
            self.v = v

    def fn(x):
        return x * K(2).v

    def change():
        K.__init__ = lambda s, v: setattr(s, "v", v * 10)

    return fn, (X,), [change]


@notices_each
def test_special_methods():
    class K:
        def __init__(s):
            s.v = 2

        def __add__(s, o):
            return o * s.v

        def __len__(s):
            return s.v

        def __call__(s, x):
            return x + s.v

        def __eq__(s, o):
            return True

        __hash__ = None

        def __bool__(s):
            return True

        def __iter__(s):
            return iter([1, 2])

        def __getitem__(s, k):
            return k + s.v

    k = K()

    def fn(x):
        return k + x, x * len(k), k(x), (x + 1 if k == 3 else x), (x if k else x * 2), [x * i for i in k], x * k[1]

    return (
        fn,
        (X,),
        [
            lambda: setattr(K, "__add__", lambda s, o: o + 100),
            lambda: setattr(K, "__len__", lambda s: 9),
            lambda: setattr(K, "__call__", lambda s, x: x - 100),
            lambda: setattr(K, "__eq__", lambda s, o: False),
            lambda: setattr(K, "__bool__", lambda s: False),
            lambda: setattr(K, "__iter__", lambda s: iter([5])),
            lambda: setattr(K, "__getitem__", lambda s, k: 50),
        ],
    )
