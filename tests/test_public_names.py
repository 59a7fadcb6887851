"""The public names: everything that a user imports, and every type in a public signature, comes from `afterturn`."""

import ast
import builtins
import dataclasses
import enum
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ForwardRef

import pytest

import afterturn
from afterturn import blocking, errors

# The verbs of these are what a user calls.
OBJECTS = [
    afterturn.Memory,
    afterturn.Space,
    afterturn.Conversation,
    afterturn.Turn,
    afterturn.Standing,
    afterturn.Tools,
    afterturn.ChatModel,
    afterturn.Embedder,
    afterturn.KeyProvider,
    afterturn.RecordingProvider,
    afterturn.Scanner,
]
FUNCTIONS = [afterturn.open, afterturn.recall_once, afterturn.recall_block_once, blocking.open, blocking.rescue]
# Its fields are ports for tests; a test that replaces one imports it from `afterturn.ports`.
INTERNAL = {"Components"}
# What annotations may name besides our own types: the standard library's words, numpy's and type variables.
FOREIGN = {
    *vars(builtins),
    *("Any", "Literal", "Unpack", "Callable", "Coroutine", "Iterable", "Mapping", "MutableSequence", "Sequence"),
    *(
        "NDArray",
        "PathLike",
        "Path",
        "TracebackType",
        "NoReturn",
        "datetime",
        "np",
        "float32",
        "os",
        "collections",
        "abc",
        "M",
        "Progress",
    ),
}
VALUES = [
    value
    for name in afterturn.__all__
    if isinstance(value := getattr(afterturn, name), type) and name not in INTERNAL and value not in OBJECTS
]


def test_every_public_name_is_there():
    assert [name for name in afterturn.__all__ if not hasattr(afterturn, name)] == []


def test_type_checkers_see_the_names_that_programs_get():
    source = Path(afterturn.__file__).read_text(encoding="utf-8")
    (block,) = [node for node in ast.parse(source).body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    seen = {(item.module, name.name) for item in block.body if isinstance(item, ast.ImportFrom) for name in item.names}
    assert seen - {("afterturn", "blocking")} == {(module, name) for name, module in afterturn._MODULES.items()}


def test_completion_shows_public_names_only():
    assert dir(afterturn) == sorted([*afterturn.__all__, "__version__"])
    assert dir(blocking) == ["Conversation", "Memory", "Space", "Standing", "Tools", "Turn", "open", "rescue"]


def test_a_name_that_is_not_public_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'opne'"):
        _ = getattr(afterturn, "opne")  # noqa: B009


def test_every_error_is_public():
    own = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert own - set(afterturn.__all__) == set()


def test_every_type_in_a_public_signature_is_public():
    unknown = {
        f"{where}: {name}"
        for where, annotation in annotations()
        for name in re.findall(r"[A-Za-z_]\w*", re.sub(r"""'[^']*'|"[^"]*\"""", "", annotation))
        if name not in FOREIGN and name not in afterturn.__all__
    }
    assert unknown == set()


def test_every_public_object_and_verb_has_a_docstring():
    silent = [value.__name__ for value in [*OBJECTS, *VALUES] if not own_docstring(value)]
    assert silent + [name for name, text in docstrings() if not text] == []


def test_docstrings_of_public_names_hold_no_rule_codes():
    code = re.compile(r"\([A-Z]\d+(?:, [A-Z]\d+)*\)")
    assert [name for name, text in docstrings() if code.search(text)] == []


@pytest.mark.parametrize("name", ["Memory", "Space", "Conversation", "Turn", "Standing", "Tools"])
def test_the_blocking_objects_have_the_same_verbs(name: str):
    verbs = {verb for verb, _ in public_verbs(getattr(afterturn, name))}
    waiting = {verb for verb, _ in public_verbs(getattr(blocking, name))}
    assert waiting - verbs == ({"work"} if name == "Memory" else set())
    assert verbs - waiting == set()


def test_values_and_errors_load_without_the_runtime():
    """A program that only needs a type for an annotation, or an error to catch, pays for neither asyncio nor numpy."""
    program = (
        "import sys, json, afterturn; afterturn.Filter, afterturn.Entry, afterturn.AfterturnError, afterturn.Config, "
        "afterturn.ChatModel; print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert {"apsw", "asyncio", "click", "numpy"} & set(json.loads(done.stdout)) == set()


async def test_objects_say_what_they_are(tmp_path: Path):
    memory = afterturn.open(tmp_path / "memory.db")
    assert repr(memory) == f"<Memory {tmp_path / 'memory.db'}, not open>"
    async with memory:
        assert repr(memory) == f"<Memory {tmp_path / 'memory.db'}, open>"
        assert repr(memory.space("user:ada")) == "<Space user:ada>"
    assert repr(memory) == f"<Memory {tmp_path / 'memory.db'}, closed>"
    assert repr(afterturn.open(None)) == "<Memory off, not open>"


def test_blocking_objects_say_what_they_are(tmp_path: Path):
    with blocking.open(tmp_path / "memory.db") as memory:
        assert repr(memory) == f"<Memory {tmp_path / 'memory.db'}, open>"
        assert repr(memory.space("user:ada")) == "<Space user:ada>"


def public_verbs(kind: type) -> Iterator[tuple[str, object]]:
    for name in dir(kind):
        verb = getattr(kind, name)
        if not name.startswith("_") and (inspect.isfunction(verb) or isinstance(verb, property)):
            yield name, verb.fget if isinstance(verb, property) else verb


def annotations() -> Iterator[tuple[str, str]]:
    """Of every verb and function, and of every field of a value."""
    for kind in OBJECTS:
        for name, verb in public_verbs(kind):
            yield from signature(f"{kind.__name__}.{name}", verb)
    for function in FUNCTIONS:
        yield from signature(function.__name__, function)
    for kind in VALUES:
        if dataclasses.is_dataclass(kind):
            yield from ((f"{kind.__name__}.{item.name}", written(item.type)) for item in dataclasses.fields(kind))
        elif not issubclass(kind, enum.Enum):
            hints = inspect.get_annotations(kind)
            yield from ((f"{kind.__name__}.{name}", written(hint)) for name, hint in hints.items())


def signature(where: str, verb) -> Iterator[tuple[str, str]]:
    found = inspect.signature(verb)
    for parameter in found.parameters.values():
        if parameter.annotation is not parameter.empty:
            yield where, written(parameter.annotation)
    if found.return_annotation is not found.empty:
        yield where, written(found.return_annotation)


def written(annotation: object) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def own_docstring(kind: type) -> bool:
    """Dataclasses write one themselves when there is none, which only repeats the fields."""
    return bool(kind.__doc__) and not str(kind.__doc__).startswith(f"{kind.__name__}(")


def docstrings() -> Iterator[tuple[str, str]]:
    for thing in [*OBJECTS, *VALUES, *FUNCTIONS]:
        yield str(getattr(thing, "__name__", thing)), inspect.getdoc(thing) or ""
    for kind in OBJECTS:
        for name, verb in public_verbs(kind):
            yield f"{kind.__name__}.{name}", inspect.getdoc(verb) or ""


@pytest.mark.parametrize("opener", [afterturn.open, afterturn.blocking.open])
def test_the_signature_of_open_names_every_option(opener):
    """`help(afterturn.open)` and tools that read signatures see what type checkers see."""
    named = set(inspect.signature(opener).parameters)
    assert named == {"target", "config", *afterturn.OpenOptions.__annotations__}
