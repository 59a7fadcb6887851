"""Small talk does not push a right line out of a block, with the weights and settings that are shipped.

Each person says some things, and asks about them before and after ten times as many remarks were recorded.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.evaluation.run import BUILT_IN
from afterturn.services import Components
from afterturn.testing.clock import ManualClock
from afterturn.types import Draft, Kind, Origin

WAIT = 100.0
DAY = 86_400.0
TIMES = 10
ANSWER = {"en": "Noted.", "de": "Alles klar.", "fr": "C'est noté.", "es": "Anotado.", "ja": "わかりました。"}
# What each person says, and a question about it.
LIVES: dict[str, list[tuple[str, str]]] = {
    "en": [
        ("I'm allergic to penicillin, it gave me a rash as a child", "Can I take penicillin?"),
        ("our cat Pepper must not eat fish", "What can't our cat eat?"),
        ("my sister Ruth works at the harbour office in Leith", "Where does my sister work?"),
        ("the spare key is under the blue pot in the garden", "Where is the spare key?"),
        ("I moved to Dundee in March", "Where do I live?"),
        ("we use pnpm in this repo, not npm", "Which package manager do we use in this repo?"),
        ("my dentist is Dr Okafor on Mill Street", "Who is my dentist?"),
    ],
    "de": [
        ("ich vertrage keine Haselnüsse, da schwillt mir der Hals zu", "Vertrage ich Haselnüsse?"),
        ("mein Bruder Arne arbeitet bei der Bahn in Kassel", "Wo arbeitet mein Bruder?"),
        ("unser Hund heißt Fips und ist ein Dackel", "Wie heißt unser Hund?"),
        ("der Zweitschlüssel liegt bei Frau Albers im Erdgeschoss", "Wo ist der Zweitschlüssel?"),
        ("meine Zahnärztin ist Frau Doktor Wendt", "Wer ist meine Zahnärztin?"),
    ],
    "fr": [
        ("je suis allergique aux crevettes depuis l'enfance", "À quoi suis-je allergique ?"),
        ("ma sœur Maud travaille à la mairie de Brest", "Où travaille ma sœur ?"),
        ("notre chat s'appelle Réglisse", "Comment s'appelle notre chat ?"),
        ("le double des clés est chez madame Perrot", "Où est le double des clés ?"),
        ("mon dentiste est le docteur Vasseur", "Qui est mon dentiste ?"),
    ],
    "es": [
        ("soy alérgica a las nueces desde pequeña", "¿A qué soy alérgica?"),
        ("mi hermano Iker trabaja en el puerto de Bilbao", "¿Dónde trabaja mi hermano?"),
        ("nuestro perro se llama Canelo", "¿Cómo se llama nuestro perro?"),
        ("la llave de repuesto la tiene la vecina Rosario", "¿Quién tiene la llave de repuesto?"),
        ("mi dentista es la doctora Salas", "¿Quién es mi dentista?"),
    ],
    "ja": [
        ("私はエビのアレルギーがあります", "私は何のアレルギーがありますか？"),
        ("妹は京都の図書館で働いています", "妹はどこで働いていますか？"),
        ("うちの猫の名前はきなこです", "うちの猫の名前は何ですか？"),
        ("合鍵は隣の田辺さんに預けてあります", "合鍵は誰に預けてありますか？"),
    ],
}
REMARKS = {
    "en": """hello again|good morning|thanks, that helps|haha that's funny|ok cool|I am so tired today|what a day
    |never mind|see you tomorrow|lovely weather|nice one|sounds good to me|I'm bored|you're the best|phew, it is hot""",
    "de": """hallo|guten Morgen|danke dir|haha sehr gut|na schön|ich bin so müde heute|was für ein Tag|egal|bis morgen
    |schönes Wetter|klingt gut|mir ist langweilig|du bist der Beste|puh, ist das heiß""",
    "fr": """bonjour|merci beaucoup|haha trop drôle|d'accord|je suis crevée aujourd'hui|quelle journée|peu importe
    |à demain|quel beau temps|ça me va|je m'ennuie|t'es le meilleur|ouf, quelle chaleur""",
    "es": """hola|buenos días|muchas gracias|jaja qué gracioso|vale|hoy estoy muy cansada|vaya día|da igual|hasta mañana
    |qué buen tiempo|me parece bien|qué aburrimiento|eres el mejor|uf, qué calor""",
    "ja": """こんにちは|おはよう|ありがとう|面白いね|了解|今日は疲れた|すごい一日だった|なんでもない|また明日
    |いい天気だね|いいね|暑いね""",
}


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory, clock: ManualClock) -> Iterator[blocking.Memory]:
    path: Path = tmp_path_factory.mktemp("crowded") / "memory.db"
    with blocking.open(path, {"recording": False}, components=Components(clock=clock)) as opened:
        assert opened.ready(within=WAIT)
        yield opened


def say(memory: blocking.Memory, user: str, said: list[str], conversation: str, answer: str, at: float) -> None:
    drafts = []
    for place, text in enumerate(said):
        shared: dict[str, Any] = {
            "kind": Kind.RECORD,
            "conversation": conversation,
            "turn": f"{conversation}-{place}",
            "occurred_at": at + 60.0 * place,
        }
        drafts.append(Draft(text, position=2 * place, **shared))
        drafts.append(Draft(answer, origin=Origin.AGENT, position=2 * place + 1, **shared))
    memory.space(f"user:{user}").add_many(drafts)
    assert memory.drain(within=WAIT)


def ask(memory: blocking.Memory, user: str, question: str, when: str) -> str:
    """The block of a new conversation that begins with the question."""
    messages: list[Any] = [{"role": "user", "content": question}]
    with memory.conversation(f"{when} {question}", user=user).turn(messages) as turn:
        block = turn.inject(messages, within=WAIT)
    return "" if block is None else str(block["content"])


# Templates and what fills them; any two of one language make a sentence that nobody needs to remember.
TEMPLATES = (
    (
        (
            "Wow, it is {} again",
            "So {} out there",
            "Ugh, another {} morning",
            "What a {} day, right?",
            "lol, {} as ever",
        ),
        ("sunny", "rainy", "grey", "windy", "freezing", "humid", "foggy", "stormy", "chilly", "gorgeous", "gloomy"),
    ),
    (
        ("Hi, I feel {} right now", "haha that was {}", "Thanks, that sounds {}", "Hmm, {}, I guess", "ok, {} then"),
        ("great", "silly", "tired", "sleepy", "fine", "cheerful", "lazy", "bored", "lucky", "grumpy", "amazing"),
    ),
    (
        ("Na, heute ist es ja {}", "Puh, schon wieder so {}", "Danke, das klingt {}", "Haha, das war {}"),
        ("windig", "neblig", "schwül", "eisig", "herrlich", "trüb", "lustig", "prima", "öde", "albern"),
    ),
    (
        ("Oh là là, quel temps {}", "Merci, c'est vraiment {}", "Bon, un matin {}", "Haha, c'était {}"),
        ("magnifique", "horrible", "superbe", "triste", "agréable", "drôle", "étrange", "terrible", "calme"),
    ),
    (
        ("Uf, qué día tan {}", "Gracias, qué {}", "Jaja, eso fue {}", "Bueno, hoy está todo {}"),
        ("bonito", "gris", "raro", "tranquilo", "divertido", "aburrido", "increíble", "lento"),
    ),
    (
        ("今日は本当に{}ですね", "なんだか{}気分です", "へえ、{}ですね", "ありがとう、{}です"),
        ("暑い", "寒い", "眠い", "楽しい", "面白い", "嬉しい", "静か", "のんびり"),
    ),
)
ENDINGS = ("", "!", "...", " :)", "!!", " 😄", " 🙈")


def own_remarks(language: str, count: int) -> list[str]:
    remarks = [remark.strip() for remark in REMARKS[language].split("|")]
    return [remarks[place % len(remarks)] for place in range(count)]


def mixed_remarks(language: str, count: int) -> list[str]:
    """In six languages, made of templates: few of them are equal."""
    chance = random.Random(1)
    found = []
    for _ in range(count):
        templates, fillers = chance.choice(TEMPLATES)
        made = chance.choice(templates).format(chance.choice(fillers)) + chance.choice(ENDINGS)
        found.append(chance.choice((made, made, chance.choice(BUILT_IN.texts))))
    return found


@pytest.mark.parametrize("remarks", [own_remarks, mixed_remarks])
@pytest.mark.parametrize("language", LIVES)
def test_ten_times_as_much_small_talk_pushes_no_right_line_out(
    memory: blocking.Memory, clock: ManualClock, language: str, remarks: Callable[[str, int], list[str]]
) -> None:
    """L13, L11: the chance that a line helps does not depend on how much else was said."""
    lived, user, now = LIVES[language], f"{language}-{remarks.__name__}", clock.now()
    say(memory, user, [text for text, _ in lived], "life", ANSWER[language], now - 30 * DAY)
    before = {text: ask(memory, user, question, "before") for text, question in lived}
    right = [text for text, block in before.items() if text in block]
    assert len(right) >= len(lived) - 1
    say(memory, user, remarks(language, TIMES * len(lived)), "small talk", ANSWER[language], now - 2 * DAY)
    asked = {text: question for text, question in lived if text in right}
    lost = [text for text, question in asked.items() if text not in ask(memory, user, question, "after")]
    assert lost == []
