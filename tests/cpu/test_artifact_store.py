"""What a backend can serialize is compiled once for a machine; a failing store costs a compile, never a result."""

from __future__ import annotations

import json
import os
import stat
import threading
import warnings

import pytest
import torch

import core
from core import events
from core.backends import stored
from core.cache import artifacts
from core.cache.artifacts import ArtifactStore
from core.plugin import Artifact, Backend, Capabilities, StaleArtifact


class Serializable(Backend):
    """Compiles a graph by its source text; its bytes are that text. Counts what it was asked for."""

    name = "serializable"
    version = "1"
    capabilities = Capabilities(graph_level="aten-functional", serializable=True)

    def __init__(self):
        self.compiled, self.loaded, self.stale, self.key = 0, 0, "", b""

    def compile(self, graph, fake_inputs, ctx):
        self.compiled += 1
        return self.artifact(graph.code)

    def artifact(self, code):
        namespace = {"torch": torch, "device": torch.device, "inf": float("inf"), "nan": float("nan")}
        exec(code, namespace)
        artifact = Artifact(call=lambda *inputs: namespace["forward"](None, *inputs))
        artifact.code = code
        return artifact

    def cache_key(self, ctx):
        return self.key

    def serialize(self, artifact):
        return artifact.code.encode()

    def deserialize(self, blob, ctx):
        if self.stale:
            raise StaleArtifact(self.stale)
        self.loaded += 1
        return self.artifact(blob.decode())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of the store; the process's store is made anew for it."""
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path))
    stored.default_store.cache_clear()
    yield tmp_path / "artifacts"
    stored.default_store.cache_clear()


@pytest.fixture
def seen():
    found = []
    stop = events.subscribe(found.append)
    yield found
    stop()


def add_two(x):
    return torch.relu(x) * 2 + 1


def check(backend, function=add_two, x=None, **options):
    """Compile anew, as a new process would, and compare with eager."""
    core.reset()
    x = torch.randn(4, 3) if x is None else x
    assert torch.equal(core.compile(function, backend=backend, **options)(x), function(x))


def files(cache):
    return sorted(path for path in cache.rglob("*.bin"))


def counts(backend):
    return backend.compiled, backend.loaded


def reasons(seen):
    return [event.reason for event in seen if isinstance(event, events.FellBack) and event.stage == "artifacts"]


def test_the_second_compile_of_a_graph_is_read_from_disk(cache, seen):
    backend = Serializable()
    check(backend)
    assert counts(backend) == (1, 0) and len(files(cache)) == 1
    check(backend)
    assert counts(backend) == (1, 1)
    other = Serializable()
    check(other)
    assert counts(other) == (0, 1) and reasons(seen) == []
    told = [event.finding.text for event in seen if isinstance(event, events.BackendReported)]
    assert told == [f"the artifact comes from {cache}"] * 2


def test_folder_and_files_are_the_users_own(cache):
    check(Serializable())
    assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700
    assert all(stat.S_IMODE(os.stat(path).st_mode) == 0o600 for path in files(cache))


def times(number):
    def function(x):
        return x * number

    return function


@pytest.mark.parametrize(
    "first, second",
    [
        (times(2), times(3)),
        (times(0.0), times(-0.0)),
        (times(2), times(2.0)),
        (lambda x: x.sum(0), lambda x: x.sum(1)),
        (lambda x: x.to(torch.float64), lambda x: x.to(torch.float16)),
        (lambda x: torch.clamp(x, 0.0), lambda x: torch.clamp(x, None, 0.0)),
    ],
)
def test_graphs_that_compute_something_else_have_another_key(cache, first, second):
    backend = Serializable()
    check(backend, first)
    check(backend, second)
    assert counts(backend) == (2, 0) and len(files(cache)) == 2


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(3, 4),
        torch.randn(3, 4).t(),
        torch.randn(4, 3, dtype=torch.float64),
        torch.randn(4, 3, requires_grad=True),
        torch.randn(13)[1:].view(4, 3),
    ],
)
def test_inputs_of_another_layout_have_another_key(cache, x):
    backend = Serializable()
    check(backend, x=torch.randn(4, 3))
    check(backend, x=x)
    assert backend.loaded == 0 and backend.compiled >= 2


def test_what_decides_beside_the_graph_is_in_the_key(cache, monkeypatch):
    backend = Serializable()
    check(backend)
    backend.key = b"other driver"
    check(backend)
    assert counts(backend) == (2, 0)
    monkeypatch.setattr(stored, "running_versions", lambda: {"torch": "9"})
    check(backend)
    assert counts(backend) == (3, 0)
    monkeypatch.setattr(stored, "_plugin_files", lambda resolved: "edited in place")
    check(backend)
    assert counts(backend) == (4, 0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if before != "medium" else "highest")
    try:
        check(backend)
    finally:
        torch.set_float32_matmul_precision(before)
    assert counts(backend) == (5, 0)


def pairs(x):
    return torch.arange(x.shape[0] // 2 * 2) + 1


def pairs_of_even(x):
    return x if x.shape[0] % 2 else torch.arange(x.shape[0] // 2 * 2) + 1


def test_what_is_assumed_of_sizes_is_in_the_key(cache):
    backend = Serializable()
    check(backend, pairs_of_even, torch.randn(6), dynamic=True)
    check(backend, pairs, torch.randn(6), dynamic=True)
    assert counts(backend) == (2, 0)
    check(backend, pairs, torch.randn(6), dynamic=True)
    assert counts(backend) == (2, 1)


def test_code_for_sizes_that_compiling_alone_has_assumed_is_not_stored(cache, seen):
    class Demanding(Serializable):
        def compile(self, graph, fake_inputs, ctx):
            for value in fake_inputs:
                if isinstance(value, torch.Tensor) and value.shape[0] % 3:
                    raise AssertionError("the example is made for this")
            return super().compile(graph, fake_inputs, ctx)

    backend = Demanding()
    check(backend, pairs, torch.randn(6), dynamic=True)
    check(backend, pairs, torch.randn(6), dynamic=True)
    assert counts(backend) == (2, 0) and files(cache) == []
    told = [event.finding.text for event in seen if isinstance(event, events.BackendReported)]
    assert told == ["the artifact is not stored: compiling it has assumed more about sizes than the graph did"] * 2


@torch.library.custom_op("storetest::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(rows_of["number"], 3)


rows_of = {"number": 2}


@rows.register_fake
def _(x):
    return x.new_empty(rows_of["number"], 3)


def test_what_a_custom_operator_says_of_its_result_is_in_the_key(cache):
    backend = Serializable()
    check(backend, lambda x: rows(x) + 1)
    rows_of["number"] = 5
    check(backend, lambda x: rows(x) + 1)
    rows_of["number"] = 2
    assert counts(backend) == (2, 0)


DAMAGE = {
    "nothing in it": lambda content: b"",
    "cut off": lambda content: content[:-1],
    "one bit other": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "something else": lambda content: b"no artifact at all",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_compiled_again_and_replaced(cache, damage):
    backend = Serializable()
    check(backend)
    (path,) = files(cache)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    check(backend)
    assert counts(backend) == (2, 0)
    check(backend)
    assert counts(backend) == (2, 1)


def test_bytes_that_the_backend_calls_stale_are_compiled_again_with_an_event(cache, seen):
    backend = Serializable()
    check(backend)
    backend.stale = "made for another chip"
    check(backend)
    assert counts(backend) == (2, 0)
    assert reasons(seen) == [
        "a stored artifact of backend serializable (1) is stale: made for another chip; the graph is compiled again"
    ]
    backend.stale = ""
    check(backend)
    assert counts(backend) == (2, 1)


@pytest.mark.parametrize(
    "method, answer, words",
    [
        ("deserialize", lambda blob, ctx: 1 / 0, "can't be read: ZeroDivisionError"),
        ("deserialize", lambda blob, ctx: "text", "was read as str, not as a core.plugin.Artifact"),
        ("serialize", lambda artifact: 1 / 0, "serialize of backend serializable (1) raised ZeroDivisionError"),
        ("serialize", lambda artifact: "text", "returned str, not bytes"),
    ],
)
def test_a_backend_that_fails_at_storing_costs_a_compile_and_an_event(cache, seen, method, answer, words):
    backend = Serializable()
    check(backend)
    setattr(backend, method, answer)
    check(backend, add_two if method == "deserialize" else times(5))
    assert backend.compiled == 2 and words in reasons(seen)[0]


def test_a_backend_may_decline_to_store(cache, seen):
    backend = Serializable()
    backend.serialize = lambda artifact: None
    check(backend)
    check(backend)
    assert counts(backend) == (2, 0) and files(cache) == [] and reasons(seen) == []


def test_only_backends_that_can_serialize_and_only_while_it_is_wanted(cache, monkeypatch):
    backend = Serializable()
    monkeypatch.setenv("CORE_STORE_ARTIFACTS", "0")
    assert not core.config.store_artifacts
    monkeypatch.delenv("CORE_STORE_ARTIFACTS")
    with core.config.patch(store_artifacts=False):
        check(backend)
        check(backend)
    assert counts(backend) == (2, 0) and not cache.exists()
    backend.capabilities = Capabilities(graph_level="aten-functional")
    check(backend)
    assert counts(backend) == (3, 0) and not cache.exists()


# -- the folder -------------------------------------------------------------------------------------------------------


def warned(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(w.message) for w in caught if "are not kept on disk" in str(w.message)]


def test_a_folder_that_others_can_write_to_is_not_used_and_told_once(cache):
    cache.mkdir(mode=0o700)
    cache.chmod(0o777)
    backend = Serializable()
    (told,) = warned(lambda: [check(backend) for _ in range(3)])
    assert f"other users can write to {cache}" in told and "0700" in told
    assert counts(backend) == (3, 0) and files(cache) == []


def test_a_folder_of_another_user_is_not_used(cache, monkeypatch):
    backend = Serializable()
    check(backend)
    monkeypatch.setattr(artifacts.os, "geteuid", lambda: os.getuid() + 1)
    stored.default_store.cache_clear()
    (told,) = warned(lambda: check(backend))
    assert "belongs to another user" in told and counts(backend) == (2, 0)


def test_a_link_in_place_of_the_folder_or_of_a_file_is_not_followed(cache, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    cache.symlink_to(elsewhere)
    store = ArtifactStore(cache)
    assert "is no folder" in warned(lambda: store.write("ab" * 32, b"x"))[0]
    store = ArtifactStore(tmp_path / "own")
    assert store.write("ab" * 32, b"x") and store.read("ab" * 32) == b"x"
    path = tmp_path / "own" / "ab" / ("ab" * 32 + ".bin")
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert warned(lambda: store.read("ab" * 32)) and store.read("ab" * 32) is None


def test_a_full_disk_is_one_warning(cache, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifacts.os, "replace", full)
    backend = Serializable()
    (told,) = warned(lambda: [check(backend) for _ in range(2)])
    assert "No space left on device" in told and counts(backend) == (2, 0)
    assert list(cache.rglob("*.*")) == []


def test_a_file_where_the_folder_should_be_is_one_warning(cache):
    cache.write_text("")
    backend = Serializable()
    (told,) = warned(lambda: [check(backend) for _ in range(2)])
    assert "is no folder" in told and backend.compiled == 2


def test_the_least_recently_used_go_first_when_the_store_is_full(tmp_path):
    store = ArtifactStore(tmp_path / "store", limit_bytes=450)
    keys = [f"{number:064x}" for number in range(3)]
    for at, key in enumerate(keys):
        assert store.write(key, bytes(100))
        os.utime(store._path(key), (at, at))
    assert store.read(keys[0]) == bytes(100)
    assert store.write("f" * 64, bytes(100))
    assert store.read(keys[1]) is None and store.read(keys[0]) == bytes(100)
    assert not store.write("e" * 64, bytes(1000))


def test_writers_and_readers_of_one_key_see_whole_files_only(tmp_path):
    store, key = ArtifactStore(tmp_path / "store"), "ab" * 32
    blobs = [bytes([number]) * 50_000 for number in range(4)]
    wrong = []

    def write(blob):
        for _ in range(30):
            store.write(key, blob)

    def read():
        for _ in range(100):
            found = store.read(key)
            if found is not None and found not in blobs:
                wrong.append(found)

    threads = [threading.Thread(target=write, args=(blob,)) for blob in blobs] + [threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and store.read(key) in blobs
    assert [path.name for path in (tmp_path / "store").rglob(".new-*")] == []


# -- texts of graphs --------------------------------------------------------------------------------------------------


def test_a_graph_with_constants_is_keyed_by_their_content(cache):
    from core.backends.graph_text import graph_text

    def graph(values):
        root = torch.nn.Module()
        root.register_buffer("held", torch.tensor(values))
        built = torch.fx.Graph()
        x = built.placeholder("x")
        held = built.get_attr("held")
        built.output((built.call_function(torch.ops.aten.add.Tensor, (x, held)),))
        return graph_text(torch.fx.GraphModule(root, built), [torch.zeros(2)])

    assert graph([1.0, 2.0]).digest() == graph([1.0, 2.0]).digest()
    assert graph([1.0, 2.0]).digest() != graph([1.0, 3.0]).digest()
    assert graph([1.0, 2.0]).digest() != graph([1, 2]).digest()


def test_a_graph_with_a_function_of_the_users_has_no_text():
    from core.backends.graph_text import NoText, graph_text

    built = torch.fx.Graph()
    built.output((built.call_function(check, (built.placeholder("x"),)),))
    with pytest.raises(NoText, match="a call of .*check"):
        graph_text(torch.fx.GraphModule(torch.nn.Module(), built), [torch.zeros(2)])


def test_a_graph_comes_back_from_its_text(cache):
    from core import torch_compat
    from core.backends.graph_text import GraphText, graph_text, read_graph

    class Keeping(Serializable):
        def compile(self, graph, fake_inputs, ctx):
            self.graph, self.fakes = graph, list(fake_inputs)
            return super().compile(graph, fake_inputs, ctx)

    def function(x):
        a, b = x.split([1, 3])
        return torch.cat([b, a]).reshape(-1)[::2] * float("inf"), x.sum(dim=-1, dtype=torch.float64)

    backend = Keeping()
    x = torch.randn(4, 3)
    core.reset()
    core.compile(function, backend=backend)(x)
    text = graph_text(backend.graph, backend.fakes)
    copied = GraphText(json.loads(json.dumps(text.data)), text.constants)
    module, fakes = read_graph(copied, torch_compat.fake_tensor_mode(None))
    assert graph_text(module, fakes).digest() == text.digest()
    for ours, theirs in zip(module(x), function(x)):
        assert torch.equal(ours, theirs)
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "call_function"]
    assert values and all(isinstance(value, (torch.Tensor, tuple, list)) for value in values)
