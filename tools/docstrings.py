"""Check the docstrings of public names: ``python -m tools.docstrings``.

Names of the packages in `DOCUMENTED` are the ones that users call. Their functions and classes need a summary,
``Parameters`` with types, ``Returns`` if something is returned, and ``Examples``; methods all but ``Examples``. Other
public names need a summary line, which ruff checks.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from numpydoc.validate import validate

DOCUMENTED = ("uncurse", *(f"uncurse.{name}" for name in ("deep", "estimators", "mlflow", "report", "serving")))
#: numpydoc's checks for a method; see numpydoc.validate.ERROR_MSGS. Functions and classes also need an example.
METHOD_CHECKS = frozenset({"GL08", "SS01", "SS02", "SS03", "SS06", "PR01", "PR02", "PR04", "RT01"})
CHECKS = METHOD_CHECKS | {"EX01"}


def names_to_check(values: dict[str, Any], module: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the full name of each public function, class and method, with its checks."""
    for name, value in values.items():
        if (inspect.isclass(value) or inspect.isroutine(value)) and value.__module__.startswith("uncurse"):
            # Fields of a result have a line each where they are defined, and functions return it.
            result = inspect.isclass(value) and (is_dataclass(value) or "Attributes\n" in (value.__doc__ or ""))
            yield f"{module}.{name}", CHECKS - {"PR01", "EX01"} if result else CHECKS
            for method in public_methods(value) if inspect.isclass(value) else ():
                yield f"{module}.{name}.{method}", METHOD_CHECKS


def public_methods(cls: type) -> list[str]:
    """List the public methods and properties that the class or a base of ours defines."""
    kinds = (property, classmethod, staticmethod)
    found = {name: value for base in reversed(cls.__mro__) if base.__module__.startswith("uncurse")
             for name, value in vars(base).items()}  # fmt: skip
    return [
        name
        for name, value in found.items()
        if (name == "__call__" or not name.startswith("_")) and (inspect.isfunction(value) or isinstance(value, kinds))
    ]


def main() -> int:
    """Print what is missing and return 1 if anything is."""
    missing = set()
    for module in map(importlib.import_module, DOCUMENTED):
        values = {name: getattr(module, name) for name in module.__all__}
        for name, checks in names_to_check(values, module.__name__):
            report = validate(name)
            path = Path(report["file"] or "?").name
            missing |= {(path, report["file_line"], name, *error) for error in report["errors"] if error[0] in checks}
    for path, line, name, code, message in sorted(missing, key=str):
        print(f"{path}:{line}: {name}: {code} {message}")
    print(f"{len(missing)} missing parts of docstrings" if missing else "docstrings are complete")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
