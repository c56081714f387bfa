"""An exception that the program raises and catches shows the lines it passed, wherever the program lets it be seen."""

from __future__ import annotations

import sys
import traceback

import pytest
import torch

import core

X = torch.arange(4.0)
KEPT: list = []


def fails(x):
    if x is not None:
        raise ValueError("too far down")


def between(x):
    return fails(x)


def steps_of(step):
    while step is not None:
        yield step
        step = step.tb_next


def links(error):
    """The exception and those it came of: texts, notes, and (function, file, line) of each entry."""
    found = []
    while error is not None:
        steps = [
            (step.tb_frame.f_code.co_name, step.tb_frame.f_code.co_filename, step.tb_lineno)
            for step in steps_of(error.__traceback__)
        ]
        found.append((repr(error), getattr(error, "__notes__", None), error.__suppress_context__, steps))
        error = error.__context__
    return found


def shown(error):
    """All that Python prints of it, with the marks below the lines, less the caller's own entry."""
    return "".join(traceback.format_exception(error))


def kept(x):
    y = x + 1
    try:
        between(x)
    except ValueError as error:
        held = error
    return held, y * 2


def kept_of_a_subscript(x):
    try:
        {}["absent"]
    except KeyError as error:
        held = error
    return held, x + 1


def kept_in_a_callee(x):
    def inner():
        try:
            between(x)
        except ValueError as error:
            return error

    return inner(), x + 1


def raised_again_by_name(x):
    try:
        try:
            between(x)
        except ValueError as error:
            raise error
    except ValueError as error:
        held = error
    return held, x + 1


def raised_again_without_a_name(x):
    try:
        try:
            between(x)
        except ValueError:
            raise
    except ValueError as error:
        held = error
    return held, x + 1


def raised_from(x):
    try:
        try:
            between(x)
        except ValueError as error:
            raise RuntimeError("above") from error
    except RuntimeError as error:
        held = error
    return held, x + 1


def raised_from_nothing(x):
    try:
        try:
            between(x)
        except ValueError:
            raise RuntimeError("above") from None
    except RuntimeError as error:
        held = error
    return held, x + 1


def raised_in_a_handler(x):
    try:
        try:
            between(x)
        except ValueError:
            int("k")
    except ValueError as error:
        held = error
    return held, x + 1


def through_a_finally(x):
    try:
        try:
            between(x)
        finally:
            x = x * 2
    except ValueError as error:
        held = error
    return held, x


def through_a_generator(x):
    def items():
        yield x
        between(x)

    try:
        for item in items():
            x = x + item
    except ValueError as error:
        held = error
    return held, x


def thrown_into_a_generator(x):
    def items():
        yield x
        yield x + 1

    going, waiting = items(), items()
    next(going)
    found = []
    for generator in (going, waiting):
        try:
            generator.throw(KeyError("thrown"))
        except KeyError as error:
            found.append(error)
    return *found, x + 1


def through_a_delegation(x):
    def inner():
        yield x
        between(x)

    def outer():
        yield from inner()

    try:
        list(outer())
    except ValueError as error:
        held = error
    return held, x + 1


def through_a_comprehension(x):
    try:
        [int(text) for text in ("1", "k")]
    except ValueError as error:
        held = error
    return held, x + 1


def through_a_property(x):
    try:
        Lazy().value  # noqa: B018
    except ValueError as error:
        held = error
    return held, x + 1


class Lazy:
    @property
    def value(self):
        return between(self)


def through_what_c_calls(x):
    try:
        list(map(between, [x]))
    except ValueError as error:
        held = error
    return held, x + 1


def with_a_note(x):
    try:
        between(x)
    except ValueError as error:
        error.add_note("first")
        error.add_note("second")
        held = error
    return held, x + 1


def of_a_kernel(x):
    try:
        x + torch.ones(7)
    except RuntimeError as error:
        held = error
    return held, x + 1


def told_by_the_interpreter(x):
    try:
        between(x)
    except ValueError:
        held = sys.exc_info()[1]
    return held, x + 1


def without_its_first_entry(x):
    try:
        between(x)
    except ValueError as error:
        held = error.with_traceback(error.__traceback__.tb_next)
    return held, x + 1


def never_raised(x):
    return ValueError("made"), x + 1


PROGRAMS = [
    kept,
    kept_of_a_subscript,
    kept_in_a_callee,
    raised_again_by_name,
    raised_again_without_a_name,
    raised_from,
    raised_from_nothing,
    raised_in_a_handler,
    through_a_finally,
    through_a_generator,
    thrown_into_a_generator,
    through_a_delegation,
    through_a_comprehension,
    through_a_property,
    through_what_c_calls,
    with_a_note,
    of_a_kernel,
    told_by_the_interpreter,
    without_its_first_entry,
    never_raised,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_returned_exception_shows_what_it_shows_in_eager(fn):
    core.reset()
    compiled = core.compile(fn, backend="eager", fullgraph=True)
    *theirs, value = fn(X)
    for _ in range(2):
        *ours, result = compiled(X)
        assert torch.equal(result, value)
        assert [shown(error) for error in ours] == [shown(error) for error in theirs]
        assert [links(error) for error in ours] == [links(error) for error in theirs]
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def kept_in_a_global_list(x):
    try:
        between(x)
    except ValueError as error:
        KEPT.append(error)
    return x + 1


def kept_in_an_attribute(x):
    try:
        between(x)
    except ValueError as error:
        Lazy.error = error
    return x + 1


@pytest.mark.parametrize("fn", [kept_in_a_global_list, kept_in_an_attribute], ids=lambda fn: fn.__name__)
def test_an_exception_stored_outside_shows_what_it_shows_in_eager(fn):
    core.reset()
    KEPT.clear()

    def stored():
        return KEPT.pop() if KEPT else Lazy.error

    fn(X)
    theirs = stored()
    compiled = core.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        compiled(X)
        ours = stored()
        assert ours is not theirs
        assert (shown(ours), links(ours)) == (shown(theirs), links(theirs))
    assert core.stats()["breaks"] == 0


def test_a_traceback_tells_its_lines_while_tracing_and_when_it_is_returned():
    def fn(x):
        try:
            between(x)
        except ValueError as error:
            found = error.__traceback__
            lines = found.tb_lineno, found.tb_next.tb_lineno, found.tb_next.tb_next.tb_next
            same = found is sys.exc_info()[2]
        return found, lines, same, x + 1

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    theirs, ours = fn(X), compiled(X)
    assert traceback.format_tb(ours[0]) == traceback.format_tb(theirs[0])
    assert ours[1:3] == theirs[1:3]
    assert core.stats()["breaks"] == 0


def test_frames_of_a_caught_exception_can_be_looked_at():
    error, _ = core.compile(through_a_generator, backend="eager")(X)
    steps = list(steps_of(error.__traceback__))
    assert [step.tb_frame.f_globals is globals() for step in steps] == [True] * 4
    assert [step.tb_frame.f_code.co_qualname.rpartition(".")[2] for step in steps] == [
        "through_a_generator",
        "items",
        "between",
        "fails",
    ]
    assert [dict(step.tb_frame.f_locals) for step in steps] == [{}] * 4
    traceback.clear_frames(error.__traceback__)


def leaves_with_a_cause(x):
    x = x * 2
    try:
        between(x)
    except ValueError as error:
        raise RuntimeError("above") from error


def leaves_a_finally_that_raises(x):
    try:
        x = undefined_name  # noqa: F821
    finally:
        x + torch.ones(7)
    return x


def leaves_a_chain_of_handlers(x):
    try:
        try:
            between(x)
        except ValueError:
            {}["absent"]
    except KeyError:
        raise LookupError("at last")  # noqa: B904


def prints_in_the_handler(x):
    try:
        between(x)
    except ValueError:
        traceback.print_exc()
    return x + 1


@pytest.mark.parametrize(
    "fn", [leaves_with_a_cause, leaves_a_finally_that_raises, leaves_a_chain_of_handlers], ids=lambda fn: fn.__name__
)
def test_an_exception_that_leaves_shows_the_lines_of_those_it_came_of(fn):
    core.reset()
    compiled = core.compile(fn, backend="eager")
    with pytest.raises(Exception) as theirs:
        fn(X)
    for _ in range(3):
        with pytest.raises(Exception) as ours:
            compiled(X)
        assert links(ours.value.__context__) == links(theirs.value.__context__)
        assert [step[:2] for step in links(ours.value)[0][3][1:]] == [
            step[:2] for step in links(theirs.value)[0][3][1:]
        ]


def test_a_finally_that_raises_for_some_sizes_lets_the_first_exception_go_on_with_its_line():
    other = torch.randn(4, 3).t()

    def fn(x):
        y = x
        try:
            y = undefined_name  # noqa: F821
        finally:
            torch.zeros(x.shape[0], 4).lerp(other, 0.25)
        return y

    compiled = core.compile(fn, backend="eager")
    for size in (3, 5, 4, 3):
        x = torch.randn(size, 4)
        found = []
        for each in (fn, compiled):
            with pytest.raises((NameError, RuntimeError)) as info:
                each(x)
            found.append([(text, steps[-1]) for text, _, _, steps in links(info.value)])
        assert found[0] == found[1]


def test_what_a_handler_prints_of_a_traceback_is_what_eager_prints(capsys):
    compiled = core.compile(prints_in_the_handler, backend="eager")
    prints_in_the_handler(X)
    theirs = capsys.readouterr().err
    for _ in range(2):
        compiled(X)
        assert capsys.readouterr().err == theirs
    assert core.stats()["breaks"] >= 1


def split(x):
    x.split(-1)


def linear(x):
    torch.nn.functional.linear(x, torch.ones(2, 7))


def normalized(x):
    torch.nn.functional.layer_norm(x, [9])


def module(x):
    class Deep(torch.nn.Module):
        def forward(self, x):
            return fails(x)

    Deep()(x)


NET = torch.nn.Sequential(torch.nn.Linear(9, 2))


def layers(x):
    NET(x)


def attribute(x):
    NET.absent  # noqa: B018


@pytest.mark.parametrize("action", [split, linear, normalized, module, layers, attribute], ids=lambda fn: fn.__name__)
def test_frames_of_a_library_stand_in_a_traceback_that_is_kept(action):
    core.reset()

    def fn(x):
        y = x * 2
        try:
            action(x)
        except (RuntimeError, ValueError, AttributeError) as error:
            held = error
        return held, y + 1

    theirs, value = fn(X)
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        ours, result = compiled(X)
        assert torch.equal(result, value)
        assert shown(ours) == shown(theirs)
    assert core.stats()["graphs"] >= 1


def test_an_exception_of_a_library_that_nobody_keeps_breaks_no_graph():
    def fn(x):
        try:
            split(x)
        except RuntimeError as error:
            x = x + len(error.args)
        return x * 2

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), fn(X))
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_a_caught_exception_keeps_no_argument_of_its_frames_alive():
    import gc
    import weakref

    compiled = core.compile(kept, backend="eager", fullgraph=True)
    compiled(X)
    x = torch.ones(3)
    gone = weakref.ref(x)
    gc.disable()
    try:
        error, _ = compiled(x)
        del x
        assert gone() is None
    finally:
        gc.enable()


def test_notes_are_added_to_what_the_attribute_holds():
    def program(x):
        error, seen = ValueError("a"), []
        error.add_note("first")
        error.add_note("second")
        seen.append(list(error.__notes__))
        del error.__notes__
        error.add_note("third")
        seen.append(list(error.__notes__))
        error.__notes__ = 42
        for note in ("fourth", 4):
            try:
                error.add_note(note)
            except TypeError as refused:
                seen.append(str(refused))
        return x + 1, seen

    core.reset()
    result, seen = core.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    wanted, told = program(torch.ones(2))
    assert torch.equal(result, wanted) and seen == told
    assert core.stats()["graphs"] == 1


class Speaking(Exception):
    def __str__(self):
        return "in its own words"


def deeper(k):
    if k:
        deeper(k - 1)
    raise ValueError("at the bottom", 1)


def text_of_a_chain(x):
    try:
        try:
            deeper(2)
        except ValueError as error:
            raise KeyError("k") from error
    except KeyError as error:
        lines = traceback.format_exception(error), traceback.format_exception(*sys.exc_info())
        return x + 1, lines, traceback.format_exc(), traceback.format_exc(limit=1, chain=False)


def text_of_torch_and_of_c(x):
    texts = []
    for shape in (7, 11):
        try:
            x.view(shape) + 1 / (shape - 11)
        except (RuntimeError, ZeroDivisionError):
            texts.append(traceback.format_exc())
    return x * 2, texts


def text_that_only_a_run_has(x):
    y = x + 1
    for error in (Speaking("q"), None):
        try:
            if error is None:
                x.no_such_attribute  # noqa: B018
            raise error
        except (Speaking, AttributeError):
            y = y * len(traceback.format_exc())
    return y


@pytest.mark.parametrize(
    "fn, fullgraph", [(text_of_a_chain, True), (text_of_torch_and_of_c, True), (text_that_only_a_run_has, False)]
)
def test_the_text_of_an_exception_is_eagers(fn, fullgraph):
    core.reset()
    compiled, x = core.compile(fn, backend="eager", fullgraph=fullgraph), torch.ones(2)
    for _ in range(2):
        assert repr(compiled(x)) == repr(fn(x))
    assert (core.stats()["breaks"] == 0) == fullgraph
