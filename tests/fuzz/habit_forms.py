"""The forms of habits.py: definitions of a module, and statements over them."""

from __future__ import annotations

DEFINITIONS = '''
import operator
import types
from typing import NamedTuple


class Sealed:
    __slots__ = ("left", "right", "__dict__")

    def __init__(self, left, right=2):
        self.left = left
        self.right = right

    def __repr__(self):
        return f"Sealed({self.left}, {self.right})"


class Tight:
    __slots__ = ("only",)


class Loose:
    """Attributes that are not there are made up."""

    def __init__(self, base):
        self.base = base

    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError(name)
        return self.base + len(name)

    def __setattr__(self, name, value):
        LOG.append(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        LOG.append("del " + name)
        object.__delattr__(self, name)


class Total:
    def __init__(self, count=0):
        self.count = count
        self.calls = []

    def __iadd__(self, other):
        self.count += other
        self.calls.append(other)
        return self

    def __isub__(self, other):
        return Total(self.count - other)

    def __index__(self):
        return self.count % 3

    def __int__(self):
        return self.count

    def __format__(self, spec):
        return f"<{self.count:{spec}}>"

    def __matmul__(self, other):
        return self.count, other

    def __neg__(self):
        return -self.count

    def __getitem__(self, key):
        return key

    def __reversed__(self):
        return iter(self.calls[::-1])


@functools.total_ordering
class Rank:
    def __init__(self, at, name="r"):
        self.at = at
        self.name = name

    def __eq__(self, other):
        return self.at == other.at if isinstance(other, Rank) else NotImplemented

    def __lt__(self, other):
        return self.at < other.at if isinstance(other, Rank) else NotImplemented

    def __hash__(self):
        return hash(self.at)


@dataclasses.dataclass
class Plan:
    name: str
    steps: int = 2
    parts: list = dataclasses.field(default_factory=list)
    weight: float = dataclasses.field(default=0.5, compare=False)

    def __post_init__(self):
        self.steps = self.steps + len(self.parts)


@dataclasses.dataclass(frozen=True, order=True)
class Spot:
    x: int
    y: int = 0


class Couple(NamedTuple):
    first: int
    second: int = 5

    def both(self):
        return self.first + self.second


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Flags(enum.Flag):
    A = 1
    B = 2
    C = 4


class Lazily:
    def __init__(self, value):
        self.value = value

    @functools.cached_property
    def twice(self):
        LOG.append("computed")
        return self.value * 2

    add = functools.partialmethod(lambda self, a, b: self.value + a - b, 1)


class Counted(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


class Described:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 0)

    def __set__(self, instance, value):
        if isinstance(value, int) and value > 50:
            raise ValueError(value)
        setattr(instance, self.name, value)


class Checked:
    amount = Described()
    registry = {}

    def __init_subclass__(cls, tag=None, **rest):
        super().__init_subclass__(**rest)
        Checked.registry[tag or cls.__name__] = cls

    def __class_getitem__(cls, item):
        return cls.__name__, item


class Special(Checked, tag="special"):
    def __new__(cls, amount=1):
        made = super().__new__(cls)
        made.amount = amount
        return made


class Swallow:
    def __init__(self, *kinds):
        self.kinds = kinds
        self.seen = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.seen = None if error is None else (kind.__name__, error.args, trace is not None)
        return kind is not None and issubclass(kind, self.kinds)


@contextlib.contextmanager
def swallowing(kind, found):
    try:
        yield found
    except kind as error:
        found.append(type(error).__name__)
    else:
        found.append("fine")


@functools.lru_cache(maxsize=None)
def slowly(k, add=0):
    return k * k + add


@functools.singledispatch
def told(value):
    return "other"


@told.register
def _(value: int):
    return "int" + str(value)


@told.register(list)
def _(value):
    return [told(item) for item in value]


def fib(k):
    return k if k < 2 else fib(k - 1) + fib(k - 2)


def walk(tree):
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from walk(item)
    else:
        yield tree


def gather(first, /, *rest, last=0, **named):
    return [first, *rest, last, *sorted(named.items())]


def remembering(item, seen=[]):
    seen.append(item)
    return len(seen)


def keyed(*, key=None, into={}):
    into[key] = into.get(key, 0) + 1
    return into[key]


def averaging():
    total, count = 0, 0
    while True:
        got = yield total / count if count else 0.0
        if got is None:
            return total
        total += got
        count += 1


def counter(start=0):
    def step(by=1):
        nonlocal start
        start += by
        return start

    def back():
        return start

    step.back = back
    return step


def tagged(tag):
    def decorate(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            LOG.append((tag, fn.__name__, len(args), sorted(kwargs)))
            return fn(*args, **kwargs)

        inner.tag = tag
        return inner

    return decorate


@tagged("outer")
@tagged("inner")
def scaled(x, by=2, *, plus=0):
    """Scales."""
    return x * by + plus


TICKS = iter(range(100))
STEP = counter(10)
TOTAL = Total(4)
TABLE = {"add": operator.add, "mul": lambda a, b: a * b, "fib": lambda a, b: fib(a % 6) + b}
PLAN = Plan("global", 1)
LOOSE_BASE = 3
'''

FORMS: list[tuple[str, dict[str, str]]] = [
    # classes
    (
        "~a~ = Sealed(@int@, right=@int@)\n~a~.extra = @int@\n~b~ = ~a~.left + ~a~.right\nLOG.append(repr(~a~))",
        {"b": "int"},
    ),
    (
        "~a~ = Tight()\ntry:\n    ~a~.other = 1\nexcept AttributeError as error:\n    LOG.append(type(error).__name__)\n~a~.only = @n4@\n~b~ = ~a~.only",
        {"b": "n4"},
    ),
    ("~a~ = Tight()\ntry:\n    LOG.append(~a~.only)\nexcept AttributeError as error:\n    LOG.append(str(error))", {}),
    (
        "~a~ = Loose(@int@)\n~b~ = ~a~.anything + getattr(~a~, 'nothing', 7)\nLOG.append(hasattr(~a~, 'no'))\ndel ~a~.base",
        {"b": "int"},
    ),
    (
        "~a~ = Total(@int@)\n~b~ = ~a~\n~a~ += @int@\nLOG.append((~a~ is ~b~, ~a~.count, [10, 20, 30][~a~], f'{~a~:>4}', -~a~))\n~a~ -= 1\nLOG.append((~b~.count, list(reversed(~b~)), ~a~[1:2, ::3]))",
        {},
    ),
    ("TOTAL.count += @int@\n~a~ = int(TOTAL) % 11", {"a": "int"}),
    ("global_total = TOTAL\nglobal_total += @int@\nLOG.append(global_total is TOTAL)", {}),
    (
        "~a~ = sorted([Rank(@int@, 'a'), Rank(@int@, 'b'), Rank(2, 'c')], reverse=@bool@)\nLOG.append([r.name for r in ~a~])\nLOG.append((~a~[0] >= ~a~[1], ~a~[0] != ~a~[2], max(~a~).name))\n~b~ = len(set(~a~))",
        {"b": "int"},
    ),
    (
        "~a~ = Plan(@str@, parts=[@int@])\n~a~.parts.append(@int@)\n~c~ = dataclasses.replace(~a~, steps=@int@, parts=[])\nLOG.append((~a~ == ~c~, repr(~c~), dataclasses.asdict(~a~)))\n~b~ = ~a~.steps + ~c~.steps",
        {"b": "int"},
    ),
    ("PLAN.steps += @int@\nPLAN.parts += [@int@]\n~a~ = [f.name for f in dataclasses.fields(PLAN)]", {"a": "strs"}),
    (
        "~a~ = Spot(@int@, y=@int@)\ntry:\n    ~a~.x = 3\nexcept dataclasses.FrozenInstanceError as error:\n    LOG.append(str(error))\nLOG.append((~a~ < Spot(2, 2), hash(~a~) == hash(Spot(~a~.x, ~a~.y)), {~a~: 1}[Spot(~a~.x, ~a~.y)]))\n~b~ = min(~a~, Spot(1)).x",
        {"b": "int"},
    ),
    (
        "~a~ = Couple(@int@)\n~c~, ~d~ = ~a~._replace(second=@int@)\nLOG.append((~a~, ~a~.both(), ~a~._asdict(), Couple._fields, ~a~ == (~c~, 5)))",
        {"c": "int", "d": "int"},
    ),
    (
        "~a~ = Level(1 if @bool@ else 3)\nLOG.append((~a~.name, ~a~ + 1, ~a~ is Level.LOW, Level['HIGH'], [m.value for m in Level], ~a~ < Level.HIGH))\ntry:\n    Level(@int@ + 10)\nexcept ValueError as error:\n    LOG.append(str(error))",
        {},
    ),
    (
        "~a~ = Flags.A | (Flags.B if @bool@ else Flags.C)\nLOG.append((Flags.A in ~a~, bool(~a~ & Flags.C), ~a~ == Flags.A | Flags.B, (~a~ ^ Flags.A).value))",
        {},
    ),
    (
        "~a~ = Lazily(@n4@)\n~b~ = ~a~.twice\nLOG.append((~a~.twice is ~b~, 'twice' in vars(~a~)))\n~c~ = ~a~.add(@int@)",
        {"b": "n4", "c": "n4"},
    ),
    (
        "~a~ = Counted(x=1)\nLOG.append((~a~['y'], ~a~['y'], ~a~.get('z'), ~a~.setdefault('w', 9), list(~a~)))\n~b~ = sum(~a~.values())",
        {"b": "int"},
    ),
    (
        "~a~ = Special(@int@)\ntry:\n    ~a~.amount = @int@ * 20\nexcept ValueError as error:\n    LOG.append(error.args)\n~b~ = ~a~.amount\nLOG.append((Checked.registry['special'] is Special, Special[3], type(Checked.amount).__name__))",
        {"b": "int"},
    ),
    (
        "class ~a~(Total):\n    def __init__(self):\n        super().__init__(@int@)\n\n    def __iadd__(self, other):\n        super().__iadd__(other)\n        return self\n\n~b~ = ~a~()\n~b~ += @int@\n~c~ = ~b~.count",
        {"c": "int"},
    ),
    (
        "~a~ = types.SimpleNamespace(k=@int@, x=@n4@)\n~a~.k += 1\n~a~.more = [~a~.k]\n~b~ = ~a~.x * ~a~.k\nLOG.append(sorted(vars(~a~)))",
        {"b": "n4"},
    ),
    (
        "~a~ = [type(item).__name__ for item in (@int@, @str@, [1], None, 1.5, Couple(1), Level.LOW)]\nLOG.append(~a~)",
        {"a": "strs"},
    ),
    # matching
    (
        "match Spot(@int@, @int@):\n    case Spot(x=0):\n        LOG.append('zero')\n    case Spot(1 | 2, ~a~) if ~a~ > 1:\n        LOG.append(~a~)\n    case Spot(~a~, y=~b~):\n        LOG.append((~a~, ~b~))",
        {},
    ),
    (
        "match [@int@, Couple(@int@), {'k': @str@}]:\n    case [int(~a~), (~b~, 5), {'k': ~c~, **~d~}] if ~b~ >= 0:\n        LOG.append((~a~, ~b~, ~c~, ~d~))\n    case [_, *_]:\n        LOG.append('rest')",
        {},
    ),
    (
        "match Plan(@str@):\n    case Plan(name='a' | 'key' as ~a~, parts=[]):\n        LOG.append(~a~)\n    case Plan(name=str(), steps=2):\n        LOG.append('str')",
        {},
    ),
    (
        "match @int@:\n    case Level.LOW:\n        LOG.append('low')\n    case -1 | -2:\n        LOG.append('minus')\n    case ~a~:\n        LOG.append(~a~)",
        {},
    ),
    # functions
    ("~a~ = gather(@int@, *@ints@[:2], last=@int@, **{'b': @int@, 'a': 1})\nLOG.append(~a~)", {}),
    (
        "try:\n    gather(*@ints@[:1], first=@int@)\n    gather()\nexcept TypeError as error:\n    LOG.append(str(error))",
        {},
    ),
    ("try:\n    scaled(@n4@, 1, 2)\nexcept TypeError as error:\n    LOG.append(str(error))", {}),
    ("LOG.append((remembering(@int@), keyed(key=@str@), keyed()))", {}),
    (
        "def ~a~(item, into=[], *, count={'n': 0}):\n    into.append(item)\n    count['n'] += 1\n    return len(into) + count['n']\n\n~b~ = ~a~(@int@) + ~a~(@int@) + ~a~(1, [])",
        {"b": "int"},
    ),
    ("~a~ = counter(@int@)\n~b~ = ~a~() + ~a~(@int@)\nLOG.append((~a~.back(), STEP(), STEP.back()))", {"b": "int"}),
    (
        "~a~ = [(lambda: k) for k in range(3)]\n~c~ = [(lambda k=k: k * @int@) for k in range(3)]\nLOG.append([fn() for fn in ~a~ + ~c~])",
        {},
    ),
    ("~a~ = fib(@int@ % 7)\n~b~ = list(walk([@int@, (2, [3, @int@]), []]))", {"a": "int", "b": "ints"}),
    ("~a~ = slowly(@int@ % 3) + slowly(k=1, add=@int@ % 2)", {"a": "int"}),
    ("LOG.append((told(@int@), told(@str@), told([@int@, 'x', [1]])))", {}),
    (
        "~a~ = scaled(@n4@, plus=@int@)\nLOG.append((scaled.tag, scaled.__name__, scaled.__doc__, scaled.__wrapped__.__name__))",
        {"a": "n4"},
    ),
    (
        "@tagged('local')\ndef ~a~(*args, **kwargs):\n    return len(args) - len(kwargs)\n\n~b~ = ~a~(@int@, @str@, k=@int@)",
        {"b": "int"},
    ),
    (
        "~a~ = TABLE[('add', 'mul', 'fib')[@int@ % 3]](@int@, @int@)\nTABLE['kept'] = lambda a, b: a - b\n~b~ = TABLE['kept'](~a~, 1)",
        {"a": "int", "b": "int"},
    ),
    (
        "~a~ = functools.partial(scaled, by=@int@)\n~b~ = ~a~(@n4@, plus=1)\nLOG.append((~a~.keywords, functools.partial(gather, 1, 2, c=3)(4, d=5)))",
        {"b": "n4"},
    ),
    (
        "~a~ = functools.reduce(lambda p, q: p * 2 + q, @ints@[:3], @int@)\n~b~ = functools.reduce(operator.add, [@n4@, @n4@])",
        {"a": "int", "b": "n4"},
    ),
    ("~a~ = (lambda *a, k=@int@, **kw: (a, k, kw))(1, *@strs@[:1], z=@int@)\nLOG.append(~a~)", {}),
    (
        "~a~ = list(map(lambda p, q: p + q, @ints@[:3], [1, 2, 3]))\n~b~ = list(filter(None, @ints@[:3]))",
        {"a": "ints", "b": "ints"},
    ),
    (
        "def ~a~(k):\n    if k <= 0:\n        return []\n    return [k, *~a~(k - 2)]\n\n~b~ = ~a~(@int@ % 6)",
        {"b": "ints"},
    ),
    (
        "~a~ = {fn.__name__: fn for fn in (fib, scaled, slowly)}\n~b~ = ~a~['fib'](@int@ % 5)\nLOG.append(sorted(~a~))",
        {"b": "int"},
    ),
    # generators
    (
        "~a~ = averaging()\nnext(~a~)\nLOG.append([~a~.send(k) for k in (@int@, 2, 3)])\ntry:\n    ~a~.send(None)\nexcept StopIteration as error:\n    LOG.append(error.value)",
        {},
    ),
    (
        "def ~a~(items):\n    for item in items:\n        try:\n            yield item\n        except ValueError as error:\n            yield str(error)\n        finally:\n            LOG.append('after')\n\n~b~ = ~a~(@ints@[:2] + [1, 2])\nLOG.append((next(~b~), ~b~.throw(ValueError('v')), next(~b~, None)))\n~b~.close()",
        {},
    ),
    (
        "def ~a~():\n    got = yield from averaging()\n    LOG.append(got)\n    return got\n\n~b~ = ~a~()\nnext(~b~)\n~b~.send(@int@)\nLOG.append(next(~b~, 'over'))",
        {},
    ),
    ("LOG.append(next(TICKS, None))\n~a~ = [next(TICKS, 0), *itertools.islice(TICKS, 2)]", {"a": "ints"}),
    ("~a~ = iter(@ints@[:3])\nfor ~b~ in ~a~:\n    LOG.append((~b~, next(~a~, None)))", {}),
    ("~a~ = (k * @int@ for k in @ints@[:3] if k)\nLOG.append((next(~a~, None), list(~a~), list(~a~)))", {}),
    (
        "~a~ = sum(k * k for k in walk((@int@, [@int@])))\n~b~ = any(k > 1 for k in @ints@) or all(k for k in @ints@)",
        {"a": "int", "b": "bool"},
    ),
    (
        "~a~ = dict(zip(@strs@, itertools.count(@int@)))\n~b~ = list(itertools.chain.from_iterable([@ints@[:2], (1,)]))\nLOG.append((~a~, list(itertools.accumulate(~b~)), list(itertools.pairwise(~b~))))",
        {"b": "ints"},
    ),
    ("~a~ = {k: [*g] for k, g in itertools.groupby(sorted(@ints@[:4]), key=lambda k: k % 2)}\nLOG.append(~a~)", {}),
    # exceptions
    ("with Swallow(KeyError, ValueError) as ~a~:\n    @lines@\n    {}[@str@]\nLOG.append(~a~.seen)", {}),
    (
        "~a~ = []\nwith swallowing(LookupError, ~a~) as ~b~:\n    ~b~.append(@int@)\n    [][@int@ % 2]\nLOG.append(~a~)",
        {},
    ),
    (
        "with contextlib.suppress(ZeroDivisionError), Swallow(TypeError) as ~a~:\n    1 // (@int@ % 2)\n    'a' + 1\nLOG.append(~a~.seen)",
        {},
    ),
    (
        "with contextlib.ExitStack() as ~a~:\n    ~a~.callback(LOG.append, 'stack')\n    ~b~ = ~a~.enter_context(Swallow(KeyError))\n    {}[@int@]\nLOG.append(~b~.seen)",
        {},
    ),
    (
        "try:\n    raise ExceptionGroup('several', [ValueError(@int@), KeyError(@str@)])\nexcept ExceptionGroup as ~a~:\n    LOG.append((~a~.message, len(~a~.exceptions), ~a~.subgroup(ValueError) is not None))",
        {},
    ),
    (
        "try:\n    raise ExceptionGroup('several', [ValueError(@int@), TypeError('t')])\nexcept* ValueError as ~a~:\n    LOG.append([e.args for e in ~a~.exceptions])\nexcept* TypeError:\n    LOG.append('type')",
        {},
    ),
    (
        "try:\n    try:\n        raise Detail(@str@, code=@int@)\n    except Problem as error:\n        error.add_note('noted')\n        raise LookupError('lost') from error\nexcept LookupError as ~a~:\n    LOG.append((~a~.__cause__.code, ~a~.__cause__.__notes__, ~a~.__suppress_context__))\n    LOG.append(~a~)",
        {},
    ),
    (
        "for ~a~ in range(3):\n    try:\n        if ~a~ == @int@ % 3:\n            continue\n        if ~a~ == 2:\n            break\n        LOG.append(10 // ~a~)\n    except ZeroDivisionError:\n        LOG.append('zero')\n    else:\n        LOG.append('else')\n    finally:\n        LOG.append(('finally', ~a~))\nelse:\n    LOG.append('no break')",
        {},
    ),
    (
        "def ~a~(k):\n    try:\n        if k:\n            return 'try'\n        raise KeyError(k)\n    except KeyError:\n        return 'except'\n    finally:\n        LOG.append('finally')\n        if k > 2:\n            return 'over'\n\nLOG.append((~a~(0), ~a~(@int@)))",
        {},
    ),
    ("try:\n    int(@str@)\nexcept ValueError as ~a~:\n    LOG.append(~a~)\nLOG.append('~a~' in locals())", {}),
    # texts
    (
        "~a~, ~b~, ~c~ = @int@, @float@, @str@\nLOG.append(f'{~a~:03d}|{~b~:.2f}|{~b~:e}|{~c~!r:>8}|{~a~ * 1000:,}|{~a~ > 1}|{~b~!s:{~a~ % 4 + 5}}')",
        {"a": "int", "b": "float", "c": "str"},
    ),
    ("LOG.append('{0} {name} {1[0]} {2.left}'.format(@int@, @strs@ + ['z'], Sealed(1), name=@str@))", {}),
    ("LOG.append('%s %d %5.1f %r' % (@str@, @int@, @float@, @str@))", {}),
    (
        "~a~ = ', '.join(f'{k}={v}' for k, v in {'a': @int@, 'b': @float@}.items())\n~b~ = ~a~.split('=')[0].upper().center(5, '*')",
        {"a": "str", "b": "str"},
    ),
    ("~a~, ~b~ = @n4@, @v4@\nLOG.append(f'{~a~.shape} {tuple(~b~.shape)!r} {~a~.dtype} {~b~.ndim=}')", {}),
    ("~a~ = @str@.encode()\nLOG.append((~a~, ~a~[:1], list(~a~)[:2], ~a~.decode().title(), bytes([1, 2]).hex()))", {}),
    # order and slices
    (
        "~a~ = sorted([(@int@, 'b'), (@int@, 'a'), (1, 'c')], key=lambda t: (-t[0], t[1]))\nLOG.append((~a~, min(~a~, key=operator.itemgetter(1)), max(@strs@ + ['q'], key=len)))",
        {},
    ),
    (
        "~a~ = [5, 3, 8, 1, 9]\n~a~.sort(key=lambda k: (k % (@int@ + 1), -k))\nLOG.append((~a~[::-1], ~a~[-2:0:-1], ~a~[4:1:-2], ~a~[slice(None, None, 2)]))\n~a~[::-2] = [0, 0, 0]\ndel ~a~[1:3]",
        {"a": "ints"},
    ),
    ("~a~ = @n4@[:, ::2]\n~b~ = @v4@.flip(0)[1:-1].sum() + ~a~[-1, 0]", {}),
    ("~a~ = 0 <= @int@ < 3 != @int@\n~b~ = 1 < (~c~ := @int@) <= 4", {"a": "bool", "b": "bool"}),
    (
        "~a~ = [y for k in @ints@[:3] if (y := k * 2) > 1]\nLOG.append((~a~, {k: v for k, v in zip('abc', ~a~)}, [[p, q] for p in 'ab' for q in ~a~[:1]]))",
        {"a": "ints"},
    ),
    (
        "~a~ = dict.fromkeys(@strs@, 0)\n~a~['z'] = @int@\n~a~ |= {'a': 1}\n~b~ = ~a~ | {'q': 2}\nLOG.append((list(~a~), list(reversed(~b~)), ~a~.keys() & ~b~.keys() == set(~a~), ~b~.popitem()))",
        {},
    ),
    (
        "~a~ = {@int@, @int@, 7}\n~b~ = ~a~ & {1, 2, 7}, ~a~ - {7}, ~a~ ^ {1}\nLOG.append((sorted(~a~), [sorted(s) for s in ~b~], 7 in ~a~, frozenset(~a~) == ~a~, ~a~ >= {7}))",
        {},
    ),
    (
        "~a~ = [[0] * 2 for _ in range(2)]\n~a~[1][0] += @int@\n~a~[0][-1] -= 1\n~b~ = {'k': [1, 2]}\n~b~['k'][0] *= @int@\n~b~['k'] += [3]\nLOG.append((~a~, ~b~))",
        {},
    ),
    (
        "~a~ = [@n4@, @n4@]\n~a~[0] += @int@\n~a~[1][0] *= 2\n~a~ *= 2\n~b~ = ~a~[2] is ~a~[0]\n~c~ = ~a~[-1]",
        {"b": "bool", "c": "n4"},
    ),
    (
        "(~a~, *~b~), ~c~ = [@int@, *@ints@[:2]], {**{'a': @int@}, 'b': 2}\nLOG.append((~a~, ~b~, ~c~))",
        {"a": "int", "b": "ints"},
    ),
    (
        "~a~ = collections.Counter(@strs@ + ['a'])\n~b~ = collections.defaultdict(list, a=[1])\n~b~['n'].append(@int@)\nLOG.append((~a~['a'], sorted(~a~.items()), dict(~b~), collections.ChainMap({'a': 1}, ~b~)['a']))",
        {},
    ),
    (
        "~a~ = collections.OrderedDict(a=1, b=@int@)\n~a~.move_to_end('a')\nLOG.append((list(~a~.items()), ~a~.popitem(last=False), collections.deque([1, 2, 3], maxlen=2)))",
        {},
    ),
    # names
    (
        "~a~ = @int@\ndef ~b~():\n    nonlocal_free = ~a~ + 1\n    return nonlocal_free\n\nLOG.append(~b~())\n~a~ += 1\nLOG.append(~b~())",
        {"a": "int"},
    ),
    ("~a~ = [@int@, @int@]\ndel ~a~[0], ~a~[-1:]\nLOG.append(~a~)", {}),
    ("~a~ = @int@\ndel ~a~\ntry:\n    ~a~\nexcept NameError as error:\n    LOG.append(type(error).__name__)", {}),
    ("~a~ = ~b~ = [@int@]\n~a~ += [1]\n~a~ = ~a~ + [2]\nLOG.append((~a~, ~b~, ~a~ is ~b~))", {"b": "ints"}),
    ("~a~ = None\n~b~ = ~a~ or @int@ and @str@ or []\n~c~ = @int@ if not ~a~ else 0\nLOG.append(~b~)", {"c": "int"}),
    (
        "~a~ = 10\nwhile (~a~ := ~a~ - 3) > @int@:\n    if ~a~ % 2:\n        continue\n    LOG.append(~a~)\nelse:\n    LOG.append('done')",
        {},
    ),
    ("for ~a~, (~b~, ~c~) in enumerate(zip(@ints@[:2], @strs@), start=@int@):\n    LOG.append((~a~, ~b~, ~c~))", {}),
    (
        "~a~ = getattr(@n4@, 'mul')(@int@)\n~b~ = isinstance(~a~, (list, torch.Tensor)) and callable(~a~.add)",
        {"a": "n4", "b": "bool"},
    ),
    (
        "~a~ = divmod(@int@ * 7, 3) + (round(@float@ * 3.3, 1), abs(-@int@), pow(2, 5, 7), bin(@int@ % 8), hex(255), int('12', 8), chr(97), ord('b'))\nLOG.append(~a~)",
        {},
    ),
    (
        "~a~ = [*range(10, 0, -@int@ % 3 - 3)]\nLOG.append((~a~, range(5)[::-2], 3 in range(1, 9, 2), len(range(0, 10, 3))))",
        {"a": "ints"},
    ),
]
