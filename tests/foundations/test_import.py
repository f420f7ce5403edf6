"""`import uncurse` stays light."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import uncurse


def test_import_brings_none_of_the_heavy_packages():
    heavy = ("sklearn", "pandas", "polars", "matplotlib", "torch", "typer", "rich", "mlflow")
    code = f"import sys, uncurse; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_library_does_not_import_the_lab():
    for path in Path(uncurse.__file__).parent.rglob("*.py"):
        assert not re.search(r"\b(import|from) uncurse_lab", path.read_text(encoding="utf-8")), path


def test_packages_are_there_without_an_import_of_their_own():
    packages = ("deep", "displays", "estimators", "logs", "report", "serving")
    code = f"import uncurse; print([getattr(uncurse, name).__name__ for name in {packages}])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert found == str([f"uncurse.{name}" for name in packages])


def test_every_public_name_is_there_and_an_unknown_one_is_not():
    for name in uncurse.__all__:
        assert getattr(uncurse, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Vad'"):
        uncurse.Vad
