"""The functions of float64 that loops call in vectors, as text: branch-free like those of float32 in math.py.

Polynomials are Chebyshev interpolants at 50 digits of the functions named beside them; the errors quoted are of the
fit, and the tests measure the whole functions in units of the last place. NaN, infinities, signed zeros and subnormals
come out as in libm.
"""

from __future__ import annotations

from collections.abc import Sequence


def _horner(variable: str, *coefficients: float) -> str:
    """Statements that leave a polynomial's value in p, highest power first."""
    first, *rest = coefficients
    lines = [f"    double p = {first!r};"]
    return "\n".join([*lines, *(f"    p = __builtin_fma(p, {variable}, {c!r});" for c in rest)])


NAMES: Sequence[str] = ("exp", "expm1", "log", "sigmoid", "tanh", "erf", "exp_and_one")
"""Functions with a form here, NAME_d."""

FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    # name -> (names it calls, text)
    "bits_of_d": ((), "long bits_of_d(double x) { long i; __builtin_memcpy(&i, &x, 8); return i; }"),
    "double_of": ((), "double double_of(long i) { double x; __builtin_memcpy(&x, &i, 8); return x; }"),
    # exp(r) = 1 + r + r^2 P(r) on |r| <= ln(2)/2, fit 2e-16 of r^2; 2^n is applied in two halves as in exp_f.
    "exp_d": (
        ("bits_of_d", "double_of"),
        f"""double exp_d(double x) {{
    double c = x > 710.0 ? 710.0 : x;
    c = c < -746.0 ? -746.0 : c;
    double shifted = __builtin_fma(c, 1.4426950408889634, 0x1.8p52);
    double n = shifted - 0x1.8p52;
    double r = __builtin_fma(n, -0.6931471803691238, c);
    r = __builtin_fma(n, -1.9082149292705877e-10, r);
{
            _horner(
                "r",
                2.510038549551032e-08,
                2.7620088445409746e-07,
                2.7557268459997064e-06,
                2.4801521295954376e-05,
                0.00019841269863053618,
                0.0013888888917213717,
                0.008333333333330062,
                0.04166666666662413,
                0.16666666666666669,
                0.5000000000000001,
            )
        }
    double one = 1.0 + r, low = r - (one - 1.0);
    p = one + __builtin_fma(p * r, r, low);
    long k = bits_of_d(shifted) - 0x4338000000000000L, half = k >> 1;
    return p * double_of((half + 1023) << 52) * double_of((k - half + 1023) << 52);
}}""",
    ),
    # (exp(x) - 1 - x) / x^2 on |x| <= 1/2, fit 3e-18; elsewhere the subtraction loses at most one bit.
    "expm1_d": (
        ("exp_d",),
        f"""double expm1_d(double x) {{
{
            _horner(
                "x",
                1.6116496514371548e-10,
                2.0962955815976076e-09,
                2.505194670972162e-08,
                2.7557076636642725e-07,
                2.755731943362024e-06,
                2.4801587616145414e-05,
                0.00019841269841146993,
                0.001388888888870455,
                0.00833333333333336,
                0.04166666666666706,
                0.16666666666666666,
                0.5,
            )
        }
    double near = __builtin_fma(p * x, x, x), far = exp_d(x) - 1.0;
    double value = __builtin_fabs(x) < 0.5 ? near : far;
    return x == 0.0 ? x : value;
}}""",
    ),
    # log(1 + f) = f - (f^2/2 - s (f^2/2 + z L(z))), s = f / (2 + f), z = s^2; L: fit 5e-16.
    "log_wide": (
        ("bits_of_d", "double_of"),
        f"""double log_wide(double x) {{
    bool tiny = x < 0x1p-1022;
    double scaled = tiny ? x * 0x1p54 : x;
    long i = bits_of_d(scaled), e = (i - 0x3fe6a09e667f3bcdL) >> 52;
    double f = double_of(i - (e << 52)) - 1.0;
    double n = (double)(tiny ? e - 54 : e);
    double s = f / (2.0 + f), z = s * s;
{
            _horner(
                "z",
                0.14616449685043406,
                0.15331721600556042,
                0.18182889125261723,
                0.2222221113479508,
                0.28571428625975487,
                0.39999999999899505,
                0.666666666666667,
            )
        }
    double half = 0.5 * f * f;
    double tail = __builtin_fma(s, __builtin_fma(z, p, half), n * 1.9082149292705877e-10);
    double value = __builtin_fma(n, 0.6931471803691238, f - (half - tail));
    value = x == __builtin_inf() ? x : value;
    value = x == 0.0 ? -__builtin_inf() : value;
    return x < 0.0 || x != x ? __builtin_nan("") : value;
}}""",
    ),
    "exp_and_one_d": (("exp_d",), "double exp_and_one_d(double x) { return exp_d(x) + 1.0; }"),
    "sigmoid_d": (("exp_d",), "double sigmoid_d(double x) { return 1.0 / (1.0 + exp_d(-x)); }"),
    # tanh(x) = x + x^3 P(x^2) below 0.625, fit 1e-17 of x^3; 1 - 2 / (exp(2x) + 1) above.
    "tanh_d": (
        ("exp_d",),
        f"""double tanh_d(double x) {{
    double a = __builtin_fabs(x), z = x * x;
{
            _horner(
                "z",
                6.485163482793113e-06,
                -3.12011014257974e-05,
                9.257116129556769e-05,
                -0.0002375906496055562,
                0.0005896606577757043,
                -0.0014557754120478055,
                0.0035921217511549622,
                -0.008863235103240878,
                0.021869488519008305,
                -0.05396825396789699,
                0.13333333333333042,
                -0.3333333333333333,
            )
        }
    double near = __builtin_fma(p * z, a, a);
    double far = 1.0 - 2.0 / (exp_d(a + a) + 1.0);
    return __builtin_copysign(a < 0.625 ? near : far, x);
}}""",
    ),
    # erf(x) = x P(x^2) below 1, fit 7e-18; above, 1 - exp(-x^2) R(y) / x with y = (x - 2.5) / (x + 2.5), fit 5e-16 of
    # what is taken from 1; 1 from 6 on.
    "erf_d": (
        ("erf_near_d", "exp_d"),
        f"""double erf_d(double x) {{
    double a = __builtin_fabs(x), c = a > 6.0 ? 6.0 : a;
    double y = (c - 2.5) / (c + 2.5);
{
            _horner(
                "y",
                1.8738174262834944e-06,
                1.1160921964137523e-05,
                -6.346935716152217e-07,
                -6.572493117787853e-05,
                -2.713720518688289e-05,
                0.000380455450884803,
                0.00013174073629672577,
                -0.002628993680350973,
                0.0017871295279308266,
                0.01837729709978494,
                -0.07144479756120885,
                0.1413314857029215,
                -0.17536886639548097,
                0.12468998543327564,
                0.5270159101528589,
            )
        }
    double far = __builtin_copysign(1.0 - exp_d(-c * c) * p / c, x);
    return a < 1.0 ? erf_near_d(x) : far;
}}""",
    ),
    "erf_near_d": (
        (),
        f"""double erf_near_d(double x) {{
    double z = x * x;
{
            _horner(
                "z",
                -7.795898827002142e-10,
                1.3720064546777686e-08,
                -1.6208483801871705e-07,
                1.6447424703317362e-06,
                -1.492473690741966e-05,
                0.00012055294904839707,
                -0.0008548325975389692,
                0.0052239776071164225,
                -0.02686617064323777,
                0.11283791670945006,
                -0.37612638903183543,
                0.12837916709551256,
            )
        }
    return __builtin_fma(p, x, x);
}}""",
    ),
}
