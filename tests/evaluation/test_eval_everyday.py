"""Everyday files: reading, judging by hand-made lines, and two invented people who live through a few days."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.errors import InvalidFile, InvalidInput
from afterturn.evaluation.datasets import find_sources
from afterturn.evaluation.everyday import (
    EvalOptions,
    EverydayJudge,
    EverydayMemories,
    HandedOver,
    chosen_people,
    figures_of,
    split_standing,
)
from afterturn.evaluation.everyday_file import EverydayQuestion, Person, add_filler, read_people
from afterturn.evaluation.examination import MissingParts
from afterturn.evaluation.preferences import has_words
from afterturn.evaluation.report import as_markdown, as_text
from afterturn.evaluation.run import Evaluation, evaluate
from afterturn.hosts.cli.app import run

pytestmark = pytest.mark.standing

WHERE = Path("days.json")


def session(name: str, at: str, *exchanges: tuple[str, str], **more: Any) -> dict[str, Any]:
    said = [{"user": user, "assistant": assistant, **more} for user, assistant in exchanges]
    return {"id": name, "at": f"{at}T10:00:00+00:00", "exchanges": said}


def asked(name: str, kind: str, *turns: str, right: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    patterns = {"stale": None, "bears": "|".join(right) or "$^", **more}
    at = "2026-05-20T09:00:00+00:00"
    return {"id": name, "kind": kind, "at": at, "turns": [*turns], "right": [*right], **patterns}


def days() -> dict[str, Any]:
    """Ines has a parrot and moved; Olaf builds a boat, in German, with a tool."""
    ines = {
        "user": "ines",
        "language": "en",
        "setting": "personal assistant",
        "sessions": [
            session(
                "ines-1",
                "2026-04-01",
                ("My parrot Kiwi is allergic to avocado.", "Noted, no avocado for Kiwi."),
                ("I live in Porto, near the river.", "A lovely place."),
            ),
            session("ines-2", "2026-05-02", ("I moved from Porto to Ghent last week.", "Welcome to Ghent!")),
        ],
        "questions": [
            asked("ines-q1", "plain", "What is my parrot Kiwi allergic to?", right=("avocado",)),
            asked("ines-q2", "update", "Where do I live, Porto or Ghent?", right=("Ghent",), stale="Porto"),
            asked("ines-q3", "silence", "Thanks!"),
            asked("ines-q4", "paraphrase", "Quux zyxel?", right=("avocado",)),
        ],
    }
    olaf = {
        "user": "olaf",
        "language": "de",
        "sessions": [
            session(
                "olaf-1",
                "2026-04-03",
                ("Mein Boot heißt Schwalbe und ist aus Lärchenholz.", "Ein schöner Name."),
                tools=[{"name": "note", "arguments": {"text": "Schwalbe"}, "result": "saved"}],
            )
        ],
        "questions": [
            asked("olaf-q1", "plain", "Aus welchem Holz ist mein Boot Schwalbe?", right=("Lärche",)),
            asked("olaf-q2", "follow_up", "Mein Boot Schwalbe ist undicht.", "Welches Holz ist es?", right=("Lärche",)),
        ],
    }
    return {"users": [ines, olaf]}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("everyday") / "days.json"
    path.write_text(json.dumps(days(), ensure_ascii=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def evaluation(file: Path) -> Evaluation:
    return evaluate([file], EvalOptions())


@pytest.fixture(scope="module")
def ines() -> Person:
    return read_people(days(), WHERE)[0]


def question(person: Person, name: str) -> EverydayQuestion:
    return next(one for one in person.questions if one.id == name)


def verdict(person: Person, name: str, *shown: str, **more: Any) -> tuple[bool, bool, bool, int]:
    found = EverydayJudge(person).verdict(question(person, name), HandedOver(shown, **more))
    return found.is_right, found.is_first, found.is_outdated, found.useful


def test_the_format_is_recognised_by_the_content_of_the_file(file: Path):
    (everyday,) = find_sources([file]).everyday
    assert (everyday.name, [person.name for person in everyday.people]) == ("days", ["ines", "olaf"])


def test_an_exchange_with_tools_becomes_messages_in_their_order():
    (exchange,) = read_people(days(), WHERE)[1].sessions[0].exchanges
    call, result = exchange.messages()[1:3]
    assert [message["role"] for message in exchange.messages()] == ["user", "assistant", "tool", "assistant"]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"text": "Schwalbe"}


@pytest.mark.parametrize(
    "place,value,message",
    [
        (("users",), [], '"users" is empty'),
        (("users", 0, "user"), None, 'users[0]: "user" is not a text'),
        (("users", 0, "sessions"), "gone", 'users[0] (ines) has no "sessions"'),
        (("users", 0, "sessions", 1, "at"), "gone", 'users[0] (ines), sessions[1] has no "at"'),
        (
            ("users", 0, "sessions", 1, "at"),
            "in May",
            "\"at\" is not a time such as 2026-08-31T18:30:00+00:00: 'in May'",
        ),
        (("users", 0, "sessions", 0, "exchanges", 1, "assistant"), "gone", 'exchanges[1] has no "assistant"'),
        (("users", 1, "questions", 0, "right"), "gone", 'users[1] (olaf), questions[0] has no "right"'),
        (("users", 1, "questions", 0, "right"), ["(Lärche"], "'(Lärche' is not a regular expression"),
        (("users", 1, "questions", 0, "right"), [""], 'a pattern of "right" is empty'),
        (("users", 1, "questions", 0, "turns"), [], '"turns" must be a list of one or more texts'),
        (("users", 1, "questions", 1), 3, "questions[1] is not an object"),
        (("users", 1, "user"), "ines", 'two users are called "ines"'),
    ],
)
def test_a_fault_is_reported_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: tuple[Any, ...], value: Any, message: str
):
    content = days()
    *above, last = place
    target: Any = content
    for name in above:
        target = target[name]
    if value == "gone":
        del target[last]
    else:
        target[last] = value
    path = tmp_path / "days.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InvalidFile, match=re.escape(message)):
        find_sources([path])
    assert run(["eval", str(path)]) == 2
    assert "days.json" in capsys.readouterr().err


def test_a_faulty_file_in_a_folder_is_skipped(tmp_path: Path, file: Path):
    (tmp_path / "a.json").write_text('{"users": [{}]}', encoding="utf-8")
    (tmp_path / "b.json").write_bytes(file.read_bytes())
    sources = find_sources([tmp_path])
    assert ([path.name for path in sources.skipped], [one.name for one in sources.everyday]) == (["a.json"], ["b"])


def test_every_pattern_must_match_a_line_and_the_first_line_counts(ines: Person):
    right, other = "- [a] 3 days ago, user: I moved from Porto to Ghent.", "- [b] today, user: It rains."
    assert verdict(ines, "ines-q2", right, other) == (True, True, False, 1)
    assert verdict(ines, "ines-q2", other, right) == (True, False, False, 1)
    assert verdict(ines, "ines-q2", other) == (False, False, False, 0)


def test_earlier_blocks_and_standing_lines_count_as_seen(ines: Person):
    line, other = "- [a] user: I moved to Ghent.", "- [b] user: It rains."
    assert verdict(ines, "ines-q2", earlier=(line,)) == (True, True, False, 0)
    assert verdict(ines, "ines-q2", other, standing=(*[other] * 40, line)) == (True, False, False, 0)


def test_an_outdated_line_above_the_right_one_or_without_it_leads(ines: Person):
    old, new = "- [a] user: I live in Porto.", "- [b] user: I moved from Porto to Ghent."
    assert verdict(ines, "ines-q2", old, new)[2]
    assert verdict(ines, "ines-q2", old)[2]
    assert not verdict(ines, "ines-q2", new, old)[2]
    assert verdict(ines, "ines-q2", standing=(old,))[2]
    assert not verdict(ines, "ines-q2", new, standing=(old,))[2]
    assert not verdict(ines, "ines-q2", old, standing=(new, old))[2]
    judged = EverydayJudge(ines).verdict(question(ines, "ines-q2"), HandedOver((new,), standing=(new, old)))
    assert judged.stands_outdated


def test_a_question_shares_a_word_with_a_right_message_or_does_not(ines: Person):
    """By the beginnings of words that few of the person's messages have."""
    judge = EverydayJudge(add_filler(ines, 30))
    assert judge.shares_word(question(ines, "ines-q1"))
    assert not judge.shares_word(question(ines, "ines-q4"))


def test_a_line_that_repeats_a_question_is_noise(ines: Person):
    echo = "- [a] 1 day ago, user: where do I live: Porto or Ghent"
    assert verdict(ines, "ines-q2", echo) == (False, False, False, 0)


def test_words_beyond_the_shown_part_of_a_line_do_not_count(ines: Person):
    assert not verdict(ines, "ines-q2", f"- [a] user: {'la ' * 200} Ghent")[0]
    assert not verdict(ines, "ines-q2", f"- [a] user: Ghent {'la ' * 220}")[0]


def test_no_line_is_right_where_memory_does_not_help(ines: Person):
    assert verdict(ines, "ines-q3") == (True, True, False, 0)
    assert verdict(ines, "ines-q3", "- [a] user: Thanks a lot") == (False, False, False, 0)


def test_figures_are_counts_and_means_over_questions_with_an_answer(ines: Person):
    judge = EverydayJudge(ines)
    old, new = "- [a] user: I live in Porto.", "- [b] user: I moved to Ghent."
    figures = figures_of(
        [
            judge.verdict(question(ines, "ines-q1"), HandedOver(("- [c] user: no avocado",), chars=80)),
            judge.verdict(question(ines, "ines-q2"), HandedOver((old, new, "- [d] user: Hi"), chars=40)),
            judge.verdict(question(ines, "ines-q3"), HandedOver((new,), chars=1000)),
        ]
    )
    assert (figures["n"], figures["right"], figures["first"]) == (3, 2, 1)
    assert (figures["answerable"], figures["answerable_asked"], figures["word"], figures["no_word_asked"]) == (
        2,
        2,
        0,
        2,
    )
    assert (figures["stale"], figures["stale_asked"], figures["silent"], figures["silent_asked"]) == (1, 1, 0, 1)
    assert (figures["useful_share"], figures["block_lines"], figures["block_tokens"]) == (0.5, 2.0, 15.0)


def test_facts_that_were_said_in_earlier_sessions_are_handed_over(evaluation: Evaluation):
    found = evaluation.results["days"]["afterturn"]
    assert (found["n"], found["categories"]["plain"]["right"], found["categories"]["follow_up"]["right"]) == (6, 2, 1)
    assert {name: part["n"] for name, part in found["languages"].items()} == {"de": 2, "en": 4}


def test_the_baselines_are_ten_lines_of_bm25_and_the_newest_messages(evaluation: Evaluation):
    found = evaluation.results["days"]
    assert set(found) == {"afterturn", "bm25", "dump"}
    assert found["bm25"]["categories"]["plain"]["right"] == 2
    # Ines said three things and Olaf one, and nobody asked anything.
    assert found["dump"]["standing_lines"] == (4 * 3 + 2 * 1) / 6
    assert (found["dump"]["answerable"], found["dump"]["answerable_asked"]) == (5, 5)


def test_intervals_are_over_people(evaluation: Evaluation):
    found = evaluation.results["days"]["afterturn"]
    low, high = found["intervals"]["answerable"]
    assert low <= found["answerable"] / found["answerable_asked"] <= high
    least, most = found["margins"]["dump"]["intervals"]["first"]
    assert least <= found["margins"]["dump"]["first"] <= most
    assert re.search(r"95% of afterturn: answerable [\d.]+ to [\d.]+, first", as_text(evaluation))
    assert re.search(r"afterturn minus bm25: answerable [+-][\d.]+ \(", as_text(evaluation))


@pytest.mark.parametrize("form", [as_text, as_markdown])
def test_the_report_has_kinds_languages_and_counts(evaluation: Evaluation, form: Any):
    shown = form(evaluation)
    assert all(word in shown for word in ("answerable", "no word", "update", "silence", "de", "dump"))
    assert re.search(r"update\W+1\W+afterturn\W.*\d/1", shown)


def test_lived_scores_every_second_question_and_asks_the_others_twice_before(file: Path):
    told: list[tuple[int, int]] = []
    wanted = EvalOptions(alone=True, lived=True, user="ines")
    found = evaluate([file], wanted, lambda done, total: told.append((done, total))).results["days"]
    assert found["afterturn"]["n"] == 2
    # Three exchanges, two rounds of two questions, and the other two.
    assert told[-1] == (9, 9)
    half = evaluate([file], EvalOptions(alone=True, half=True, user="ines")).results["days"]
    assert (half["afterturn"]["n"], half["afterturn"]["conditions"]) == (2, ["every second question"])


def test_lines_within_the_standing_tag_are_standing_lines():
    standing, block = "<afterturn-standing>\n- a\n</afterturn-standing>", "<afterturn-memory>\n- b\n</afterturn-memory>"
    assert split_standing(f"{standing}\n\n{block}") == ([standing], f"\n\n{block}")
    assert split_standing(block) == ([], block)


def test_a_host_may_put_the_standing_block_into_its_system_prompt(tmp_path: Path):
    path, content = tmp_path / "days.json", days()
    said = session("ines-0", "2026-03-01", ("Please always answer in Portuguese.", "Com certeza."))
    content["users"][0]["sessions"].insert(0, said)
    path.write_text(json.dumps(content), encoding="utf-8")
    wanted = EvalOptions(alone=True, user="ines", limit=2, host="standing")
    found = evaluate([path], wanted).results["days"]["afterturn"]
    assert found["conditions"] == ["host standing"]
    assert found["standing_lines"] >= 1
    assert found["standing_chars_max"] >= 4 * found["standing_tokens"] > 0


def test_long_answers_and_small_talk_are_lived_through_too(file: Path):
    wanted = EvalOptions(long=True, filler=5)
    (ines, _) = chosen_people(find_sources([file]).everyday[0], wanted)
    assert [len(one.exchanges) for one in ines.sessions] == [2, 3, 1, 2]
    first, *rest = ines.sessions[0].exchanges[0].assistant.split("\n\n")
    assert (first, len(rest)) == ("Noted, no avocado for Kiwi.", 3)
    again = chosen_people(find_sources([file]).everyday[0], wanted)[0]
    assert again == ines
    found = evaluate([file], EvalOptions(alone=True, user="ines", long=True, filler=5)).results["days"]["afterturn"]
    assert found["conditions"] == ["long answers", "5 pieces of small talk"]
    assert found["categories"]["plain"]["answerable"] == 1


def test_lived_records_the_questions_before_they_are_asked(tmp_path: Path, ines: Person):
    path, options = tmp_path / "memory.db", EvalOptions(lived=True)
    EverydayMemories(path, options, {"ines": EverydayJudge(ines)}, MissingParts(), lambda: None).record([ines])
    with blocking.open(path, {"background": False}) as memory:
        said = [entry.text for entry in memory.space("user:ines").list(limit=100)]
    assert said.count("What is my parrot Kiwi allergic to?") == 2


def test_lived_needs_an_everyday_file(tmp_path: Path, file: Path):
    with pytest.raises(InvalidInput, match="There are: ines, olaf"):
        evaluate([file], EvalOptions(user="nobody"))
    item = {"id": "1", "session": "s", "speaker": "Ann", "text": "Hi"}
    other = tmp_path / "talks.json"
    other.write_text(json.dumps([{"conv_id": "a", "items": [item], "questions": []}]), encoding="utf-8")
    with pytest.raises(InvalidInput, match="need an everyday file"):
        evaluate([other], EvalOptions(lived=True))


def test_a_perfect_selector_picks_what_is_right_first_and_nothing_outdated(ines: Person):
    lines = [
        "episodic, 1 month ago, user: I live in Porto.",
        "episodic, 1 day ago, user: Where do I live, Porto or Ghent?",
        "episodic, 3 days ago, user: I moved from Porto to Ghent.",
        "episodic, today, user: It rains.",
    ]
    judge = EverydayJudge(ines)
    assert judge.choose(question(ines, "ines-q2"), lines) == [2]
    assert judge.choose(question(ines, "ines-q3"), lines) == []


@pytest.fixture
def _nothing_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fact that stands is found whatever the question says."""
    monkeypatch.setenv("AFTERTURN_STANDING", "false")


@pytest.mark.usefixtures("_nothing_stands")
def test_with_a_perfect_selector_the_right_line_comes_first(file: Path):
    """R7: a model selects among the candidates, also among those below the minimum score."""
    plain = evaluate([file], EvalOptions(alone=True, user="ines")).results["days"]["afterturn"]
    found = evaluate([file], EvalOptions(alone=True, user="ines", selector="perfect")).results["days"]["afterturn"]
    assert plain["categories"]["paraphrase"]["first"] == 0
    assert (found["categories"]["paraphrase"]["first"], found["stale"]) == (1, 0)


@pytest.mark.usefixtures("_nothing_stands")
def test_a_miss_shows_the_line_that_should_have_come_and_why_it_did_not(file: Path, capsys: pytest.CaptureFixture[str]):
    wanted = ["eval", str(file), "--alone", "--misses", "9"]
    assert run(wanted) == 0
    shown = capsys.readouterr().out
    assert "not right, paraphrase, ines: Quux zyxel?" in shown
    assert re.search(r"should have come, place \d of \d, chance 0\.\d\d is below .*: .*avocado", shown)
    assert run([*wanted, "--json"]) == 0
    missed = json.loads(capsys.readouterr().out)["days"]["afterturn"]["missed"]
    by_id = {one["id"]: one for one in missed}
    assert any("My parrot Kiwi" in line["text"] for line in by_id["ines-q4"]["wanted"]["avocado"])


def test_the_command_prints_the_figures_of_one_person_as_json(file: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["eval", str(file), "--user", "olaf", "--limit", "1", "--alone", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["days"]
    assert (list(found), found["afterturn"]["n"]) == (["afterturn"], 1)


def preferences() -> dict[str, Any]:
    return {
        "topics": {
            "food": [{"preference": "I strictly avoid gluten in every meal.", "question": "Where to eat in Rome?"}],
            "travel": [{"preference": "I dislike hostels with dormitories.", "question": "Where do I sleep in Lima?"}],
        },
        "filler": [["How do magnets work?", "By fields."], ["Name a river.", "The Elbe."]],
    }


def test_preferences_are_stated_once_and_needed_in_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "likes.json"
    path.write_text(json.dumps(preferences()), encoding="utf-8")
    command = ["eval", str(path), "--people", "2", "--filler", "6"]
    assert run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["likes"]
    assert set(found) == {"afterturn", "bm25, 3 lines", "bm25, 10 lines"}
    assert (found["afterturn"]["n"], set(found["afterturn"]["categories"])) == (4, {"food", "travel"})
    assert 0 <= found["afterturn"]["reached"] <= 1
    assert run([*command, "--alone"]) == 0
    assert re.search(r"likes, .*6 pieces of small talk\n.*reached in block in standing", capsys.readouterr().out)


def test_a_preference_is_reached_by_most_of_its_words():
    line = "- [a] 2 days ago, user: I avoid gluten strictly, at meals."
    assert has_words("I strictly avoid gluten in every meal.", line)
    assert not has_words("I strictly avoid gluten in every meal.", "- [a] user: I avoid hostels.")


@pytest.mark.parametrize("content", [{"topics": {}}, {"topics": {"food": [{"preference": "x"}]}}, {"topics": 3}])
def test_a_faulty_preferences_file_is_reported(tmp_path: Path, content: Any):
    path = tmp_path / "likes.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InvalidFile, match=r"likes\.json"):
        find_sources([path])
