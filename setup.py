"""Builds the C extension `core._C`; all other metadata stands in pyproject.toml.

    python setup.py build_ext --inplace --build-temp build/temp-3.12

Give each interpreter a build folder of its own. The built module carries the interpreter's ABI tag, so that modules
for several interpreters can stand side by side in `core/`.
"""

from __future__ import annotations

from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
STANDARD = {".c": "-std=c11", ".cpp": "-std=c++17"}


class BuildExtension(build_ext):
    """`build_ext` that names the language standard by the source's suffix."""

    def build_extension(self, ext: Extension) -> None:
        compile_one = self.compiler._compile

        def compile_with_standard(obj, src, suffix, cc_args, extra_postargs, pp_opts):
            extra = [*extra_postargs, STANDARD[suffix]] if suffix in STANDARD else extra_postargs
            return compile_one(obj, src, suffix, cc_args, extra, pp_opts)

        self.compiler._compile = compile_with_standard
        try:
            super().build_extension(ext)
        finally:
            self.compiler._compile = compile_one


extension = Extension(
    "core._C",
    sources=sorted(glob("core/_C/*.c") + glob("core/_C/*.cpp")),
    depends=sorted(glob("core/_C/*.h")),
    include_dirs=["core/_C"],
    extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", *WARNINGS],
    libraries=["dl", "pthread"],
    language="c++",
)

setup(ext_modules=[extension], cmdclass={"build_ext": BuildExtension})
