import importlib
import sys

import pytest

pytest.importorskip("numpydoc")
from tools.docstrings import check_module, main

COMPLETE = '''
"""A module."""

def scale(values, factor=2.0):
    """Multiply every value.

    Parameters
    ----------
    values : array-like of shape (n,)
        Numbers.
    factor : float, default=2.0
        The factor.

    Returns
    -------
    ndarray of shape (n,)
        The products.

    Examples
    --------
    >>> scale(1.0)
    2.0
    """
    return values * factor

__all__ = ["scale"]
'''
CLASS = '''
"""A module."""

class Model:
    """Fit a model.

    Parameters
    ----------
    depth : int
        The depth.

    Examples
    --------
    >>> Model(1)
    """

    def __init__(self, depth):
        self.depth = depth

    @property
    def size(self):
        """The size."""
        return self.depth

    def fit(self, scores):
        """Fit the model."""
        return self

    def _private(self, x):
        return x

def helper(x):
    return x

__all__ = ["Model", "LIMIT"]
LIMIT = 3
'''


@pytest.fixture
def codes(tmp_path, monkeypatch):
    """Write a module, check it and return the codes by name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def check(text):
        name = f"documented_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        try:
            found = check_module(importlib.import_module(name))
            return sorted((v.name.removeprefix(name + "."), v.message.split()[0]) for v in found)
        finally:
            sys.modules.pop(name, None)

    return check


def test_a_complete_docstring_passes(codes):
    assert codes(COMPLETE) == []


@pytest.mark.parametrize(
    ("removed", "code"),
    [
        ("    factor : float, default=2.0\n        The factor.\n", "PR01"),
        (" : array-like of shape (n,)", "PR04"),
        ("    Returns\n    -------\n    ndarray of shape (n,)\n        The products.\n", "RT01"),
        ("    Examples\n    --------\n    >>> scale(1.0)\n    2.0\n", "EX01"),
        ("values, factor=2.0", "PR02"),
    ],
)
def test_each_missing_part_is_reported(codes, removed, code):
    changed = COMPLETE.replace(removed, "values" if code == "PR02" else "", 1)
    assert ("scale", code) in codes(changed)


def test_a_missing_docstring_is_reported(codes):
    assert ("f", "GL08") in codes("def f(x):\n    return x\n\n__all__ = ['f']\n")


def test_methods_need_parameters_and_returns_and_private_names_nothing(codes):
    assert codes(CLASS) == [("Model.fit", "PR01"), ("Model.fit", "RT01")]


def test_inherited_methods_are_checked_too(codes):
    base = 'class Base:\n    def scale(self, x):\n        """Scale."""\n        return x\n\nclass Model(Base):'
    assert ("Model.scale", "PR01") in codes(CLASS.replace("class Model:", base))


def test_paths_restrict_the_report(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    assert "complete" in capsys.readouterr().out
