"""Write the pages of the reference that follow from the code: public names by module, and commands."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

#: Names of `uncurse` by purpose, with a guide for each; other names come last.
PURPOSES = {
    "Start here": ("UncursedClassifierCV", "UncursedRegressorCV", "Auto", "evaluate"),
    "Methods": ("VAD", "ReplicaCalibrator", "calibrate", "information_variance"),
    "Winners": ("winner", "Winner"),
    "Logs": ("collect", "Evidence", "TopK"),
    "Serve and monitor": ("load", "Fitted", "fold", "monitor", "Verdict", "MonitorState", "refresh"),
    "Metrics and displays": (
        "Evaluation", "calibration_error", "expected_calibration_error", "maximum_calibration_error",
        "log_loss_reduction", "top_share", "top_k", "SelectionErrorDisplay", "SelectedReliabilityDisplay",
    ),
}  # fmt: skip
#: Modules of the index, in the order in which users need them.
MODULES = {
    "Where most users start": ("uncurse",),
    "Modules": tuple(
        f"uncurse.{name}"
        for name in ("estimators", "logs", "metrics", "report", "serving", "monitoring", "deep", "mlflow")
    ),
    "Building blocks": tuple(f"uncurse.{name}" for name in ("evidence", "maps", "methods", "calibration", "links")),
}


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


def sections_of(module: str, values: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of classes and functions of a module by section."""
    objects = [name for name, value in values.items() if is_object(value)]
    if module != "uncurse":
        return {
            "Classes": [name for name in objects if inspect.isclass(values[name])],
            "Functions": [name for name in objects if not inspect.isclass(values[name])],
        }
    found = {title: [name for name in names if name in values] for title, names in PURPOSES.items()}
    listed = {name for names in found.values() for name in names}
    return {**found, "Building blocks": [name for name in objects if name not in listed]}


def module_page(module: str, values: dict[str, Any]) -> str:
    """Return the page of a module: its docstring's first line, classes, functions and constants."""
    summary = (inspect.getdoc(importlib.import_module(module)) or "").split("\n\n")[0].replace("\n", " ")
    lines = [module, "=" * len(module), "", summary, "", f".. currentmodule:: {module}", ""]
    for title, names in sections_of(module, values).items():
        if names:
            lines += [title, "-" * len(title), "", ".. autosummary::", "   :toctree: names", ""]
            lines += [f"   {name}" for name in names] + [""]
    constants = [name for name, value in values.items() if not is_object(value)]
    if constants:
        lines += ["Constants", "-" * 9, ""]
        for name in constants:
            lines += [f".. py:data:: {module}.{name}", "", f"   {constant_summary(module, name, values[name])}", ""]
    return "\n".join(lines)


def constant_summary(module: str, name: str, value: Any) -> str:
    """Return the comment ``#:`` above a constant, wherever the package defines it, or its type."""
    package = Path(inspect.getsourcefile(importlib.import_module(module)) or "").parent
    for path in sorted(package.rglob("*.py")):
        match = re.search(rf"((?:^#:.*\n)+){name}\b.*=", path.read_text(encoding="utf-8"), re.M)
        if match:
            return " ".join(line.removeprefix("#:").strip() for line in match[1].splitlines())
    names = list(value) if isinstance(value, dict | tuple | list | set | frozenset) else None
    if names and all(isinstance(one, str) for one in names):
        return f"{type(value).__name__} with " + ", ".join(f"``{one}``" for one in names) + "."
    return f"{type(value).__name__}: ``{value!r}``" if len(repr(value)) < 80 else f"{type(value).__name__}."


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command and group of commands with its full name, in the order of the help."""
    import typer

    from uncurse.cli import app
    from uncurse_lab.cli import app as lab

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for child, value in getattr(command, "commands", {}).items():
            yield from below(f"{name} {child}", value)

    for each in (app, lab):
        yield from below(str(each.info.name), typer.main.get_command(each))


def command_page(name: str, command: Any) -> str:
    """Return the section of a command: what it does, examples, arguments, options, and the commands below it."""
    text = inspect.cleandoc((command.help or "").replace("\b", ""))
    prose, _, examples = text.partition("Examples:")
    if not examples:
        prose, _, examples = text.partition("Example:")
    lines = [f"## {name}", "", escaped(prose.strip()), ""]
    if examples:
        lines += ["```console", *(f"$ {line.strip()}" for line in examples.strip().splitlines()), "```", ""]
    params = [one for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    if params:
        lines += ["| argument or option | values | meaning |", "|---|---|---|"]
    for param in params:
        shown = (
            ", ".join(f"`{one}`" for one in (*param.opts, *param.secondary_opts))
            if is_option(param)
            else (f"`{param.metavar or param.name.upper()}`")
        )
        if param.required:
            shown += " (required)"
        lines.append(f"| {shown} | {values_of(param)} | {escaped(meaning(param)).replace('|', chr(92) + '|')} |")
    lines.append("")
    for child, value in getattr(command, "commands", {}).items():
        summary = inspect.cleandoc(value.help or "").split("\n\n")[0].replace("\n", " ")
        lines.append(f"- [{name} {child}](#{name.replace(' ', '-')}-{child}): {escaped(summary)}")
    return "\n".join([*lines, ""])


def is_option(param: Any) -> bool:
    """Return whether a parameter is an option, not an argument."""
    return str(param.opts[0]).startswith("-")


def values_of(param: Any) -> str:
    """Return the choices of a parameter, or its type."""
    kind = param.type_descriptor.annotation
    if param.is_flag if is_option(param) else False:
        return ""
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(f"`{one}`" for one in typing.get_args(kind))
    if typing.get_origin(kind) in (list, tuple):
        kind = typing.get_args(kind)[0]
    name = {"int": "whole number", "float": "number", "str": "text", "Path": "file"}.get(kind.__name__, kind.__name__)
    return name if param.min is None else f"{name}, at least {param.min}"


def meaning(param: Any) -> str:
    """Return the help of a parameter and its default."""
    text = str(param.help or "")
    default = getattr(param.default, "value", param.default)
    if default is None or default is False or param.required or not is_option(param) or not str(default).strip():
        return text
    return f"{text} Default: `{default}`."


def escaped(text: str) -> str:
    """Return plain text that Markdown leaves as it is; options are set as code."""
    plain = re.sub(r"([*_<>])", r"\\\1", text)
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)", r"`\1`", plain)


def write_pages(target: Path) -> None:
    """Write all pages below `target`; a page that has not changed keeps its date, so it is not read again."""
    pages = {}
    names = public_names()
    for module, values in names.items():
        pages[f"api/{module}.rst"] = module_page(module, values)
    index = ["Python API", "==========", "", "A name that several modules export is listed once.", ""]
    placed = {module for modules in MODULES.values() for module in modules}
    groups = {title: [module for module in modules if module in names] for title, modules in MODULES.items()}
    groups["More modules"] = [name for name in names if name not in placed and not name.startswith("uncurse_lab")]
    groups["Research API"] = [name for name in names if name.startswith("uncurse_lab")]
    for title, modules in groups.items():
        if modules:
            index += [title, "-" * len(title), ""]
            if title == "Research API":
                index += ["The API of ``uncurse-lab`` is **unstable**: it may change in any release.", ""]
            index += [".. toctree::", "   :maxdepth: 2", "", *(f"   {module}" for module in modules), ""]
    pages["api/index.rst"] = "\n".join(index)
    sections = "\n".join(command_page(name, command) for name, command in commands())
    pages["commands.md"] = (
        "# Commands\n\nEvery command has `-h` and `--help`, which print the same text.\n\n"
        "```{include} logs.md\n:start-line: 1\n```\n\n" + sections
    )
    for name, text in pages.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    kept = {target / name for name in pages}
    kept |= {target / f"api/names/{module}.{name}.rst" for module, values in names.items() for name in values}
    for path in {*(target / "api").rglob("*.rst")} - kept:
        path.unlink()
