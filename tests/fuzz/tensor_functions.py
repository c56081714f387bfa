"""Further steps of random programs of tensors: functions with arguments that models seldom give, and rarer operators.

Written as those of tensor_steps: (condition, text), with the names there.
"""

from __future__ import annotations

from tensor_steps import (
    complex_,
    has_dims,
    image,
    matrix,
    number,
    ordered,
    ordered_dims,
    real,
    real_matrix,
    some,
    two,
    whole_number,
)
from torch import Tensor, complex64, float32, int64


def plain(t: Tensor) -> bool:
    return t.dtype is float32


def signal(t: Tensor) -> bool:
    return t.dtype is float32 and t.ndim == 3


def plain_dims(t: Tensor) -> bool:
    return t.dtype is float32 and t.ndim > 0 and 0 not in t.shape


def plain_matrix(t: Tensor) -> bool:
    return t.dtype is float32 and t.ndim == 2 and 0 not in t.shape


def rows(t: Tensor) -> bool:
    return real_matrix(t) and t.shape[0] > 0  # of no rows some losses are whatever lay in memory


def plain_image(t: Tensor) -> bool:
    return t.dtype is float32 and image(t)


FUNCTIONS = [
    *some("F.pad({a}, (1, 2, 0, 1), mode='replicate')", "F.pad({a}, (1, 1), mode='circular')", "F.pad({a}, (2, 1), mode='reflect')", when=signal),
    *some("F.max_pool1d({a}, 2, stride=1, dilation=2)", "F.avg_pool1d({a}, 2, ceil_mode=True, count_include_pad=False)", when=signal),
    *some("F.conv1d({a}, torch.ones(4, {a}.shape[1] // 2, 2), groups=2)", "F.lp_pool1d({a}, 2, 2)", "F.interpolate({a}, scale_factor=1.5)", when=signal),
    *some("F.adaptive_max_pool1d({a}, 3)", "F.interpolate({a}, size=7, mode='linear', align_corners=True)", "F.unfold({a}[None], 2, dilation=2)", when=signal),
    *some("F.max_pool2d({a}, 2, ceil_mode=True, padding=1)", "F.max_pool2d({a}, 2, dilation=2)", "F.avg_pool2d({a}, 3, 2, 1, divisor_override=5)", when=plain_image),
    *some("F.max_pool2d({a}, 2, return_indices=True)[1]", "F.lp_pool2d({a}.abs(), 2, 2)", when=plain_image),
    *some("F.conv2d({a}, torch.ones(4, {a}.shape[1] // 2, 2, 2), stride=(2, 1), dilation=(1, 2), groups=2)", when=plain_image),
    *some("F.conv2d({a}, torch.ones(1, {a}.shape[1], 1, 1), padding='same')", "F.conv2d({a}, torch.ones(2, {a}.shape[1], 2, 2), padding=(0, 1))", when=plain_image),
    *some("F.conv_transpose2d({a}, torch.ones({a}.shape[1], 1, 2, 2), stride=2, output_padding=1, dilation=2)", when=plain_image),
    *some("F.pad({a}, (0, 1, 1, 0), mode='circular')", "F.pad({a}, (1, 0, 0, 1), mode='replicate')", "F.adaptive_max_pool2d({a}, (1, 3))", when=plain_image),
    *some("F.interpolate({a}, scale_factor=(0.5, 2.0), mode='nearest-exact')", "F.interpolate({a}, size=5, mode='bicubic')", when=plain_image),
    *some("F.interpolate({a}, size=3, mode='area')", "F.interpolate({a}, size=2, mode='bilinear', antialias=True)", when=plain_image),
    *some("F.grid_sample({a}, torch.zeros({a}.shape[0], 2, 3, 2), align_corners=False)", "F.affine_grid(torch.ones(1, 2, 3), (1, 1, 2, 2)) * {a}.mean()", when=plain_image),
    *some("F.group_norm({a}, 2)", "F.local_response_norm({a}, 2)", "F.dropout2d({a}, 0.5, training=False)", "F.fold(F.unfold({a}, 2), {a}.shape[2:], 2)", when=plain_image),
    *some("F.cross_entropy({a}, {a}.argmax(1), label_smoothing=0.1)", "F.cross_entropy({a}, {s}.softmax(1), reduction='none')", when=real_matrix),
    *some("F.cross_entropy({a}, {a}.argmax(1), ignore_index=1, reduction='sum')", "F.cross_entropy({a}, {a}.argmax(1), weight=torch.ones({a}.shape[1], dtype={a}.dtype))", when=real_matrix),
    *some("F.nll_loss({a}, {a}.argmax(1), ignore_index=0, reduction='none')", "F.multilabel_soft_margin_loss({a}, ({s} > 0).to({a}.dtype))", when=real_matrix),
    *some("F.multi_margin_loss({a}, {a}.argmin(1), reduction='sum')", when=rows),
    *some("F.triplet_margin_loss({a}, {s}, {s} * 2, swap=True)", when=real_matrix),
    *some("F.cosine_embedding_loss({a}, {s}, torch.ones({a}.shape[0]), margin=0.2, reduction='none')", "F.gumbel_softmax({a}, hard=False) * 0", when=plain_matrix),
    *some("F.kl_div({a}.log_softmax(-1), {s}.log_softmax(-1), log_target=True, reduction='batchmean')", "F.softmin({a}, {d})", when=plain_dims),
    *some("F.binary_cross_entropy({a}.sigmoid(), {s}.sigmoid(), reduction='none')", "F.l1_loss({a}, {s}, reduction='sum')", "F.soft_margin_loss({a}, {s}.sign())", when=real),
    *some("F.smooth_l1_loss({a}, {s}, beta=0.3, reduction='none')", "F.huber_loss({a}, {s}, delta=0.4, reduction='none')", "F.poisson_nll_loss({a}, {s}.abs(), full=True)", when=real),
    *some("F.gaussian_nll_loss({a}, {s}, torch.ones_like({a}), reduction='none')", "F.mse_loss({a}, {s}, reduction='none')", "F.margin_ranking_loss({a}, {s}, ({m}.to({a}.dtype) * 2 - 1), margin=0.1)", when=real),
    *some("F.hinge_embedding_loss({a}, {m}.to({a}.dtype) * 2 - 1, reduction='none')", "F.threshold({a}, 0.1, 20)", "F.celu({a}, 2.0)", "F.selu({a})", "F.relu6({a})", when=real),
    *some("F.hardshrink({a}, 0.3)", "F.softshrink({a}, 0.3)", "F.tanhshrink({a})", "F.softsign({a})", "F.logsigmoid({a})", "F.gelu({a}, approximate='tanh')", "F.softplus({a}, 2.0, 1.0)", when=real),
    *some("F.prelu({a}, torch.tensor(0.2, dtype={a}.dtype))", "F.hardsigmoid({a})", "F.silu({a}, inplace=False)", "F.hardtanh({a}, -0.2, 0.7)", when=real),
    *some("F.layer_norm({a}, {a}.shape[-1:], torch.ones({a}.shape[-1], dtype={a}.dtype), None, 0.1)", "F.normalize({a}, p=1.0, dim={d}, eps=0.1)", when=plain_dims),
    *some("F.embedding({a}.remainder(3), torch.arange(12.0).reshape(3, 4), padding_idx=1)", "F.embedding_bag({a}.remainder(3), torch.arange(12.0).reshape(3, 4), mode='max')", when=lambda t: t.dtype is int64 and t.ndim == 2),
]  # fmt: skip
ALGEBRA = [
    *some("torch.einsum('ij,ij->i', {a}, {s})", "torch.einsum('ij,kj->', {a}, {s})", "torch.einsum('ii->i', {a})", "torch.einsum('ij,jk', {a}, {s}.mT)", when=plain_matrix),
    *some("torch.tensordot({a}, {s}, dims=([0], [0]))", "torch.kron({a}, {s}[:1, :1])", "torch.outer({a}[0], {s}[:, 0])", "{a}.mv({s}[0])", when=plain_matrix),
    *some("torch.linalg.norm({a})", "torch.linalg.vector_norm({a}, 3, dim=0)", "torch.linalg.matrix_norm({a}, 1)", "torch.linalg.multi_dot([{a}, {s}.mT, {a}])", when=plain_matrix),
    *some("torch.linalg.solve({a} @ {a}.mT + 9 * torch.eye({a}.shape[0]), {a})", "torch.linalg.cholesky({a} @ {a}.mT + 9 * torch.eye({a}.shape[0]))", when=plain_matrix),
    *some("torch.linalg.det({a} @ {a}.mT + 9 * torch.eye({a}.shape[0]))", "torch.linalg.inv({a} @ {a}.mT + 9 * torch.eye({a}.shape[0]))", "torch.linalg.svdvals({a})", when=plain_matrix),
    *some("torch.linalg.slogdet({a} @ {a}.mT + torch.eye({a}.shape[0]))[1]", "torch.linalg.qr({a})[1].abs()", "torch.linalg.eigvalsh({a} @ {a}.mT)", "torch.linalg.lstsq({a}, {a})[0] * 0", when=plain_matrix),
    *some("torch.fft.fft({a})", "torch.fft.rfft({a}, dim=0)", "torch.fft.fftshift({a})", "torch.fft.hfft({a})", "torch.fft.irfft({a})", when=plain_dims),
    *some("torch.fft.fft2({a}).abs()", "torch.fft.fftn({a}, norm='ortho').real", "torch.cov({a})", when=plain_matrix),
    *some("torch.view_as_real({a}).sum(-1)", "{a}.exp()", "{a} * {s}.conj()", "{a} / ({s}.abs() + 1)", "{a}.sgn()", "{a}.mean()", "torch.fft.ifft({a})" , "{a} ** 2", when=lambda t: t.dtype is complex64 and t.ndim > 0),
    *some("torch.vdot({a}.reshape(-1), {s}.reshape(-1))", "{a}.resolve_conj() + 1", "{a}.conj().imag", "{a}.conj().resolve_conj()", "{a}.sum()", "torch.isreal({a})", "{a} == {s}", when=complex_),
    *some("torch.vmap(lambda row: row.sum() * row)({a})", "torch.vmap(lambda row, other: row @ other)({a}, {s})", "torch.func.grad(lambda t: (t * t).sum())({a}.detach())", when=plain_matrix),
    *some("torch.func.jvp(torch.sin, ({a}.detach(),), (torch.ones_like({a}),))[1]", "torch.func.vjp(torch.tanh, {a}.detach())[1](torch.ones_like({a}))[0]", when=plain_matrix),
    *some("torch.trapezoid({a}, dim={d})", "torch.cumulative_trapezoid({a}, dim={d})", "torch.diff({a}, n=2, dim={d})", "{a}.unfold({d}, 1, 1).sum(-1)", when=plain_dims),
    *some("torch.cross({a}[..., :3], {s}[..., :3], dim=-1)", "torch.block_diag({a}, {s})", "torch.cartesian_prod({a}[0], {s}[0])", "torch.combinations({a}[0])", "torch.vander({a}[0])", when=plain_matrix),
]  # fmt: skip
NUMBERS = [
    *some("torch.div({a}, {s}.abs() + 1, rounding_mode='floor')", "torch.div({a}, 3, rounding_mode='trunc')", "{a} // 2", "{a} % -3", "torch.remainder({a}, -2)", "torch.fmod({a}, -2)", when=ordered),
    *some("{a} * 2.5", "{a} + True", "2 ** ({a} % 3)", "{a} - torch.tensor(1.5)", "{a} * torch.tensor(2, dtype=torch.int8)", "torch.tensor(0.5, dtype=torch.float64) * {a}", when=number),
    *some("torch.add({a}, True)", "torch.true_divide({a}, 4)", "torch.where({m}, {a}, 1.5)", "torch.where({m}, 2, {a})", when=number),
    *some("{a}.to(torch.uint8) - 200", "{a}.to(torch.int8) * 100", "{a}.to(torch.int32) << 20", "{a}.to(torch.int16) * 30000", "{a} ** 5", when=whole_number),
    *some("torch.maximum({a}, torch.full_like({a}, float('nan')))", "torch.fmax({a}, torch.full_like({a}, float('nan')))", "({a} * float('nan')) > 0", "({a} * float('nan')).clamp(0, 1)", when=real),
    *some("({a} * float('nan')).max()", "({a} * 0).neg().signbit()", "(-0.0 * {a}).copysign({s})", "torch.nextafter({a}, {s})", "{a} * 1e-40", "{a} / 0", "(1 / ({a} * 0)).sign()", "{a}.signbit()", when=plain),
    *some("torch.heaviside({a}, {s})", "torch.ldexp({a}, torch.tensor(2))", "torch.frexp({a}).mantissa", "torch.xlogy({a}.abs(), {s}.abs())", "{a}.sinc()", "{a}.expm1()", "{a}.deg2rad()", "torch.special.entr({a}.abs())", when=plain),
    *some("{a}.bfloat16().sum()", "{a}.half().mean({d})", "{a}.bfloat16() @ {a}.bfloat16().mT" , "{a}.half().softmax(-1)", "{a}.bfloat16().cumsum({d})", "{a}.half().var({d})", "{a}.half().norm()", when=plain_dims),
    *some("torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), {a})", "torch.bucketize({a}, torch.tensor([0.0, 1.0]), right=True)", "{a}.unique()", "{a}.nonzero()", "{a}.nonzero(as_tuple=True)[0]", when=ordered),
    *some("torch.unique({a}, return_counts=True)[1]", "torch.unique_consecutive({a})", "torch.argwhere({a})", "{a}[{a} > 0]", "{a}[{m}].sum()", "torch.histc({a}.float(), 4, -2, 2)", "torch.isin({a}, {s})", when=ordered),
    *some("torch.bincount({a}.reshape(-1).abs())", "{a}.reshape(-1).bitwise_not()", "torch.lcm({a}, {s})", "torch.bitwise_left_shift({a}, 2)", "F.one_hot({a}.long().abs() % 3)", when=whole_number),
    *some("torch.msort({a})", "{a}.nanmedian()", "torch.logcumsumexp({a}.float(), {d})", "{a}.median({d}).values", "torch.std_mean({a}.float(), {d})[0]", when=ordered_dims),
    *some("torch.topk({a}, 1, {d}, largest=False).values", "{a}.cummax({d}).indices", "{a}.sort({d}, descending=True).values", "{a}.aminmax().max", "torch.amax({a}, ({d},), keepdim=True)", "{a}.argmax({d}, keepdim=True)", when=ordered_dims),
]  # fmt: skip
PLACES = [
    *some("{a}[None, ..., 0]", "{a}[[0, -1]]", "{a}[..., None, :1]", "{a}[[0], ...]", "{a}[{i}, None]", "{a}[-1:, ...]", "{a}[torch.tensor(0)]", "{a}[True]", "{a}[None, None]", "{a}[({i},)]", when=has_dims),
    *some("{a}[:, [0, -1]]", "{a}[[0, -1], [0, 0]]", "{a}[{i}, :, None]", "{a}[{i}[:, None], [0, -1]]", "{a}[..., {i}]", "{a}[:, None, {i} % {a}.shape[1]]", "{a}[0, :, ...]", "{a}[1:, {i} % {a}.shape[1]]", "{a}[:, torch.tensor([True] + [False] * ({a}.shape[1] - 1))]", when=two),
    *some("torch._foreach_mul([{a}, {s}], 2)[0]", "torch._foreach_add([{a}], [{s}], alpha=2)[0]", "torch._foreach_neg([{a}, {s}])[1]", "torch._foreach_sub([{a}], [{s}])[0]", when=number),
    *some("torch._foreach_sqrt([{a}.abs()])[0]", "torch._foreach_lerp([{a}], [{s}], 0.3)[0]", "torch._foreach_norm([{a}])[0]", "torch._foreach_addcdiv([{a}], [{s}], [{s}.abs() + 1], 0.5)[0]", when=plain),
    *some("torch.tile({a}, (2, 1))", "torch.dstack([{a}, {s}])", "torch.hstack([{a}, {s}])", "torch.column_stack([{a}, {s}])", "torch.meshgrid({a}.reshape(-1), {a}.reshape(-1), indexing='ij')[1]", "torch.broadcast_tensors({a}, {b})[0]"),
    *some("{a}.index_select(0, {i})", "{a}.scatter({d}, torch.zeros_like({a}, dtype=torch.int64), {s}, reduce='add')", "{a}.select_scatter({a}.select({d}, 0) * 2, {d}, 0)", when=has_dims),
    *some("torch.diagonal_scatter({a}, {a}.diagonal() * 2)", "torch.diag_embed({a})", "{a}.triu(1).tril(2)", "torch.tril_indices(2, 3)", "{a}.rot90(-1)", "{a}.movedim((0, 1), (1, 0))", "{a}.transpose(0, 1).contiguous().view(-1)", "{a}.fliplr()", when=matrix),
    *some("{a}.to_sparse().to_dense()", "torch.quantize_per_tensor({a}, 0.1, 0, torch.qint8).dequantize()", "{a}.to(memory_format=torch.preserve_format)", "torch.empty_like({a}, memory_format=torch.contiguous_format).copy_({a})", when=plain),
    *some("{a}.contiguous(memory_format=torch.channels_last) * 2", "torch.ones_like({a}, memory_format=torch.channels_last)", "{a}.clone(memory_format=torch.channels_last).relu()", "{a}.permute(0, 2, 3, 1).flatten(1)", when=image),
    *some("torch.cat([{a}, {s}], {d})", "torch.stack([{a}, {s}], {d})[1]", "torch.cat([{a}, {a}.double()], {d})", "{a}.split([1, {a}.shape[{d}] - 1], {d})[1]", "{a}.hsplit(1)[0]", "{a}.unflatten({d}, (1, -1))", when=has_dims),
]  # fmt: skip
ASSIGNMENTS = [
    *some("{a}[1:] = {k}", "{a}[..., :1] = {a}[..., -1:]", "{a}[{i}, ...] = {k}", "{a}[[0, -1]] = {a}[[-1, 0]]", "{a}[::2] *= 2" , "{a}[None, ..., 0] = {k}", "{a}[-1:][0] = {k}", "{a}[{a} != {a}] = {k}", when=has_dims),
    *some("{a}[:, 0] = {a}[:, -1]", "{a}[0] = {a}[:, :1].sum()", "{a}[:, [0, -1]] = {k}", "{a}[{i}, 0] = {k}", "{a}[1:, :1] = {a}[:1, -1:]", "{a}.T[0] = {k}", "{a}.diagonal().fill_({k})", "{a}[:, None, 0] = {k}", when=two),
    *some("{a}.t()[1:].add_({k})", "{a}.view(-1)[1:].mul_(2)", "{a}.unsqueeze(0).transpose(0, 1)[0].add_(1)", "{a}.narrow(0, 0, 1).view(-1).sub_(1)", "{a}[0].unsqueeze(0)[0].fill_({k})", when=matrix),
    *some("torch.add({a}, 1, out={a}.unsqueeze(0)[0])", "torch.mul({a}, 2, out=torch.empty(0, dtype={a}.dtype))", "torch.sub({a}, {s}, out={a})", "torch.abs({a}, out={a})", when=number),
    *some("torch._foreach_mul_([{a}], 2)", "torch._foreach_add_([{a}, {b}], 1)", "torch._foreach_copy_([{a}], [{s}])", "torch._foreach_zero_([{a}])", "torch._foreach_neg_([{a}.view_as({a})])", when=number),
    *some("{a}.clamp_(-0.5, 0.5)", "{a}.floor_()", "{a}.div_({s}.abs() + 1, rounding_mode='floor')", "{a}.remainder_(2)", "{a}.copysign_({s})", "{a}.nan_to_num_(0.5)", "{a}.lerp_({s}, 0.25)", "{a}.hypot_({s})", when=real),
    *some("{a}.index_reduce_(0, {i}, {a}[{i}], 'amax')", "{a}.index_put_(({i},), torch.tensor({k}).to({a}.dtype))", "{a}.renorm_(2, 0, 1.0)", when=lambda t: real(t) and t.ndim > 1),
    *some("{a}.logical_not_()", "{a}.eq_({s})", "{a}.gt_({k})", "{a}.ne_({k})", "{a}.sign_()", "{a}.fmod_(2)", "{a}.square_()", when=ordered),
    *some("torch.cat([{a}[:0], {a}], out={a})", "torch.stack([{a}, {a}], out=torch.empty(0, dtype={a}.dtype))", "{a}.swapaxes_(0, -1)", "{a}.unsqueeze_(-1)", "{a}.squeeze_(0)", when=has_dims),
    *some("{a}.conj().mul_(2)", "{a}.imag.neg_()", "{a}.real.copy_({a}.imag)", "{a}.conj_physical_()", "torch.view_as_real({a})[..., 0].zero_()", when=complex_),
]  # fmt: skip
