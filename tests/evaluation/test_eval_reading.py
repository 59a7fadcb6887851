"""Reading files for an evaluation: conversations, utterances. Unusable files are listed."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from afterturn.errors import InvalidFile
from afterturn.evaluation.datasets import find_sources, find_time, read_dataset


def talk(items: list[dict[str, Any]], questions: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    return [{"conv_id": "one", "items": items, "questions": questions or []}]


def item(name: str, session: str = "s1", **fields: Any) -> dict[str, Any]:
    return {"id": name, "session": session, "date": "8 May, 2023", "speaker": "Ann", "text": f"text {name}", **fields}


def written(path: Path, content: object) -> Path:
    raw = json.dumps(content).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize(
    "text,expected",
    [
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("12:05 am on 1 January, 2024", datetime(2024, 1, 1, 0, 5, tzinfo=UTC)),
        ("12:05 pm on 1 January, 2024", datetime(2024, 1, 1, 12, 5, tzinfo=UTC)),
        ("March-15-2024", datetime(2024, 3, 15, tzinfo=UTC)),
        ("2025-12-15 (Monday)", datetime(2025, 12, 15, tzinfo=UTC)),
        ("2025-12-15 14:30", datetime(2025, 12, 15, 14, 30, tzinfo=UTC)),
        ("Dec 3rd, 2021", datetime(2021, 12, 3, tzinfo=UTC)),
    ],
)
def test_dates_are_read_as_collections_write_them(text: str, expected: datetime):
    assert find_time(text) == expected.timestamp()


@pytest.mark.parametrize("text", ["", "soon", "31 February, 2023", "25:99 on 8 May, 2023"])
def test_text_without_a_day_has_no_time(text: str):
    assert find_time(text) is None


@pytest.mark.parametrize("name", ["talks.json", "talks.json.gz"])
def test_a_data_set_is_named_by_its_file(tmp_path: Path, name: str):
    assert read_dataset(written(tmp_path / name, talk([item("a")]))).name == "talks"


def test_items_of_one_day_and_items_without_a_day_keep_their_order(tmp_path: Path):
    items = [item("a"), item("b"), item("c", date=None), item("d", date="9 May, 2023"), item("e", date="")]
    (one,) = read_dataset(written(tmp_path / "talks.json", talk(items))).talks
    times = [said.at for said in one.items]
    assert times == sorted(set(times))
    assert datetime.fromtimestamp(times[3], UTC).date().isoformat() == "2023-05-09"


def test_a_conversation_in_which_nothing_was_said_is_left_out(tmp_path: Path):
    content = [*talk([]), *talk([item("a")])]
    assert len(read_dataset(written(tmp_path / "talks.json", content)).talks) == 1


def test_a_caption_belongs_to_the_text(tmp_path: Path):
    items = [item("a", text="Look!", image_caption="a red kite"), item("b", text="", image_caption=None)]
    (one,) = read_dataset(written(tmp_path / "talks.json", talk(items))).talks
    assert [said.text for said in one.items] == ["Look! [image: a red kite]", "…"]


def test_a_text_that_could_not_be_stored_is_mended(tmp_path: Path):
    items = [item("a", text="half \ud83d of it\x00")]
    (one,) = read_dataset(written(tmp_path / "talks.json", talk(items))).talks
    assert one.items[0].text == "half ? of it\ufffd"


@pytest.mark.parametrize(
    "speaker,expected", [("Ann", "Ann: text a"), ("User", "text a"), ("assistant", "text a"), ("Human", "text a")]
)
def test_only_a_name_is_put_before_what_somebody_said(tmp_path: Path, speaker: str, expected: str):
    (one,) = read_dataset(written(tmp_path / "talks.json", talk([item("a", speaker=speaker)]))).talks
    assert one.items[0].signed == expected


def test_a_question_knows_only_sessions_before_the_one_it_is_asked_in(tmp_path: Path):
    items = [item("a", "s1"), item("b", "s2"), item("c", "s3")]
    asked = {"qid": "q", "question": "?", "answer": None, "evidence_sessions": ["s1", "s3"], "before_session": "s3"}
    (one,) = read_dataset(written(tmp_path / "talks.json", talk(items, [asked]))).talks
    (question,) = one.questions
    assert (question.known, question.by_session, question.evidence) == (2, True, ("s1",))


def test_unknown_evidence_is_left_out_and_duplicates_count_once(tmp_path: Path):
    asked = {"qid": "q", "question": "?", "answer": 7, "category": "x", "evidence": ["b", "nowhere", "b"]}
    (one,) = read_dataset(written(tmp_path / "talks.json", talk([item("a"), item("b")], [asked]))).talks
    assert (one.questions[0].evidence, one.questions[0].answer) == (("b",), "7")


@pytest.mark.parametrize(
    "content", [[], {}, [1], [{"conv_id": "x"}], "text", [{"conv_id": 1, "items": [{}]}], talk([])]
)
def test_a_file_without_conversations_is_refused_with_its_path(tmp_path: Path, content: object):
    path = written(tmp_path / "other.json", content)
    with pytest.raises(InvalidFile, match=r"other\.json"):
        read_dataset(path)


def test_a_damaged_archive_is_refused(tmp_path: Path):
    path = tmp_path / "talks.json.gz"
    path.write_bytes(gzip.compress(b"[]" * 100)[:-9])
    with pytest.raises(InvalidFile):
        read_dataset(path)


@pytest.mark.parametrize("name", ["talks.json", "said.jsonl"])
def test_deeply_nested_input_is_refused(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(InvalidFile, match=name):
        find_sources([path])


def test_a_folder_gives_what_can_be_used_and_names_the_rest(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    written(tmp_path / "deep" / "talks.json.gz", talk([item("a")]))
    written(tmp_path / "other.json", {"unrelated": True})
    (tmp_path / "said.jsonl").write_text('{"text": "hello", "label": 0, "category": "utterance"}\n', encoding="utf-8")
    (tmp_path / "rules.jsonl").write_text('{"text": "be nice", "label": 0}\n', encoding="utf-8")
    (tmp_path / "README.md").write_text("words", encoding="utf-8")
    sources = find_sources([tmp_path])
    assert [dataset.name for dataset in sources.datasets] == ["talks"]
    assert [said.name for said in sources.utterances] == ["said"]
    assert [path.name for path in sources.skipped] == ["other.json", "rules.jsonl"]


def test_files_with_the_same_name_get_different_names(tmp_path: Path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "dev.json", talk([item("a")]))
    named = [tmp_path / "first", tmp_path / "second", tmp_path / "second" / "dev.json"]
    assert [dataset.name for dataset in find_sources(named).datasets] == ["dev", "second/dev", "dev 2"]


def test_a_named_file_of_utterances_gives_those_labelled_0(tmp_path: Path):
    written(tmp_path / "talks.json", talk([item("a")]))
    path = tmp_path / "rules.jsonl"
    path.write_text('{"text": "be nice", "label": 0}\n\n{"text": "be evil", "label": 1}\n', encoding="utf-8")
    assert find_sources([tmp_path / "talks.json", path]).utterances[0].texts == ("be nice",)


@pytest.mark.parametrize("name", ["nothing", "nowhere"])
def test_nothing_to_examine_is_an_error_that_names_the_path(tmp_path: Path, name: str):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InvalidFile, match=name):
        find_sources([tmp_path / name])
