"""Programs over plain Python values do the same traced as run: results, order, exceptions, identity, laziness."""

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

PROGRAMS = {
    "append while iterating is seen": """
out = []
a = [1, 2]
for x in a:
    out.append(x)
    if x < 5: a.append(x + 2)
""",
    "removal while iterating skips": """
a = [1, 2, 3, 4]
for x in a:
    a.remove(x)
""",
    "an exhausted list iterator stays so": """
a = [1]
it = iter(a)
l = list(it)
a.append(2)
m = list(it)
""",
    "dict growing in a loop": """
d = {1: 2}
for k in d:
    d[k + 1] = 0
""",
    "dict shrinking in a loop": """
d = {1: 2, 3: 4}
for k in d.items():
    d.clear()
""",
    "value replaced in a loop": """
d = {1: 2, 3: 4}
for k in d:
    d[k] = k * 10
v = list(d.values())
""",
    "OrderedDict changed in a loop": """
d = OrderedDict([(1, 2), (3, 4)])
for k in d:
    d.move_to_end(k)
""",
    "OrderedDict emptied at its last key": """
d = OrderedDict([(1, 2)])
for k in d:
    del d[k]
""",
    "dict emptied at its last key": """
d = {1: 2}
for k in d:
    del d[k]
""",
    "set growing in a loop": """
s = {1}
for k in s:
    s.add(k + 1)
""",
    "deque changed in a loop": """
d = deque([1, 2])
for k in d:
    d.append(k)
""",
    "slice assignment": """
a = list(range(6))
a[1:3] = 'xyz'
a[::2] = [0] * len(a[::2])
del a[-1]
del a[:2]
a[5:1] = [7]
""",
    "extended slice of the wrong size": """
a = [1, 2, 3]
a[::2] = [1]
""",
    "slice assignment of no iterable": """
a = [1]
a[:] = 5
""",
    "a list assigned into itself": """
a = [1, 2]
a[1:1] = a
a += a
a.extend(a)
a *= 2
""",
    "item assignment out of range": """
a = [1]
a[3] = 1
""",
    "item deletion out of range": """
a = [1]
del a[3]
""",
    "in place keeps identity": """
a = [1]
b = a
a += [2]
same = a is b
a = a + [3]
other = a is b
""",
    "tuple in place makes a new one": """
a = (1,)
b = a
a += (2,)
same = a is b
""",
    "set in place keeps identity": """
s = {1, 2, 3}
t = s
s &= {1, 2}
s |= {5}
s -= {1}
s ^= {9, 5}
same = s is t
""",
    "frozenset in place makes a new one": """
s = frozenset([1])
t = s
s |= {2}
same = s is t
""",
    "dict update forms": """
d = {1: 2}
d.update({3: 4}, a=5)
d.update([(6, 7)])
d |= {8: 9}
d |= [(1, 0)]
d.update()
""",
    "dict methods": """
d = {1: 2, 3: 4}
a = d.pop(1)
b = d.pop(9, 'x')
c = d.setdefault(5)
e = d.setdefault(3, 0)
f = d.popitem()
g = d.copy()
d.clear()
""",
    "dict key keeps its first form": """
d = {1: 'a'}
d[True] = 'b'
d[1.0] = 'c'
k = list(d)
""",
    "deleted and set again comes last": """
d = {1: 2, 3: 4}
del d[1]
d[1] = 5
k = list(d)
""",
    "views are live": """
d = {1: 2}
k = d.keys()
v = d.values()
d[5] = 6
a = list(k)
b = list(v)
n = len(k)
""",
    "defaultdict makes values": """
d = defaultdict(list)
d['a'].append(1)
d['a'].append(2)
d['b']
g = d.get('c')
n = 'c' in d
""",
    "defaultdict of a lambda": """
n = [0]
def f():
    n[0] += 1
    return n[0]
d = defaultdict(f)
a = d[1]
b = d[1]
c = d[2]
""",
    "OrderedDict moves": """
d = OrderedDict(a=1, b=2, c=3)
d.move_to_end('a')
d.move_to_end('c', last=False)
p = d.popitem(last=False)
k = list(d)
r = list(reversed(d))
""",
    "OrderedDict moves what is not there": """
OrderedDict().move_to_end(1)
""",
    "Counter counts": """
c = Counter('abca')
c.update('aa')
c.subtract(b=3)
x = c['zz']
n = 'zz' in c
del c['nope']
c['b'] += 5
""",
    "sort is stable and takes keys": """
a = [(2, 'b'), (1, 'z'), (2, 'a')]
a.sort(key=lambda p: p[0])
b = list(a)
a.sort(reverse=True)
a.sort(key=lambda p: p[0], reverse=True)
""",
    "sort of things that have no order": """
a = [1, 'a', 2]
a.sort()
""",
    "a key function that raises": """
a = [2, 0, 1]
try:
    a.sort(key=lambda x: 1 / x)
except ZeroDivisionError:
    m = 'caught'
""",
    "a list changed while it is sorted": """
a = [3, 1, 2]
def k(x):
    a.append(x)
    return x
a.sort(key=k)
""",
    "a list seen empty while it is sorted": """
a = [3, 1, 2]
sizes = []
def k(x):
    sizes.append(len(a))
    return x
a.sort(key=k)
""",
    "lists of lists share": """
a = [[0] * 2] * 2
a[0][1] = 5
same = a[0] is a[1]
""",
    "a list that contains itself": """
a = [1]
a.append(a)
b = a[1] is a
t = repr(a)
""",
    "a dict that contains itself": """
d = {}
d['d'] = d
l = [d]
d['l'] = l
t = repr(d)
""",
    "deque methods": """
d = deque([1, 2, 3, 4], 4)
d.rotate(1)
d.appendleft(0)
d.extendleft([8, 9])
a = d.pop()
b = d.popleft()
d.insert(1, 'x')
d.reverse()
d.remove('x')
c = d.copy()
n = d.count(8)
i = d.index(8)
d[0] = 'y'
del d[0]
d += [5]
""",
    "deque insert into a full one": """
d = deque([1, 2], 2)
d.insert(0, 5)
""",
    "iterators share one state": """
it = iter([1, 2, 3, 4])
a = next(it)
b = list(zip(it, it))
c = next(it, 'end')
""",
    "zip loses what it took": """
a = iter([1, 2, 3])
b = iter([9])
z = list(zip(a, b))
rest = list(a)
""",
    "map is lazy": """
log = []
m = map(lambda x: log.append(x), [1, 2])
n = len(log)
next(m)
k = list(log)
""",
    "filter is lazy and in order": """
log = []
def f(x):
    log.append(x)
    return x % 2
m = filter(f, [1, 2, 3])
a = next(m)
b = list(log)
""",
    "contains consumes an iterator": """
it = iter([1, 2, 3])
a = 2 in it
b = list(it)
""",
    "enumerate of a growing list": """
a = [1]
out = []
for i, x in enumerate(a):
    out.append((i, x))
    if i < 3: a.append(i)
""",
    "groups end with their turn": """
g = itertools.groupby('aab')
k, first = next(g)
k2, second = next(g)
a = list(first)
b = list(second)
""",
    "tee reads once": """
log = []
src = map(lambda x: log.append(x) or x, [1, 2])
a, b = itertools.tee(src)
x = next(a)
y = next(b)
z = list(a)
w = list(b)
n = list(log)
""",
    "chain is lazy": """
log = []
def f(x):
    log.append(x)
    return [x]
c = itertools.chain.from_iterable(map(f, [1, 2]))
a = next(c)
b = list(log)
""",
    "iter with a sentinel": """
a = [1, 2, 0, 5]
it = iter(lambda: a.pop(0), 0)
b = list(it)
c = list(it)
""",
    "reversed walks from the end at its start": """
a = [1, 2, 3]
r = reversed(a)
a.append(4)
x = next(r)
a.clear()
y = list(r)
""",
    "getattr falls back only on AttributeError": """
class_ = [1]
a = getattr(class_, 'nope', 5)
b = hasattr(class_, 'sort')
""",
    "chained comparison stops early": """
log = []
def f(x):
    log.append(x)
    return x
r = f(3) < f(2) < f(1)
""",
    "any stops early": """
log = []
def f(x):
    log.append(x)
    return x
r = any(f(x) for x in [0, 1, 2])
log.clear()
s = any(map(f, [0, 1, 2]))
""",
    "remove compares by equality": """
a = [1.0, 2]
a.remove(1)
b = a.index(2.0)
""",
    "NaN is found by identity": """
n = float('nan')
a = [n]
b = n in a
c = n == n
d = a == [n]
e = a.index(n)
f = {n: 1}[n]
""",
    "sequences compare by the first difference": """
a = [1, [2, 3]] < [1, [2, 4]]
b = (1, 'a') >= (1, 'a')
c = [1, 'x'] < [2, 5]
""",
    "unpacking": """
a, b = [1, 2]
(c, d), e = (3, 4), 5
""",
    "star arguments": """
def f(a, *rest):
    return [a, rest]
x = f(*[1, 2, 3])
y = max(*[4, 5])
""",
    "set order of small ints": """
s = {5, 3, 9, 1}
l = list(s)
s.add(40)
m = list(s)
p = s.pop()
q = list(s | {100, 17})
r = list(s - {9})
""",
    "set order of strings": """
s = set('the quick brown fox')
l = list(s)
t = s | set('jumps')
m = list(t)
u = [c for c in t & s]
v = list(t ^ {'q', 'zz'})
w = sorted(s)
""",
    "set of a dict and a list": """
d = {i * 7: i for i in range(20)}
a = list(set(d))
b = list(set(list(d)))
c = list(set(a) | set(d))
e = list(frozenset(d))
f = list(set(frozenset(d)))
""",
    "set changes": """
s = {1, 2}
s.update([3], (4,))
s.discard(9)
s.remove(1)
s.difference_update([2], {3})
s.symmetric_difference_update([4, 5])
s.intersection_update([5, 6])
t = s.copy()
s.clear()
""",
    "setting an attribute of a list": """
[].x = 1
""",
    "setting a method of a list": """
[].append = 1
""",
    "setting an attribute of an int": """
x = 5
x.y = 1
""",
    "item of a tuple assigned": """
t = (1,)
t[0] = 2
""",
    "item of a string deleted": """
t = 'a'
del t[0]
""",
    "item of a tuple deleted": """
t = (1,)
del t[0]
""",
    "item of a set deleted": """
s = {1}
del s[0]
""",
    "an int called": """
x = 5
x()
""",
    "partly used iterators come back": """
a = iter([1, 2, 3])
next(a)
b = enumerate('abc', 5)
next(b)
c = zip([1, 2], [3, 4])
next(c)
d = iter({1: 2, 3: 4}.items())
next(d)
e = itertools.islice([1, 2, 3, 4, 5, 6], 1, 6, 2)
next(e)
f = itertools.count(3)
next(f)
g = iter((1, 2))
next(g)
h = itertools.repeat(7, 3)
next(h)
i = reversed((1, 2, 3))
next(i)
j = iter(deque([1, 2]))
next(j)
k = iter('abc')
next(k)
l = map(str, [1, 2])
next(l)
""",
    "fresh itertools come back": """
a = itertools.product([1, 2], repeat=2)
b = itertools.permutations([1, 2])
c = itertools.cycle('ab')
d = itertools.groupby([1])
e = itertools.accumulate([1, 2])
f = itertools.zip_longest([1], [2, 3])
g = itertools.takewhile(bool, [1, 0])
h = itertools.pairwise([1, 2, 3])
i = itertools.starmap(pow, [(1, 2)])
j = itertools.combinations([1, 2, 3], 2)
""",
}


@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_program_does_what_python_does(source):
    agree(source)
