"""Tests of the mutation tool: the changes that it makes, and what it says of a small project."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.mutants.mutations import Mutation, enumerate_mutations
from tools.mutants.runner import Test, core_files, core_tests, relevant_tests, test_order

Test.__test__ = test_order.__test__ = False  # not tests of this file


def changed(source, kind=None):
    return {m.apply(source) for m in enumerate_mutations("m.py", source) if kind in (None, m.kind)}


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("x = a < b\n", "comparison", {"x = (a <= b)\n", "x = (a > b)\n"}),
        ("x = a < 1e-12\n", "comparison", {"x = (a > 1e-12)\n"}),
        ("x = a is None\n", "comparison", {"x = (a is not None)\n"}),
        ("x = a + b\n", "arithmetic", {"x = (a - b)\n"}),
        ("x = a * (b - c)\n", "arithmetic", {"x = (a / (b - c))\n", "x = a * ((b + c))\n"}),
        ("x = a and b\n", "and/or", {"x = (a or b)\n"}),
        ("x = not a\n", "not", {"x = (a)\n"}),
        ("x = -a\n", "sign", {"x = (a)\n"}),
        ("x = 3\n", "constant", {"x = (4)\n", "x = (2)\n"}),
        ("x = 3.0\n", "constant", {"x = (4.5)\n", "x = (2.0)\n"}),
        ("x = True\n", "constant", {"x = False\n"}),
        ("x = np.abs(a)\n", "removed function", {"x = (a)\n"}),
        ("x = min(a, b)\n", "swapped function", {"x = (max(a, b))\n"}),
        ("x = a.max()\n", "swapped function", {"x = (a.min())\n"}),
        ("f(a)\n", "remove call", {"pass\n"}),
        ("a += b\n", "remove statement", {"pass\n"}),
        ("def f(x):\n    return x\n", "return None", {"def f(x):\n    return None\n"}),
        ("def f(x='a'):\n    pass\n", "default", {"def f(x='ax'):\n    pass\n"}),
        ("if a:\n    raise E('x')\n", "remove raise", {"if a:\n    pass\n"}),
    ],
)
def test_each_kind_of_mutation(source, kind, expected):
    assert changed(source, kind) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring with 3 numbers."""\n',
        '__all__ = ["a", "b"]\n',
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    x = 1\n",
        "def __repr__(self):\n    return 1 + 2\n",
        "x: int | None\n",
        "def f(x: int | str) -> int | None: ...\n",
        "x = f'{a + 1} rows'\n",
        "assert a > 1\n",
        "x = f(copy=False)\n",
        "x = f(axis=-1)\n",
        "x = 1e-300\n",
        "x = 1e-12 * a * max(1.0, b)\n",
        "TINY = 1e-12\nx = (1 + a) * TINY\n",
        "x = 8 * np.finfo(float).eps\n",
    ],
)
def test_text_and_types_are_not_mutated(source):
    assert changed(source) == set()


@pytest.mark.parametrize(
    "source",
    [
        "ROWS = 1000  # rows that stay in the cache\n",
        "# Limits the memory\n# of a table.\nROWS = 1000\n",
        "x = 1 << 16\n",
        "x = np.zeros(n, dtype=f(3))\n",
        "for _ in range(60):\n    pass\n",
    ],
)
def test_changes_of_time_and_memory_only_are_not_made(source):
    assert changed(source) == set()


def test_a_comment_about_resources_excludes_only_its_own_constant():
    assert changed("A = 1000  # rows in the cache\nB = 3\n") == {
        "A = 1000  # rows in the cache\nB = (4)\n",
        "A = 1000  # rows in the cache\nB = (2)\n",
    }
    assert changed("def f():\n    a = 3  # memory\n", "constant")


@pytest.mark.parametrize("bound", ["0.3", "b / c", "np.sqrt(b)", "LEAST"])
def test_boundary_of_a_computed_real_number_is_only_reversed(bound):
    source = f"LEAST = 0.05\nx = a < {bound}\n"
    assert changed(source, "comparison") == {f"LEAST = 0.05\nx = (a > {bound})\n"}


def test_the_body_of_a_loop_of_attempts_is_mutated():
    assert changed("for _ in range(60):\n    x = a + b\n") == {"for _ in range(60):\n    x = (a - b)\n"}


def test_messages_of_errors_are_not_mutated():
    assert changed("raise E('x' if a > 1 else 'y')\n") == {"pass\n"}


def test_every_mutation_is_another_valid_program():
    source = Path(__file__).with_name("conftest.py").read_text()
    mutations = enumerate_mutations("conftest.py", source)
    assert len(mutations) > 20
    for mutation in mutations:
        compile(mutation.apply(source), "conftest.py", "exec")
    assert len({m.apply(source) for m in mutations}) == len(mutations)


def test_positions_count_characters_and_not_bytes():
    assert changed("é = 'λ' if a < b else 'ü'\n", "comparison") == {
        "é = 'λ' if (a <= b) else 'ü'\n",
        "é = 'λ' if (a > b) else 'ü'\n",
    }


def test_the_diff_shows_the_changed_line():
    source = "a = 1\nb = a + 2\n"
    (mutation,) = (m for m in enumerate_mutations("src/m.py", source) if m.kind == "arithmetic")
    assert "-b = a + 2\n+b = (a - 2)" in mutation.diff(source)
    assert mutation.line == 2


# ---------------------------------------------------------------------------- choice of tests


def test_only_tests_that_call_the_function_run_and_those_named_after_the_module_come_first():
    mutation = Mutation("src/uncurse/links.py", 12, 10, "constant", 0, 1, "x")
    calls = {("src/uncurse/links.py", 10)}
    tests = [
        Test("tests/test_a.py::test_1", 0.1, calls),
        Test("tests/test_a.py::test_2", 0.1, {("src/uncurse/links.py", 99)}),
        Test("tests/test_links.py::test_3", 5.0, calls),
        Test("tests/test_b.py::test_4", 0.01, calls),
    ]
    chosen = relevant_tests(mutation, tests)
    assert [t.name[-6:] for t in chosen] == ["test_1", "test_3", "test_4"]
    assert test_order(mutation, chosen) == ["tests/test_links.py", "tests/test_b.py", "tests/test_a.py"]
    module_level = Mutation("src/uncurse/links.py", 1, 0, "constant", 0, 1, "x")
    assert len(relevant_tests(module_level, tests)) == 4


def test_tests_of_other_packages_are_not_used():
    root = Path(__file__).parents[1]
    assert "src/uncurse/links.py" in core_files(root)
    assert not any("/logs/" in path or "/cli/" in path for path in core_files(root))
    assert "tests/test_links.py" in core_tests(root)
    assert "tests/test_cli.py" not in core_tests(root)


# ---------------------------------------------------------------------------- a small project

SOURCE = '''"""A module."""


def largest(values, start=0):
    """Return the largest value above `start`."""
    best = start
    for value in values:
        if value > best:
            best = value
    return best


def untested(x):
    return x + 1
'''
TESTS = """
from functools import cache
import pytest
from uncurse.small import largest

@cache
def answer():
    return largest([1, 5, 3])

@pytest.fixture(scope="module")
def shared():
    return largest([2, 1])

def test_first(shared): assert shared
def test_fixture(shared): assert shared == 2
def test_cached(): assert answer()
def test_answer(): assert answer() == 5
def test_that_fails(): assert largest([]) == 1
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    (root / "src" / "uncurse").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "uncurse" / "__init__.py").write_text("")
    (root / "src" / "uncurse" / "small.py").write_text(SOURCE)
    (root / "tests" / "test_small.py").write_text(TESTS)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntestpaths = ['tests']\n")
    (root / "tools").symlink_to(Path(__file__).parents[1] / "tools", target_is_directory=True)
    return root


@pytest.fixture(scope="module")
def result(project):
    # `tools` is a symbolic link, so pass the location of the checkout.
    command = f"import sys; import tools.mutants.__main__ as tool; {{}}tool.main(sys.argv[1:], {str(project)!r})"
    arguments = ["--count", "1000", "--jobs", "2", "--results", str(project / "results.jsonl")]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # of each forked process
    return [
        subprocess.run(
            [sys.executable, "-c", command.format(first), *arguments],
            cwd=project, capture_output=True, text=True, check=True, env=environment,
        )
        for first in ("", "tool.load_libraries = lambda: None; ")  # they save time in the forked processes only
    ]  # fmt: skip


def test_mutants_of_tested_code_are_killed_and_others_are_listed(result):
    out = result[0].stdout
    assert re.search(r"survived: src/uncurse/small.py:8 \(comparison\)", out)  # > and >= do the same here
    assert "unreached: src/uncurse/small.py:14" in out
    assert "return None" not in out.split("unreached")[0]
    assert "noticed:" in out
    assert "standard error" in out


def test_tests_that_fail_on_the_unchanged_source_are_left_out(result):
    left_out = "1 tests of tests/test_small.py fail on the unchanged source: test_that_fails"
    assert left_out in result[0].stderr


def test_fixtures_and_cached_helpers_count_for_every_test_that_uses_them(result, project):
    records = [json.loads(line) for line in (project / "results.jsonl").read_text().splitlines()]
    killers = {r["test"] for r in records if r["status"] == "killed"}
    assert killers
    start = next(r for r in records if r["key"].endswith(":(1)") and r["status"] in ("survived", "killed"))
    assert start


def test_the_checkout_is_unchanged_and_a_second_run_continues(result, project):
    assert (project / "src" / "uncurse" / "small.py").read_text() == SOURCE
    assert result[1].stdout == result[0].stdout
    assert "[" not in result[1].stderr.split("tests on the unchanged source")[1]
