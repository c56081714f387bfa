"""A call of a function transform (torch.func) as one node of a graph: the transformed function is a graph.

The node's function applies torch's own transform to the graph. The recorder, which runs it on fakes, finds the ATen
calls that the transform makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import torch_compat
from ..errors import Unsupported


@dataclass(frozen=True)
class TransformPlan:
    """kind: the transform's name. own: how many inputs of the graph are the transform's; the others are free.

    main, aux: how many tensors of the graph's result are the function's result, and how many auxiliary (behind them).
    options: keywords of the transform.
    """

    kind: str
    own: int
    main: int
    aux: int = 0
    options: dict[str, Any] = field(default_factory=dict)


def transformed(plan: TransformPlan, graph: Any, own: tuple[Any, ...], extra: tuple[Any, ...], *free: Any) -> Any:
    """The transform of `graph` at `own`. extra: tangents of jvp, cotangents of vjp.

    Returns a flat tuple; in which order is said by the function of the kind, below.
    """

    def body(*inputs: Any) -> tuple[Any, ...]:
        return graph.forward(*inputs, *free)

    def with_aux(*inputs: Any) -> tuple[Any, Any]:
        results = graph.forward(*inputs, *free)
        return results[: plan.main], results[plan.main :]

    run = KINDS[plan.kind]
    if not any(isinstance(value, torch_compat.fake_tensor_class()) for value in own):
        return run(plan, body, with_aux, own, extra)
    try:
        with torch_compat.dispatch_state_kept():
            return run(plan, body, with_aux, own, extra)
    except Unsupported:
        raise
    except Exception as error:  # eager may not fail here, or in another way: it is asked by breaking the graph
        raise Unsupported(
            f"{plan.kind} can't be run on fake tensors: {str(error).splitlines()[0] if str(error) else error!r}",
            remedy="call the transformed function outside the compiled function",
        ) from None


def _vmap(plan: TransformPlan, body: Any, with_aux: Any, own: Any, extra: Any) -> Any:
    """The results, batched."""
    return torch.func.vmap(body, **plan.options)(*own)


def _grad(plan: TransformPlan, body: Any, with_aux: Any, own: Any, extra: Any) -> Any:
    """The gradients, the value, the auxiliary results."""

    def scalar(*inputs: Any) -> Any:
        (value,), aux = with_aux(*inputs)
        return value, aux

    grads, (value, aux) = torch.func.grad_and_value(scalar, argnums=tuple(range(plan.own)), has_aux=True)(*own)
    return (*grads, value, *aux)


def _jacobian(transform: Callable[..., Any]) -> Callable[..., Any]:
    def run(plan: TransformPlan, body: Any, with_aux: Any, own: Any, extra: Any) -> Any:
        """For each result its derivatives with respect to each input, then the auxiliary results."""
        found, aux = transform(with_aux, argnums=tuple(range(plan.own)), has_aux=True, **plan.options)(*own)
        return (*(part for result in found for part in result), *aux)

    return run


def _jvp(plan: TransformPlan, body: Any, with_aux: Any, own: Any, extra: Any) -> Any:
    """The results, their tangents, the auxiliary results."""
    results, tangents, aux = torch.func.jvp(with_aux, tuple(own), tuple(extra), has_aux=True)
    return (*results, *tangents, *aux)


def _vjp(plan: TransformPlan, body: Any, with_aux: Any, own: Any, extra: Any) -> Any:
    """The results and the auxiliary results."""
    results, _, aux = torch.func.vjp(with_aux, *own, has_aux=True)
    return (*results, *aux)


def _vjp_gradients(plan: TransformPlan, body: Any, with_aux: Any, own: Any, extra: Any) -> Any:
    """The gradients that the cotangents `extra` give."""
    _, pull, _ = torch.func.vjp(with_aux, *own, has_aux=True)
    return pull(tuple(extra))


KINDS: dict[str, Callable[..., Any]] = {
    "vmap": _vmap,
    "grad": _grad,
    "jacrev": _jacobian(torch.func.jacrev),
    "jacfwd": _jacobian(torch.func.jacfwd),
    "jvp": _jvp,
    "vjp": _vjp,
    "vjp_gradients": _vjp_gradients,
}
