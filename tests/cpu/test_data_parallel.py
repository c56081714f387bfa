"""Modules that are trained by several processes, compiled before and after they are wrapped for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

PROGRAM = Path(__file__).parent / "data_parallel_process.py"


@pytest.mark.parametrize("kind", ("ddp", "fsdp"))
@pytest.mark.slow
def test_two_processes_train_as_in_eager(kind, tmp_path):
    command = [sys.executable, "-W", "ignore", str(PROGRAM)]
    environment = {**os.environ, "CORE_STRICT": "1"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), kind],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [output.splitlines()[-1:] for output in outputs] == [["agrees"]] * 2, outputs[0][-3000:]
