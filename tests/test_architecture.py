"""The shape of the code: public names, sizes, and which module may do what. import-linter checks the imports."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "afterturn"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FILE_LINES_MAX = 1100
FUNCTION_LINES_MAX = 70

# What only some places may say. A folder stands for everything in it.
RESERVED = {
    "os.environ": ("config.py", "hosts/hooks/client.py"),  # a hook's script imports nothing of the package
    "os.getenv": ("config.py",),
    "time.time": ("runtime/clock.py", "hosts/hooks/client.py"),
    "time.monotonic": (
        "runtime/clock.py",
        "runtime/worker.py",
        "stores/sqlite/connection.py",
        "hosts/hooks/client.py",
    ),
    "time.sleep": ("stores/sqlite/connection.py", "hosts/hooks/client.py"),
    "asyncio.create_task": ("runtime/supervisor.py",),
    "asyncio.ensure_future": ("runtime/supervisor.py",),
    "loop.create_task": (
        "runtime/loop_thread.py",
        "runtime/supervisor.py",
    ),  # the loop's end with the call that waits for them
    "Admitted": ("types/entries.py", "guard/gate.py", "testing/"),
}

RETIRED_MODULES = """
    shelves stock edition shelf sketches codes kept threads asked light restated wording variety window promised
    following digests packing digesting cosines desk sight recaller epochs awaited waited preparing bookkeeping
    outfit parts place errands lookback contained slot homes known teaching lasting neutral cutting crowd small
    deadly keeper early readying turnstile waking together echoes values logs loading look health ears moody staged
    bookshelf
"""
RETIRED_CLASSES = """
    Shelves Stock Edition Facts Shelf Reading Shelved Codes Kept Asked Said Figures Following Embedding Recollection
    Matrix Cosines Extent Nearby PrivateLoop MemoryCore Threads Survey Trail Spot Desk Offer Parcel Sight Recaller
    Bookkeeping Outfit Parts Place Whereabouts Errands Lookback Slot Outbox Crossing Shore Keeper Verbatim Nobody
    Home Allowance Screen Tally References Snapped Spent Epochs ConversationCore
"""

# The modules that hand entries to a store: the guard's door for statements, and those that bring records. A session of
# the OpenAI SDK appends its items in order, so it reads the next position in the transaction that stores them.
WRITERS = {
    "guard/statement_writer.py",
    "conversation/recording.py",
    "space/transfer.py",
    "frameworks/openai_session.py",
}


def test_importing_the_package_loads_no_heavy_module():
    heavy = {"apsw", "asyncio", "click", "numpy", "rich", "tokenizers"}
    program = "import sys, json, afterturn; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert heavy & set(json.loads(done.stdout)) == set()


def test_no_file_is_too_long():
    lengths = {name(path): path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_two_classes_have_one_name():
    """Two words for two things. `blocking` has the public classes once more, for hosts without an event loop, and
    `compat` has the names of other libraries."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        if "blocking" in path.name or "compat" in path.parts:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name(path))
    assert {each: paths for each, paths in places.items() if len(paths) > 1} == {}


def test_no_module_or_class_has_a_retired_name():
    """Names that nobody can guess or search for do not come back."""
    modules = {path.stem for path in MODULES} & set(RETIRED_MODULES.split())
    classes = {node.name for path in MODULES for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)}
    assert modules == set()
    assert classes & set(RETIRED_CLASSES.split()) == set()


def test_no_function_is_too_long():
    long = {
        f"{name(path)}:{node.lineno} {node.name}": lines
        for path in MODULES
        for node in functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_every_module_says_in_at_most_three_lines_what_it_is():
    """The tree of errors is drawn in its module's docstring, below the lines that are counted."""
    openings = {name(path): (ast.get_docstring(tree(path)) or "").split("\n\n")[0] for path in MODULES}
    wrong = [path for path, opening in openings.items() if not 1 <= len(opening.splitlines()) <= 3]
    assert wrong == []


def test_no_module_has_a_name_that_says_nothing():
    vague = re.compile(r"(?:^|[/_])(?:utils?|helpers?|common|managers?|misc)(?:[/_.]|$)")
    assert [name(path) for path in MODULES if vague.search(name(path))] == []


@pytest.mark.parametrize("word", RESERVED)
def test_reserved_calls_stay_in_their_modules(word: str):
    """G1: only the gate makes an `Admitted`; time, environment and tasks have one owner each."""
    elsewhere = [
        f"{name(path)}:{node.lineno}"
        for path in MODULES
        if not name(path).startswith(RESERVED[word])
        for node in uses(tree(path), word)
    ]
    assert elsewhere == []


def test_reserved_calls_are_found_in_every_spelling():
    written = [
        "asyncio.get_running_loop().create_task(work)",
        "self._loop.create_task(work)",
        "from loop import create_task",
    ]
    assert [len(list(uses(ast.parse(source), "loop.create_task"))) for source in written] == [1, 1, 1]
    assert list(uses(ast.parse("group.create_task(work)"), "loop.create_task")) == []


def test_no_test_sleeps():
    sleeping = [f"{path.name}:{node.lineno}" for path in TESTS for node in uses(tree(path), "time.sleep")]
    assert sleeping == []


def test_no_test_is_skipped():
    words = ("mark.skip", "mark.skipif", "mark.xfail", "pytest.skip", "pytest.xfail", "pytest.importorskip")
    skipping = [f"{path.name}:{node.lineno}" for path in TESTS for word in words for node in uses(tree(path), word)]
    assert skipping == []


def test_the_lock_satisfies_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    pins = dict(re.findall(r"(?m)^([\w.-]+)==([\w.]+)", (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")))
    unmet = [
        str(requirement)
        for requirement in map(Requirement, wanted)
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"), prereleases=True)
    ]
    assert unmet == [], "Run `make lock`."


COMPONENTS = {
    "ChatModel",
    "Clock",
    "Config",
    "Embedder",
    "EmbeddingService",
    "Events",
    "Gate",
    "Ids",
    "LoopThread",
    "Meter",
    "Recorder",
    "Store",
    "Supervisor",
    "Worker",
}


def test_no_class_only_carries_components():
    """Pass `Services`, or the components themselves. `Components` and `OpenOptions` are arguments of `open`."""
    carriers = {
        node.name
        for path in MODULES
        for node in walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and not any(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
        and sum(
            isinstance(item, ast.AnnAssign) and ast.unparse(item.annotation).split(" | ")[0] in COMPONENTS
            for item in node.body
        )
        >= 3
    }
    assert carriers == {"Components", "OpenOptions"}


def test_only_one_module_chooses_components():
    """Hosts and the evaluation may, since a program begins there. The list of public names only names them."""
    part = re.compile(
        r"afterturn\.(stores\.(?:sqlite|postgres)|embedders\.(?!service|backlog)|models\.(?!client|meter))"
    )
    choosing = {
        name(path)
        for path in MODULES
        if not name(path).startswith(
            ("__init__", "services", "oneshot", "hosts/", "evaluation/", "stores/", "embedders/", "models/")
        )
        for module in imports(tree(path))
        if part.match(module)
    }
    assert choosing == set()


def test_the_public_fakes_need_no_component():
    """Whoever writes a store or an embedder can use them without the rest of the runtime."""
    resting = {
        f"{name(path)}: {module}"
        for path in MODULES
        if name(path).startswith("testing/")
        for module in imports(tree(path))
        if re.match(
            r"afterturn\.(?!(?:testing|base|types|errors|config|events|ports|text|validation|runtime)\b)", module
        )
    }
    assert resting == set()


def test_sql_that_writes_entries_is_only_in_the_stores():
    """G1: no other module can write around the gate."""
    writes = re.compile(
        r"\b(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE|DELETE\s+FROM)\s+entry\b", re.IGNORECASE
    )
    writing = {name(path) for path in MODULES if any(map(writes.search, strings(tree(path))))}
    assert {module for module in writing if not module.startswith("stores/")} == set()


def test_only_known_modules_hand_entries_to_a_store():
    """G1: all other writers call one of these, and so use the gate."""
    handing = {
        name(path) for path in MODULES if not name(path).startswith(("stores/", "testing/")) and hands_over(tree(path))
    }
    assert handing == WRITERS


def test_every_writer_of_entries_uses_the_gate():
    """G1: a module that writes, or has the guard's door write, takes what it writes from `admit`."""
    writing = {name(path) for path in MODULES if goes_through_the_door(tree(path))}
    writing |= WRITERS - {"guard/statement_writer.py"}
    asking = {module for module in writing if any(verb.startswith("admit") for verb in called(PACKAGE / module))}
    assert writing - asking == set()
    assert {"space/verbs.py", "conversation/proposals.py", "learning/staging.py"} <= writing


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def walk(module: ast.Module) -> list[ast.AST]:
    """All nodes; walking takes longer than what most tests do with them."""
    return list(ast.walk(module))


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def uses(module: ast.Module, word: str) -> Iterator[ast.expr | ast.ImportFrom]:
    """Where `word` is read as an attribute ("os.environ", "self._loop.create_task") or, undotted, called."""
    owner, _, attribute = word.rpartition(".")
    for node in walk(module):
        if isinstance(node, ast.Attribute) and owner and node.attr == attribute and says(node.value, owner):
            yield node
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == owner
            and attribute in {item.name for item in node.names}
        ):
            yield node
        if isinstance(node, ast.Call) and not owner and says(node.func, word):
            yield node


def says(node: ast.expr, word: str) -> bool:
    """Whether an expression's last name ends in `word`: `self._loop` and `asyncio.get_running_loop()` say "loop"."""
    if isinstance(node, ast.Call):
        node = node.func
    last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return last == word or last.endswith(f"_{word}")


def imports(module: ast.Module) -> Iterator[str]:
    for node in walk(module):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{item.name}" for item in node.names)


def strings(module: ast.Module) -> Iterator[str]:
    for node in walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def called(path: Path) -> set[str]:
    """The methods that a module calls."""
    return {
        node.func.attr
        for node in walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def goes_through_the_door(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in {"add", "put", "update"} and says(node.value, "writer")
        for node in walk(module)
    )


def hands_over(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and (
            (node.attr in {"add", "update"} and says(node.value, "memories"))
            or (node.attr == "add" and says(node.value, "records"))
        )
        for node in walk(module)
    )
