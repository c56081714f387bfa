"""Places of equal values: which differences from eager's are right, and which are not."""

from __future__ import annotations

import pytest
import torch
from core_conformance.orders import settled_by
from core_conformance.samples import as_sample, operators

X = torch.tensor([3.0, 1.0, 3.0, 1.0, float("nan")])


def settle(name, places, *args, **kwargs):
    """The places that a comparison sees, where eager gives 1, 3, 0, 2, 4."""
    sample = as_sample(X, args, kwargs)
    expected = torch.return_types.sort((X[torch.tensor([1, 3, 0, 2, 4])], torch.tensor([1, 3, 0, 2, 4])))
    got = torch.return_types.sort((expected[0], torch.tensor(places)))
    return settled_by(operators()[name], sample)([X], got, expected)[1].tolist()


@pytest.mark.parametrize("places", [[3, 1, 0, 2, 4], [3, 1, 2, 0, 4], [1, 3, 2, 0, 4]])
def test_other_places_of_the_same_values_count_as_eagers(places):
    assert settle("sort", places, -1) == [1, 3, 0, 2, 4]


@pytest.mark.parametrize("places", [[0, 1, 2, 3, 4], [1, 1, 0, 2, 4], [1, 3, 0, 2, 5], [-4, 3, 0, 2, 4]])
def test_other_values_a_place_twice_and_places_outside_stay_wrong(places):
    assert settle("sort", places, -1) == places


def test_stable_orders_and_other_operators_are_exact():
    assert settled_by(operators()["sort"], as_sample(X, (), {"dim": 0, "stable": True})) is None
    assert settled_by(operators()["max.reduction_with_dim"], as_sample(X, (0,), {})) is None
