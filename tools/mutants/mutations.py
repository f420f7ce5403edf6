"""Enumerate small changes to source code that a test should notice."""

from __future__ import annotations

import ast
import copy
import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Each operator and what replaces it.
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
#: Functions and methods that are swapped by name.
PAIRS = (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil"), ("any", "all"))
SWAPPED = {
    **dict(PAIRS),
    **{other: one for one, other in PAIRS},
    "sum": "mean",
    "logaddexp": "maximum",
    "log1p": "log",
    "expm1": "exp",
}
#: Calls that are replaced by their first argument.
REMOVED_CALLS = ("abs", "sqrt", "square", "negative", "clip", "sort", "unique", "round")
#: Functions whose body shows text only.
TEXT_ONLY = ("__repr__", "__str__")
#: Keyword arguments that change no result.
IRRELEVANT_KEYWORDS = (
    "stacklevel", "copy", "strict", "kind", "over", "invalid", "under", "divide", "source", "name", "axis", "dtype",
    "rtol", "atol", "frozen",
)  # fmt: skip
#: Words in the comment of a module constant that only limits time or memory.
RESOURCES = re.compile(r"\b(cache|chunks?|cores?|memory|bandwidth|[MG]B|rows per pass|threads?)\b")
#: Calls whose result is a real number, which equals a bound with probability zero.
REAL_CALLS = ("sqrt", "exp", "log", "log1p", "expm1", "mean", "quantile", "interp")


@dataclass(frozen=True)
class Mutation:
    """One change: the text between two offsets of a file is replaced."""

    path: str
    line: int
    function_line: int  # first line of the enclosing function; 0 at module level
    kind: str
    start: int
    stop: int
    replacement: str

    @property
    def key(self) -> str:
        """Identify the mutation, for results that are read back."""
        return f"{self.path}:{self.start}:{self.stop}:{self.replacement}"

    def apply(self, source: str) -> str:
        """Return the changed source."""
        return source[: self.start] + self.replacement + source[self.stop :]

    def diff(self, source: str) -> str:
        """Return the change as a unified diff."""
        lines = difflib.unified_diff(
            source.splitlines(), self.apply(source).splitlines(), f"a/{self.path}", f"b/{self.path}", lineterm="", n=2
        )
        return "\n".join(lines)


def enumerate_mutations(path: str, source: str) -> list[Mutation]:
    """List every mutation of one file whose result is valid Python and another program."""
    tree = ast.parse(source)
    finder = _Finder(path, source)
    finder.visit(tree)
    original = ast.dump(tree)
    unique: dict[str, Mutation] = {}
    for mutation in finder.found:
        try:
            changed = ast.dump(ast.parse(mutation.apply(source)))
        except SyntaxError:
            continue
        if changed != original:
            unique.setdefault(mutation.key, mutation)
    return list(unique.values())


class _Finder(ast.NodeVisitor):
    """Visit the code that computes results: no annotations, messages, docstrings, `__all__` or `TYPE_CHECKING`.

    Changes that no sensible test can notice are left out as well:

    - keyword arguments that change no result, tolerances and what multiplies them, and guards against overflow;
    - module constants whose comment says that they limit time or memory (`RESOURCES`);
    - sizes written as a shift of two constants, as in ``1 << 16``: chunks, buffers and limits of memory;
    - the number of attempts in ``for _ in range(60)``;
    - < for <= where one side is a computed real number, which equals the other with probability zero.
    """

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source
        self.found: list[Mutation] = []
        self.function_line = 0
        lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))
        self.lines = lines
        # Values of module constants that are a number.
        self.numbers = {
            target.id: node.value.value
            for node in ast.parse(source).body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    # -------------------------------------------------------------------- recording

    def offset(self, line: int, column: int) -> int:
        # Columns of the parser count bytes.
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def comment(self, node: ast.stmt) -> str:
        """Return the comment at the end of a statement and those on the lines directly above it."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        text = self.lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
        for line in reversed(self.lines[: node.lineno - 1]):
            if not line.startswith("#"):
                break
            text = line + text
        return text

    def add(self, node: ast.expr | ast.stmt | ast.arg, kind: str, replacement: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.offset(node.lineno, node.col_offset)
        stop = self.offset(node.end_lineno, node.end_col_offset)
        self.found.append(Mutation(self.path, node.lineno, self.function_line, kind, start, stop, replacement))

    def replace(self, node: ast.expr, kind: str, change: Callable[[ast.expr], ast.expr | None]) -> None:
        """Record the node with a change made to a copy of it."""
        changed = change(copy.deepcopy(node))
        if changed is not None:
            self.add(node, kind, f"({ast.unparse(changed)})")

    # -------------------------------------------------------------------- what is skipped

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip: positions inside are unreliable, and the text is for people."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip: an assertion tells the type checker what is known."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        limit = not self.function_line and RESOURCES.search(self.comment(node))
        if not limit and not any(name.startswith("__") for name in names):
            self.visit(node.value)

    def visit_For(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Name) and node.target.id == "_":
            for statement in (*node.body, *node.orelse):
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.dump(node.test):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, "remove raise", "pass")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in TEXT_ONLY:
            return
        outer, self.function_line = self.function_line, min([node.lineno, *(d.lineno for d in node.decorator_list)])
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        for default in defaults:
            if isinstance(default, ast.Constant) and isinstance(default.value, str):
                self.add(default, "default", repr(default.value + "x"))
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.function_line = outer

    # -------------------------------------------------------------------- statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call):
            self.add(node, "remove call", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "remove statement", "pass")
        swapped = ARITHMETIC.get(type(node.op))
        if swapped is not None:
            changed = copy.deepcopy(node)
            changed.op = swapped()
            self.add(node, "arithmetic", ast.unparse(changed))
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.add(node, "return None", "return None")
            self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "remove statement", "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self.add(node, "remove statement", "pass")

    # -------------------------------------------------------------------- expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        rounded = any(self.computes_real(part) for part in ast.walk(node))
        for place, op in enumerate(node.ops):
            for swapped in COMPARISONS[type(op)][-1 if rounded else 0 :]:  # < and <= do the same there

                def change(made: ast.expr, place: int = place, swapped: type[ast.cmpop] = swapped) -> ast.expr:
                    assert isinstance(made, ast.Compare)
                    made.ops[place] = swapped()
                    return made

                self.replace(node, "comparison", change)
        self.generic_visit(node)

    def computes_real(self, node: ast.AST) -> bool:
        """Tell whether the value of an expression is a real number, and not a count or an input."""
        if isinstance(node, ast.Call):
            return called_name(node) in REAL_CALLS
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.Div)
        return is_real(self.number(node))

    def is_tolerance(self, node: ast.AST) -> bool:
        """Tell a tolerance, also by the name of a module constant, or a product with one."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.is_tolerance(node.left) or self.is_tolerance(node.right)
        return is_tolerance(self.number(node)) or (isinstance(node, ast.Attribute) and node.attr == "eps")

    def number(self, node: ast.AST) -> object:
        """Return the value of a constant or of the name of one."""
        if isinstance(node, ast.Name):
            return self.numbers.get(node.id)
        return node.value if isinstance(node, ast.Constant) else None

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        if isinstance(node.op, ast.LShift) and all(isinstance(side, ast.Constant) for side in sides):
            return
        if isinstance(node.op, ast.Mult) and any(self.is_tolerance(side) for side in sides):
            return
        swapped = ARITHMETIC.get(type(node.op))
        text = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (node.left, node.right))
        if swapped is not None and not text:

            def change(made: ast.expr) -> ast.expr:
                assert isinstance(made, ast.BinOp)
                made.op = swapped()
                return made

            self.replace(node, "arithmetic", change)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.op, ast.UAdd):
            self.replace(node, "not" if isinstance(node.op, ast.Not) else "sign", lambda made: made.operand)  # type: ignore[attr-defined]
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        swapped: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()

        def change(made: ast.expr) -> ast.expr:
            assert isinstance(made, ast.BoolOp)
            made.op = swapped
            return made

        self.replace(node, "and/or", change)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        for replacement in nudged(node.value):
            self.add(node, "constant", replacement)

    def visit_Call(self, node: ast.Call) -> None:
        name = called_name(node)
        if name in SWAPPED:

            def change(made: ast.expr) -> ast.expr:
                assert isinstance(made, ast.Call)
                if isinstance(made.func, ast.Attribute):
                    made.func.attr = SWAPPED[made.func.attr]
                elif isinstance(made.func, ast.Name):
                    made.func.id = SWAPPED[made.func.id]
                return made

            self.replace(node, "swapped function", change)
        if name in REMOVED_CALLS and node.args and not isinstance(node.args[0], ast.Starred):
            self.replace(node, "removed function", lambda made: made.args[0])  # type: ignore[attr-defined]
        if name in ("warn", "warn_user"):
            return
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg not in IRRELEVANT_KEYWORDS:
                self.visit(keyword.value)


def nudged(value: object) -> Iterator[str]:
    """Yield the source of nearby constants."""
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int):
        yield f"({value + 1})"
        yield f"({value - 1})"
    elif isinstance(value, float) and not is_tolerance(value):
        yield f"({value * 1.5!r})" if value else "(1.0)"
        yield f"({value / 1.5!r})" if value else "(-1.0)"


def is_tolerance(value: object) -> bool:
    """Tell a tolerance or a guard against overflow, where a nearby value does the same."""
    return isinstance(value, float) and value != 0 and not 1e-5 < abs(value) < 1e5


def is_real(value: object) -> bool:
    """Tell a number that is no integer, or is a tolerance."""
    return isinstance(value, float) and (is_tolerance(value) or not value.is_integer())


def called_name(node: ast.Call) -> str | None:
    """Return the last part of the name of the called function."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


__all__ = ["Mutation", "enumerate_mutations", "nudged"]
