"""What a random program may do to tensors, as text: views, writes, values, randomness and gradients.

A step is (condition, text). The condition is asked of the tensor that stands for {a}; the text may name
{a} (the tensor), {b} (any tensor), {s} (one of the shape of {a}), {m} (a mask of its shape), {i} (indices along its
first dimension), {d} (one of its dimensions), {k} (a small number), {p} (a fraction) and {n} (a new name for a list).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, float32
from torch import bool as boolean

Step = tuple[Callable[[Tensor], bool], str]


def any_tensor(t: Tensor) -> bool:
    return True


def has_dims(t: Tensor) -> bool:
    return t.ndim > 0


def two(t: Tensor) -> bool:
    return t.ndim > 1


def matrix(t: Tensor) -> bool:
    return t.ndim == 2


def image(t: Tensor) -> bool:
    return t.ndim == 4 and t.is_floating_point()


def real(t: Tensor) -> bool:
    return t.is_floating_point()


def real_dims(t: Tensor) -> bool:
    return t.is_floating_point() and t.ndim > 0


def real_matrix(t: Tensor) -> bool:
    return t.is_floating_point() and t.ndim == 2


def number(t: Tensor) -> bool:
    return t.dtype is not boolean


def ordered(t: Tensor) -> bool:
    return not t.is_complex()


def ordered_dims(t: Tensor) -> bool:
    return not t.is_complex() and t.ndim > 0


def whole(t: Tensor) -> bool:
    return not t.is_floating_point() and not t.is_complex()


def whole_number(t: Tensor) -> bool:
    return whole(t) and t.dtype is not boolean


def complex_(t: Tensor) -> bool:
    return t.is_complex()


def some(*texts: str, when: Callable[[Tensor], bool] = any_tensor) -> list[Step]:
    return [(when, text) for text in texts]


VIEWS = [
    *some("{a}.detach()", "{a}.data", "{a}.view_as({a})", "{a}[None]", "{a}.unsqueeze(-1)", "{a}.squeeze()", "{a}.reshape(-1)"),
    *some("{a}.flatten()", "{a}.ravel()", "{a}.expand(2, *{a}.shape)", "{a}.contiguous()", "{a}.T", "{a}[...]", "{a}.view(-1)"),
    *some("{a}.broadcast_to((2, *{a}.shape))", "{a}.conj()", "{a}.to({a}.dtype)", "torch.atleast_2d({a})", "{a}.resolve_conj()"),
    *some("{a}.select(0, {k} % {a}.shape[0])", "{a}[1:]", "{a}[::2]", "{a}[..., 1:]", "{a}[..., :2]", when=has_dims),
    *some("{a}.narrow({d}, 0, 1)", "{a}.unflatten(-1, (2, -1))", "{a}.view(-1, 2)", "{a}.view({a}.shape[0], -1)", when=has_dims),
    *some("{a}.split(2, {d})[-1]", "{a}.chunk(2, {d})[0]", "{a}.tensor_split(2, {d})[-1]", "{a}.unfold({d}, 2, 1)", when=has_dims),
    *some("{a}.unfold({d}, 2, 2)", "{a}.squeeze({d})", "{a}.unsqueeze({d})", "{a}.unsafe_chunk(2, {d})[0]", when=has_dims),
    *some("{a}.unsafe_split(2, {d})[0]", "{a}[-1]", "{a}[:0]", "{a}.view(-1)[::3]", "{a}[{i}]", when=has_dims),
    *some("{a}.t()", "{a}.diagonal()", "{a}.diagonal(1)", "{a}.as_strided((2, 2), (2, 1))", when=matrix),
    *some("{a}.as_strided((2, 3), (1, 2), 1)", "{a}.as_strided((3,), (1,))", "{a}.as_strided((2, 2), (1, 1))", when=has_dims),
    *some("{a}.transpose(0, -1)", "{a}.permute(*range({a}.ndim)[::-1])", "{a}.movedim(0, -1)", "{a}.swapaxes(0, 1)", when=two),
    *some("{a}.mT", "{a}.unbind({d})[0]", "{a}[:, 0]", "{a}[:, None]", "{a}[:, ::2]", "{a}.transpose(0, 1).reshape(-1)", when=two),
    *some("{a}.contiguous(memory_format=torch.channels_last)", "{a}.permute(0, 2, 3, 1)", when=lambda t: t.ndim == 4),
    *some("F.channel_shuffle({a}, 2)", "F.pixel_shuffle({a}, 2)", "F.pixel_unshuffle({a}, 2)", when=image),
    *some("{a}.to(memory_format=torch.channels_last).clone()", "{a}[:, :, 1:, 1:]", when=lambda t: t.ndim == 4),
    *some("{a}.view(torch.int32)", when=lambda t: t.dtype is float32),
    *some("{a}.real", "{a}.imag", "torch.view_as_real({a})", "{a}.mH", when=lambda t: t.is_complex()),
    *some("torch.view_as_complex({a})", when=lambda t: t.is_floating_point() and t.ndim > 0 and t.shape[-1] == 2),
]  # fmt: skip
WRITES = [
    *some("{a}.zero_()", "{a}.fill_({k})", "{a}.copy_({b})", "{a}.copy_({s})", "{a}.masked_fill_({m}, {k})", "{a}[{m}] = {k}"),
    *some("{a}.unsqueeze_(0)", "{a}.squeeze_()", "{a}.detach_()", "{a}[...] = {s}", "{a}.masked_scatter_({m}, {s})"),
    *some("{a}.add_({k})", "{a}.mul_({k})", "{a}.sub_({s})", "{a}.mul_({b})", "{a}.add_({b}, alpha=2)", when=number),
    *some("{a} += {k}", "{a} *= {s}", "torch.mul({a}, {k}, out={a})", "torch.add({s}, {b}, out={a})", when=number),
    *some("{a}.data.add_(1)", "{a}.detach().mul_(2)", "{a}.neg_()", "torch._foreach_add_([{a}], 1)", when=number),
    *some("{a}[0] = {k}", "{a}[1:] = {a}[:-1].clone()", "{a}.index_fill_(0, {i}, {k})", "{a}[{i}] = {k}", when=has_dims),
    *some("{a}.index_add_(0, {i}, {a}[{i}])", "{a}.index_copy_(0, {i}, {a}[{i}] * 2)", when=has_dims),
    *some("{a}.index_put_(({i},), {a}[{i}], accumulate=True)", "{a}.index_put_(({i},), {a}[{i}])", when=has_dims),
    *some("{a}.scatter_({d}, torch.zeros_like({a}, dtype=torch.int64), {k})", "{a}[..., -1] = {k}", when=has_dims),
    *some("{a}.scatter_add_({d}, torch.zeros_like({a}, dtype=torch.int64), {s})", "{a}.put_({i}, {a}.reshape(-1)[{i}])", when=has_dims),
    *some("{a}.scatter_reduce_({d}, torch.zeros_like({a}, dtype=torch.int64), {s}, 'amax')", when=ordered_dims),
    *some("{a}.tril_()", "{a}.triu_(1)", "{a}.t_()", "{a}.transpose_(0, 1)", "{a}.fill_diagonal_({k})", "{a}.t().add_(1)", when=matrix),
    *some("{a}.cumsum_({d})", "{a}.cumprod_({d})", when=has_dims),
    *some("{a}.clamp_(-1, 1)", "{a}.clamp_(min={k})", "{a}.relu_()", when=ordered),
    *some("{a}.sin_()", "{a}.tanh_()", "{a}.div_({k} + 1)", "{a}.lerp_({s}, 0.5)", "{a}.addcmul_({s}, {s}, value=0.5)", when=real),
    *some("{a}.exp_()", "{a}.sigmoid_()", "torch.sin({a}, out={a})", "F.relu({a}, inplace=True)", "{a}.requires_grad_()", when=real),
    *some("{a}.set_({s})", "{a}.resize_({a}.shape)"),
    *some("{a}.resize_(1)", "{a}.resize_(2)", when=lambda t: t.numel() > 2 and t.is_contiguous()),
    *some("{a}.bitwise_and_({k})", "{a}.bitwise_xor_({s})", when=whole),
    *some("{a}.view(-1)[0] = {k}", "{a}.view(-1).mul_(2)", "{a}.unsqueeze(0).add_(1)", "{a}[0].add_(1)", "{a}.transpose(0, -1).mul_(2)", when=has_dims),
    *some("{a}.split(1, {d})[0].add_({k})", "{a}.chunk(2, {d})[-1].mul_(2)", "{a}.unbind({d})[0].zero_()", when=has_dims),
    *some("{n} = {a}.unbind(0); {n}[0].add_(1)", "torch.cumsum({a}, 0, out={a})", when=has_dims),
    *some("{a}.real.add_(1)", "{a}.imag.zero_()", "torch.view_as_real({a}).mul_(2)", when=complex_),
]  # fmt: skip
VALUES = [
    *some("{a}.clone()", "torch.zeros_like({a})", "torch.full_like({a}, {k})", "torch.cat([{a}.reshape(-1), {b}.reshape(-1)])"),
    *some("torch.where({m}, {a}, {b})", "torch.where({m}, {a}, {k})", "{a}.masked_fill({m}, {k})", "torch.stack([{a}, {s}])"),
    *some("({a} == {b})", "({a} != {k})", "{a}.to(torch.float32)", "{a}.to(torch.bfloat16)", "{a}.double()", "{a}.flip(0)"),
    *some("{a}.sum()", "{a}.any()", "{a}.all()", "{a}.numel() * {a}", "{a}.repeat(2, *(1,) * {a}.ndim)", "{a}.masked_select({m})"),
    *some("{a} + {b}", "{a} * {b}", "{a} - {b} * {p}", "torch.add({a}, {s}, alpha={k})", "{a} / ({b} + 9)", "{a} * {p}", when=number),
    *some("{a} ** 2", "{a}.square()", "-{a}", "{a}.prod()", "torch.addcmul({a}, {s}, {s}, value=2)", "{k} - {a}", when=number),
    *some("{a}.abs()", "{a}.cumsum(0)", "{a}.cumprod(0)", "{a}.diff(dim=0)", "torch.dot({a}.reshape(-1), {s}.reshape(-1))", when=number),
    *some("{a}.roll(1, {d})", "{a}.flip({d})", "torch.tril({a})", "torch.gather({a}, {d}, torch.zeros_like({a}, dtype=torch.int64))", when=has_dims),
    *some("{a}.index_select({d}, torch.tensor([0, 0]))", "{a}[{i}]", "{a}[{i}, ...]", "{a}[[0, -1]]", "{a}.take({i})", when=has_dims),
    *some("torch.take_along_dim({a}, torch.zeros_like({a}, dtype=torch.int64), {d})", "F.pad({a}, (1, 1))", "F.pad({a}, (1, -1), value=2)", when=has_dims),
    *some("{a}.repeat_interleave(2, {d})", "{a}.tile((2,))", "torch.rot90({a}) if {a}.ndim > 1 else {a}", "{a}.sum({d})", when=has_dims),
    *some("{a}.sum(({d}, -1)) if {a}.ndim > 1 and {d} + 1 != {a}.ndim else {a}.sum(-1, keepdim=True)", "{a}.cumsum({d})", when=has_dims),
    *some("{a}.index_add(0, {i}, {a}[{i}])", "{a}.scatter_add({d}, torch.zeros_like({a}, dtype=torch.int64), {s})", "{a}.select_scatter({a}[0], 0, -1)", when=has_dims),
    *some("{a}.slice_scatter({a}[1:], 0, 1)", "{a}.index_put(({i},), {a}[{i}], accumulate=True)", "{a}.index_fill(0, {i}, {k})", when=has_dims),
    *some("{a} > {b}", "{a} <= {k}", "torch.maximum({a}, {s})", "torch.minimum({a}, {b})", "{a}.clamp(-1, {k})", "torch.sign({a})", when=ordered),
    *some("{a}.amax()", "{a}.min()", "{a}.long()", "{a}.to(torch.int8)", "{a}.bool()", "{a}.half()", "{a} // ({s}.abs() + 1)", when=ordered),
    *some("{a} % ({s}.abs() + 1)", "torch.fmod({a}, 3)", "torch.bucketize({a}, torch.tensor([-1.0, 0.0, 1.0]))", when=ordered),
    *some("{a}.amax({d})", "{a}.argmax({d})", "{a}.max({d}).values", "{a}.min({d}).indices", "{a}.argmin()", "{a}.aminmax(dim={d}).max", when=ordered_dims),
    *some("{a}.sort({d}, stable=True).values", "{a}.sort({d}, descending=True, stable=True).indices", "{a}.topk(1, {d}).values", when=ordered_dims),
    *some("{a}.argsort({d}, stable=True)", "{a}.cummax({d}).values", "{a}.cummin({d}).indices", "{a}.kthvalue(1, {d}).values", when=ordered_dims),
    *some("{a}.any({d})", "{a}.count_nonzero({d})", "{a}.scatter_reduce({d}, torch.zeros_like({a}, dtype=torch.int64), {s}, 'amin')", when=ordered_dims),
    *some("{a}.sin()", "{a}.exp()", "{a}.tanh()", "{a}.sigmoid()", "{a}.mean()", "{a}.rsqrt()", "{a}.abs().sqrt()", "{a}.log1p()"),
    *some("{a}.mean({d})", "{a}.var({d})", "{a}.std({d}, correction=0)", "{a}.softmax({d})", "{a}.log_softmax({d})", when=real_dims),
    *some("{a}.logsumexp({d})", "{a}.norm(dim={d})", "F.layer_norm({a}, {a}.shape[-1:])", "F.normalize({a}, dim={d})", when=real_dims),
    *some("torch.var_mean({a}, {d})[1]", "{a}.nanmean({d})", "{a}.quantile(0.5, {d})", "F.glu({a}, {d})", when=real_dims),
    *some("{a}.logcumsumexp({d})", "F.rms_norm({a}, {a}.shape[-1:])", "{a}.nansum({d})", "{a}.cumprod({d})", when=real_dims),
    *some("F.gelu({a})", "F.silu({a})", "F.relu({a})", "F.leaky_relu({a}, {p})", "F.softplus({a})", "F.elu({a})", "F.hardtanh({a})", when=real),
    *some("{a}.floor()", "{a}.round()", "{a}.frac()", "{a}.trunc()", "{a}.nan_to_num(0.0)", "{a}.isnan()", "{a}.isfinite()", "F.hardswish({a})", when=real),
    *some("torch.atan2({a}, {s})", "torch.hypot({a}, {s})", "torch.copysign({a}, {s})", "{a}.erf()", "torch.logaddexp({a}, {s})", "F.mish({a})", when=real),
    *some("{a}.lerp({s}, {p})", "F.mse_loss({a}, {s})", "F.smooth_l1_loss({a}, {s})", "F.huber_loss({a}, {s})", "{a}.pow({k})", when=real),
    *some("F.binary_cross_entropy_with_logits({a}, {m}.to({a}.dtype))", "F.cosine_similarity({a}, {s}, -1)", "{a}.logit(0.1)", when=real),
    *some("{a}.to(torch.complex64)", "{a}.to(torch.float16)", "{a}.to(torch.int32)", when=real),
    *some("{a} @ {a}.mT", "{a}.matmul({s}.mT)", "F.linear({a}, {s})", "torch.einsum('ij,kj->ik', {a}, {s})", "{a}.mT @ {s}", when=lambda t: t.ndim == 2 and t.dtype is not boolean),
    *some("torch.addmm({a} @ {a}.mT, {a}, {s}.mT, beta=0.5)", "torch.bmm({a}[None], {s}.mT[None])", "torch.cdist({a}, {s})", when=real_matrix),
    *some("F.cross_entropy({a}, {a}.argmax(1))", "F.nll_loss({a}, {a}.argmax(1))", "torch.trace({a})", "{a}.diag()", when=real_matrix),
    *some("F.scaled_dot_product_attention({a}[None, None], {s}[None, None], {a}[None, None])", "F.batch_norm({a}, None, None, training=True)", when=real_matrix),
    *some("F.max_pool2d({a}, 2)", "F.avg_pool2d({a}, 2, ceil_mode=True)", "F.adaptive_avg_pool2d({a}, 2)", "F.max_pool2d({a}, 3, 1, 1)", when=image),
    *some("F.conv2d({a}, torch.ones(2, {a}.shape[1], 3, 3, dtype={a}.dtype), padding=1)", "F.group_norm({a}, 1)", "F.instance_norm({a})", when=image),
    *some("F.batch_norm({a}, None, None, training=True)", "F.interpolate({a}, scale_factor=2)", "F.interpolate({a}, size=(3, 3), mode='bilinear')", when=image),
    *some("F.conv_transpose2d({a}, torch.ones({a}.shape[1], 2, 2, 2, dtype={a}.dtype), stride=2)", "F.unfold({a}, 2)", "F.pad({a}, (1, 1, 1, 1), mode='reflect')", when=image),
    *some("{a}.bitwise_and({s})", "{a} | {k}", "~{a}", "{a} ^ {s}", when=whole),
    *some("{a} << 1", "{a} >> 1", "F.one_hot({a}.long().remainder(4), 4)", "F.embedding({a}.long().remainder(3), torch.arange(12.0).reshape(3, 4))", "{a}.float()", when=whole_number),
    *some("torch.gcd({a}, {s})", "{a}.bool()", "{a}.to(torch.uint8)", "{a} / 2", "{a}.sum(dtype=torch.int32)", when=whole_number),
    *some("{a}.logical_not()", "torch.logical_xor({a}, {m})", "{a}.nonzero()", "{a}.float().cumsum(0)", when=ordered),
    *some("{a}.angle()", "{a}.abs()", "{a}.real * 2", "{a}.conj() * {a}", "torch.polar({a}.real, {a}.imag)", when=complex_),
]  # fmt: skip
MADE = [
    "torch.arange({k})", "torch.ones(2, 0)", "torch.tensor([1.5, {p}])", "torch.tensor({k})", "torch.eye(3)", "torch.linspace(0, 1, 4)",
    "torch.zeros((), dtype=torch.bfloat16)", "torch.empty(2, 2).fill_({k})", "torch.arange(6).reshape(2, 3).to(torch.uint8)",
    "torch.full((2, 2), {p}, dtype=torch.float64)", "torch.randn(2, 4)", "torch.rand(4)", "torch.randint(0, 5, (4,))", "torch.randperm(4)",
]  # fmt: skip
RANDOM = [
    *some("torch.rand_like({a})", "torch.randn_like({a})", "F.dropout({a}, {p})", "torch.bernoulli({a}.sigmoid())", "{a}.normal_()", when=real),
    *some("{a}.uniform_()", "{a}.bernoulli_(0.5)", "F.dropout({a}, 0.5, inplace=True)", "torch.normal({a}, 1.0)", "F.rrelu({a}, training=True)", when=real),
]  # fmt: skip
GRADIENTS = [
    *some("{n} = torch.autograd.grad({a}.double().sum(), [{l}], retain_graph=True, allow_unused=True)[0]", when=real),
    *some("{n} = torch.autograd.grad(({a} * {a}).double().sum(), [{l}], create_graph=True, allow_unused=True)[0]", when=real),
    *some("({a} * 2).double().sum().backward(retain_graph=True)", "({a} * {a}).double().sum().backward(retain_graph=True)", when=real),
    *some("{a}.backward(torch.ones_like({a}), retain_graph=True)", when=real),
]  # fmt: skip
