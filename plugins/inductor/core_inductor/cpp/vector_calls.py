"""Functions of float32 that a loop calls with a whole vector: sin and cos.

Their short form holds up to FARTHEST; beyond it, the distance from a multiple of pi/2 takes many more digits. A loop
can't branch, a function called with a vector can: it looks once whether any lane is that far, and then asks libm. GCC
finds the function by the name that the vector ABI gives it beside libm's (a letter for the instruction set and the
number of lanes are part of it); where the processor has no such instructions, the loop calls libm.
"""

from __future__ import annotations

FARTHEST = "65536.0f"
"""Up to here the multiple of pi/2 is a number of 17 bits, whose product with the first part of pi/2 is taken off
exactly."""

NAMES = ("sin", "cos")

SHORT_FORMS: dict[str, tuple[tuple[str, ...], str]] = {
    # sin(x + quarter * pi/2): pi/2 in three parts, then on |r| <= pi/4 sin(r) = r + r^3 P(r^2), fit 1.4e-8 of it, or
    # cos(r) = 1 - r^2/2 + r^4 Q(r^2), fit 1.4e-9.
    "sin_of_turned": (
        ("bits_of", "float_of"),
        """float sin_of_turned(float x, int quarter) {
    float shifted = __builtin_fmaf(x, 0.636619747f, 12582912.0f), n = shifted - 12582912.0f;
    float r = __builtin_fmaf(n, -1.570796251296997f, x);
    r = __builtin_fmaf(n, -7.549789415861596e-08f, r);
    r = __builtin_fmaf(n, -5.390302953474238e-15f, r);
    float z = r * r;
    float p = -0.00019582831009756774f;
    p = __builtin_fmaf(p, z, 0.008332724682986736f);
    p = __builtin_fmaf(p, z, -0.166666641831398f);
    float sine = __builtin_fmaf(p * z, r, r);
    float q = 2.4542870960431173e-05f;
    q = __builtin_fmaf(q, z, -0.0013888279208913445f);
    q = __builtin_fmaf(q, z, 0.0416666641831398f);
    q = __builtin_fmaf(q, z, -0.5f);
    float cosine = __builtin_fmaf(q, z, 1.0f);
    int turn = bits_of(shifted) + quarter;
    float value = turn & 1 ? cosine : sine;
    return float_of(bits_of(value) ^ (int)((unsigned)(turn & 2) << 30));
}""",
    ),
    "sin_near": (
        ("sin_of_turned",),
        "float sin_near(float x) { float value = sin_of_turned(x, 0); return x == 0.0f ? x : value; }",
    ),
    "cos_near": (("sin_of_turned",), "float cos_near(float x) { return sin_of_turned(x, 1); }"),
}


def _call(name: str) -> str:
    """The declaration that loops call, and what they call with a vector."""
    wide = _of_vectors(name, 16, "e", f"__builtin_ia32_cmpps512_mask(size, {FARTHEST} - (lanes){{}}, 6, -1, 4)")
    narrow = _of_vectors(
        name, 8, "d", f"__builtin_ia32_movmskps256(__builtin_ia32_cmpps256(size, {FARTHEST} - (lanes){{}}, 6))"
    )
    return f"""#ifdef __AVX512F__
#pragma omp declare simd notinbranch simdlen(16)
#elif defined(__AVX2__) && defined(__FMA__)
#pragma omp declare simd notinbranch simdlen(8)
#endif
extern "C" float {name}_any(float) __asm__("{name}f");
#ifdef __AVX512F__
{wide}
#elif defined(__AVX2__) && defined(__FMA__)
{narrow}
#endif"""


def _of_vectors(name: str, lanes: int, letter: str, far: str) -> str:
    bytes_ = 4 * lanes
    return f"""typedef float {name}_lanes __attribute__((vector_size({bytes_})));
extern "C" __attribute__((visibility("hidden"))) {name}_lanes _ZGV{letter}N{lanes}v_{name}f({name}_lanes given) {{
    typedef float lanes __attribute__((vector_size({bytes_})));
    typedef int words __attribute__((vector_size({bytes_})));
    float x[{lanes}], y[{lanes}];
    __builtin_memcpy(x, &given, {bytes_});
    #pragma omp simd
    for (int k = 0; k < {lanes}; ++k) y[k] = {name}_near(x[k]);
    lanes size = (lanes)((words)given & 0x7fffffff);
    if (__builtin_expect({far} != 0, 0))  // or is no number
        for (int k = 0; k < {lanes}; ++k) y[k] = {name}_any(x[k]);
    __builtin_memcpy(&given, y, {bytes_});
    return given;
}}"""


VECTOR_CALLS: dict[str, tuple[tuple[str, ...], str]] = {
    f"{name}_any": ((f"{name}_near",), _call(name)) for name in NAMES
}
"""Whole declarations, by the name that loops call."""
