"""`import uncurse` stays light."""

import subprocess
import sys

import pytest

import uncurse


def test_import_brings_none_of_the_heavy_packages():
    heavy = ("sklearn", "pandas", "polars", "matplotlib", "torch", "typer", "rich", "mlflow")
    code = f"import sys, uncurse; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_rooms_for_those_who_look_are_there():
    assert uncurse.theory.best_of() == pytest.approx((0.55, 0.5))
    assert uncurse.experiments is not None


def test_packages_are_there_without_an_import_of_their_own():
    packages = ("deep", "displays", "estimators", "experiments", "logs", "report", "serving", "theory")
    code = f"import uncurse; print([getattr(uncurse, name).__name__ for name in {packages}])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert found == str([f"uncurse.{name}" for name in packages])


def test_every_public_name_is_there_and_an_unknown_one_is_not():
    for name in uncurse.__all__:
        assert getattr(uncurse, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Vad'"):
        uncurse.Vad
