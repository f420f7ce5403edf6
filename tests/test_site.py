"""The site builds without a warning, and its pages need nothing from a network."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("sphinx_gallery", "myst_parser", "pydata_sphinx_theme", "lightgbm", "torch"):
    pytest.importorskip(package, reason="the site needs the packages of the extra docs: make docs")

ROOT = Path(__file__).parents[1]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# What a page loads by itself. Links that a reader may follow are not among them.
LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*?\bsrc="([^"]+)"|<link\b[^>]*?\bhref="([^"]+)"')

EMPTY_HEADER = re.compile(r"<th\b[^>]*>\s*(?:<p>\s*</p>)?\s*</th>")


def test_the_site_builds_without_warnings_and_works_offline(tmp_path):
    """One test, because the build takes most of its time. Examples are not run here."""
    left = shutil.ignore_patterns("_build", "gallery", "api", "commands.md")
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=left)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    site = tmp_path / "site"
    words = [sys.executable, "-W", "ignore", "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    words += ["-D", "plot_gallery=0", tmp_path / "docs", site]
    result = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr[-5000:]

    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for found in LOADED.findall(text):
            assert "//" not in "".join(found), f"{page.name} loads {found}"
        assert not EMPTY_HEADER.search(text), f"a table of {page.name} has a column without a name"

    links = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    assert len(links) > 50
    for link in links:
        assert (site / link).exists(), link

    if BROWSER is None:
        pytest.skip("the site builds; no Chromium found to open it: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="a browser opens the pages: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS, timeout=120_000)
        for name in ("index", "start/which-call", "gallery/index", "reference/api/names/uncurse.VAD"):
            assert visit(browser, site / f"{name}.html") == [], name
        browser.close()


def visit(browser, path):
    """Open a page without a network; return errors, and requests that failed or went elsewhere."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(120_000)
    complaints = []
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_load_state("load")
    assert page.locator("h1").first.is_visible()
    context.close()
    return complaints
