"""What the suite can't know: this backend's own promises."""

from __future__ import annotations

import core
import pytest
import torch

pytest.importorskip("core_abacus", reason="install examples/core-abacus")


def program(x, weight):
    return torch.relu(x @ weight).sum()


def test_products_and_sums_are_laid_out_in_beads_and_give_what_eager_gives():
    x, weight = torch.randn(3, 4), torch.randn(4, 5)
    compiled = core.compile(program, backend="abacus", fullgraph=True, fullgraph_backend=True)
    torch.testing.assert_close(compiled(x, weight), program(x, weight))


def test_an_option_that_does_not_exist_is_refused_with_a_suggestion():
    with pytest.raises(core.InvalidOption, match="beads"):
        core.compile(program, backend="abacus", options={"bead": 3})(torch.ones(2, 4), torch.ones(4, 2))
