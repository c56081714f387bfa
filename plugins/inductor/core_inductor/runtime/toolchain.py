"""The C++ compiler on this machine: which one, for which instruction set, with which flags and libraries.

Nothing here runs the compiler; a cache hit therefore starts no process. State shared between threads: the two memos of
`functools.cache`, which hold immutable values.
"""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .spec import CXX_FLAGS

OUTPUT_FLAGS = (
    "-march=native",
    "-fno-loop-unroll-and-jam",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-fno-use-linker-plugin",
    "-pipe",
    "-w",
)
"""What every build adds to CXX_FLAGS. -nostdlib leaves out the start files and the C++ library: 56 ms of CPU instead of
71 for two small kernels; it also keeps crtfastmath out, which would make subnormals zero in the whole process.
The kernels choose their own blocks: jamming two into one costs the compiler time, and folds of rows and columns their
speed."""

_CPU_FACTS = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU part", "Features")
_OPENMP_RUNTIMES = ("libgomp", "libiomp5", "libomp")


class CompilerMissing(Exception):
    """No usable C++ compiler; the text says what was looked for and why it does not do."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler and what decides about its output.

    identity: changes whenever another compiler stands at `compiler`; isa: a digest-ready text of the processor.
    """

    compiler: str
    identity: str
    isa: str

    def command(self, output: str, libraries: tuple[str, ...]) -> list[str]:
        """The command that reads a translation unit from standard input and writes a shared object to `output`."""
        return [
            self.compiler,
            *CXX_FLAGS,
            *OUTPUT_FLAGS,
            "-x",
            "c++",
            "-",
            "-x",
            "none",
            *libraries,
            "-lgcc",
            "-o",
            output,
        ]

    @property
    def key(self) -> tuple[str, ...]:
        """All that two builds of one source must share to be interchangeable."""
        return (self.compiler, self.identity, self.isa, *CXX_FLAGS, *OUTPUT_FLAGS)


def find_toolchain(compiler: str = "") -> Toolchain:
    """The toolchain of `compiler` (a name or path), of CORE_CXX, or of g++. Raises CompilerMissing."""
    name = compiler or os.environ.get("CORE_CXX", "") or "g++"
    path = shutil.which(name)
    if path is None:
        raise CompilerMissing(f"no C++ compiler: {name!r} is not on PATH")
    return Toolchain(path, _identity(path), instruction_set())


def _identity(path: str) -> str:
    """Where the compiler's file really is, and its size and time: what an upgrade changes."""
    real = os.path.realpath(path)
    if "clang" in os.path.basename(real):
        raise CompilerMissing(f"{path} is clang, whose OpenMP code would load a second OpenMP runtime beside torch's")
    status = os.stat(real)
    return f"{real}:{status.st_size}:{status.st_mtime_ns}"


@functools.cache
def instruction_set() -> str:
    """The processor as its first entry in /proc/cpuinfo describes it; -march=native depends on nothing else."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(16384).split("\n\n", 1)[0]
    except OSError as error:
        raise CompilerMissing(f"the processor can't be identified: {error}") from error
    facts = (line.partition(":") for line in first.splitlines())
    return ";".join(f"{name.strip()}={value.strip()}" for name, _, value in facts if name.strip() in _CPU_FACTS)


def runtime_libraries() -> tuple[str, ...]:
    """Paths of the OpenMP runtime and the math library that this process has loaded already.

    Linking to those very files records their names in the kernel library, so that the loader reuses the loaded ones:
    the kernels then share torch's threads. Raises CompilerMissing when there is no OpenMP runtime.
    """
    loaded = _loaded_files()
    openmp = _first(loaded, _OPENMP_RUNTIMES)
    if openmp is None:
        raise CompilerMissing("no OpenMP runtime is loaded in this process; torch brings one on supported platforms")
    math = _first(loaded, ("libm.", "libm-"))
    return (openmp,) if math is None else (openmp, math)


def _loaded_files() -> list[str]:
    """The shared objects mapped into this process."""
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in _maps() if line.count("/") and ".so" in line)
    return [path for path in paths if os.path.exists(path)]


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def _first(paths: list[str], prefixes: tuple[str, ...]) -> str | None:
    """The first path, in order of prefixes, whose file name begins with one."""
    for prefix in prefixes:
        for path in paths:
            if os.path.basename(path).startswith(prefix):
                return path
    return None
