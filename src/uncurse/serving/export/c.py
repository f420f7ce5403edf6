"""Export a map as a C header without dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import UncurseError
from ...maps import ScoreMap
from ...maps.compile import Clip, Inverse, Line, Phi, Pieces, compile_map, valid_range
from ...version import __version__
from . import SCALES, Language, edges_of, tables_of, wrapped

_WORDS = """alignas alignof and and_eq asm atomic_cancel auto bitand bitor bool break case catch char class compl
concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof static
static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename typeof union
unsigned using virtual void volatile wchar_t while xor xor_eq main
"""
# <math.h>: functions also with the suffixes f and l, and for complex numbers with the prefix c; the last line is POSIX.
_MATH = """
acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 frexp ilogb ldexp log log10 log1p log2
logb modf scalbn scalbln cbrt fabs hypot pow sqrt erf erfc lgamma tgamma ceil floor nearbyint rint lrint llrint round
lround llround trunc fmod remainder remquo copysign nan nextafter nexttoward fdim fmax fmin fma
isfinite isinf isnan isnormal signbit fpclassify isgreater isgreaterequal isless islessequal islessgreater isunordered
math_errhandling roundeven exp10 exp2m1 exp10m1 fmaximum fminimum canonicalize issignaling iseqsig abs arg imag onj proj
real j0 j1 jn y0 y1 yn gamma drem significand scalb signgam lgamma_r gamma_r sincos finite pow10 nextup nextdown llogb
"""
# Other headers that a program is likely to include.
_LIBRARY = """
abort abs atexit atof atoi atol atoll bsearch calloc div exit free getenv labs ldiv llabs lldiv malloc mblen mbstowcs
mbtowc qsort rand realloc srand strtod strtof strtol strtold strtoll strtoul strtoull system wcstombs wctomb alloca
clearerr fclose feof ferror fflush fgetc fgetpos fgets fopen fprintf fputc fputs fread freopen fscanf fseek fsetpos
ftell fwrite getc getchar gets perror printf putc putchar puts remove rename rewind scanf setbuf setvbuf snprintf
sprintf sscanf tmpfile tmpnam ungetc vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf stdin stdout stderr
memchr memcmp memcpy memmove memset strcat strchr strcmp strcoll strcpy strcspn strerror strlen strncat strncmp strncpy
strpbrk strrchr strspn strstr strtok strxfrm strdup index rindex isalnum isalpha isblank iscntrl isdigit isgraph islower
isprint ispunct isspace isupper isxdigit tolower toupper asctime clock ctime difftime gmtime localtime mktime strftime
time assert errno offsetof raise signal setjmp longjmp jmp_buf setlocale localeconv va_arg va_copy va_end va_list
va_start complex std linux unix random select kill
"""
_RESERVED = {*_WORDS.split(), *_LIBRARY.split()}
_RESERVED |= {prefix + one + suffix for one in _MATH.split() for prefix in ("", "c") for suffix in ("", "f", "l")}
_CLIP = "l = l < {low} ? {low} : l > {high} ? {high} : l;"
_LANGUAGE = Language(
    "C's library",
    {
        Line: "l = {slope} * l + {intercept};",
        Pieces: "l = pieces_{i}[piece][1] + pieces_{i}[piece][2] * (l - pieces_{i}[piece][0]);",
        Clip: _CLIP,
        (Phi, "logistic"): "l = l > -700.0 ? 1.0 / (1.0 + exp(-l)) : exp(l);",
        (Phi, "log"): "l = exp(l < {most_exp} ? l : {most_exp});",
        (Inverse, "logistic"): _CLIP + "\nl = log(l) - log1p(-l);",
        (Inverse, "log"): "l = log(l < {low} ? {low} : l);",
    },
)


def to_c(score_map: ScoreMap, name: str = "uncurse_predict") -> str:
    """Export a map as a C99 header, also for C++, with one function from double to double.

    The function returns NAN for what is no score.

    Parameters
    ----------
    score_map : ScoreMap
        An `Affine`, `Curve`, `Steps` or `Chain`.
    name : str, default="uncurse_predict"
        Name of the function; keywords, macros and names of the C library are refused.

    Returns
    -------
    str
        Source code.

    Examples
    --------
    >>> from uncurse import Affine
    >>> "static inline double uncurse_predict(double score)" in to_c(Affine(0.5, -1.0))
    True
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise UncurseError(f"{name!r} cannot name a function in C; choose letters and digits, as 'uncurse_predict'")
    if name in _RESERVED or name.isupper() or name.endswith("_t"):
        raise UncurseError(f"{name!r} is a name of C or C++ itself; choose another, such as 'uncurse_predict'")
    steps = compile_map(score_map)
    low, high = valid_range(score_map)
    guard, edges = f"{name.upper()}_H", edges_of(steps)
    lines = [f"/* The prediction from the served score, {SCALES[score_map.scale]}; NAN for what is none."]
    lines += [f"   Made by uncurse {__version__}. */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += ["#include <math.h>", "", f"static inline double {name}(double score)", "{"]
    if edges:
        lines += [f"    static const double edges[{len(edges)}] = {_c_table(map(repr, edges))};"]
    for i, table in tables_of(steps).items():
        rows = (f"{{{x!r}, {y!r}, {slope!r}}}" for x, y, slope in table)
        lines += ["    /* A point (x, y) and a slope for each piece. */"]
        lines += [f"    static const double pieces_{i}[{len(table)}][3] = {_c_table(rows)};"]
    if edges:
        lines += [f"    int piece = 0, end = {len(edges)};"]
    lines += ["    double l = score;", f"    if (!(score >= {low!r} && score <= {high!r})) return NAN;"]
    if edges:
        lines += ["    while (piece < end) {", "        int middle = (piece + end) / 2;"]
        lines += ["        if (score < edges[middle]) end = middle; else piece = middle + 1;", "    }"]
    lines += [*_LANGUAGE.statements(steps), "    return l;", "}", "", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _c_table(parts: Iterable[str]) -> str:
    return "\n".join(["{", *wrapped(parts, "        "), "    }"])
