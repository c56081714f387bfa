"""Expressions over plain Python values give traced what Python gives: value, type, exception and its text."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def _sibling(name):
    """A module beside this file: the import mode of the tests puts no folder on sys.path."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


agree = _sibling("tracker_programs").agree

EXPRESSIONS = r"""
1 + 2.5
7 // 2
-7 % 3
2 ** 10
2 ** -1
1 << 5
6 & 3
6 | 3
6 ^ 3
~5
not 3
+True
1 / 0
1 // 0
5 % 0
2 ** 'x'
'a' + 1
1 + 'a'
[1] + (2,)
(1,) + [2]
[1] * 2.0
'ab' * 3
3 * 'ab'
[1, 2] * 2
2 * (1,)
[1] * -1
[1] * True
-'a'
~1.5
abs('x')
1 < 2 < 3
3 > 2 > 5
1 == 1.0
1 != 2
'a' < 'b'
(1, 2) < (1, 3)
[1] < [1, 2]
[2] > [1, 5]
() == []
[1] == (1,)
1 < 'a'
[1] < (2,)
{} < {}
None < None
1 is 1
None is None
True is not False
() is ()
1 in [1.0, 2]
'a' in 'cat'
'x' not in 'cat'
3 in range(5)
9 in (1, 2)
True in {1: 2}
'k' in {'k': 1}
1 in 5
1 in 'abc'
len('abc')
len([1, 2])
len({1: 2})
len((1,))
len({1, 2})
len(range(7))
len(b'xy')
len(5)
len(iter([]))
'{} {:>5} {x!r}'.format(1, 'a', x='q')
'%s=%d' % ('a', 3)
'%5.2f' % 3.14159
'%(k)s' % {'k': 1}
'%d' % 'x'
'{0}'.format()
f'{1!r:>4}|{3.14159:.2f}|{[1, "a"]}|{None}|{(1,)}|{dict(a=1)}|{True:>6}'
f'{[1]:>5}'
','.join(['a', 'b'])
'-'.join(('x',))
''.join(str(i) for i in range(3))
b','.join([b'a', b'b'])
','.join([1, 2])
','.join(5)
'a,b,c'.split(',')
'a b'.split()
'abc'.partition('b')
'x'.upper()
' a '.strip()
'abc'.find('c')
'abc'.replace('b', 'z')
'abc'.encode()
b'abc'.decode()
'abc'.startswith(('x', 'a'))
'abc'.isalpha()
'a\nb'.splitlines()
'abc'.index('b')
'abc'.index('z')
'abc'[1]
'abc'[-1]
'abcdef'[1:4]
'abcdef'[::-1]
b'abc'[0]
b'abc'[1:]
'abc'[5]
'abc'['x']
b'abc'['x']
(5).bit_length()
(3.0).is_integer()
(2.5).as_integer_ratio()
(1+2j).real
(1+2j).conjugate()
(5).real
(7).numerator
int.from_bytes(b'ab', 'big')
int('12')
int('ff', 16)
int(3.9)
int(True)
float('1.5')
float(2)
bool([])
bool('a')
int('x')
int([])
float('x')
float([])
complex(1, 2)
complex('1+2j')
str(12)
str([1, 'a'])
str(None)
repr('a')
repr({1: 'a', 'b': [2]})
str((1,))
ascii('\xe9')
bytes([1, 2])
bytes(3)
bytes('a', 'utf8')
str(b'abc', 'ascii')
chr(97)
ord('a')
bin(5)
hex(255)
oct(8)
round(2.567, 2)
round(3.5)
round(7)
abs(-3)
abs(-2.5)
divmod(7, 2)
pow(2, 3, 5)
ord('ab')
round('a')
divmod(1, 0)
pow(2, 'a')
list('abc')
list(range(3))
list({1: 2})
list((1, 2))
tuple([1, 2])
set([1, 1, 2])
frozenset('aab')
dict([(1, 2)])
dict(a=1)
list(5)
tuple(None)
dict([1])
dict([(1, 2, 3)])
dict(5)
set([[]])
{[]: 1}
{(1, [2]): 3}
{1: 'a', True: 'b', 1.0: 'c'}
{(1, 2): 3}[(1.0, 2)]
{None: 1}[None]
{frozenset([1]): 2}[frozenset([1])]
sum([1, 2, 3])
sum([[1], [2]], [])
sum((0.1,) * 10)
sum([])
sum([1.5, 2], start=10)
sum(range(5))
sum(['a', 'b'])
sum(['a'], '')
sum(5)
min(3, 1, 2)
max([1, 5, 2])
min('b', 'a', key=ord)
max([], default=7)
max([1, -5], key=abs)
min({3, 1})
max('abc')
min([])
max()
max(1, 2, default=3)
min(1, 'a')
min(5)
sorted([3, 1, 2])
sorted('cab', reverse=True)
sorted([(1, 'b'), (1, 'a')], key=lambda p: p[0])
sorted({3, 2, 1})
sorted({'b': 1, 'a': 2})
sorted([1, 'a'])
sorted(5)
list(reversed([1, 2]))
list(reversed((1, 2)))
list(reversed('ab'))
list(reversed(range(4)))
list(reversed({1: 2, 3: 4}))
reversed(5)
reversed({1, 2})
any([0, 1])
all([1, 0])
any([])
all([])
any(x > 2 for x in [1, 3])
all('abc')
list(enumerate('ab', 1))
list(zip([1, 2], 'ab'))
list(map(lambda a, b: a + b, [1], [2]))
list(filter(None, [0, 1]))
list(zip())
enumerate(5)
list(zip([1], [2, 3], strict=True))
list(zip([1, 2], [3], strict=True))
map(len)
isinstance(1, int)
isinstance(True, int)
isinstance('a', (int, str))
isinstance([], list)
isinstance(None, type(None))
isinstance(1, int | str)
isinstance(1, 5)
issubclass(bool, int)
issubclass(int, (str, int))
callable(len)
callable(5)
type(1) is int
type([]) == list
type(None)
issubclass(1, int)
hasattr([], 'append')
hasattr([], 'x')
getattr('a', 'upper')()
getattr(1, 'zz', 'd')
getattr([], 'q', None)
getattr(1, 'zz')
[].foo
(1).x
'a'.nope()
{}.nope
hash(5)
hash(2.5)
hash((1, 2))
hash(True)
hash([])
hash({})
next(iter([5]))
next(iter([]), 'd')
next(iter('a'))
list(iter([1, 2]))
next(iter([]))
next([1])
iter(5)
iter(5, 5)
range(5)
range(1, 10, 3)[1]
range(10)[2:5]
range(10)[-1]
list(range(5, 0, -2))
range(0)
range(3) == range(0, 3)
range(10).index(3)
range(5).count(2)
range(0, 5, 0)
range('a')
range(5)[9]
range(5).index(9)
range(3).start
range(3).stop
range(1, 9, 2).step
slice(1, 2).start
slice(5).stop
slice(1, 9, 2).indices(5)
slice(1) == slice(1)
range()
slice()
[1, 2, 3][True]
[1, 2, 3][-1]
[1, 2, 3][0:2]
[1, 2, 3][::2]
(1, 2, 3)[1:]
(1,)[0]
[1][5]
(1,)[5]
[1]['a']
(1,)['a']
{1: 2}[3]
5[0]
None[0]
{1, 2}[0]
[1, 2, 3].index(2)
[1, 2, 1].count(1)
(1, 2).index(2)
(1, 1.0).count(True)
[1, 2].copy()
[1].index(5)
(1,).index(5)
[1].append()
[1].append(1, 2)
[1].sort(5)
[].pop()
[1].pop(5)
[1].remove(2)
{}.popitem()
{}.pop(1)
{1: 2}.get()
{}.update(5)
{}.update([[1]])
{}.setdefault()
{1: 2}.keys() & {1, 2}
{1: 2}.keys() | [5]
{1: 2, 3: 4}.keys() - {1}
{1: 2}.items() & {(1, 2)}
{1: 2}.keys() ^ {3}
{1, 2} - {1: 0}.keys()
{1: 2}.keys() == {1}
{1: 2}.keys() < {1, 2}
{1: 2}.items() >= set()
{1: 2}.keys().isdisjoint([3])
2 in {1: 2}.values()
(1, 2) in {1: 2}.items()
{1: 2}.values() & {1}
{1: 2} | {3: 4}
{1: 2} | {1: 3}
{1: 2} == {1: 2.0}
{1: 2} != {1: 3}
{1: 2, 3: 4} == {3: 4, 1: 2}
{1: 2} | [(3, 4)]
{1, 2} | {3}
{1, 2} & {2}
{1, 2} - {2}
{1, 2} ^ {2, 3}
{1} < {1, 2}
{1} <= {1}
{1, 2} > {1}
{1} == {1.0}
{1} != {2}
{1} | [2]
{1} < [1]
{1}.union([2], (3,))
{1, 2}.intersection([2])
{1, 2}.difference({2})
{1}.symmetric_difference([1, 2])
{1}.issubset([1, 2])
{1}.isdisjoint('a')
frozenset([1]) | {2}
{2} | frozenset([1])
frozenset([1]).union([3])
frozenset([1]) == {1}
{frozenset([1])}
{1} in {frozenset([1])}
frozenset([1]).add(2)
{1}.remove(2)
set().pop()
{1}.add([])
{1}.update(5)
deque([1, 2, 3], 2)
deque('ab')[0]
deque([1]) + deque([2])
deque([1, 2]) * 2
deque([1]) == deque([1])
len(deque([1]))
1 in deque([1])
deque([1], maxlen=3).maxlen
deque([1])[5]
deque().pop()
deque([1]).remove(5)
deque([1]).index(5)
deque(5)
deque([1], -1)
deque([1], 'a')
OrderedDict(a=1)
OrderedDict([(1, 2)]) == {1: 2}
OrderedDict([(1, 2), (3, 4)]) == OrderedDict([(3, 4), (1, 2)])
OrderedDict(a=1) | {'b': 2}
defaultdict(list)
defaultdict(int, a=1)
defaultdict(None, {1: 2})
defaultdict(list, {1: [2]})[1]
defaultdict(int) | {1: 2}
defaultdict(5)
defaultdict(None)[1]
Counter('aab')
Counter(a=2)['zz']
Counter('aab').total()
Counter([1, 1]) == {1: 2}
dict.fromkeys('ab')
dict.fromkeys([1], 2)
OrderedDict.fromkeys('ab', 0)
list.append
str.upper('a')
list.index([1, 2], 2)
dict.get({1: 2}, 1)
list.append(5, 5)
str.join('-', ['a', 'b'])
str.maketrans('a', 'b')
float.fromhex('0x1p-1')
bytes.fromhex('0a')
math.sqrt(16)
math.floor(2.7)
math.ceil(2.1)
math.prod([2, 3])
math.gcd(4, 6)
math.pi
math.inf
math.isnan(math.nan)
math.hypot(3, 4)
math.trunc(2.9)
math.sqrt(-1)
math.sqrt('a')
math.floor('a')
operator.add(1, 2)
operator.itemgetter(1)([5, 6])
operator.itemgetter(0, 1)('ab')
operator.contains([1], 1)
operator.attrgetter('real')(5)
operator.methodcaller('upper')('a')
operator.not_(1)
operator.countOf([1, 1], 1)
operator.indexOf([4, 5], 5)
operator.concat([1], [2])
operator.itemgetter()
operator.add(1)
functools.reduce(operator.add, [1, 2, 3])
functools.reduce(lambda a, b: a * b, [2, 3], 4)
functools.reduce(operator.add, [])
list(itertools.chain([1], (2,)))
list(itertools.chain.from_iterable(['ab', [1]]))
list(itertools.islice(range(10), 2, 8, 3))
list(itertools.islice('abc', 2))
list(itertools.islice([1], -1))
list(itertools.repeat(1, 3))
list(itertools.product([1, 2], 'ab'))
list(itertools.product([0, 1], repeat=2))
list(itertools.permutations([1, 2, 3], 2))
list(itertools.combinations('abc', 2))
list(itertools.combinations_with_replacement('ab', 2))
list(itertools.accumulate([1, 2, 3]))
list(itertools.accumulate([1, 2], operator.mul, initial=5))
list(itertools.zip_longest([1], [2, 3], fillvalue=0))
list(itertools.starmap(pow, [(2, 3)]))
list(itertools.takewhile(lambda x: x < 3, [1, 2, 5, 1]))
list(itertools.dropwhile(lambda x: x < 3, [1, 5, 1]))
list(itertools.pairwise('abc'))
list(itertools.filterfalse(None, [0, 1]))
[(k, list(g)) for k, g in itertools.groupby('aabbca')]
[(k, list(g)) for k, g in itertools.groupby([1, 3, 2], key=lambda x: x % 2)]
[k for k, g in itertools.groupby('aab')]
[list(t) for t in itertools.tee([1, 2], 3)]
list(zip(itertools.count(), 'ab'))
list(itertools.islice(itertools.count(5, 2), 3))
list(itertools.islice(itertools.cycle('ab'), 5))
enumerate('ab')
zip([1, 2], [3, 4])
map(str, [1])
itertools.islice([1, 2, 3], 1, None)
itertools.chain([1], [2])
iter([1, 2])
iter({1: 2})
iter({5})
reversed([1, 2])
iter('ab')
iter(range(3))
""".strip().splitlines()


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_expression_gives_what_python_gives(source):
    agree(f"result = {source}")
