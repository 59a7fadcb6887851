"""`make site` builds the pages offline: every link works, and no page fetches anything from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FETCHED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//|<link\b[^>]*\bhref="(?:https?:)?//|url\(["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a broken link or a page without a place in the navigation fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site: Path):
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert pages <= {page.stem for page in site.glob("*.html")}


def test_no_page_fetches_anything_from_elsewhere(site: Path):
    files = [path for kind in ("*.html", "*.css") for path in site.rglob(kind)]
    assert [path.name for path in files if FETCHED.search(path.read_text(encoding="utf-8"))] == []
    assert FETCHED.search('<script src="https://cdn.example/x.js">')


def test_code_is_coloured_without_a_script(site: Path):
    assert '<div class="codehilite"' in (site / "tutorial.html").read_text(encoding="utf-8")
