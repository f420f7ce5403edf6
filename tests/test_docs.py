"""The blocks of the README and the docs run, their links lead somewhere, and the reference lists every public name."""

import re
import sys
from pathlib import Path

import pytest
from tools.docblocks import blocks, environment, run_page

ROOT = Path(__file__).parents[1]
WRITTEN = ("gallery", "_build", "reference/api", "reference/commands.md")  # by the build
FOLDER = ROOT / "docs"
MARKDOWN = {path: path.relative_to(FOLDER).as_posix() for path in sorted(FOLDER.rglob("*.md"))}
PAGES = [ROOT / "README.md", *(path for path, name in MARKDOWN.items() if not name.startswith(WRITTEN))]


def name(path):
    return path.relative_to(ROOT).as_posix()


def runs(path):
    if path.name == "mlflow.md":  # tests/test_mlflow.py runs it with a database
        return False
    return any(not block.reason for block in blocks(path.read_text(encoding="utf-8")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=name)
def test_every_block_runs(page, tmp_path, monkeypatch, request):
    """In this process, which has loaded most libraries already: that takes longer than most pages."""
    needed = {*re.findall(r"^(?:import|from) (torch|lightgbm|onnx|duckdb|pandas)", page.read_text(), re.M)}
    for library in needed:
        pytest.importorskip(library)
    if "torch" in needed:
        request.getfixturevalue("one_torch_thread")
    for variable, value in environment(tmp_path / "bin").items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "argv", ["uncurse"])
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    run_page(page)


def test_few_blocks_are_left_out_and_each_says_why():
    left_out = [block.reason for page in PAGES for block in blocks(page.read_text(encoding="utf-8")) if block.reason]
    assert len(left_out) <= 12
    for reason in left_out:
        for test in re.findall(r"tests/\S+\.py", reason):
            assert (ROOT / test).exists()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r"^\[[^]]+\]: (\S+)$", text, re.M)
    for target in targets:
        if found := re.match(
            r"https://(?:github|raw.githubusercontent).com/uncurse/uncurse/(?:(?:blob|tree)/)?main/(.*)", target
        ):
            assert (ROOT / found[1]).exists(), target
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        example = ROOT / "examples" / f"{path.stem}.py"
        known = path.exists() or (path.parent.name == "gallery" and (path.name == "index.rst" or example.exists()))
        assert known or path.relative_to(ROOT / "docs").as_posix().startswith(WRITTEN), target


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 140


@pytest.fixture
def reference_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    pytest.importorskip("torch", reason="the reference imports every module")
    import reference_pages

    return reference_pages


def test_the_reference_lists_every_public_name_once(reference_pages, tmp_path):
    import uncurse

    reference_pages.write_pages(tmp_path)
    written = {page.stem: page.read_text() for page in (tmp_path / "api").glob("*.rst")}
    assert {"uncurse", "uncurse.metrics", "uncurse.serving", "uncurse_lab.arena"} <= set(written)
    listed = re.findall(r"^   (\w+)$", written["uncurse"], re.M)
    assert sorted(listed) == sorted(uncurse.__all__)
    assert not re.findall(r"^   VAD$", written["uncurse.methods"], re.M)
    for module in written.keys() - {"index"}:
        assert f"   {module}\n" in written["index"]
    # Pages of names that are gone would fail the build.
    names = tmp_path / "api" / "names"
    names.mkdir()
    for name in ("uncurse.VAD", "uncurse.Gone"):
        (names / f"{name}.rst").write_text(name)
    reference_pages.write_pages(tmp_path)
    assert [page.stem for page in names.iterdir()] == ["uncurse.VAD"]


def test_the_reference_lists_every_command_and_option(reference_pages, tmp_path):
    from uncurse.cli import app

    reference_pages.write_pages(tmp_path)
    text = (tmp_path / "commands.md").read_text()
    assert len(app.registered_commands) >= 9
    assert {"uncurse", "uncurse fit", "uncurse-lab reproduce"} <= {command for command, _ in reference_pages.commands()}
    for command, value in reference_pages.commands():
        section = text.split(f"\n## {command}\n")[1].split("\n## ")[0]
        assert value.help.split("\n")[0].split(".")[0][:20] in section
        for param in value.params:
            assert param.name == "help" or any(f"`{shown}`" in section for shown in (*param.opts, param.metavar)), param


PAGE = """
```python
print("rows 12, error", 0.5)
```
```text
rows 12, error 0.9
```
"""


def test_output_that_was_not_printed_fails_a_page_and_new_numbers_are_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(SystemExit, match=r"page.md:5: this was not printed: 'rows 12, error 0.9'"):
        run_page(page)
    run_page(page, update=True)
    assert page.read_text() == PAGE.replace("0.9", "0.5")
    page.write_text(PAGE.replace("error 0.9", "mistake 0.5"))
    with pytest.raises(SystemExit, match="mistake"):
        run_page(page, update=True)


def test_output_after_a_change_for_the_tests_is_not_compared(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- in tests: 12 => 13 -->" + PAGE)
    assert run_page(page) == []
