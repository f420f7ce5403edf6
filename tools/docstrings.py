"""Check the docstrings of the core's public names: ``python -m tools.docstrings``.

``tools.public_names`` says which names are public; other names are for the package alone. A public function or class
needs a summary, ``Parameters`` with types, ``Returns`` if something is returned, and ``Examples``. Public methods need
all but ``Examples``.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from numpydoc.validate import validate

from tools.public_names import public_modules

#: Packages that are not part of the core.
OUTSIDE = ("report", "serving", "deep", "uncurse_lab")
#: numpydoc's checks for a method; see numpydoc.validate.ERROR_MSGS.
METHOD_CHECKS = frozenset({"GL08", "SS01", "SS02", "SS03", "SS06", "PR01", "PR02", "PR04", "RT01"})
#: Functions and classes also need an example.
CHECKS = METHOD_CHECKS | {"EX01"}
#: Attributes of a class that look like methods of its API although their name has underscores.
CALL = "__call__"


@dataclass(frozen=True)
class Violation:
    """One missing part of one docstring."""

    path: Path
    line: int
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.message}"


def check_module(module: ModuleType) -> Iterator[Violation]:
    """Check the public functions and classes that `module` defines, and their public methods."""
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if str(getattr(value, "__module__", "")).split(".")[0] != module.__name__.split(".")[0]:
            continue  # a constant or a type
        if inspect.isclass(value):
            yield from check_object(f"{module.__name__}.{name}", CHECKS, value)
            for method in public_methods(value):
                yield from check_object(f"{module.__name__}.{name}.{method}", METHOD_CHECKS, value)
        elif inspect.isroutine(value):
            yield from check_object(f"{module.__name__}.{name}", CHECKS, value)


def public_methods(cls: type) -> list[str]:
    """List the public methods and properties that the class or a base of the same package defines."""
    kinds = (property, classmethod, staticmethod)
    package = cls.__module__.split(".")[0]
    bases = [base for base in cls.__mro__ if base.__module__.split(".")[0] == package]
    found = {name: value for base in reversed(bases) for name, value in vars(base).items()}
    return [
        name
        for name, value in found.items()
        if (not name.startswith("_") or name == CALL) and (inspect.isfunction(value) or isinstance(value, kinds))
    ]


def check_object(name: str, checks: frozenset[str], owner: Any) -> Iterator[Violation]:
    """Run numpydoc's checks on one name."""
    report = validate(name)
    path = Path(report["file"] or inspect.getsourcefile(owner) or "?")
    for code, message in report["errors"]:
        if code in checks:
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            yield Violation(shown, report["file_line"] or 0, name, f"{code} {message}")


def main(arguments: list[str] | None = None) -> int:
    """Print every violation and return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="tools.docstrings", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders to report; default all of the core")
    parser.add_argument("--summary", action="store_true", help="print the number of violations of each file")
    options = parser.parse_args(arguments)
    # A name may be exported by its package and by `uncurse`: report it once.
    every = [violation for module in public_modules(OUTSIDE) for violation in check_module(module)]
    found = list({(v.path, v.line, v.message): v for v in every}.values())
    if options.paths:
        folders = [path.resolve() for path in options.paths]
        found = [v for v in found if any(v.path.resolve().is_relative_to(folder) for folder in folders)]
    if options.summary:
        for path, count in sorted(Counter(v.path for v in found).items()):
            print(f"{count:4d}  {path}")
    else:
        for violation in found:
            print(violation)
    print(f"{len(found)} missing parts of docstrings" if found else "docstrings are complete")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
