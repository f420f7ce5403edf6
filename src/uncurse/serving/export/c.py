"""Export a map as a C header without dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...errors import UncurseError
from ...maps import ScoreMap
from ...maps.compile import compile_map, valid_range
from ...maps.operations import BELOW_ONE, TINY, Clip, Line, Operation, Phi, Pieces
from ...version import __version__
from . import MOST_EXP, SCALES, piece_rows, wrapped

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


def _is_reserved(name: str) -> bool:
    """Tell whether a name is a keyword, a macro or a name of the library of C or C++."""
    math = _MATH.split()
    known = {*_WORDS.split(), *_LIBRARY.split()}
    known |= {prefix + one + suffix for one in math for prefix in ("", "c") for suffix in ("", "f", "l")}
    return name in known or name.isupper() or name.endswith("_t")


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
    if _is_reserved(name):
        raise UncurseError(f"{name!r} is a name of C or C++ itself; choose another, such as 'uncurse_predict'")
    steps = compile_map(score_map)
    low, high = valid_range(score_map)
    guard = f"{name.upper()}_H"
    tables = [(i, step) for i, step in enumerate(steps, 1) if isinstance(step, Pieces)]
    lines = [f"/* The prediction from the served score, {SCALES[score_map.scale]}; NAN for what is none."]
    lines += [f"   Made by uncurse {__version__}. */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += ["#include <math.h>", "", f"static inline double {name}(double score)", "{"]
    if tables:
        count = len(tables[0][1].edges)
        lines += [f"    static const double edges[{count}] = {_c_table(map(repr, tables[0][1].edges))};"]
    for i, table in tables:
        rows = (f"{{{x!r}, {y!r}, {slope!r}}}" for x, y, slope in piece_rows(table))
        lines += ["    /* A point (x, y) and a slope for each piece. */"]
        lines += [f"    static const double pieces_{i}[{count + 1}][3] = {_c_table(rows)};"]
    if tables:
        lines += [f"    int piece = 0, end = {count};"]
    lines += ["    double l = score;", f"    if (!(score >= {low!r} && score <= {high!r})) return NAN;"]
    if tables:
        lines += ["    while (piece < end) {", "        int middle = (piece + end) / 2;"]
        lines += ["        if (score < edges[middle]) end = middle; else piece = middle + 1;", "    }"]
    lines += [line for i, step in enumerate(steps, 1) for line in _c_step(step, i)]
    return "\n".join([*lines, "    return l;", "}", "", f"#endif /* {guard} */", ""])


def _c_step(step: Operation, i: int) -> Iterator[str]:
    if isinstance(step, Line):
        yield f"    l = {step.slope!r} * l + {step.intercept!r};"
    elif isinstance(step, Pieces):
        yield f"    l = pieces_{i}[piece][1] + pieces_{i}[piece][2] * (l - pieces_{i}[piece][0]);"
    elif isinstance(step, Clip):
        yield f"    l = l < {step.low!r} ? {step.low!r} : l > {step.high!r} ? {step.high!r} : l;"
    elif step.link == "probit":
        raise UncurseError("the probit link is not in C's library; export a map of the logistic link, or to Python")
    elif isinstance(step, Phi):
        if step.link == "logistic":
            yield "    l = l > -700.0 ? 1.0 / (1.0 + exp(-l)) : exp(l);"
        else:
            yield f"    l = exp(l < {MOST_EXP!r} ? l : {MOST_EXP!r});"
    else:
        yield f"    l = l < {TINY!r} ? {TINY!r} : l;"
        if step.link == "logistic":
            yield f"    l = l > {BELOW_ONE!r} ? {BELOW_ONE!r} : l;"
        yield "    l = log(l) - log1p(-l);" if step.link == "logistic" else "    l = log(l);"


def _c_table(parts: Iterable[str]) -> str:
    return "\n".join(["{", *wrapped(parts, "        "), "    }"])
