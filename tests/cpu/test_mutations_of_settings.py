"""Settings, contexts and values of the process and of libraries changed between calls."""

from __future__ import annotations

import contextvars
import decimal
import gc
import logging
import operator
import threading
import types
import warnings

import pytest
import torch
from mutations import check_mutation, turned, wishes
from torch import nn

X = torch.arange(6.0).reshape(2, 3) - 2


def args():
    return (X.clone(),)


def context_variable_set(later):
    variable = contextvars.ContextVar("variable", default=2.0)
    return (lambda x: x * variable.get()), args, lambda: variable.set(3.0), lambda: variable.set(5.0)


def thread_local_set(later):
    local = threading.local()
    local.k = 2.0

    def program(x):
        return x * local.k + getattr(local, "more", 1.0)

    return program, args, lambda: setattr(local, "k", 3.0), lambda: setattr(local, "more", 9.0)


def level_of_a_logger_changed(later):
    logger = logging.getLogger("mutations_of_settings")
    later.callback(logger.setLevel, logging.NOTSET)
    logger.setLevel(logging.INFO)

    def program(x):
        return x * 2 if logger.isEnabledFor(logging.DEBUG) else x * 3

    return program, args, lambda: logger.setLevel(logging.DEBUG)


def level_attribute_of_a_logger_read(later):
    logger = logging.getLogger("mutations_of_settings")
    later.callback(logger.setLevel, logging.NOTSET)
    logger.setLevel(logging.INFO)
    return (lambda x: x * logger.level), args, lambda: logger.setLevel(logging.ERROR)


def filters_of_warnings_changed(later):
    later.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")

    def program(x):
        try:
            warnings.warn("something", UserWarning, stacklevel=2)
        except UserWarning:
            return x - 1
        return x + 1

    return program, args, lambda: warnings.simplefilter("error")


def decimal_context_changed(later):
    before = decimal.getcontext().prec
    later.callback(lambda: setattr(decimal.getcontext(), "prec", before))

    def program(x):
        return x * float(decimal.Decimal(1) / decimal.Decimal(3))

    return program, args, lambda: setattr(decimal.getcontext(), "prec", 3)


def collector_switched_off(later):
    later.callback(gc.enable)
    return (lambda x: x * (2 if gc.isenabled() else 3)), args, gc.disable


def name_of_the_thread_changed(later):
    thread = threading.current_thread()
    later.callback(setattr, thread, "name", thread.name)
    return (lambda x: x * len(threading.current_thread().name)), args, lambda: setattr(thread, "name", "another name")


def length_of_a_dict_subclass_replaced(later):
    class Own(dict):
        pass

    held = Own(a=1.0)
    return (
        (lambda x: x * len(held) + ("b" in held) + held["a"]),
        args,
        lambda: setattr(Own, "__len__", lambda self: 9),
        lambda: setattr(Own, "__contains__", lambda self, key: True),
        lambda: setattr(Own, "__getitem__", lambda self, key: 7.0),
        lambda: setattr(Own, "__iter__", lambda self: iter(())),
    )


def keys_of_a_dict_subclass_replaced(later):
    class Own(dict):
        pass

    held = Own(a=1.0)
    return (
        (lambda x: x * sum(held.values()) + len(list(held))),
        args,
        lambda: setattr(Own, "values", lambda self: [5.0]),
        lambda: setattr(Own, "__iter__", lambda self: iter("abc")),
    )


def attribute_of_a_number_subclass_changed(later):
    class Own(int):
        scale = 1

    held = Own(3)
    held.extra = 2
    return (
        (lambda x: x * held + held.extra + held.scale),
        args,
        lambda: setattr(held, "extra", 5),
        lambda: setattr(Own, "scale", 7),
        lambda: setattr(Own, "__rmul__", lambda self, other: other - 1),
        lambda: setattr(Own, "__mul__", lambda self, other: other - 2),
    )


def attribute_of_a_text_subclass_changed(later):
    class Own(str):
        pass

    held = Own("abc")
    return (
        (lambda x: x * len(held) + (held == "abc")),
        args,
        lambda: setattr(Own, "__len__", lambda self: 9),
        lambda: setattr(Own, "__eq__", lambda self, other: False),
    )


def post_init_replaced(later):
    import dataclasses

    @dataclasses.dataclass
    class Config:
        k: float = 1.0

        def __post_init__(self):
            self.k = self.k + 1

    return (
        (lambda x: x * Config().k),
        args,
        lambda: setattr(Config, "__post_init__", lambda self: setattr(self, "k", 9.0)),
    )


def list_in_a_module_changed(later):
    module = nn.Linear(3, 3)
    module.scales = [1.0, 2.0]
    module.table = {"a": torch.ones(3)}

    def program(x):
        return module(x) * module.scales[1] + module.table["a"] + len(module.scales)

    return (
        program,
        args,
        lambda: module.scales.append(1.0),
        lambda: module.scales.__setitem__(1, 4.0),
        lambda: module.table.update(a=torch.zeros(3)),
        lambda: module.table.update(a=torch.zeros(1)),
    )


def learning_rate_changed(later):
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.5)

    def program(x):
        optimizer.zero_grad()
        (x * weight).sum().backward()
        optimizer.step()
        return weight.detach().clone()

    def group():
        return optimizer.param_groups[0]

    return (
        program,
        args,
        lambda: group().update(lr=1.0),
        lambda: group().update(momentum=0.0),
        lambda: group().update(weight_decay=0.5),
        lambda: group().update(nesterov=True, momentum=0.9),
        lambda: group().update(maximize=True),
        optimizer.state.clear,
        lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
    )


def getter_replaced(later):
    held = [operator.attrgetter("k")]
    thing = types.SimpleNamespace(k=2.0, m=3.0)
    return (lambda x: x * held[0](thing)), args, lambda: held.__setitem__(0, operator.attrgetter("m"))


def strategy_of_einsum_changed(later):
    program = lambda x: x * (2 if torch.backends.opt_einsum.enabled else 3)  # noqa: E731
    return program, args, turned(torch.backends.opt_einsum, "enabled", later)


def invariants_of_sparse_tensors_checked(later):
    check = torch.sparse.check_sparse_tensor_invariants
    later.callback(check.disable)
    return (lambda x: x * (2 if check.is_enabled() else 3)), args, check.enable


def seed_read(later):
    torch.manual_seed(3)
    return (lambda x: x * torch.initial_seed()), args, lambda: torch.manual_seed(5)


def print_options_changed(later):
    later.callback(torch.set_printoptions, profile="default")
    return (
        (lambda x: x * len(str(torch.pi)) + len(f"{torch.ones(1)}")),
        args,
        lambda: torch.set_printoptions(precision=9, sci_mode=True),
    )


def flag_of_mkldnn_precision_changed(later):
    program = lambda x: x * (2 if torch.backends.mkldnn.deterministic else 3)  # noqa: E731
    return program, args, turned(torch.backends.mkldnn, "deterministic", later)


def hook_that_counts_added(later):
    module, seen = nn.Linear(3, 3), []
    return (
        (lambda x: module(x) + len(seen)),
        args,
        lambda: module.register_forward_hook(lambda m, i, o: seen.append(1)),
        seen.clear,
    )


def behind_a_break(later):
    held = {"k": 2.0}

    def program(x):
        y = x * held["k"]
        torch._dynamo.graph_break()
        return y + held["k"] + len(held)

    return program, args, lambda: held.update(k=5.0), lambda: held.update(m=1.0)


def a_cell_behind_a_break(later):
    k = 2.0

    def program(x):
        y = x * k
        torch._dynamo.graph_break()
        return y + k

    def change():
        nonlocal k
        k = 7.0

    def other():
        nonlocal k
        k = X

    return program, args, change, other


def changed_by_what_runs_in_the_break(later):
    held = {"k": 2.0, "step": 1.0}

    def outside():
        held["k"] += held["step"]

    outside = torch.compiler.disable(outside)

    def program(x):
        y = x * held["k"]
        outside()
        return y + held["k"]

    return program, args, lambda: held.update(step=5.0)


MUTATIONS = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_settings_that_a_program_reads_are_followed(mutation):
    check_mutation(wishes(captured=False, settles=False)(mutation))
