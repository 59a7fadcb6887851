"""The code in the pages runs and prints what they say, and every public setting, command, event and error is on one."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
import pytest

import afterturn
import reference
from afterturn import errors
from afterturn.config import KEYS
from afterturn.events import EVENTS
from afterturn.hosts.cli.app import app

pytestmark = pytest.mark.standing

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES_WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
RUN_SECONDS_MAX = 60
README_LINES_MAX = 150

DOMAIN_WORDS = {
    *("tenant", "space", "conversation", "memory", "record", "origin", "trust", "turn", "step", "epoch", "lane"),
    *("prefetch", "block", "ledger", "standing context", "review", "inbox"),
}

# Pages whose console blocks run too, between the Python blocks.
COMMAND_PAGES = {"tutorial.md"}

# Each block runs where the one before it stopped, as a reader would paste them.
RUNNER = """
import contextlib, io, json, os, shlex, subprocess, sys, traceback
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
namespace = {"__name__": "__main__"}
printed = []

def run_command(command):
    if command.startswith("export "):
        os.environ.update(word.split("=", 1) for word in shlex.split(command)[1:])
    else:
        print(subprocess.run(command, shell=True, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout, end="")

for language, name, source in json.load(sys.stdin):
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            if language == "python":
                exec(compile(source, name, "exec"), namespace)
            else:
                for line in source.splitlines():
                    if line.startswith("$ "):
                        run_command(line[2:])
    except BaseException:
        traceback.print_exc()
        sys.exit(f"{name} failed")
    printed.append(output.getvalue())
print(json.dumps(printed))
"""


@dataclass(frozen=True)
class Fence:
    language: str
    line: int
    lead: str
    body: str


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: page.name)
def test_python_blocks_run_and_print_what_the_page_says(page: Path, tmp_path: Path):
    fences = fences_of(page.read_text(encoding="utf-8"))
    languages = {"python", "console"} if page.name in COMMAND_PAGES else {"python"}
    blocks = [fence for fence in fences if fence.language in languages]
    printed = dict(zip(blocks, run_blocks(page.name, blocks, tmp_path), strict=True))
    for block, after in pairwise(fences):
        if block.language == "python" and promises_output(after):
            assert matches(printed[block], after.body), f"line {block.line} printed:\n{printed[block]}"
    for block in blocks:
        if block.language == "console" and (shown := output_shown(block)):
            assert matches(without_ids(printed[block]), without_ids(shown)), f"{block.line}:\n{printed[block]}"


def test_the_loop_of_the_readme_is_the_one_that_runs_with_the_provider():
    """`tests/hosts` runs the loops of docs/providers.md with the providers' own clients."""
    loops = {fence.body for fence in fences_of((ROOT / "docs" / "providers.md").read_text(encoding="utf-8"))}
    (loop,) = [
        fence.body
        for fence in fences_of((ROOT / "README.md").read_text(encoding="utf-8"))
        if fence.body.startswith("async def ask_openai(")
    ]
    assert loop in loops


def test_the_readme_fits_its_limit():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_the_index_links_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages == set(re.findall(r"\]\((\w+\.md)\)", index))


@pytest.mark.parametrize("name", reference.PAGES)
def test_generated_pages_are_up_to_date(name: str):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == reference.PAGES[name](), "Run `make docs` and read its diff."


def test_every_setting_is_documented():
    assert undocumented(KEYS) == []


def test_every_public_name_and_verb_is_on_the_python_page():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"(?m)^##+ `(?:afterturn\.)?([\w.]+)`$", page))
    names = set(afterturn.__all__) - {"blocking"} - set(names_of_errors()) - set(reference.ALIASES)
    # Their keys are written out as the arguments of the verbs that take them.
    names -= {kind.__name__ for kind in reference.KEYWORDS.values()}
    verbs = {f"{kind.__name__}.{name}" for kind in reference.OBJECTS for name, _ in reference.public_verbs(kind)}
    assert (names | verbs) - headings == set()
    assert {"Space.get", "Space.history", "Space.stats", "Standing.task_context"} <= verbs


def test_every_event_is_documented():
    assert undocumented(EVENTS) == []


def test_every_error_is_documented():
    assert undocumented(names_of_errors()) == []


def test_the_tree_of_errors_is_that_of_the_classes():
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").split("\n\n", 1)[1].splitlines():
        if found := re.match(r"([│├└─ ]*)(\w+)", line):
            path[len(found.group(1)) // 4 :] = [found.group(2)]
            drawn[path[-1]] = path[-2] if len(path) > 1 else "Exception"
    assert drawn == {name: getattr(errors, name).__bases__[0].__name__ for name in names_of_errors()}


def test_every_command_is_documented():
    assert undocumented(f"afterturn {name}" for name in names_of_commands()) == []


def test_relative_links_resolve():
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_glossary_defines_each_word_once():
    words = re.findall(r"^\*\*([\w ]+)\.\*\*", (ROOT / "docs" / "concepts.md").read_text("utf-8"), re.MULTILINE)
    assert len(words) == len(set(words))
    assert {word.lower() for word in words} >= DOMAIN_WORDS


def test_files_that_a_page_names_exist():
    """`tests/learning/rule_cases`, `tools/reference.py`; below the package, `stores/sqlite/schema.py`."""
    name = re.compile(
        r"`((?:tests|tools|docs|lab|examples|stores|hosts|recall|learning|conversation|runtime|guard|embedders|prompt|space)/[\w./-]+)`"
    )
    missing = [
        f"{page.name}: {path}"
        for page in PAGES
        for path in name.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists() and not (ROOT / "src" / "afterturn" / path).exists()
    ]
    assert missing == []


def test_pages_use_plain_words():
    """Words that a reader has to translate. The generated pages take their words from the code."""
    odd = re.compile(r"\b(?:can not|anew|beside|reckoned|whoever|rests on|stands in|so many)\b", re.IGNORECASE)
    found = [
        f"{page.name}: {match.group()}"
        for page in PAGES
        if page.name not in reference.PAGES
        for match in odd.finditer(re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL))
    ]
    assert found == []


def test_no_file_names_a_machine():
    """Paths and hosts of the machine it was written on are of no use to a reader."""
    private = re.compile(
        r"(?<![\w.])/(?:work|root|opt|home/\w+)/|pythonhosted|\bpypi\.org|\b(?:10|192\.168)\.\d+\.\d+\.\d+"
    )
    files = [*PAGES, *ROOT.glob("*.toml"), *ROOT.glob("*.lock"), ROOT / "Makefile"]
    files += [path for folder in ("src", "tools", "tests") for path in (ROOT / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in files
        if path != Path(__file__)
        for match in private.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_blocks_go_on_where_the_last_one_stopped(tmp_path: Path):
    page = "```python\nname = 'Miso'\n```\nThen:\n```python\nprint(name)\n```\nwhich prints:\n```text\nMiso\n```\n"
    first, second, output = fences_of(page)
    assert run_blocks("page.md", [first, second], tmp_path) == ["", "Miso\n"]
    assert promises_output(output)


def test_a_block_that_raises_is_reported_with_its_line(tmp_path: Path):
    (block,) = fences_of("# Title\n\n```python\nraise ValueError('no')\n```\n")
    with pytest.raises(AssertionError, match=r'"page.md", line 4'):
        run_blocks("page.md", [block], tmp_path)


def test_a_command_that_fails_is_reported(tmp_path: Path):
    (block,) = fences_of("```console\n$ export COLOUR=red\n$ test $COLOUR = blue\n```\n")
    with pytest.raises(AssertionError, match="COLOUR = blue"):
        run_blocks("page.md", [block], tmp_path)


def test_the_output_of_a_command_is_compared_but_for_its_ids(tmp_path: Path):
    (block,) = fences_of("```console\n$ echo 06gydrbcyynd3mde Miso\n06gydrbcywwbg3ks Miso\n```\n")
    (printed,) = run_blocks("page.md", [block], tmp_path)
    assert without_ids(printed) == without_ids(output_shown(block))
    assert without_ids(printed) != without_ids("06gydrbcywwbg3ks Mimi\n")


def test_an_ellipsis_in_a_page_matches_any_text():
    assert matches("[01h2k] just now\n", "[…] just now")
    assert not matches("[01h2k] yesterday\n", "[…] just now")


def fences_of(text: str) -> list[Fence]:
    """Fenced blocks in order; `lead` is what stands between a block and the one before it."""
    fences, end = [], 0
    for match in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start()) + 2
        fences.append(Fence(match.group(1), line, text[end : match.start()], match.group(2)))
        end = match.end()
    return fences


def promises_output(fence: Fence) -> bool:
    """A text block counts as output when it follows at once, or after a line such as "It prints:"."""
    lead = fence.lead.strip()
    return fence.language == "text" and (not lead or bool(re.search(r"\b(prints?|output)\b[^\n]*:$", lead)))


def output_shown(console: Fence) -> str:
    return "".join(line for line in console.body.splitlines(keepends=True) if not line.startswith("$ "))


def without_ids(text: str) -> str:
    """Ids are different in every run, but equally long."""
    return re.sub(r"\b[0-9a-z]{16}\b", "id", text)


def run_blocks(page: str, blocks: list[Fence], folder: Path) -> list[str]:
    # Leading line breaks make a traceback name the page's own line.
    sources = [(block.language, page, "\n" * (block.line - 1) + block.body) for block in blocks]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER],
        input=json.dumps(sources),
        cwd=folder,
        env={**os.environ, "AFTERTURN_GRACE": "10"},  # what a page promises must not hang on how busy a machine is
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


def matches(printed: str, promised: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in promised.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def undocumented(names) -> list[str]:
    docs = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.parent.name == "docs")
    return [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", docs)]


def names_of_errors() -> list[str]:
    return [name for name, value in vars(errors).items() if isinstance(value, type)]


def names_of_commands() -> list[str]:
    return app.list_commands(click.Context(app))
