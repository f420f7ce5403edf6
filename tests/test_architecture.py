"""The structure of the package: layers, import cycles, private names and file sizes.

Each rule is a function of a source folder, and is itself tested on a small package that breaks it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "uncurse"

#: A module or package imports only from those before it.
LAYERS = (
    "version", "errors", "optional", "_types", "validation", "links", "documents", "text_tables", "threads",
    "evidence", "maps", "calibration", "debias", "metrics", "monitoring", "theory", "estimators",
    "logs", "report", "displays", "serving", "deep", "mlflow", "experiments", "cli", "__main__",
)  # fmt: skip
#: Layers that take long to import: `import uncurse` must not load them.
HEAVY = LAYERS[LAYERS.index("estimators") :]
MAX_LINES = 400

#: Known violations outside the core. Remove an entry when it is fixed; add none.
KNOWN_PRIVATE: set[str] = set()
KNOWN_LAYERS: set[str] = set()
KNOWN_CYCLES: set[str] = set()
KNOWN_LONG: set[str] = {"uncurse.report.figures"}


# ---------------------------------------------------------------------------- reading the imports


@dataclass(frozen=True)
class Import:
    """One import statement of one module, resolved to the module or package that it names."""

    module: str
    target: str
    name: str | None  # the imported name, where it is not a module
    bound: str  # the local variable
    line: int
    top_level: bool


@dataclass(frozen=True)
class Module:
    """A parsed source file."""

    name: str
    path: Path
    tree: ast.Module
    imports: tuple[Import, ...]


def read_package(source: Path) -> dict[str, Module]:
    """Parse every file of the package in folder `source`."""
    paths = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    modules = {}
    for name, path in paths.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        modules[name] = Module(name, path, tree, tuple(find_imports(tree, name, path, set(paths))))
    return modules


def find_imports(tree: ast.Module, module: str, path: Path, known: set[str]) -> Iterator[Import]:
    """Find imports from the package itself, also those inside functions, without `if TYPE_CHECKING`."""
    root = module.split(".")[0]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node, top_level in run_time_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in known:
                    # `import a.b` binds a; `import a.b as c` binds a.b.
                    bound = alias.asname or root
                    yield Import(module, alias.name if alias.asname else root, None, bound, node.lineno, top_level)
                    if not alias.asname and alias.name != root:
                        yield Import(module, alias.name, None, alias.name, node.lineno, top_level)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            if base not in known:
                continue
            for alias in node.names:
                inner, bound = f"{base}.{alias.name}", alias.asname or alias.name
                if inner in known:
                    yield Import(module, inner, None, bound, node.lineno, top_level)
                else:
                    yield Import(module, base, alias.name, bound, node.lineno, top_level)


def run_time_nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Yield every node that can run, and whether it runs at import time."""
    stack: list[tuple[ast.AST, bool]] = [(tree, True)]
    while stack:
        node, top_level = stack.pop()
        yield node, top_level
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            stack += [(child, top_level) for child in node.orelse]
            continue
        inside = top_level and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]


# ---------------------------------------------------------------------------- the rules


def find_cycles(modules: dict[str, Module]) -> list[str]:
    """Find import cycles: every strongly connected set of two or more modules, or a module that imports itself."""
    targets = {name: {i.target for i in module.imports} for name, module in modules.items()}
    reachable: dict[str, set[str]] = {}
    for start in targets:
        seen, stack = set(), list(targets[start])
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack += targets[name]
        reachable[start] = seen
    cycles = {tuple(sorted(m for m in reachable[name] if name in reachable[m])) for name in targets}
    return [" <-> ".join(cycle) for cycle in sorted(cycles) if cycle]


def find_private_uses(modules: dict[str, Module]) -> list[str]:
    """Find private names of one module that another module imports, or reads as an attribute."""
    found = []
    defined = {name: private_definitions(module.tree) for name, module in modules.items()}
    for module in modules.values():
        for i in module.imports:
            if is_private(i.name):
                found.append(f"{module.name}: from {i.target} import {i.name}")
        elsewhere = set().union(*(defined[name] for name in modules if name != module.name))
        for node, _ in run_time_nodes(module.tree):
            # A private attribute that this file does not define and another file of the package does. Classes may call
            # what they inherit.
            inherited = isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls", "super()")
            if isinstance(node, ast.Attribute) and node.attr in elsewhere - defined[module.name] and not inherited:
                found.append(f"{module.name}: {ast.unparse(node)}")
    return sorted(set(found))


def private_definitions(tree: ast.Module) -> set[str]:
    """Collect the private names that a file assigns, defines or sets as attributes."""
    names: set[str | None] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.add(node.value)  # setattr(self, "_x", ...) and __slots__
    return {name for name in names if name is not None and is_private(name)}


def is_private(name: str | None) -> bool:
    """Tell a private name from a public or special one."""
    named_tuple = ("_replace", "_asdict", "_fields", "_make")  # public, whatever their spelling
    return name is not None and name.startswith("_") and not name.startswith("__") and name not in named_tuple


def find_layer_violations(modules: dict[str, Module], layers: tuple[str, ...], heavy: tuple[str, ...]) -> list[str]:
    """Find imports from a layer that comes later, layers that the list lacks, and eager imports of heavy layers."""
    found = set()
    for module in modules.values():
        own = layer_of(module.name)
        if own and own not in layers:
            found.add(f"{module.name}: layer {own!r} is not in the list")
            continue
        for i in module.imports:
            target = layer_of(i.target)
            if target not in layers:
                # The top-level module may be imported by nobody: it imports everything.
                if target or own:
                    found.add(f"{module.name} -> {i.target}")
            elif not own:
                if target in heavy and i.top_level:
                    found.add(f"{module.name} -> {i.target} at import time")
            elif layers.index(target) > layers.index(own):
                found.add(f"{module.name} -> {i.target}")
    return sorted(found)


def layer_of(module: str) -> str:
    """Return the module or package right below the root; the root itself has the empty name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def find_long_files(modules: dict[str, Module], limit: int) -> list[str]:
    """Find files of more than `limit` lines."""
    return sorted(m.name for m in modules.values() if len(m.path.read_text(encoding="utf-8").splitlines()) > limit)


# ---------------------------------------------------------------------------- the package


@pytest.fixture(scope="module")
def package():
    return read_package(SOURCE)


def test_every_import_statement_of_the_package_is_seen(package):
    assert len(package) > 50
    assert any(i.target == "uncurse.errors" for i in package["uncurse.documents"].imports)


def test_modules_import_each_other_without_cycles(package):
    assert set(find_cycles(package)) == KNOWN_CYCLES


def test_private_names_stay_inside_their_module(package):
    assert set(find_private_uses(package)) == KNOWN_PRIVATE


def test_packages_import_only_from_the_layers_before_them(package):
    assert set(find_layer_violations(package, LAYERS, HEAVY)) == KNOWN_LAYERS


def test_no_source_file_is_longer_than_400_lines(package):
    assert set(find_long_files(package, MAX_LINES)) == KNOWN_LONG


def test_core_has_no_known_violations():
    core = LAYERS[: LAYERS.index("logs")]
    known = KNOWN_PRIVATE | KNOWN_LAYERS | KNOWN_CYCLES | KNOWN_LONG
    assert not [entry for entry in known if layer_of(entry.split(":")[0].split(" ")[0]) in core]


# ---------------------------------------------------------------------------- the rules, on packages that break them


def write_package(folder, **files):
    source = folder / "fake"
    for name, text in files.items():
        path = source / (name.replace("__", "/") + ".py" if name != "__init__" else "__init__.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not (path.parent / "__init__.py").exists():
            (path.parent / "__init__.py").write_text("")
    return read_package(source)


def test_a_cycle_through_a_function_level_import_is_found(tmp_path):
    fake = write_package(
        tmp_path,
        a="from .b import f\n",
        b="def f():\n    from . import c\n",
        c="import fake.a\n",
        d="from .a import f\n",
    )
    assert find_cycles(fake) == ["fake.a <-> fake.b <-> fake.c"]


def test_a_cycle_through_a_package_is_found(tmp_path):
    fake = write_package(tmp_path, p__one="from ..q import two\n", q__two="from ..p.one import x\n")
    assert find_cycles(fake) == ["fake.p.one <-> fake.q.two"]


def test_imports_for_type_checkers_make_no_cycle(tmp_path):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import f\nelse:\n    f = None\n"
    fake = write_package(tmp_path, a=text, b="from .a import f\n")
    assert find_cycles(fake) == []


def test_a_private_import_is_found(tmp_path):
    fake = write_package(tmp_path, a="_x = 1\n", b="def f():\n    from .a import _x\n    return _x\n")
    assert find_private_uses(fake) == ["fake.b: from fake.a import _x"]


def test_a_private_attribute_of_a_module_and_of_an_object_is_found(tmp_path):
    a = "_x = 1\nclass A:\n    def __init__(self):\n        self._y = 1\n"
    b = "import numpy as np\nfrom . import a\nfrom .a import A\nprint(a._x, A()._y, np._NoValue, A().__dict__)\n"
    assert find_private_uses(write_package(tmp_path, a=a, b=b)) == ["fake.b: A()._y", "fake.b: a._x"]


def test_inherited_private_methods_are_allowed(tmp_path):
    a = "class A:\n    def _set(self): ...\n"
    b = "from .a import A\nclass B(A):\n    def fit(self):\n        self._set()\n"
    assert find_private_uses(write_package(tmp_path, a=a, b=b)) == []


def test_own_private_names_are_allowed(tmp_path):
    a = "_x = 1\nclass A:\n    def __init__(self, other):\n        self._y = other._y + _x\n"
    assert find_private_uses(write_package(tmp_path, a=a, b=a)) == []


def test_an_import_from_a_later_layer_is_found(tmp_path):
    fake = write_package(
        tmp_path, a="from .b import f\n", b="from . import c__d\nfrom .c import d\n", c__d="import fake\n"
    )
    found = find_layer_violations(fake, ("a", "b", "c"), heavy=())
    assert "fake.a -> fake.b" in found
    assert "fake.b -> fake.c.d" in found
    assert "fake.c.d -> fake" in found
    assert find_layer_violations(write_package(tmp_path / "x", z=""), ("a",), ()) == [
        "fake.z: layer 'z' is not in the list"
    ]


def test_an_eager_import_of_a_heavy_layer_is_found(tmp_path):
    fake = write_package(tmp_path, __init__="from .a import f\n", a="f = 1\n")
    assert find_layer_violations(fake, ("a",), ("a",)) == ["fake -> fake.a at import time"]
    lazy = write_package(tmp_path, __init__="def __getattr__(name):\n    from .a import f\n    return f\n", a="f = 1\n")
    assert find_layer_violations(lazy, ("a",), ("a",)) == []


def test_a_long_file_is_found(tmp_path):
    fake = write_package(tmp_path, a="x = 1\n" * 400, b="x = 1\n" * 401)
    assert find_long_files(fake, 400) == ["fake.b"]
