"""Capturing loads no more of torch than it must, and leaves what it passed over as usable as before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, torch, core
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
x = torch.randn(3, 4)
compiled = core.compile(net, backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(x), net(x))
compiled(x).sum().backward()
assert "torch._dynamo" not in sys.modules, "the peer's package was loaded"
assert "_dynamo" not in vars(torch)
again = torch.compile(net, backend="eager", fullgraph=True)
assert torch.equal(again(x), net(x))
assert torch._dynamo.__file__.endswith("__init__.py") and torch._dynamo.config.cache_size_limit
assert torch.equal(core.compile(lambda t: t * 2, backend="eager")(x), x * 2)
print("fine")
"""


def test_capture_does_not_load_the_peers_package_and_the_peer_works_afterwards():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.strip() == "fine", done.stderr[-3000:]
