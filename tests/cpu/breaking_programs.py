"""Functions of one tensor whose capture meets a graph break, each with the counts that three calls of it give.

A module of its own, for pytest rewrites the assert statements of test modules.
"""

from __future__ import annotations

import contextlib

import torch

import core
from core.bytecode.opcodes import OPCODE

PROGRAMS = []
OWN_FRAME = int("LOAD_FAST_AND_CLEAR" not in OPCODE)  # up to 3.11 a comprehension is a function, left to Python


def program(**counts):
    """Register a function of one tensor; counts: totals of core.stats() after three calls."""

    def add(fn):
        PROGRAMS.append((fn, counts))
        return fn

    return add


@core.disable
def plain(x):
    return x * 2


@core.disable
def boom(x):
    raise ValueError(f"boom {x.shape[0]}")


def unk(x):
    return x


def callee(x):
    y = x + 1
    print(y.sum())
    return y * 2


@program(graphs=2, breaks=1)
def printing_a_tensor(x):
    y = x + 1
    print(y)
    return y * 2


@program(graphs=2, breaks=1)
def item_used_as_a_number(x):
    n = x.sum().item()
    return x * n


@program(graphs=2, breaks=1)
def an_if_on_a_tensor(x):
    if x.sum() > 3:
        x = x * 2
    else:
        x = x - 1
    return x + 1


@program(graphs=2, breaks=1)
def an_if_not_on_a_tensor(x):
    if not x.sum() > 300:
        x = x * 2
    return x + 1


@program(graphs=3, breaks=2)
def and_or_of_tensors_in_a_condition(x):
    if x.sum() > 3 and x.max() > 1 or x.min() > 7:
        return x * 2
    return x


@program(graphs=3, breaks=3)
def and_or_of_tensors_as_a_value(x):
    y = (x.sum() > 3) and x + 1
    z = (x.sum() > 300) or x + 2
    return y, z, x if x.sum() > 2 else -x


@program(graphs=3, breaks=3)
def a_while_on_a_tensor(x):
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
    return x, n


@program(graphs=2, breaks=1)
def calling_a_disabled_function(x):
    return plain(x + 1) + 1


@program(graphs=4, breaks=2)
def printing_in_an_inlined_callee(x):
    return callee(x) + callee(x + 1)


@program(graphs=2, breaks=1)
def inside_no_grad(x):
    with torch.no_grad():
        y = x + 1
        print(y.sum())
        z = y * 2
    return z, torch.is_grad_enabled()


@program(graphs=3, breaks=3)
def inside_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        print(y.dtype)
        z = y @ y
        print(z.sum().item())
    return z.dtype, x @ x.t()


@contextlib.contextmanager
def user_cm(log):
    log.append("in")
    try:
        yield 5
    finally:
        log.append("out")


class CM:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, *a):
        self.log.append(("exit", a[0]))
        return a[0] is KeyError


@program(graphs=2, breaks=3)
def inside_a_generator_context_manager(x):
    log = []
    with user_cm(log) as v:
        y = x + v
        print(y)
        z = y * 2
    return z, log


@program(graphs=2, breaks=1)
def inside_a_context_manager_object(x):
    log = []
    with CM(log):
        y = x + 1
        print(y)
        log.append(1)
        z = y * 2
    return z, log


@program(graphs=1, breaks=1)
def raising_inside_a_context_manager_that_swallows(x):
    log = []
    with CM(log):
        y = x + 1
        print(y)
        raise KeyError("a")
    return y, log


@program(graphs=1, breaks=1)
def a_call_that_raises_inside_a_context_manager(x):
    log = []
    try:
        with CM(log):
            y = x + 1
            boom(y)
    except ValueError as e:
        log.append(str(e))
    return y, log


@program(graphs=2, breaks=1)
def inside_try_finally(x):
    log = []
    try:
        y = x + 1
        print(y)
        y = y * 2
    finally:
        log.append(1)
    return y, log


@program(graphs=3, breaks=2)
def a_call_that_raises_into_an_except(x):
    try:
        y = x + 1
        boom(y)
    except ValueError as e:
        y = x * 3
        print(e)
    return y + 1


@program(graphs=1, breaks=1)
def a_call_that_raises_past_an_except_through_a_finally(x):
    log = []
    try:
        y = x + 1
        boom(y)
    except KeyError:
        log.append("k")
    finally:
        log.append("f")
    return y


@program(graphs=0, breaks=3)
def try_with_else_and_finally(x):
    log = []
    try:
        y = plain(x)
    except KeyError:
        log.append("k")
    else:
        log.append("e")
        y = plain(y)
    finally:
        log.append("f")
        print(y)
    return y, log


@program(graphs=2, breaks=4)
def inside_an_except_block(x):
    try:
        raise ValueError("v")
    except ValueError as e:
        print(x.sum())
        y = x + 1
        print(e.args, y)
    return y


@program(graphs=2, breaks=2)
def inside_a_finally_while_an_exception_passes(x):
    log = []
    try:
        try:
            boom(x)
        finally:
            print(x.sum())
            log.append(x + 1)
    except ValueError as e:
        log.append(str(e))
    return log


@program(graphs=2, breaks=2)
def in_a_for_over_a_range(x):
    for i in range(5):
        x = x + i
        print(i, x.sum())
    return x


@program(graphs=2, breaks=2)
def in_a_for_with_continue_and_else(x):
    out = []
    for i, t in enumerate([x, x + 1, x + 2]):
        if i == 1:
            continue
        out.append(plain(t))
    else:
        out.append(x)
    return out


@program(graphs=5, breaks=5)
def in_nested_loops_with_a_break(x):
    for i in range(3):
        for j in range(3):
            if j == 2:
                break
            x = plain(x) + i * j
    return x


@program(graphs=2, breaks=3)
def in_a_while_with_a_break(x):
    i = 0
    while i < 4:
        i += 1
        x = plain(x)
        if i == 3:
            break
    return x, i


@program(graphs=4 - 4 * OWN_FRAME, breaks=4 - 2 * OWN_FRAME)
def in_comprehensions(x):
    return [plain(x + i) for i in range(3)], {i: plain(x * i) for i in range(2)}


@program(graphs=2, breaks=3 - OWN_FRAME)
def item_in_comprehension_and_generator_expression(x):
    return [t.item() for t in x.flatten()], sum(t.item() for t in x.flatten())


@program(graphs=3, breaks=2)
def cells_written_before_and_after(x):
    total = x

    def add(n):
        nonlocal total
        total = total + n
        return total

    add(1)
    print(total)
    add(2)
    total = total * 2
    print(total)
    return add(3), total


@program(graphs=4, breaks=4)
def with_values_below_on_the_stack(x):
    return torch.add(plain(x), plain(x + 1), alpha=2) + plain(x) * plain(x - 1)


@program(graphs=2, breaks=3)
def with_a_half_built_list_on_the_stack(x):
    return [x + 1, print(x), x * 2, {"a": print(x), "b": plain(x)}]


@program(graphs=3, breaks=2)
def formatting_a_tensor(x):
    s = f"{x.sum()} {x.shape} {x.sum().item():.2f}"
    return s, x + 1


def kwf(a, *args, b=1, **kw):
    return (a + b) * len(args) + sum(kw.values())


kwp = core.disable(kwf)


@program(graphs=3, breaks=4)
def calls_with_keywords_and_unpacking(x):
    return kwp(x, b=2) + kwp(x, 1, 2, b=x) + kwp(x, 1, c=3, d=x) + kwp(*[x, 1], **{"e": 2})


class Obj:
    def __init__(self, x):
        self.x = x
        self.n = 0

    @core.disable
    def m(self, y, k=1):
        self.n += 1
        return self.x + y * k


@program(graphs=2, breaks=3)
def method_calls_on_a_new_object(x):
    o = Obj(x)
    a = o.m(x) + o.m(x, k=2) + o.m(y=x)
    o.n += 1
    return a, o.n


@program(graphs=1, breaks=2)
def functions_made_before_a_break_and_called_after(x):
    k = plain(x)

    def f(y):
        return y + k

    print(k)

    def g(y, z=k):
        return f(y) + z

    return f(x) + g(x)


@program(graphs=3, breaks=5)
def between_unpacking_and_augmented_assignments(x):
    a, *b = [plain(x), x, x + 1]
    (c, d), e = (plain(x), 1), 2
    a += plain(a)
    b[0] = plain(a)
    d = {"k": x}
    d["k"] += plain(x)
    return a, b, c, d, e


@program(graphs=1, breaks=1)
def a_disabled_call_that_raises(x):
    y = x + 1
    boom(y)
    return y


@program(graphs=1, breaks=0)
def raise_that_leaves_the_function(x):
    x + 1
    raise KeyError("user", 3)


@program(graphs=0, breaks=0)
def a_failing_assert(x):
    assert x.shape[0] == 7, "bad"
    return x


@program(graphs=1, breaks=0)
def a_failing_assert_on_a_tensor(x):
    assert x.sum() > 1000, "bad tensor"
    return x


@program(graphs=1, breaks=0)
def a_passing_assert_on_a_tensor(x):
    assert x.sum() > 1, "bad tensor"
    return x + 1


@program(graphs=0, breaks=0)
def a_torch_error_that_leaves_the_function(x):
    return x @ x


@program(graphs=0, breaks=0)
def an_attribute_error_of_a_tensor(x):
    return x.nope


@program(graphs=0, breaks=0)
def an_index_error_of_a_list(x):
    l = [x]
    return l[3]


@program(graphs=2, breaks=2)
def in_lambdas_and_map(x):
    return (lambda t: plain(t) + 1)(x), sorted([3, 1, 2], key=lambda v: -v), list(map(plain, [x, x + 1]))


@program(graphs=5, breaks=1)
def three_calls_down(x):
    def a(t):
        return b(t) + 1

    def b(t):
        return c(t) * 2

    def c(t):
        print(t.sum())
        return t - 1

    return a(x) + b(x)


@program(graphs=0, breaks=1)
def inside_a_generator_body(x):
    def g():
        for i in range(3):
            yield plain(x) + i

    return list(g())


@program(graphs=1, breaks=3)
def in_a_loop_over_a_generator(x):
    def g():
        for i in range(3):
            yield x + i

    out = []
    for t in g():
        print(t.sum())
        out.append(t)
    return out


@program(graphs=1, breaks=1)
def inside_a_call_with_star_arguments(x):
    def f(*a, **k):
        return print(len(a), sorted(k)) or a[0] + k["z"]

    return f(x, 1, 2, z=x)


@program(graphs=2, breaks=2)
def in_a_conditional_expression(x):
    return torch.cat([plain(x) if x.sum() > 0 else x, x], 0)


@program(graphs=1, breaks=1)
def after_del_of_a_local(x):
    y = x + 1
    z = y
    del y
    print(z)
    try:
        y  # noqa: B018, F821
    except UnboundLocalError:
        return z


@program(graphs=2, breaks=1)
def with_a_view_written_after(x):
    y = x.view(-1)
    print(y)
    y.add_(1)
    return x, y


@program(graphs=1, breaks=1)
def with_one_list_under_two_names(x):
    l = [x]
    m = l
    l.append(x + 1)
    print(len(l), x)
    m.append(2)
    return l, m is l


@program(graphs=2, breaks=1)
def in_a_match_on_items(x):
    match (x.sum().item(), x):
        case (0, _):
            return x
        case (n, t) if n > 3:
            return t * n
    return x


@program(graphs=2, breaks=1)
def a_walrus_in_a_condition(x):
    if (n := x.sum()) > 3:
        return n * x
    return x


@program(graphs=2, breaks=2)
def a_chained_comparison(x):
    return 1 < x.sum() < 300, x.sum().item()


@program(graphs=2, breaks=1)
def globals_written_before_and_after(x):
    global G
    G = x + 1
    print(G)
    G = G + 1
    return G


@program(graphs=1, breaks=1)
def importing_a_module_for_the_first_time(x):
    from colorsys import rgb_to_hsv as f

    return x + f(1, 0, 0)[1]


@program(graphs=1, breaks=0)
def defining_classes(x):
    class A:
        def f(self, x):
            return x + 1

    class B(A):
        def f(self, x):
            return super().f(x) * 2

    return B().f(x)


@program(graphs=2, breaks=1)
def return_inside_no_grad(x):
    with torch.no_grad():
        if x.sum() > 0:
            return x + 1, torch.is_grad_enabled()
    return x


@program(graphs=0, breaks=1)
def return_through_a_finally(x):
    log = []

    def f():
        try:
            return plain(x)
        finally:
            log.append(1)

    return f(), log


@program(graphs=2, breaks=4)
def continue_through_a_finally(x):
    log = []
    for i in range(3):
        try:
            if x.sum() > i * 8:
                continue
            log.append(i)
        finally:
            log.append(plain(x))
    return log


@program(graphs=3 - 3 * OWN_FRAME, breaks=2 - OWN_FRAME)
def printing_in_a_dict_comprehension(x):
    ks = ["a", "b"]
    return {k: (print(x.sum()), x + i)[1] for i, k in enumerate(ks)}


@program(graphs=2, breaks=5)
def raise_from_inside_a_handler(x):
    try:
        try:
            boom(x)
        except ValueError as e:
            print(x.sum())
            raise RuntimeError("wrapped") from e
    except RuntimeError as r:
        print(r, repr(r.__cause__))
        return x + 1


@program(graphs=1, breaks=2)
def a_bare_raise_that_leaves_the_function(x):
    try:
        boom(x)
    except ValueError:
        print(x.sum())
        raise
