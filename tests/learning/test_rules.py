"""What the rule-based reviewer learns from plain messages, and what it leaves alone."""

from pathlib import Path

import pytest

from afterturn.learning.rules import Lesson, find_lessons, may_teach
from afterturn.types import Target
from lab.rules_eval import read_cases, score

FOLDER = Path(__file__).parent / "rule_cases"
CASES = read_cases(FOLDER / "said.jsonl")
HELD_OUT = [case for case in CASES if case.held_out]


def learned(text: str, before: str = "") -> list[Lesson]:
    return find_lessons([("assistant", before), ("user", text)] if before else [("user", text)])


def texts(text: str, before: str = "") -> list[str]:
    return [lesson.text for lesson in learned(text, before)]


def test_held_out_messages_teach_what_they_should():
    """V11: precision before recall, on the half that no rule was written by."""
    figures = score(HELD_OUT).figures()
    assert figures["precision"] >= 0.95
    assert figures["recall"] >= 0.6


def test_all_that_is_held_out_teaches_what_it_should():
    """V11: also with the sets that were written to lead the rules astray."""
    everything = [case for path in sorted(FOLDER.glob("*.jsonl")) for case in read_cases(path) if case.held_out]
    figures = score(everything).figures()
    assert figures["messages"] > len(HELD_OUT) + 150
    assert figures["precision"] >= 0.95
    assert figures["recall"] >= 0.6


def test_what_once_went_wrong_in_use_does_not_again():
    """V11: messages of people, with variations; all in sight of whoever wrote the rules."""
    found = score(read_cases(FOLDER / "used.jsonl"))
    assert (found.wrong, found.missed) == ([], [])


def test_the_labelled_messages_are_many_and_mostly_teach_nothing():
    """V11: figures are worth as much as the messages they come from."""
    teaching = [case for case in CASES if case.expected]
    assert len(teaching) >= 120
    assert len(CASES) - len(teaching) >= 180
    assert 0.4 < len(HELD_OUT) / len(CASES) < 0.6


@pytest.mark.parametrize(
    "said, text, target, kind",
    [
        ("I prefer tea over coffee.", "The user prefers tea over coffee", Target.USER, "preference"),
        ("Call me Max, please.", "Call the user Max", Target.USER, "name"),
        ("Never force-push to main!", "Never force-push to main", Target.ENVIRONMENT, "rule"),
        ("From now on, please answer in German.", "Answer in German", Target.USER, "preference"),
        ("btw I'm allergic to nuts and bees", "The user is allergic to nuts and bees", Target.USER, "fact"),
        ("Remember that CI runs on ARM.", "CI runs on ARM", Target.ENVIRONMENT, "fact"),
        ("Remember that I never fly at night.", "The user never flies at night", Target.USER, "fact"),
        ("I do not eat pork", "The user does not eat pork", Target.USER, "fact"),
        ("i no longer work at Acme", "The user no longer works at Acme", Target.USER, "correction"),
        ("Always ask me first when I push.", "Always ask the user first when they push", Target.ENVIRONMENT, "rule"),
        (
            "When I fly, I prefer aisle seats.",
            "When the user flies, they prefer aisle seats",
            Target.USER,
            "preference",
        ),
        ("I moved to Lisbon last month.", "The user moved to Lisbon last month", Target.USER, "correction"),
    ],
)
def test_a_lesson_makes_sense_on_its_own(said: str, text: str, target: Target, kind: str):
    """V11: without its lead-in and in the third person, whoever reads it knows whom it is about."""
    assert learned(said) == [Lesson(text, target, kind, 0)]


@pytest.mark.parametrize(
    "before, said, text, old",
    [
        ("Since you live in Lyon, take a train.", "No, I live in Oslo, not Lyon.", "The user lives in Oslo", "Lyon"),
        ("The default branch is master.", "It's not master, it's trunk.", "The default branch is trunk", "master"),
        ("Your bucket is in us-east-1.", "Not us-east-1, eu-west-1.", "The user's bucket is in eu-west-1", "us-east-1"),
    ],
)
def test_a_correction_says_what_it_replaces(before: str, said: str, text: str, old: str):
    """V11: a correction names what is no longer so; "it" is looked up in what the assistant said."""
    (lesson,) = learned(said, before)
    assert (lesson.text, lesson.kind, lesson.replaces) == (text, "correction", old)


def test_what_it_is_must_have_been_stated():
    """V11: a correction of a plan or of a question is an affair of the task."""
    assert learned("No, it's not the loop, it's the timeout.", "I changed the loop.") == []
    assert learned("It's not the parser, it's the lexer.", "Is the bug in the parser?") == []


def test_only_users_teach():
    """V11: what an assistant, a tool or a system prompt says is nobody's wish."""
    for role in ("assistant", "system", "tool", "developer"):
        assert find_lessons([(role, "Remember that I prefer tea over coffee. Call me Max.")]) == []


def test_a_lesson_names_the_message_that_taught_it():
    """V11: so that whoever stores it can say where it comes from."""
    talk = [("user", "hello"), ("assistant", "hi"), ("user", "My name is Dana."), ("user", "I live in Oslo.")]
    assert [lesson.message for lesson in find_lessons(talk)] == [2, 3]


def test_what_was_said_twice_is_learned_once():
    """V11: repeating oneself makes no second memory."""
    assert len(find_lessons([("user", "Call me Max."), ("user", "call me Max")])) == 1


@pytest.mark.parametrize(
    "said",
    [
        '"I prefer tea over coffee" is what she said.',
        "```\nI prefer tea over coffee.\n```",
        "```\nI prefer tea over coffee.",
        "> I prefer tea over coffee.",
        "    I prefer tea over coffee.",
        "$ cat note\nI prefer tea over coffee.",
        "The mail reads:\n\nI prefer tea over coffee.",
        "A: I prefer tea over coffee.",
        "- I prefer tea over coffee.",
        "“Some quote.\nI prefer tea over coffee.”",
        "If I prefer tea over coffee, what then?",
        "Suppose the following, I prefer tea over coffee.",
        "Today I prefer tea over coffee.",
        "Subject: drinks\n\nI prefer tea over coffee.",
        "Dear Ann,\nI prefer tea over coffee.",
        "I prefer tea over coffee. Translate that.",
        "I prefer tea over coffee, I said.",
        "Translate this. I prefer tea over coffee.",
        "Write a story. I prefer tea over coffee.",
        "I prefer tea over coffee lol",
        "I prefer this over that.",
        "Do I prefer tea over coffee?",
        "He told me, I prefer tea over coffee.",
    ],
)
def test_words_that_are_not_meant_teach_nothing(said: str):
    """V11: quoted, pasted, fictional, hypothetical, passing: precision before recall."""
    assert texts("I prefer tea over coffee.") == ["The user prefers tea over coffee"]
    assert learned(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "Remember that my password is hunter2",
        "remember my password hunter2",
        "Remember: my wifi password is sesame99",
        "Please remember that my PIN is 4711",
        "remember that the pin for my card is 4711",
        "Keep in mind that the passphrase is correct horse",
        "Remember that the API key is in the drawer",
        "Remember that our secret access key is abc",
        "Remember that the recovery phrase is witch collapse practice",
        "My favourite password is hunter2",
        "Always use the password hunter2 for staging.",
        "Use the passphrase open sesame from now on",
        "Merk dir, dass mein Passwort hunter2 ist.",
        "Merk dir, dass die PIN 4711 ist.",
        "Souviens-toi que mon mot de passe est hunter2.",
        "Retiens que la clé d’API commence par abc123.",
        "Recuerda que mi contraseña empieza por hunter2.",
        "Ricorda che la mia password è hunter2.",
        "Minha senha é hunter2.",
        "Mijn wachtwoord is hunter2.",
        "パスワードはhunter2です。",
        "Our garage code is 4711, not 4712",
    ],
)
def test_no_secret_is_learned(said: str):
    """V11, G1: a password that is asked to be remembered is not: it would stand in prompts in plain words."""
    assert learned(said) == []
    assert texts(f"{said}\nI live in Oslo.") == ["The user lives in Oslo"]


@pytest.mark.parametrize(
    "said",
    [
        "Never log passwords",
        "Never commit API keys",
        "Never put the API key in the repo",
        "Never use the same password twice",
        "Always pin the version",
    ],
)
def test_a_rule_may_speak_of_secrets(said: str):
    """V11: how passwords are to be treated is no password."""
    assert texts(said) == [said]


@pytest.mark.parametrize("smile", ["", " :)", " ;-)", " <3", " 😊", " ❤️", "😊", " :) 😊", " ^^", "!!! :D"])
def test_a_smile_changes_nothing(smile: str):
    """V11: a saying with a smile is a saying, and what is meant is learned without it."""
    assert learned(f"thanks, you're the best. never change{smile}") == []
    assert texts(f"I prefer tea over coffee{smile}") == ["The user prefers tea over coffee"]
    assert texts(f"Hi, I'm Jonas{smile}") == ["The user's name is Jonas"]


@pytest.mark.parametrize("said", ["I prefer Windows XP", "I prefer model x3", "I prefer ratios of 4:3"])
def test_what_only_looks_like_a_smile_stays(said: str):
    """V11: the words are the user's."""
    assert texts(said) == [said.replace("I prefer", "The user prefers")]


@pytest.mark.parametrize(
    "said, name",
    [
        ("hi, I'm Jonas", "Jonas"),
        ("Hello. I am Max.", "Max"),
        ("Hey there!\nI’m Anna-Lena from Acme.", "Anna-Lena"),
        ("Hi I'm Max Mustermann, can you help me?", "Max Mustermann"),
        ("Good morning, I'm Dr. Weber", "Dr. Weber"),
    ],
)
def test_who_greets_may_say_who_they_are(said: str, name: str):
    """V11: a name right after a greeting."""
    assert texts(said) == [f"The user's name is {name}"]


@pytest.mark.parametrize(
    "said",
    [
        "I'm Batman",
        "hi, I'm German",
        "hi, I'm tired",
        "Hi, I'm Jonas's wife",
        "Hello, I'm OK, thanks",
        "Hi, I'm Looking for a hotel",
        "Hi, I'm Product Manager and need help",
        "Hi, I'm Jonas?",
        "Hello, I'm Pregnant",
        "Hi, I'm Jonas, I'd like to order a pizza",
        "Let's role play. Hi, I'm Hook.",
    ],
)
def test_not_all_that_people_are_is_a_name(said: str):
    """V11: precision before recall."""
    assert [lesson for lesson in learned(said) if lesson.kind == "name"] == []


@pytest.mark.parametrize(
    "said, text, old",
    [
        ("No, the health check is on port 9090, not 8081.", "The health check is on port 9090", "8081"),
        ("Actually, our default branch is trunk, not master.", "Our default branch is trunk", "master"),
    ],
)
def test_what_corrects_a_port_or_a_branch_needs_no_answer_before_it(said: str, text: str, old: str):
    """V11: it names the thing, what is right and what is wrong. Without "no" it corrects nothing."""
    assert learned(said) == [Lesson(text, Target.ENVIRONMENT, "correction", 0, old)]
    assert all(lesson.kind == "fact" for lesson in learned(said.partition(", ")[2]))


def test_a_branch_that_is_in_a_bad_way_is_not_renamed():
    """V11: what a thing is like at the moment is no correction of what it is."""
    assert learned("No, the default branch is broken, not slow.") == []


@pytest.mark.parametrize(
    "said, text",
    [
        ("don't use emojis please", "Don't use emojis"),
        ("Please don't use em dashes in your answers.", "Don't use em dashes in your answers"),
        ("Use British spelling from now on, please", "Use British spelling"),
    ],
)
def test_how_somebody_wants_to_be_talked_to_is_theirs(said: str, text: str):
    """V11: manners hold for every task; "don't use recursion" is for one."""
    assert learned(said) == [Lesson(text, Target.USER, "preference", 0)]
    assert learned("don't use recursion please") == []


def test_what_follows_a_task_is_part_of_it():
    """V11: an instruction for what shall be made is no standing rule; one with a time is."""
    assert texts("Never use nested loops.") == ["Never use nested loops"]
    assert learned("Create a parser. Never use nested loops.") == []
    assert texts("Create a parser. From now on, never use nested loops.") == ["Never use nested loops"]


def test_what_is_said_before_a_task_is_still_meant():
    """V11: who tells something first and then asks for a text has told it."""
    assert texts("I live in Oslo. Write a letter to the council.") == ["The user lives in Oslo"]


def test_who_plays_a_part_teaches_nothing_from_then_on():
    """V11: in a play, "I" is a character."""
    assert find_lessons([("user", "Let's role play."), ("user", "My name is Hook.")]) == []


def test_a_message_that_would_teach_a_lot_is_a_document():
    """V11: nobody tells six lasting things at once."""
    told = ["I live in Oslo.", "I'm vegan.", "Call me Max.", "Never push to main.", "I'm a nurse.", "I speak Welsh."]
    assert len(learned("\n".join(told[:5]))) == 5
    assert learned("\n".join(told)) == []


def test_a_name_that_is_given_with_an_order_is_for_the_order():
    """V11: the name to call out when it is ready."""
    assert learned("I'd like a latte, my name is Steve.") == []
    assert texts("Hi, my name is Steve.") == ["The user's name is Steve"]


@pytest.mark.parametrize(
    "said, text",
    [
        ("Ich bin allergisch gegen Nüsse.", "Ich bin allergisch gegen Nüsse."),
        ("Merk dir, dass der Server auf Port 8443 läuft.", "der Server auf Port 8443 läuft"),
        ("Ne supprime jamais les tests.", "Ne supprime jamais les tests"),
        ("Llámame Lucho.", "Llámame Lucho"),
        ("Chiamami Gigi.", "Chiamami Gigi"),
        ("私の名前は太郎です。", "私の名前は太郎です"),
        ("覚えておいて、鍵は隣の人が持っている。", "鍵は隣の人が持っている"),
        ("Lembre que o deploy é na sexta.", "o deploy é na sexta"),
        ("Gebruik nooit tabs in de code.", "Gebruik nooit tabs in de code"),
    ],
)
def test_other_languages_are_kept_in_the_words_that_were_said(said: str, text: str):
    """V11: grammar that is not ours is not touched."""
    assert texts(said) == [text]


def test_most_messages_need_no_second_look():
    """V11: what holds no hint is passed over cheaply."""
    assert not may_teach("How do you reverse a list in Python?")
    assert may_teach("remember that CI runs on ARM")
