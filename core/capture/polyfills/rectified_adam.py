"""RAdam's step with a choice in place of its branch: whether the variance can be rectified depends on the step count.

Both results are computed and one is picked, so the count stays a number in the graph. Each of the two forms of torch's
step rounds in its own order, which is kept here.
"""

from __future__ import annotations

from typing import Any

import torch

LIMIT = 5.0  # the length of the average from which on the variance is tractable


def value_of(count: Any) -> Any:
    """The number in a step count; tracing puts it in the place of this function."""
    return count.item()


def pick(number: Any, limit: float, above: Any, otherwise: Any) -> Any:
    """A choice that tracing leaves to the graph."""
    return above if number > limit else otherwise


def moments(param: Any, grad: Any, mean: Any, square: Any, count: Any, options: Any) -> Any:
    """Update the count, the decayed parameter and both averages: (parameter, average, its square, count) as numbers."""
    if options["maximize"]:
        grad = -grad
    if torch.is_complex(param):
        param, grad, mean, square = (torch.view_as_real(part) for part in (param, grad, mean, square))
    count += 1
    decay = options["weight_decay"]
    if decay != 0 and options["decoupled_weight_decay"]:
        param.mul_(1 - options["lr"] * decay)
    elif decay != 0:
        grad = grad.add(param, alpha=decay)
    mean.lerp_(grad, 1 - options["beta1"])
    square.mul_(options["beta2"]).addcmul_(grad, grad, value=1 - options["beta2"])
    return param, mean, square, value_of(count)


def rectification(step: Any, beta2: float) -> Any:
    """(length of the average now, root of the factor that rectifies its variance)."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * (beta2**step) / (1 - beta2**step)
    factor = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return length, factor**0.5


def step_each(params: Any, grads: Any, means: Any, squares: Any, counts: Any, **options: Any) -> None:
    """The form that steps tensor by tensor."""
    lr, beta1, beta2 = options["lr"], options["beta1"], options["beta2"]
    if isinstance(lr, torch.Tensor) and lr.dim() != 0:
        lr = lr.squeeze()
    for at, _ in enumerate(params):
        param, mean, square, step = moments(params[at], grads[at], means[at], squares[at], counts[at], options)
        length, root = rectification(step, beta2)
        change = mean / (1 - beta1**step) * lr
        adapted = ((1 - beta2**step) ** 0.5) / square.sqrt().add_(options["eps"])
        param.add_(pick(length, LIMIT, change * adapted * root, change), alpha=-1.0)


def step_lists(params: Any, grads: Any, means: Any, squares: Any, counts: Any, **options: Any) -> None:
    """The form that steps lists of tensors."""
    lr, beta1, beta2 = options["lr"], options["beta1"], options["beta2"]
    if isinstance(lr, torch.Tensor) and lr.dim() != 0:
        lr = lr.squeeze()
    for at, _ in enumerate(params):
        param, mean, square, step = moments(params[at], grads[at], means[at], squares[at], counts[at], options)
        length, root = rectification(step, beta2)
        bias = 1 - beta1**step
        rectified = ((1 - beta2**step) ** 0.5) * (lr * pick(length, LIMIT, root, 0.0) / bias) * -1
        plain = (lr * pick(length, LIMIT, 0.0, 1.0) / bias) * -1
        weight = square.sqrt().add_(options["eps"]).div_(rectified).reciprocal_().add_(plain)
        param.addcmul_(mean, weight)
