"""A small world for trackers without torch: a tracer and an emitter that acts at once."""

from __future__ import annotations

import collections
import copy
import itertools
import types

from core.errors import Unsupported
from core.guards.checks import Is, SameAs
from core.guards.source import ConstSource, FrameValues, LocalSource
from core.variables import constant, deque, mapping, operators, sequence, unread
from core.variables import iterator as iterators
from core.variables import range as ranges
from core.variables import set as sets
from core.variables.base import LazyVariable, ObservedException, VariableTracker, find_special
from core.variables.builtin import BuiltinVariable
from core.variables.literal import is_literal


class ExceptionTracker(VariableTracker):
    kind = "exception"

    def __init__(self, cls, args):
        super().__init__()
        self.cls, self.args = cls, args

    def python_type(self):
        return self.cls


class FunctionTracker(VariableTracker):
    """A Python function: inside the world it is evaluated over trackers."""

    kind = "function"

    def __init__(self, call, fn=None):
        super().__init__()
        self._call = call
        self.fn = fn

    def python_type(self):
        return types.FunctionType

    def truth(self, tx):
        return True

    def call(self, tx, args, kwargs):
        return self._call(tx, *args, **kwargs)

    def reconstruct(self, emit):
        if self.fn is None:
            raise Unsupported("a function that only the evaluator knows")
        emit.push(self.fn)


class ObjectTracker(VariableTracker):
    """An object of a class whose special methods are written in Python."""

    kind = "user_object"

    def __init__(self, cls, attributes=()):
        super().__init__()
        self.cls, self.attributes = cls, dict(attributes)

    def python_type(self):
        return self.cls

    def lookup_special(self, tx, name):
        raw = find_special(self.cls, name)
        if not isinstance(raw, types.FunctionType):
            return None
        return FunctionTracker(lambda tx, *args: World.call_real(tx, raw, [self, *args]))

    def get_attr(self, tx, name):
        if name in self.attributes:
            return self.attributes[name]
        found = find_special(self.cls, name)
        if isinstance(found, types.FunctionType):
            return FunctionTracker(lambda tx, *args: World.call_real(tx, found, [self, *args]))
        tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def set_attr(self, tx, name, value):
        self.attributes[name] = value

    def call_method(self, tx, name, args, kwargs):
        if name.startswith("__"):
            return self.lookup_special(tx, name).call(tx, args, kwargs)
        return self.get_attr(tx, name).call(tx, args, kwargs)

    def iterate(self, tx):
        return self.lookup_special(tx, "__iter__").call(tx, [], {})

    def next_item(self, tx):
        try:
            return self.lookup_special(tx, "__next__").call(tx, [], {})
        except ObservedException as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                return None
            raise

    def truth(self, tx):
        method = self.lookup_special(tx, "__bool__")
        return True if method is None else tx.truth(method.call(tx, [], {}))

    def reconstruct(self, emit):
        made = object.__new__(self.cls)
        emit.push(made)
        emit.remember(self)
        for name, value in self.attributes.items():
            made.__dict__[name] = emit.value(value)


class SideEffects:
    def __init__(self):
        self.log = {}

    def mutated(self, tracker):
        self.log.setdefault(id(tracker), tracker)

    def is_mutated(self, tracker):
        return id(tracker) in self.log

    def is_new(self, tracker):
        return tracker.source is None


class World:
    """The tracer."""

    def __init__(self, evaluate=None):
        self.evaluate = evaluate
        self.trace = types.SimpleNamespace(function_modes=[])
        self.side_effects = SideEffects()
        self.guards = []
        self.known = {}
        self.keep = []

    def is_unreal(self, value):
        return False

    def text_later(self, function, parts):
        return unread.text_later(self, function, parts)

    def wrap(self, value, source, constant_=False, **kw):
        if isinstance(value, VariableTracker):
            return value
        if is_literal(value):
            return constant.from_value(self, value, source)
        known = self.known.get(id(value))
        if known is not None:
            if known.source is None:
                self.guard(source, Is(value))
            elif source is not None and source != known.source:
                self.guard(source, SameAs(known.source))
            return known
        tracker = self._build(value, None if kw.get("constant") else source)
        self.known[id(value)] = tracker
        self.keep.append(value)
        return tracker

    def is_untouched(self, value):
        known = self.known.get(id(value))
        return known is None or not self.side_effects.is_mutated(known)

    def _build(self, value, source):
        cls = type(value)
        if isinstance(value, tuple) or cls is list:
            return sequence.from_value(self, value, source)
        if cls in (range, slice):
            return ranges.from_value(self, value, source)
        if cls in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter, types.MappingProxyType):
            return mapping.from_value(self, value, source)
        if cls in (set, frozenset):
            return sets.from_value(self, value, source)
        if cls is collections.deque:
            return deque.from_value(self, value, source)
        if isinstance(value, types.FunctionType):
            return FunctionTracker(lambda tx, *args, **kw: self.call_real(tx, value, args, kw), value)
        if isinstance(value, (types.BuiltinFunctionType, type, types.UnionType)):
            return BuiltinVariable(value, source)
        if hasattr(value, "__dict__"):
            return ObjectTracker(cls, {name: self.constant(item) for name, item in vars(value).items()})
        raise Unsupported(f"no tracker for {cls.__name__}")

    @staticmethod
    def call_real(tx, function, args, kwargs=None):
        """A Python function of the tests, evaluated over trackers by its source."""
        return tx.evaluate(tx, function)(tx, *args, **(kwargs or {}))

    def lazy(self, value, source):
        return LazyVariable(value, source)

    def constant(self, value):
        return self.wrap(value, None)

    def new_list(self, items):
        return sequence.ListVariable(items)

    def new_tuple(self, items, cls=tuple):
        return sequence.TupleVariable(items, cls)

    def new_dict(self, pairs, cls=dict):
        made = mapping.DictVariable((), cls)
        for key, value in pairs:
            made.store(self, key, value)
        return made

    def new_set(self, items, cls=set):
        made = sets.SetVariable(items, cls)
        made.tokens(self)
        return made

    def new_iterator(self, produce, cls):
        return iterators.IteratorVariable(produce, cls)

    def guard(self, source, check, reason=""):
        if source is not None:
            self.guards.append((source, check))

    def truth(self, tracker):
        return tracker.realize(self).truth(self)

    def call_function(self, fn, args, kwargs=None):
        return fn.realize(self).call(self, list(args), kwargs or {}).realize(self)

    def inline(self, function, args, kwargs=None):
        return self.call_real(self, function, args, kwargs)

    def binary(self, op, left, right):
        return operators.binary(self, op, left, right)

    def unary(self, op, operand):
        return operators.unary(self, op, operand)

    def compare_equal(self, left, right):
        return operators.compare_equal(self, left, right)

    def raise_exception(self, cls, *args):
        raise ObservedException(ExceptionTracker(cls, [self.wrap(arg, None) for arg in args]))

    def iterate_by_index(self, tracker):
        count = itertools.count()

        def produce(tx):
            try:
                return tracker.get_item(tx, tx.constant(next(count)))
            except ObservedException as raised:
                if issubclass(raised.value.python_type(), IndexError):
                    return None
                raise

        return self.new_iterator(produce, type(iter([])))


class Machine:
    """The emitter: each method acts at once on a stack of real objects."""

    def __init__(self, roots=None, rehearsing=False):
        self.rehearsing = rehearsing
        self.stack = []
        self.made = {}
        self.keep = []
        self.roots = roots or {}
        self.outside = []
        self.untouched = copy.deepcopy(self.roots) if rehearsing else {}

    def value(self, tracker):
        self.load(tracker)
        return self.stack.pop()

    def push(self, value):
        self.stack.append(value)

    def load(self, tracker):
        if isinstance(tracker, LazyVariable) and tracker.realized is not None:
            tracker = tracker.realized
        if id(tracker) in self.made:
            self.push(self.made[id(tracker)])
        elif tracker.kind == "constant" or (tracker.kind == "lazy" and tracker.source is None):
            self.push(tracker.value)
        elif tracker.source is not None:
            self.outside.append(tracker)
            if self.rehearsing and tracker.kind == "lazy":
                self.push(tracker.value)
            else:
                self.load_source(tracker.source)
                if self.rehearsing:
                    self.remember(tracker)
        else:
            depth = len(self.stack)
            tracker.reconstruct(self)
            assert len(self.stack) == depth + 1, tracker
            self.remember(tracker)

    def remember(self, tracker):
        self.keep.append(tracker)
        self.made.setdefault(id(tracker), self.stack[-1])

    def load_source(self, source):
        if isinstance(source, LocalSource):
            self.push(self.roots[source.local])
        elif isinstance(source, ConstSource):
            self.push(source.value)
        elif self.rehearsing:
            # what is read must be there, whatever the rehearsal has changed by now
            self.push(source.resolve(FrameValues(list(self.untouched.values()), {}, {})))
        else:
            self.load_source(source.base)
            self.push(source.read(None, self.stack.pop()))

    def load_const(self, value):
        self.push(value)

    load_global_object = load_const

    def _pop(self, count):
        if count == 0:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def build_tuple(self, count):
        self.push(tuple(self._pop(count)))

    def build_list(self, count):
        self.push(self._pop(count))

    def build_set(self, count):
        self.push(set(self._pop(count)))

    def build_map(self, count):
        values = self._pop(2 * count)
        self.push(dict(zip(values[::2], values[1::2])))

    def build_slice(self, count):
        self.push(slice(*self._pop(count)))

    def push_null(self):
        pass

    def call(self, count):
        args = self._pop(count)
        self.push(self.stack.pop()(*args))

    def call_keywords(self, names, count):
        args = self._pop(count)
        plain, named = args[: count - len(names)], args[count - len(names) :]
        self.push(self.stack.pop()(*plain, **dict(zip(names, named))))

    def call_method(self, name, load_args):
        args = [self.value(arg) for arg in load_args]
        self.push(getattr(self.stack.pop(), name)(*args))

    def load_attr(self, name):
        self.push(getattr(self.stack.pop(), name))

    def store_attr(self, name):
        target, value = self.stack.pop(), self.stack.pop()
        setattr(target, name, value)

    def store_subscr(self):
        key, container, value = self.stack.pop(), self.stack.pop(), self.stack.pop()
        container[key] = value

    def delete_subscr(self):
        key, container = self.stack.pop(), self.stack.pop()
        del container[key]

    def pop_top(self):
        self.stack.pop()

    def copy_top(self):
        self.stack.append(self.stack[-1])

    def swap(self, depth):
        self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]
