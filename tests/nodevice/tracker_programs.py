"""Python source over trackers: an evaluator, and `agree(source)`, which runs a program for real and traced and compares
everything that can be seen afterwards."""

from __future__ import annotations

import ast
import collections
import copy
import importlib.util
import itertools
import math
import operator
import sys
import types
from pathlib import Path

from core.errors import Unsupported
from core.guards.source import LocalSource
from core.variables import iterator as iterators
from core.variables import operators
from core.variables import range as ranges
from core.variables.base import ObservedException, find_special
from core.variables.builtin import BuiltinVariable


def _sibling(name):
    """A module beside this file: the import mode of the tests puts no folder on sys.path."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


world = _sibling("tracker_world")
ExceptionTracker, FunctionTracker, Machine = world.ExceptionTracker, world.FunctionTracker, world.Machine
ObjectTracker, World = world.ObjectTracker, world.World


class _Return(Exception):
    def __init__(self, value):
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


UNAVAILABLE = object()
BINARY = {
    ast.Add: (operator.add, operator.iadd),
    ast.Sub: (operator.sub, operator.isub),
    ast.Mult: (operator.mul, operator.imul),
    ast.Div: (operator.truediv, operator.itruediv),
    ast.FloorDiv: (operator.floordiv, operator.ifloordiv),
    ast.Mod: (operator.mod, operator.imod),
    ast.Pow: (operator.pow, operator.ipow),
    ast.LShift: (operator.lshift, operator.ilshift),
    ast.RShift: (operator.rshift, operator.irshift),
    ast.BitAnd: (operator.and_, operator.iand),
    ast.BitOr: (operator.or_, operator.ior),
    ast.BitXor: (operator.xor, operator.ixor),
    ast.MatMult: (operator.matmul, operator.imatmul),
}
COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_}
GLOBALS = {
    "math": math,
    "operator": operator,
    "itertools": itertools,
    "collections": collections,
    "functools": __import__("functools"),
    "types": types,
    "deque": collections.deque,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict,
    "Counter": collections.Counter,
}


class Evaluator:
    """Runs Python source over trackers."""

    def __init__(self, tx, scope, names):
        self.tx, self.scope, self.names = tx, scope, names

    @classmethod
    def of_function(cls, tx, function):
        import inspect
        import textwrap

        tree = ast.parse(textwrap.dedent(inspect.getsource(function)).strip())
        definition = next(node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda)))
        names = {**GLOBALS, **function.__globals__}
        return cls(tx, {}, names).function(definition)

    def function(self, node):
        def call(tx, *args, **kwargs):
            scope = dict(self.scope)
            params = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
            defaults = dict(zip(params[len(params) - len(node.args.defaults) :], node.args.defaults))
            for name, default in defaults.items():
                scope[name] = self.eval(default)
            scope.update(zip(params, args))
            if node.args.vararg:
                scope[node.args.vararg.arg] = tx.new_tuple(args[len(params) :])
            scope.update(kwargs)
            inner = Evaluator(tx, scope, self.names)
            if isinstance(node, ast.Lambda):
                return inner.eval(node.body)
            try:
                inner.block(node.body)
            except _Return as result:
                return result.value
            return tx.constant(None)

        return call

    def block(self, body):
        for statement in body:
            getattr(self, "do_" + type(statement).__name__)(statement)

    def do_Pass(self, node):
        pass

    def do_Break(self, node):
        raise _Break

    def do_Continue(self, node):
        raise _Continue

    def do_Return(self, node):
        raise _Return(self.eval(node.value) if node.value else self.tx.constant(None))

    def do_Expr(self, node):
        self.eval(node.value)

    def do_FunctionDef(self, node):
        self.scope[node.name] = FunctionTracker(self.function(node))

    def do_Assign(self, node):
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value)

    def assign(self, target, value):
        if isinstance(target, ast.Name):
            self.scope[target.id] = value
        elif isinstance(target, ast.Subscript):
            self.eval(target.value).set_item(self.tx, self.eval(target.slice), value)
        elif isinstance(target, ast.Attribute):
            self.eval(target.value).set_attr(self.tx, target.attr, value)
        else:
            items = iterators.iterator_of(self.tx, value).unpack(self.tx)
            for part, item in zip(target.elts, items, strict=True):
                self.assign(part, item.realize(self.tx))

    def do_AugAssign(self, node):
        target = node.target
        op = BINARY[type(node.op)][1]
        if isinstance(target, ast.Subscript):
            container, key = self.eval(target.value), self.eval(target.slice)
            old = container.get_item(self.tx, key)
            container.set_item(self.tx, key, self.tx.binary(op, old, self.eval(node.value)))
            return
        load = ast.Name(id=target.id, ctx=ast.Load())
        self.assign(target, self.tx.binary(op, self.eval(load), self.eval(node.value)))

    def do_Delete(self, node):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                self.eval(target.value).del_item(self.tx, self.eval(target.slice))
            else:
                del self.scope[target.id]

    def do_If(self, node):
        self.block(node.body if self.tx.truth(self.eval(node.test)) else node.orelse)

    def do_While(self, node):
        try:
            while self.tx.truth(self.eval(node.test)):
                try:
                    self.block(node.body)
                except _Continue:
                    pass
        except _Break:
            pass

    def do_For(self, node):
        iterator = iterators.iterator_of(self.tx, self.eval(node.iter))
        try:
            while (item := iterator.next_item(self.tx)) is not None:
                self.assign(node.target, item.realize(self.tx))
                try:
                    self.block(node.body)
                except _Continue:
                    pass
            self.block(node.orelse)
        except _Break:
            pass

    def do_Try(self, node):
        try:
            self.block(node.body)
        except ObservedException as raised:
            for handler in node.handlers:
                cls = eval(ast.unparse(handler.type), dict(self.names))  # noqa: S307
                if issubclass(raised.value.python_type(), cls):
                    if handler.name:
                        args = raised.value.args
                        self.scope[handler.name] = self.tx.new_tuple([self.tx.constant(cls.__name__), *args])
                    self.block(handler.body)
                    return
            raise

    def do_Raise(self, node):
        call = node.exc
        cls = eval(ast.unparse(call.func if isinstance(call, ast.Call) else call), dict(self.names))  # noqa: S307
        args = [self.eval(arg) for arg in call.args] if isinstance(call, ast.Call) else []
        raise ObservedException(ExceptionTracker(cls, args))

    def eval(self, node):
        return getattr(self, "ev_" + type(node).__name__)(node).realize(self.tx)

    def ev_Constant(self, node):
        return self.tx.constant(node.value)

    def ev_Name(self, node):
        if node.id in self.scope:
            return self.scope[node.id]
        if node.id in self.names:
            return self.real(self.names[node.id])
        import builtins

        return self.real(getattr(builtins, node.id))

    def real(self, value):
        return FunctionTracker(None, value) if isinstance(value, types.ModuleType) else self.tx.wrap(value, None)

    def ev_Attribute(self, node):
        base = self.eval(node.value)
        if isinstance(base, FunctionTracker) and isinstance(base.fn, types.ModuleType):
            return self.real(getattr(base.fn, node.attr))
        return base.get_attr(self.tx, node.attr)

    def ev_Call(self, node):
        args = []
        function = self.eval(node.func)
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args += iterators.iterator_of(self.tx, self.eval(arg.value)).unpack(self.tx)
            else:
                args.append(self.eval(arg))
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                for key in self.eval(keyword.value).unpack(self.tx):
                    kwargs[key.as_constant()] = self.eval(keyword.value).get_item(self.tx, key)
            else:
                kwargs[keyword.arg] = self.eval(keyword.value)
        if function.kind == "class":
            return function.call(self.tx, args, kwargs)
        if function.kind == "builtin" and isinstance(function.fn, type) and not BuiltinVariable.handles(function.fn):
            made = ObjectTracker(function.fn)
            init = find_special(function.fn, "__init__")
            if isinstance(init, types.FunctionType):
                World.call_real(self.tx, init, [made, *args], kwargs)
            return made
        return self.tx.call_function(function, args, kwargs)

    def ev_Subscript(self, node):
        return self.eval(node.value).get_item(self.tx, self.eval(node.slice))

    def ev_Slice(self, node):
        none = self.tx.constant(None)
        return ranges.SliceVariable(
            *(self.eval(part) if part is not None else none for part in (node.lower, node.upper, node.step))
        )

    def ev_Lambda(self, node):
        return FunctionTracker(self.function(node))

    def ev_BinOp(self, node):
        return self.tx.binary(BINARY[type(node.op)][0], self.eval(node.left), self.eval(node.right))

    def ev_UnaryOp(self, node):
        return self.tx.unary(UNARY[type(node.op)], self.eval(node.operand))

    def ev_Compare(self, node):
        left = self.eval(node.left)
        result = self.tx.constant(True)
        for op, right in zip(node.ops, node.comparators):
            right = self.eval(right)
            if isinstance(op, (ast.In, ast.NotIn)):
                found = operators.contains(self.tx, right, left)
                result = self.tx.constant(found == isinstance(op, ast.In))
            else:
                result = self.tx.binary(COMPARE[type(op)], left, right)
            if len(node.ops) > 1 and not self.tx.truth(result):
                break
            left = right
        return result

    def ev_BoolOp(self, node):
        for value in node.values:
            result = self.eval(value)
            if self.tx.truth(result) != isinstance(node.op, ast.And):
                break
        return result

    def ev_IfExp(self, node):
        return self.eval(node.body if self.tx.truth(self.eval(node.test)) else node.orelse)

    def _items(self, elements):
        items = []
        for element in elements:
            if isinstance(element, ast.Starred):
                items += self.eval(element.value).unpack(self.tx)
            else:
                items.append(self.eval(element))
        return items

    def ev_List(self, node):
        return self.tx.new_list(self._items(node.elts))

    def ev_Tuple(self, node):
        return self.tx.new_tuple(self._items(node.elts))

    def ev_Set(self, node):
        return self.tx.new_set(self._items(node.elts))

    def ev_Dict(self, node):
        return self.tx.new_dict([(self.eval(key), self.eval(value)) for key, value in zip(node.keys, node.values)])

    def _comprehend(self, generators, add):
        if not generators:
            add()
            return
        first, *rest = generators
        iterator = iterators.iterator_of(self.tx, self.eval(first.iter))
        while (item := iterator.next_item(self.tx)) is not None:
            self.assign(first.target, item.realize(self.tx))
            if all(self.tx.truth(self.eval(test)) for test in first.ifs):
                self._comprehend(rest, add)

    def ev_ListComp(self, node):
        made = self.tx.new_list([])
        self._comprehend(node.generators, lambda: made.call_method(self.tx, "append", [self.eval(node.elt)], {}))
        return made

    def ev_SetComp(self, node):
        made = self.tx.new_set([])
        self._comprehend(node.generators, lambda: made.call_method(self.tx, "add", [self.eval(node.elt)], {}))
        return made

    def ev_DictComp(self, node):
        made = self.tx.new_dict([])
        self._comprehend(node.generators, lambda: made.set_item(self.tx, self.eval(node.key), self.eval(node.value)))
        return made

    def ev_GeneratorExp(self, node):
        return self.ev_ListComp(node).iterate(self.tx)

    def ev_JoinedStr(self, node):
        parts = []
        for value in node.values:
            if isinstance(value, ast.Constant):
                parts.append(value.value)
                continue
            item = self.eval(value.value)
            if value.conversion != -1:
                function = {115: str, 114: repr, 97: ascii}[value.conversion]
                item = self.tx.call_function(self.tx.constant(function), [item])
            spec = self.eval(value.format_spec) if value.format_spec else self.tx.constant("")
            parts.append(self.tx.call_function(self.tx.constant(format), [item, spec]).as_constant())
        return self.tx.constant("".join(parts))


class Traced:
    """A program traced with inputs; `replay` does for other inputs what the generated code would do."""

    def __init__(self, source, inputs=None, names=None):
        self.tx = World(Evaluator.of_function)
        scope = {
            name: self.tx.wrap(value, LocalSource(name, place))
            for place, (name, value) in enumerate((inputs or {}).items())
        }
        self.scope = Evaluator(self.tx, scope, {**GLOBALS, **(names or {})})
        self.raised = None
        try:
            self.scope.block(ast.parse(source).body)
        except ObservedException as raised:
            self.raised = raised.value

    def replay(self, roots):
        """(outcome, values of the variables); the inputs `roots` are changed."""
        machine = Machine(roots)
        outcome = None
        if self.raised is not None:
            outcome = (self.raised.python_type(), tuple(machine.value(arg) for arg in self.raised.args))
        values = {
            name: self._value(machine, tracker)
            for name, tracker in self.scope.scope.items()
            if not isinstance(tracker, FunctionTracker)
        }
        changed = [tracker for tracker in self.tx.side_effects.log.values() if tracker.source is not None]
        # a rehearsal finds what is read from outside; all of it is read before anything changes
        rehearsal = Machine(copy.deepcopy(roots), rehearsing=True)
        rehearsal.made = dict(machine.made)
        for tracker in changed:
            tracker.write_back(rehearsal)
        for tracker in rehearsal.outside:
            machine.made[id(tracker)] = machine.value(tracker)
        for tracker in changed:
            tracker.write_back(machine)
            assert machine.stack == []
        return outcome, values

    @staticmethod
    def _value(machine, tracker):
        try:
            return machine.value(tracker)
        except Unsupported:
            # an iterator in the middle of its work may be a graph break
            if tracker.kind not in ("iterator", "dict"):
                raise
            machine.stack.clear()
            return UNAVAILABLE


def run_real(source, inputs=None, names=None):
    """(outcome, values of the variables) of the program run by Python."""
    scope = dict(inputs or {})
    namespace = {**GLOBALS, **(names or {}), **scope}
    before = set(namespace)
    outcome = None
    try:
        exec(source, namespace)  # noqa: S102
    except Exception as error:  # noqa: BLE001  whatever a test program raises is its outcome
        outcome = (type(error), error.args)
    found = {
        name: value
        for name, value in namespace.items()
        if (name not in before or name in scope)
        and name != "__builtins__"
        and not isinstance(value, types.FunctionType)
    }
    return outcome, found


def shape(value, seen=()):
    """What can be compared of a value: types, contents, order; iterators by what is left in them."""
    if any(value is other for other in seen):
        return "cycle"
    seen = (*seen, value)
    if isinstance(value, float):
        return float, repr(value)
    if isinstance(value, dict):
        extra = (shape(value.default_factory),) if isinstance(value, collections.defaultdict) else ()
        return (type(value), [(shape(k, seen), shape(v, seen)) for k, v in value.items()], *extra)
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item, seen) for item in value]
    if isinstance(value, collections.deque):
        return type(value), value.maxlen, [shape(item, seen) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(shape(item, seen)) for item in value)
    if isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        return type(value), [shape(item, seen) for item in value]
    if hasattr(type(value), "__next__"):
        return type(value), [shape(item, seen) for item in itertools.islice(value, 30)]
    if type(value).__module__ not in ("builtins", "collections") and hasattr(value, "__dict__"):
        return type(value), {name: shape(item, seen) for name, item in vars(value).items()}
    return type(value), value


def agree(source, inputs=None, names=None, messages=True):
    """Assert that a program does the same for real and traced; gives the world."""
    real_inputs, copies = copy.deepcopy(inputs or {}), copy.deepcopy(inputs or {})
    real_outcome, real = run_real(source, real_inputs, names)
    program = Traced(source, inputs, names)
    outcome, traced = program.replay(copies)
    if real_outcome is not None and not messages:
        real_outcome, outcome = real_outcome[0], outcome and outcome[0]
    assert outcome == real_outcome, f"{source}\nreal:   {real_outcome}\ntraced: {outcome}"
    for name in real:
        assert name in traced, f"{source}\n{name} is missing"
        if name in (inputs or {}):
            continue
        if traced[name] is not UNAVAILABLE:
            found, expected = shape(traced[name]), shape(real[name])  # once: looking consumes iterators
            assert found == expected, f"{source}\n{name}\nreal:   {expected}\ntraced: {found}"
    for name in inputs or {}:
        assert shape(copies[name]) == shape(real_inputs[name]), (
            f"{source}\ninput {name}\nreal:   {shape(real_inputs[name])}\ntraced: {shape(copies[name])}"
        )
    return program.tx
