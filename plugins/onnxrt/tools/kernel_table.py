"""Writes core_onnxrt/kernels.json: the kernels of ONNX Runtime's CPU provider, as the installed build tells them.

    python plugins/onnxrt/tools/kernel_table.py

Run with a build for CPUs alone: asking a build that also has other providers loads the libraries of all of them, and
it crashes where one can't be loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

import core_onnxrt
from core_onnxrt.runtime import OPSETS, PROVIDERS, asked_kernels, runtime, type_names

TABLE = Path(core_onnxrt.__file__).with_name("kernels.json")


def main() -> None:
    """Ask the installed runtime and write the table."""
    opsets = {
        str(opset): {
            name: " ".join(sorted(types & type_names()))
            for name, types in sorted(asked_kernels(PROVIDERS["cpu"], opset).items())
        }
        for opset in OPSETS
    }
    TABLE.write_text(json.dumps({"onnxruntime": runtime().__version__, "opsets": opsets}, indent=0) + "\n")


if __name__ == "__main__":
    main()
