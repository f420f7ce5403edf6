"""Which names are public: those in the ``__all__`` of `uncurse`, of a module or package below it, and of the lab.

The reference of the site lists these names, and ``tools.docstrings`` checks the docstrings of those that users call.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

#: Packages of the lab whose names are public.
LAB = tuple(f"uncurse_lab.{name}" for name in ("arena", "auction", "deep", "logs", "theory"))


def public_modules() -> list[ModuleType]:
    """Import `uncurse` and every module below it that lists public names, the package itself first.

    The commands have an ``__all__`` for `uncurse` itself; their options are their interface.
    """
    package = importlib.import_module("uncurse")
    names = [f"uncurse.{found.name}" for found in pkgutil.iter_modules(package.__path__)]
    names = sorted(name for name in (*names, *LAB) if name != "uncurse.cli" and "._" not in name)
    return [module for module in (package, *map(importlib.import_module, names)) if hasattr(module, "__all__")]


def public_names() -> dict[str, dict[str, Any]]:
    """Return the values of every module by name. A value is listed once, in the first module that has it."""
    seen: set[int] = set()
    found: dict[str, dict[str, Any]] = {}
    for module in public_modules():
        values = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}
        found[module.__name__] = {
            name: value for name, value in values.items() if not (is_object(value) and id(value) in seen)
        }
        seen.update(id(value) for value in values.values() if is_object(value))
    return found


def is_object(value: Any) -> bool:
    """Return whether a value is a class or a function; other values are constants or modules."""
    return inspect.isclass(value) or inspect.isroutine(value)
