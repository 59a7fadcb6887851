"""What the recall benchmark rests on: its text, its copies of spaces, its reference, its plot."""

import asyncio
import gzip
import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from xml.etree import ElementTree

import apsw
import numpy as np
import pytest

import afterturn
from afterturn.base.errors import InvalidInput
from afterturn.base.types import EmbedderIdentity, SearchResults
from afterturn.recall.shelves import Shelves
from afterturn.testing.entries import hit
from lab.bench.recall_asking import Asker, Question, asking
from lab.bench.recall_concurrent import Round, figures_of
from lab.bench.recall_growth import slopes_of
from lab.bench.recall_plot import Line, draw
from lab.bench.recall_reference import BareSpace, Reference
from lab.bench.recall_scale import QUICK
from lab.bench.recall_sizes import measure_small
from lab.bench.recall_stores import SPACE, Stores, crowd_name, texts_of
from lab.bench.recall_text import Corpus, drafts, load_corpus

SPACES = 11
EACH = 30
ORIGINAL, CLONE = crowd_name(1), crowd_name(9)


def nothing(step: str) -> None:
    """For those who do not listen."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"), load_corpus(None), nothing)


@pytest.fixture(scope="module")
def crowd(stores: Stores) -> Path:
    return stores.crowd(SPACES, EACH)


def rows(path: Path, sql: str, *values: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    found = connection.execute(sql, values).fetchall()
    connection.close()
    return found


def found_by(recollection: SearchResults) -> list[tuple[str, float]]:
    return [(hit.entry.text, hit.score) for hit in recollection.hits]


def test_a_copied_space_recalls_what_its_original_does(stores: Stores, crowd: Path):
    with asking(crowd) as asker:
        for question in asker.questions(stores.corpus.questions(20, texts_of(crowd, ORIGINAL), seed=1)):
            original, clone = asker.ask(ORIGINAL, question), asker.ask(CLONE, question)
            assert found_by(original) == found_by(clone) != []
            assert not {hit.entry.id for hit in original.hits} & {hit.entry.id for hit in clone.hits}


CONTENTS = {
    "entries": "SELECT kind, status, text, content_hash, conversation, position, occurred_at FROM entry "
    "WHERE space_key = {key} ORDER BY key",
    "terms": "SELECT substr(terms, instr(terms, ' ')) FROM entry_terms WHERE rowid IN "
    "(SELECT key FROM entry WHERE space_key = {key}) ORDER BY rowid",
    "frequencies": "SELECT term, documents FROM frequency WHERE space_key = {key}",
    "vectors": "SELECT data FROM embedding WHERE space_key = {key} ORDER BY entry_key",
    "changes": "SELECT c.seq, e.text FROM change AS c JOIN entry AS e ON e.key = c.entry_key "
    "WHERE c.space_key = {key} ORDER BY seq",
    "steps": "SELECT o.verb, s.ordinal, e.text FROM operation AS o JOIN step AS s ON s.operation_seq = o.seq "
    "JOIN entry AS e ON e.key = s.entry_key WHERE o.space_key = {key} AND e.space_key = {key} "
    "ORDER BY o.seq, s.ordinal",
    "embedded": "SELECT count(*) FROM entry WHERE space_key = {key} AND key <= "
    "(SELECT entry_key FROM embedded WHERE space_key = {key})",
    "figures": "SELECT tenant, seq, documents, terms_total FROM space WHERE key = {key}",
}


@pytest.mark.parametrize("what", CONTENTS)
def test_a_copied_space_has_the_same_rows_as_its_original(crowd: Path, what: str):
    keys = [rows(crowd, "SELECT key FROM space WHERE name = ?", name)[0][0] for name in (ORIGINAL, CLONE)]
    original, clone = (rows(crowd, CONTENTS[what].format(key=key)) for key in keys)
    assert original == clone != []


def test_no_more_spaces_are_made_than_the_disk_has_room_for(stores: Stores, crowd: Path):
    everything = shutil.disk_usage(crowd.parent).total // 1000
    assert 0 < stores.spaces_that_fit(everything, 1000) < everything
    assert stores.spaces_that_fit(SPACES, EACH) == SPACES


async def test_a_copied_space_lives_on_like_any_other(stores: Stores, tmp_path: Path):
    path = await asyncio.to_thread(Stores(tmp_path, stores.corpus, nothing).crowd, SPACES, EACH)
    async with afterturn.open(path) as memory:
        await memory.space(CLONE).add("Ada keeps a quokka in the observatory.")
        await memory.drain()
        found = await memory.space(CLONE).search("Where is the quokka?")
        assert found.hits[0].entry.text == "Ada keeps a quokka in the observatory."
        assert (await memory.space(CLONE).forget(everything=True)).erased == EACH + 1
        assert (await memory.space(ORIGINAL).stats())["searchable"] == EACH
        assert [finding for finding in await memory.check() if finding.level == "error"] == []


def test_a_recall_without_vectors_is_told_from_one_that_lacks_some():
    """L1: "vectors" in `missing` says that many entries had none; others may well have been compared."""
    compared, by_words = replace(hit("tea"), similarity=0.5), hit("tea")
    found = Round()
    for recalled in (
        SearchResults("1", (compared,)),
        SearchResults("2", (by_words,), missing=("vectors",)),
        SearchResults("3", (compared, by_words), missing=("vectors",)),
        SearchResults("4", (compared,), missing=("episodic",)),
    ):
        found.note(recalled)
    assert found == Round(recalls=4, by_words=1, incomplete=1, errors=["episodic"])


def test_recalls_without_vectors_are_no_throughput():
    """L1: they are less work, so they are told apart on both sides."""
    alone = Round(seconds=2.0, recalls=100, by_words=20, lags=[0.001])
    many = Round(seconds=1.0, recalls=100, by_words=90, lags=[0.001])
    *_, throughput = figures_of([alone], [alone], [many], QUICK)
    assert (throughput.ours, throughput.limit, throughput.passed) == (10.0, 40.0, False)
    assert "90.0% of the recalls of all callers, 20.0% of one caller's alone" in throughput.notes[1]


def test_the_reference_gives_the_nearest_with_their_texts(tmp_path: Path):
    vectors = np.eye(5, 4, dtype=np.float32)
    vectors[4] = [0.6, 0.8, 0.0, 0.0]
    reference = Reference(tmp_path / "reference.db", ["a", "b", "c", "d", "e"], vectors)
    query = np.array([0.0, 1.0, 0.0, 0.0], dtype=np.float32)
    assert reference.search(query, limit=2) == [("b", 1.0), ("e", pytest.approx(0.8))]
    assert len(reference.search(query, limit=9)) == 5
    reference.close()


def test_the_bare_query_finds_in_its_space_alone_and_reads_all_its_vectors(crowd: Path):
    text = texts_of(crowd, CLONE)[0]
    bare = BareSpace(crowd)
    found, vectors = bare.run(CLONE, bare.expression(CLONE, text))
    texts = dict(zip(bare.texts(CLONE), bare.vectors(CLONE), strict=True))
    bare.close()
    names = {
        rows(crowd, f"SELECT s.name FROM entry AS e JOIN space AS s ON s.key = e.space_key WHERE e.key = {key}")[0]
        for (key,) in found
    }
    assert names == {(CLONE,)}
    assert vectors.size == EACH * texts[text].size


class Slow(Asker):
    """Takes its time over every question."""

    def ask(self, space: str, question: Question, excluded: frozenset[str] = frozenset()) -> SearchResults:
        until = perf_counter() + 0.05
        found = super().ask(space, question, excluded)
        while perf_counter() < until:
            pass
        return found


@contextmanager
def slowly(path: Path) -> Iterator[Asker]:
    asker = Slow(path)
    yield asker
    asker.close()


def test_a_slow_recall_fails_its_target(stores: Stores):
    scale = replace(QUICK, small=(100,), small_calls=3)
    figures = measure_small(stores, scale, nothing, slowly)
    assert [(figure.passed, figure.ours >= 50) for figure in figures] == [(False, True)] * 2


def test_both_sides_embed_a_question_that_comes_without_its_vector(stores: Stores):
    path = stores.single(100)
    with asking(path) as asker:
        (question,) = asker.questions(["What about the bakery?"])
        asker.shelve(SPACE, question)
        given, embedded = (asker.ask(SPACE, one).hits for one in (question, Question(question.text, None)))
    assert given
    assert given == embedded


def test_a_recall_that_went_without_vectors_is_not_measured(stores: Stores):
    with asking(stores.single(100)) as asker:
        (question,) = asker.questions(["What about the bakery?"])
        vector = asker.embed(question.text)
        asker.index = Shelves(EmbedderIdentity("another", "1", vector.size), asker.config.index_bytes_max)
        with pytest.raises(AssertionError, match="went without vectors"):
            asker.timed(SPACE, question)


def conversations(folder: Path) -> Path:
    items = [{"text": f"Item {at} is about the lighthouse. It has {at} steps! Nobody counts them."} for at in range(20)]
    document = [{"conv_id": "c", "items": items, "questions": [{"question": "How many steps?"}]}]
    path = folder / "talk.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_real_text_is_recombined_without_repeats_to_any_amount(tmp_path: Path):
    corpus = load_corpus(conversations(tmp_path))
    texts = list(corpus.texts(200, seed=1))
    assert len(set(texts)) == 200
    assert set(texts[:20]) == set(corpus.items)
    assert {part for text in texts for part in re.split("(?<=[.!]) ", text)} <= {
        part for text in corpus.items for part in re.split("(?<=[.!]) ", text)
    }
    assert corpus.questions(2, [], seed=1) == ["How many steps?"] * 2


@pytest.mark.parametrize("content", ['{"text": "One."}\n{"text": "Two."}\n', "One.\n\nTwo.\n"])
def test_lines_of_json_or_plain_text_will_do(tmp_path: Path, content: str):
    path = tmp_path / "lines"
    path.write_text(content, encoding="utf-8")
    assert load_corpus(path) == Corpus("lines", ("One.", "Two."))


@pytest.mark.parametrize(
    "content,said",
    [
        (b"\n", "holds no text"),
        (b'[{"no": 1}]', "can not be read"),
        (b"\x1f\x8b", "can not be read"),
        (b"\xff", "utf-8"),
        (b"[" * 100_000, "can not be read"),
    ],
)
def test_a_file_without_text_is_refused(tmp_path: Path, content: bytes, said: str):
    path = tmp_path / "wrong"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        load_corpus(path)


def test_generated_questions_ask_for_words_of_a_memory():
    corpus = load_corpus(None)
    texts = list(corpus.texts(5, seed=1))
    words = {word for text in texts for word in text.lower().strip(".").split()}
    asked = corpus.questions(10, texts, seed=1)
    assert all(set(one.removeprefix("What about ").strip("?").split()) <= words for one in asked)


def test_what_is_remembered_are_messages_with_statements_among_them():
    found = list(drafts(iter("abcdef"), 6))
    assert [draft.kind for draft in found] == ["statement", *["record"] * 4, "statement"]
    assert [draft.occurred_at for draft in found] == sorted(draft.occurred_at or 0 for draft in found)


def test_a_slope_of_one_is_linear_growth():
    assert slopes_of([(10, 1.0), (100, 10.0), (1000, 10.0)]) == [pytest.approx(1.0), pytest.approx(0.0)]


def test_the_plot_is_an_svg_with_every_point_inside():
    points = tuple((float(size), size**0.5 / 1e6) for size in (1_000, 10_000, 1_000_000))
    tree = ElementTree.fromstring(draw("Ours & theirs", [Line("ours", points), Line("<theirs>", points[:2])]))
    _, _, width, height = (float(number) for number in tree.attrib["viewBox"].split())
    circles = [item.attrib for item in tree.iter() if item.tag.endswith("circle")]
    texts = [item.text for item in tree.iter() if item.tag.endswith("text")]
    assert len(circles) == 5
    assert all(0 < float(at["cx"]) < width and 0 < float(at["cy"]) < height for at in circles)
    assert {"ours", "<theirs>", "1k", "1M", "1 ms"} <= set(texts)


def test_higher_and_further_right_is_slower_and_larger_in_the_plot():
    tree = ElementTree.fromstring(draw("", [Line("ours", ((10.0, 1e-3), (1000.0, 1e-1)))]))
    first, second = (item.attrib for item in tree.iter() if item.tag.endswith("circle"))
    assert float(first["cx"]) < float(second["cx"])
    assert float(first["cy"]) > float(second["cy"])
    assert math.isclose(float(first["cx"]), 78, abs_tol=0.1)


def test_names_of_lines_that_end_together_are_not_written_over_one_another():
    lines = [Line(name, ((10.0, 1e-3), (1000.0, end))) for name, end in (("a", 0.1), ("b", 0.1), ("c", 0.09))]
    tree = ElementTree.fromstring(draw("", lines))
    heights = sorted(float(item.attrib["y"]) for item in tree.iter() if item.text in ("a", "b", "c"))
    assert min(later - earlier for earlier, later in pairwise(heights)) >= 16
