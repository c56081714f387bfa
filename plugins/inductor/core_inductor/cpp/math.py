"""The vectorisable functions that kernels call, as text: only those a translation unit uses are printed into it.

float32 functions are branch-free, so that loops calling them vectorise. Their polynomials are near-minimax fits
(Chebyshev
interpolation at 40 digits) of the functions named beside them; the errors quoted are of the fit, and the tests measure
the whole functions in units of the last place. NaN, infinities, signed zeros and subnormals come out as in libm.
Functions without a branch-free form (sin, pow, ...) go to libm, one element at a time; float64 is in math_double.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import math_double
from .halves import HALF_ROWS
from .vector_calls import SHORT_FORMS, VECTOR_CALLS

LIBM = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "lgamma pow atan2 hypot nextafter fmod".split()
)
"""Functions of libm that may be called, each also with the suffix f."""

TWO_ARGUMENTS = frozenset("pow atan2 hypot nextafter fmod".split())

INLINE = "static inline __attribute__((always_inline))"

FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    # name -> (names it calls, text)
    "bits_of": ((), "int bits_of(float x) { int i; __builtin_memcpy(&i, &x, 4); return i; }"),
    "float_of": ((), "float float_of(int i) { float x; __builtin_memcpy(&x, &i, 4); return x; }"),
    "load_bfloat16": (
        ("float_of",),
        "float load_bfloat16(unsigned short x) { return float_of((int)((unsigned)x << 16)); }",
    ),
    "store_bfloat16": (
        ("bits_of",),
        """unsigned short store_bfloat16(float x) {
    unsigned u = (unsigned)bits_of(x);
    unsigned rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (unsigned short)(x != x ? 0x7fc0u : rounded);
}""",
    ),
    "round_bfloat16": (
        ("bits_of", "float_of"),
        """float round_bfloat16(float x) {
    unsigned u = (unsigned)bits_of(x);
    float rounded = float_of((int)((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u));
    return x != x ? x : rounded;
}""",
    ),
    "load_float16": (
        ("bits_of", "float_of"),
        """float load_float16(unsigned short x) {
    unsigned magnitude = (unsigned)x & 0x7fffu;
    float scaled = float_of((int)(magnitude << 13)) * 0x1p112f;
    float special = float_of((int)((magnitude << 13) | 0x7f800000u));
    float value = magnitude >= 0x7c00u ? special : scaled;
    return float_of(bits_of(value) | (int)(((unsigned)x & 0x8000u) << 16));
}""",
    ),
    "store_float16": (
        ("bits_of", "float_of"),
        """unsigned short store_float16(float x) {
    unsigned u = (unsigned)bits_of(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    unsigned small = (unsigned)bits_of(float_of((int)a) + 0.5f) - 0x3f000000u;
    unsigned normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
    unsigned large = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    unsigned magnitude = a >= 0x47800000u ? large : (a < 0x38800000u ? small : normal);
    return (unsigned short)(sign | magnitude);
}""",
    ),
    # Without a turn through the 16 bits, so that loops of many roundings vectorise. Below 2^-14 what is kept is a
    # multiple of 2^-24, the distance of float32 numbers from 0.5 to 1; past the largest number is infinity, or a NaN.
    "round_float16": (
        ("bits_of", "float_of"),
        """float round_float16(float x) {
    unsigned u = (unsigned)bits_of(x), sign = u & 0x80000000u;
    float a = float_of((int)(u ^ sign));
    float normal = float_of((int)((u + 0xfffu + ((u >> 13) & 1u)) & 0xffffe000u));
    float small = float_of((int)((unsigned)bits_of((x + 0.75f) - 0.75f) | sign));
    float value = a < 0x1p-14f ? small : normal;
    return a < 65520.0f ? value : x * __builtin_inff();
}""",
    ),
    # P(r) of exp(r) = 1 + r + r^2 P(r) on |r| <= ln(2)/2, fit 7e-8 of r^2.
    "exp_rest": (
        (),
        """float exp_rest(float r) {
    float p = 0.0013926926614021907f;
    p = __builtin_fmaf(p, r, 0.008363773874405574f);
    p = __builtin_fmaf(p, r, 0.04166655011030512f);
    p = __builtin_fmaf(p, r, 0.16666573381900845f);
    p = __builtin_fmaf(p, r, 0.5f);
    return p;
}""",
    ),
    # exp(r) = 1 + r + r^2 P(r) on |r| <= ln(2)/2, fit 7e-8 of r^2, with what 1 + r rounds off added back; 2^n is
    # applied in two halves so that subnormal results round once and n up to 128 does not overflow.
    "exp_f": (
        ("bits_of", "float_of", "exp_rest"),
        """float exp_f(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -104.0f ? -104.0f : c;
    float shifted = __builtin_fmaf(c, 1.44269504f, 12582912.0f);
    float n = shifted - 12582912.0f;
    float r = __builtin_fmaf(n, -0.693145752f, c);
    r = __builtin_fmaf(n, -1.42860677e-06f, r);
    float p = exp_rest(r);
    float one = 1.0f + r, low = r - (one - 1.0f);
    p = one + __builtin_fmaf(p * r, r, low);
    int k = bits_of(shifted) - 0x4b400000, half = k >> 1;
    return p * float_of((half + 127) << 23) * float_of((k - half + 127) << 23);
}""",
    ),
    "exp2_f": (
        ("bits_of", "float_of", "exp_rest"),
        """float exp2_f(float x) {
    float c = x > 129.0f ? 129.0f : x;
    c = c < -151.0f ? -151.0f : c;
    float shifted = c + 12582912.0f;
    float r = c - (shifted - 12582912.0f);
    float t = r * 0.693147182f, low = __builtin_fmaf(r, 0.693147182f, -t);
    low = __builtin_fmaf(r, -1.90465421e-09f, low);
    float p = exp_rest(t);
    p = (__builtin_fmaf(p * t, t, low) + t) + 1.0f;
    int k = bits_of(shifted) - 0x4b400000, half = k >> 1;
    return p * float_of((half + 127) << 23) * float_of((k - half + 127) << 23);
}""",
    ),
    # (exp(r) - 1 - r) / r^2 on |r| <= 1/2 in double, fit 9e-12; elsewhere the subtraction loses at most one bit.
    "expm1_f": (
        ("exp_f",),
        """float expm1_f(float x) {
    double r = x;
    double p = 2.7682856169452262e-06;
    p = __builtin_fma(p, r, 2.493973330013098e-05);
    p = __builtin_fma(p, r, 0.00019841073556216572);
    p = __builtin_fma(p, r, 0.0013888672862062655);
    p = __builtin_fma(p, r, 0.008333333431502386);
    p = __builtin_fma(p, r, 0.041666667747145766);
    p = __builtin_fma(p, r, 0.1666666666658997);
    p = __builtin_fma(p, r, 0.49999999999155825);
    float near = (float)__builtin_fma(p * r, r, r);
    float far = exp_f(x) - 1.0f;
    float value = __builtin_fabsf(x) < 0.5f ? near : far;
    return x == 0.0f ? x : value;
}""",
    ),
    # log(1+f) = f - f^2/2 + f^3 P(f) on sqrt(1/2) <= 1+f < sqrt(2), fit 3e-8 of f^3.
    "log_f": (
        ("bits_of", "float_of"),
        """float log_f(float x) {
    bool tiny = x < 0x1p-126f;
    float scaled = tiny ? x * 0x1p25f : x;
    int i = bits_of(scaled), e = (i - 0x3f3504f3) >> 23;
    float f = float_of(i - (e << 23)) - 1.0f;
    float n = (float)(tiny ? e - 25 : e);
    float p = 0.06971611471451178f;
    p = __builtin_fmaf(p, f, -0.11479733846637635f);
    p = __builtin_fmaf(p, f, 0.1168541992348674f);
    p = __builtin_fmaf(p, f, -0.12425687331451106f);
    p = __builtin_fmaf(p, f, 0.1424905764569748f);
    p = __builtin_fmaf(p, f, -0.16667802319501254f);
    p = __builtin_fmaf(p, f, 0.200007157488921f);
    p = __builtin_fmaf(p, f, -0.24999996957950882f);
    p = __builtin_fmaf(p, f, 0.33333331180030046f);
    float q = f * f;
    float tail = __builtin_fmaf(p * q, f, n * 1.42860677e-06f);
    tail = __builtin_fmaf(q, -0.5f, tail);
    float value = __builtin_fmaf(n, 0.693145752f, f + tail);
    value = x == __builtin_inff() ? x : value;
    value = x == 0.0f ? -__builtin_inff() : value;
    return x < 0.0f || x != x ? __builtin_nanf("") : value;
}""",
    ),
    # log(m) = 2 s + 2 s^3 Q(s^2), s = (m-1)/(m+1), in double, fit 2e-14.
    "log_d": (
        (),
        """double log_d(double x) {
    long i; __builtin_memcpy(&i, &x, 8);
    long e = (i - 0x3fe6a09e667f3bcdL) >> 52;
    long j = i - (e << 52);
    double m; __builtin_memcpy(&m, &j, 8);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.08311871753491999;
    p = __builtin_fma(p, z, 0.09070033106033527);
    p = __builtin_fma(p, z, 0.11111432600436301);
    p = __builtin_fma(p, z, 0.14285712055733651);
    p = __builtin_fma(p, z, 0.2000000000564557);
    p = __builtin_fma(p, z, 0.3333333333333102);
    double t = __builtin_fma(p * z, s, s);
    return __builtin_fma((double)(int)e, 0.6931471805599453, t + t);
}""",
    ),
    "log_special": (
        (),
        """float log_special(float x, double value) {
    float v = (float)value;
    v = x == __builtin_inff() ? x : v;
    v = x == 0.0f ? -__builtin_inff() : v;
    return x < 0.0f || x != x ? __builtin_nanf("") : v;
}""",
    ),
    "log2_f": (
        ("log_d", "log_special"),
        "float log2_f(float x) { return log_special(x, log_d(x) * 1.4426950408889634); }",
    ),
    "log10_f": (
        ("log_d", "log_special"),
        "float log10_f(float x) { return log_special(x, log_d(x) * 0.4342944819032518); }",
    ),
    # log(u) + (x - (u - 1)) / u with u = 1 + x keeps the digits that 1 + x drops.
    "log1p_f": (
        ("log_d",),
        """float log1p_f(float x) {
    double u = 1.0 + (double)x;
    float v = (float)(log_d(u) + ((double)x - (u - 1.0)) / u);
    v = x == __builtin_inff() || x == 0.0f ? x : v;
    v = x == -1.0f ? -__builtin_inff() : v;
    return x < -1.0f || x != x ? __builtin_nanf("") : v;
}""",
    ),
    # exp(x) of x <= 0 where what lies below 2^-126 may be 0, as beside the 1 of a softmax: n + 127 is the exponent of
    # 2^n, and 0 from x = -88 down makes 0 of it. Half the operations of exp_f.
    "exp_beside_one_f": (
        ("exp_times",),
        """float exp_beside_one_f(float x) {
    float c = x < -88.0f ? -88.0f : x;
    return exp_times(c, 12583039.0f);
}""",
    ),
    # 1 + exp(x), from half the power, which never overflows.
    "exp_and_one_f": (
        ("exp_times",),
        """float exp_and_one_f(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -87.0f ? -87.0f : c;
    return __builtin_fmaf(exp_times(c, 12583038.0f), 2.0f, 1.0f);
}""",
    ),
    # exp(c) * 2^(shift - 1.5 * 2^23 - 127), the polynomial of exp_f.
    "exp_times": (
        ("bits_of", "float_of", "exp_rest"),
        """float exp_times(float c, float shift) {
    float shifted = __builtin_fmaf(c, 1.44269504f, shift);
    float n = shifted - shift;
    float r = __builtin_fmaf(n, -0.693145752f, c);
    r = __builtin_fmaf(n, -1.42860677e-06f, r);
    float p = exp_rest(r);
    p = 1.0f + __builtin_fmaf(p * r, r, r);
    return p * float_of((int)((unsigned)bits_of(shifted) << 23));
}""",
    ),
    "sigmoid_f": (("exp_and_one_f",), "float sigmoid_f(float x) { return 1.0f / exp_and_one_f(-x); }"),
    # tanh(x) = x + x^3 P(x^2) below 0.9, fit 6e-9 of x^3; 1 - 2 / (exp(2x) + 1) above.
    "tanh_f": (
        ("exp_f",),
        """float tanh_f(float x) {
    float a = __builtin_fabsf(x), z = x * x;
    float p = -0.0005203526888253506f;
    p = __builtin_fmaf(p, z, 0.002759119258875984f);
    p = __builtin_fmaf(p, z, -0.008450872527807168f);
    p = __builtin_fmaf(p, z, 0.02175940978601938f);
    p = __builtin_fmaf(p, z, -0.05395388951973762f);
    p = __builtin_fmaf(p, z, 0.13333261841465857f);
    p = __builtin_fmaf(p, z, -0.3333333274440396f);
    float near = __builtin_fmaf(p * z, a, a);
    float far = 1.0f - 2.0f / (exp_f(a + a) + 1.0f);
    return __builtin_copysignf(a < 0.9f ? near : far, x);
}""",
    ),
    # erf(x) = x P(x^2) below 0.95, fit 6e-10; 1 - exp(Q(x)) with Q = log erfc above, fit 2e-8; 1 from 4 on.
    "erf_f": (
        ("exp_f",),
        """float erf_f(float x) {
    float a = __builtin_fabsf(x), z = x * x;
    float p = 8.204169676160118e-05f;
    p = __builtin_fmaf(p, z, -0.0008102915560980692f);
    p = __builtin_fmaf(p, z, 0.005197487226627011f);
    p = __builtin_fmaf(p, z, -0.026857959062737153f);
    p = __builtin_fmaf(p, z, 0.11283669468623776f);
    p = __builtin_fmaf(p, z, -0.3761263204712788f);
    p = __builtin_fmaf(p, z, 0.12837916646478841f);
    float near = __builtin_fmaf(p, x, x);
    float c = a > 4.0f ? 4.0f : a;
    float q = 1.6430636556906173e-06f;
    q = __builtin_fmaf(q, c, -4.616385862524457e-05f);
    q = __builtin_fmaf(q, c, 0.0005975857702302331f);
    q = __builtin_fmaf(q, c, -0.004762625832512992f);
    q = __builtin_fmaf(q, c, 0.026427637153529877f);
    q = __builtin_fmaf(q, c, -0.1100871664955004f);
    q = __builtin_fmaf(q, c, -0.6318239181057594f);
    q = __builtin_fmaf(q, c, -1.1302310552231873f);
    q = __builtin_fmaf(q, c, 0.00031853966241225597f);
    float far = __builtin_copysignf(1.0f - exp_f(q), x);
    float value = a < 0.95f ? near : far;
    return x != x ? x : value;
}""",
    ),
    # 1 - erfc(x)^(1/8) = x P(x) on [0, 4], fit 2e-8; then 1 - (1 - d)^8 by three steps d (2 - d): within 1.2e-7 of erf
    # everywhere, which is what 1 + erf keeps of it, in half the operations of erf_f and without a division.
    "erf_beside_one_f": (
        (),
        """float erf_beside_one_f(float x) {
    float a = __builtin_fabsf(x);
    float c = 4.0f < a ? 4.0f : a;
    float p = -7.589757267112418e-09f;
    p = __builtin_fmaf(p, c, 9.273662726627663e-08f);
    p = __builtin_fmaf(p, c, -2.881770342355594e-07f);
    p = __builtin_fmaf(p, c, 4.336846814112505e-06f);
    p = __builtin_fmaf(p, c, -8.42421650304459e-05f);
    p = __builtin_fmaf(p, c, 0.0005017551011405885f);
    p = __builtin_fmaf(p, c, -0.00017379103519488126f);
    p = __builtin_fmaf(p, c, -0.006596669089049101f);
    p = __builtin_fmaf(p, c, 0.0020910631865262985f);
    p = __builtin_fmaf(p, c, 0.06963016837835312f);
    p = __builtin_fmaf(p, c, 0.141047403216362f);
    float d = p * c;
    d = __builtin_fmaf(-d, d, d + d);
    d = __builtin_fmaf(-d, d, d + d);
    d = __builtin_fmaf(-d, d, d + d);
    return __builtin_copysignf(d, x);
}""",
    ),
    # An 8x8 block of 4-byte elements turned over in registers: pairs, quads, halves. GCC does not find this itself.
    "turn8": (
        (),
        """void turn8(const void *source, long source_stride, void *target, long target_stride) {
    typedef unsigned v8 __attribute__((vector_size(32)));
    typedef unsigned u8 __attribute__((vector_size(32), aligned(4), may_alias));
    const unsigned *s = (const unsigned *)source;
    unsigned *d = (unsigned *)target;
    v8 r[8], t[8], u[8];
    for (int k = 0; k < 8; ++k) r[k] = *(const u8 *)(s + k * source_stride);
    for (int k = 0; k < 4; ++k) {
        t[2 * k] = __builtin_shuffle(r[2 * k], r[2 * k + 1], (v8){0, 8, 1, 9, 4, 12, 5, 13});
        t[2 * k + 1] = __builtin_shuffle(r[2 * k], r[2 * k + 1], (v8){2, 10, 3, 11, 6, 14, 7, 15});
    }
    for (int h = 0; h < 8; h += 4) {
        u[h] = __builtin_shuffle(t[h], t[h + 2], (v8){0, 1, 8, 9, 4, 5, 12, 13});
        u[h + 1] = __builtin_shuffle(t[h], t[h + 2], (v8){2, 3, 10, 11, 6, 7, 14, 15});
        u[h + 2] = __builtin_shuffle(t[h + 1], t[h + 3], (v8){0, 1, 8, 9, 4, 5, 12, 13});
        u[h + 3] = __builtin_shuffle(t[h + 1], t[h + 3], (v8){2, 3, 10, 11, 6, 7, 14, 15});
    }
    for (int k = 0; k < 4; ++k) {
        *(u8 *)(d + k * target_stride) = __builtin_shuffle(u[k], u[k + 4], (v8){0, 1, 2, 3, 8, 9, 10, 11});
        *(u8 *)(d + (k + 4) * target_stride) = __builtin_shuffle(u[k], u[k + 4], (v8){4, 5, 6, 7, 12, 13, 14, 15});
    }
}""",
    ),
    # The same of 2-byte elements: pairs, quads, halves of registers of 16 bytes.
    "turn8_short": (
        (),
        """void turn8_short(const void *source, long source_stride, void *target, long target_stride) {
    typedef unsigned short v8 __attribute__((vector_size(16)));
    typedef unsigned short u8 __attribute__((vector_size(16), aligned(2), may_alias));
    const unsigned short *s = (const unsigned short *)source;
    unsigned short *d = (unsigned short *)target;
    v8 r[8], t[8];
    for (int k = 0; k < 8; ++k) r[k] = *(const u8 *)(s + k * source_stride);
    for (int k = 0; k < 4; ++k) {
        t[2 * k] = __builtin_shuffle(r[2 * k], r[2 * k + 1], (v8){0, 8, 1, 9, 2, 10, 3, 11});
        t[2 * k + 1] = __builtin_shuffle(r[2 * k], r[2 * k + 1], (v8){4, 12, 5, 13, 6, 14, 7, 15});
    }
    for (int h = 0; h < 8; h += 4)
        for (int k = 0; k < 2; ++k) {
            r[h + 2 * k] = __builtin_shuffle(t[h + k], t[h + 2 + k], (v8){0, 1, 8, 9, 2, 3, 10, 11});
            r[h + 2 * k + 1] = __builtin_shuffle(t[h + k], t[h + 2 + k], (v8){4, 5, 12, 13, 6, 7, 14, 15});
        }
    for (int k = 0; k < 4; ++k) {
        *(u8 *)(d + 2 * k * target_stride) = __builtin_shuffle(r[k], r[k + 4], (v8){0, 1, 2, 3, 8, 9, 10, 11});
        *(u8 *)(d + (2 * k + 1) * target_stride) = __builtin_shuffle(r[k], r[k + 4], (v8){4, 5, 6, 7, 12, 13, 14, 15});
    }
}""",
    ),
    "floor_quotient": (
        (),
        "long floor_quotient(long a, long b) { long q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0))); }",
    ),
    "floor_remainder": (
        (),
        """long floor_remainder(long a, long b) {
    long r = a % b;
    return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;
}""",
    ),
    "checked_index": (
        (),
        """long checked_index(long value, long size, int code, int *status) {
    bool bad = (unsigned long)value >= (unsigned long)size;
    if (__builtin_expect(bad, 0)) __atomic_store_n(status, code, __ATOMIC_RELAXED);
    return bad ? 0 : value;
}""",
    ),
}

FUNCTIONS.update(math_double.FUNCTIONS)
FUNCTIONS.update(HALF_ROWS)
FUNCTIONS.update(SHORT_FORMS)

for _suffix, _type, _fmod in (("f", "float", "fmodf"), ("d", "double", "fmod")):
    _copysign = "__builtin_copysignf" if _suffix == "f" else "__builtin_copysign"
    _floor = "__builtin_floorf" if _suffix == "f" else "__builtin_floor"
    _c = "f" if _suffix == "f" else ""
    # Division rounded down as Python rounds it: from the exact remainder, so that 1.0 // 0.1 is 9.
    FUNCTIONS[f"floordiv_{_suffix}"] = (
        (_fmod,),
        f"""{_type} floordiv_{_suffix}({_type} a, {_type} b) {{
    if (b == 0.0{_c}) return a / b;
    {_type} rest = {_fmod}(a, b), quotient = (a - rest) / b;
    if (rest != 0.0{_c} && (b < 0.0{_c}) != (rest < 0.0{_c})) quotient -= 1.0{_c};
    if (quotient == 0.0{_c}) return {_copysign}(0.0{_c}, a / b);
    {_type} down = {_floor}(quotient);
    return quotient - down > 0.5{_c} ? down + 1.0{_c} : down;
}}""",
    )
    FUNCTIONS[f"remainder_{_suffix}"] = (
        (_fmod,),
        f"""{_type} remainder_{_suffix}({_type} a, {_type} b) {{
    {_type} rest = {_fmod}(a, b);
    return rest != 0.0{_c} && (b < 0.0{_c}) != (rest < 0.0{_c}) ? rest + b : rest;
}}""",
    )


def declaration(name: str) -> str:
    """The declaration of a libm function."""
    single = name.endswith("f") and name not in LIBM
    kind, base = ("float", name[:-1]) if single else ("double", name)
    parameters = f"{kind}, {kind}" if base in TWO_ARGUMENTS else kind
    # GCC would warn about a clash with its builtin only if the types differed.
    return f'extern "C" {kind} {name}({parameters});'


def header(used: Iterable[str]) -> str:
    """The text of the named functions and everything they call, callees first."""
    done: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in done:
            return
        if name in FUNCTIONS or name in VECTOR_CALLS:
            calls, body = FUNCTIONS.get(name) or VECTOR_CALLS[name]
            for callee in calls:
                visit(callee)
            done[name] = f"{INLINE} {body}" if name in FUNCTIONS else body
        else:
            done[name] = declaration(name)

    for name in sorted(used):
        visit(name)
    return "\n".join(done.values())
