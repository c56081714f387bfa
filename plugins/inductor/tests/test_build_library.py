"""From source to library: what is compiled when, and what happens when compiling goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from core_inductor.runtime import build
from core_inductor.runtime.build import BuildFailed, build_library
from core_inductor.runtime.load import make_kernels
from core_inductor.runtime.spec import KernelSpec, OutputSpec
from core_inductor.runtime.toolchain import CompilerMissing, find_toolchain, runtime_libraries

SPEC = KernelSpec("answer", 0, (OutputSpec((1,), (1,), "int64"),))


def source(value):
    return f"""
extern "C" int answer(void *const *p, const long *ints, const double *floats, int nthreads) {{
    #pragma omp parallel for num_threads(nthreads)
    for (int i = 0; i < 1; i++) ((long *)p[0])[i] = {value};
    return 0;
}}"""


def answer(library):
    return make_kernels(library, [SPEC])[0]().item()


@pytest.fixture
def compilations(monkeypatch):
    """The sources that really went through the compiler."""
    seen = []
    compile_source = build.compile_source

    def counted(text, output, toolchain):
        seen.append(text)
        compile_source(text, output, toolchain)

    monkeypatch.setattr(build, "compile_source", counted)
    return seen


def forget():
    build._loaded.clear()


def test_one_source_is_compiled_once_in_a_process_and_loaded_once(compilations):
    first, second = build_library(source(1)), build_library(source(1))
    assert first is second and len(compilations) == 1 and answer(first) == 1


def test_a_library_from_disk_needs_no_compiler_run(compilations):
    assert answer(build_library(source(2))) == 2
    forget()
    assert answer(build_library(source(2))) == 2
    assert len(compilations) == 1


def test_another_source_flag_or_processor_is_another_entry(compilations, monkeypatch):
    toolchain = find_toolchain()
    key = build.source_key(source(3), toolchain)
    others = [
        build.source_key(source(4), toolchain),
        build.source_key(source(3), type(toolchain)(toolchain.compiler, toolchain.identity, "another processor")),
        build.source_key(source(3), type(toolchain)(toolchain.compiler, "another compiler", toolchain.isa)),
    ]
    monkeypatch.setattr(build, "__version__", "another plugin")
    others.append(build.source_key(source(3), toolchain))
    assert len({key, *others}) == 5


def test_the_compiler_leaves_the_blocks_of_a_fold_as_they_are(compilations, tmp_path):
    import core

    with torch.no_grad():
        core.compile(lambda x: torch.softmax(x, -1), backend="inductor")(torch.randn(8, 512))
    (text,), report = compilations, tmp_path / "report"
    command = find_toolchain().command(str(tmp_path / "out.so"), runtime_libraries())
    subprocess.run([*command, f"-fopt-info-loop-optimized={report}"], input=text.encode(), check=True)
    optimized = report.read_text()
    assert "piece" in text and "vectorized" in optimized and "unroll and jam" not in optimized


def test_a_damaged_entry_is_compiled_again(compilations, cache_folder):
    assert answer(build_library(source(5))) == 5
    forget()
    (entry,) = cache_folder.glob("*.so")
    entry.write_bytes(entry.read_bytes()[:2000])
    assert answer(build_library(source(5))) == 5
    assert len(compilations) == 2


def test_an_intact_entry_that_does_not_load_is_compiled_again(compilations, cache_folder):
    answer(build_library(source(6)))
    forget()
    (entry,) = cache_folder.glob("*.so")
    key = entry.stem
    cache = build._cache(True)
    scratch = cache.scratch(key) / "kernels.so"
    scratch.write_bytes(b"not an ELF image")
    cache.store(key, scratch)
    assert answer(build_library(source(6))) == 6
    assert len(compilations) == 2


def test_source_that_does_not_compile_raises_with_the_compilers_words(cache_folder):
    with pytest.raises(BuildFailed, match="ended with status 1") as failure:
        build_library("this is no C++")
    assert "error:" in failure.value.log
    assert list(cache_folder.glob("*.so")) == [] and list((cache_folder / "scratch").iterdir()) == []


def test_source_with_an_unknown_symbol_raises_instead_of_crashing_later():
    bad = 'extern "C" long no_such_function(); ' + source("no_such_function()")
    with pytest.raises(BuildFailed, match="no_such_function"):
        build_library(bad)


def test_no_compiler_on_the_path_raises_compiler_missing(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CompilerMissing, match="g\\+\\+"):
        build_library(source(7))


def test_clang_is_refused_because_of_its_openmp(monkeypatch, tmp_path):
    (tmp_path / "clang-19").write_text("")
    (tmp_path / "g++").symlink_to(tmp_path / "clang-19")
    os.chmod(tmp_path / "clang-19", 0o700)
    with pytest.raises(CompilerMissing, match="OpenMP"):
        find_toolchain(str(tmp_path / "g++"))


def test_a_compiler_named_in_the_environment_is_used(monkeypatch, tmp_path):
    wrapper = tmp_path / "mine"
    wrapper.write_text(f'#!/bin/sh\ntouch {tmp_path}/used\nexec g++ "$@"\n')
    wrapper.chmod(0o700)
    monkeypatch.setenv("CORE_CXX", str(wrapper))
    assert answer(build_library(source(8))) == 8
    assert (tmp_path / "used").exists()


def test_kernels_share_the_openmp_runtime_that_torch_loaded():
    def loaded():
        return {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "omp" in line}

    before, threads = loaded(), torch.get_num_threads()
    assert answer(build_library(source(9))) == 9
    assert loaded() == before and torch.get_num_threads() == threads
    assert any(Path(path).name.startswith("libgomp") for path in runtime_libraries())


def test_without_the_disk_cache_nothing_is_kept(cache_folder):
    assert answer(build_library(source(10), keep=False)) == 10
    assert not cache_folder.exists()


def test_a_full_disk_leads_to_a_temporary_cache_with_one_warning(monkeypatch, cache_folder):
    def full(self, key, built):
        raise OSError(28, "No space left on device")

    from core_inductor.runtime.cache import KernelCache

    store = KernelCache.store
    monkeypatch.setattr(KernelCache, "store", lambda self, *rest: (store if self.temporary else full)(self, *rest))
    with pytest.warns(RuntimeWarning, match="takes no more files") as caught:
        assert answer(build_library(source(11))) == 11
        assert answer(build_library(source(12))) == 12
    assert len(caught) == 1 and list(cache_folder.glob("*.so")) == []


def test_a_folder_that_vanishes_is_no_error(cache_folder):
    import shutil

    assert answer(build_library(source(13))) == 13
    shutil.rmtree(cache_folder)
    with pytest.warns(RuntimeWarning):
        assert answer(build_library(source(14))) == 14


SLOW_COMPILER = """#!/bin/sh
echo $$ > {folder}/pid
sleep 60 &
echo $! > {folder}/child
wait
"""


def slow_compiler(tmp_path):
    path = tmp_path / "slow"
    path.write_text(SLOW_COMPILER.format(folder=tmp_path))
    path.chmod(0o700)
    return path


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_an_interrupt_ends_the_compiler_and_its_children_and_leaves_no_entry(tmp_path, cache_folder):
    compiler = slow_compiler(tmp_path)

    def interrupt():
        wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        build_library(source(15), compiler=str(compiler))
    thread.join()
    for name in ("pid", "child"):
        pid = int((tmp_path / name).read_text())
        wait_until(lambda pid=pid: not alive(pid))
    assert list(cache_folder.glob("*.so")) == [] and list((cache_folder / "scratch").iterdir()) == []
    assert answer(build_library(source(15))) == 15


def test_a_compiler_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "COMPILER_LIMIT_S", 0.3)
    with pytest.raises(BuildFailed, match="took more than"):
        build_library(source(16), compiler=str(slow_compiler(tmp_path)))


WORKER = """
import sys
sys.path[:0] = {path!r}
import torch
from core_inductor.runtime import build
compile_source = build.compile_source
def counted(*args):
    print("compiled", flush=True)
    compile_source(*args)
build.compile_source = counted
print("ready", flush=True)
sys.stdin.readline()
build.build_library({source!r})
"""


def test_two_processes_that_want_one_source_compile_it_once(tmp_path):
    code = WORKER.format(path=[path for path in sys.path if path], source=source(17))
    workers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    outputs = []
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        outputs.append(worker.communicate()[0])
    assert [worker.returncode for worker in workers] == [0, 0]
    assert "".join(outputs).count("compiled") == 1


def test_two_threads_that_want_one_source_compile_it_once(compilations):
    results = []
    threads = [threading.Thread(target=lambda: results.append(build_library(source(18)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compilations) == 1 and results[0] is results[1] is results[2]


FORK = """
import os, sys
sys.path[:0] = {path!r}
import torch
from core_inductor import _runtime
from core_inductor.runtime.build import build_library
from core_inductor.runtime.load import make_kernels
from core_inductor.runtime.spec import KernelSpec, OutputSpec
spec = KernelSpec("answer", 0, (OutputSpec((40000,), (1,), "int64"),), parallel=True)
kernel = make_kernels(build_library({source!r}), [spec])[0]
threads = torch.get_num_threads()
if {parallel}:
    kernel()
child = os.fork()
if child == 0:
    good = kernel()[:100].tolist() == [7] * 100 and _runtime.thread_count() == (1 if {parallel} else threads)
    second = make_kernels(build_library({other!r}), [spec])[0]
    os._exit(0 if good and second()[0].item() == 8 else 1)
_, status = os.waitpid(child, 0)
sys.exit(status != 0)
"""


@pytest.mark.parametrize("parallel", [True, False])
def test_a_forked_child_runs_and_builds_kernels(parallel):
    text = source(0).replace("i < 1", "i < 40000")
    code = FORK.format(
        path=[path for path in sys.path if path],
        parallel=parallel,
        source=text.replace("[i] = 0;", "[i] = 7;"),
        other=text.replace("[i] = 0;", "[i] = 8;"),
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
