"""Small talk, for which recall should find nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from afterturn.evaluation.datasets import Talk, Utterances
from afterturn.evaluation.examination import DAY, Subject
from afterturn.recall.query import needs_recall

SMALL_TALK = tuple(
    line.strip()
    for line in """
    Hello!
    Hi there, good morning
    Hey, how are you?
    How are you doing today?
    Good evening
    Morning! Did you sleep well?
    Hey, it's me again
    Long time no see
    Nice to meet you
    What's up?
    How's it going?
    Thanks!
    Thank you so much, that helps a lot
    Thanks, that's all for now
    Perfect, thank you
    Great, thanks a million
    Cheers, mate
    I really appreciate it
    You're the best
    You are so kind
    ok
    okay cool
    Sounds good to me
    That makes sense
    Alright then
    Got it
    I see
    Yes please
    Yeah, sure
    No, that's fine
    Not really
    Maybe later
    Let me think about it
    Just a second
    Hold on a moment
    One moment please
    Go ahead
    Go on
    Continue
    Please continue
    Carry on
    Next
    Again please
    Could you repeat that?
    Can you say that again?
    What do you mean?
    Are you sure?
    Really?
    Seriously?
    No way!
    Oh wow
    Whoa, that's amazing
    lol nice
    haha that's funny
    hahaha
    omg
    hmm
    umm, well, you know
    Ugh
    Oops, my bad
    Sorry about that
    No worries
    Never mind
    It doesn't matter
    Whatever you like
    As you wish
    I don't know
    I have no idea
    Who knows
    Fair enough
    Good point
    Exactly
    You're right
    I agree
    That's what I thought
    Interesting
    That's great news
    Awesome, well done
    Congratulations!
    Good luck!
    Have a nice day
    Have a great weekend
    Good night
    See you later
    See you tomorrow
    Talk to you soon
    Bye for now
    Take care
    It's so hot today
    It's raining again
    What lovely weather we have
    I'm bored
    I'm so tired today
    I'm back
    Still there?
    Are you there?
    Can you hear me?
    Let's get started
    Let's begin
    Tell me something
    Tell me a joke
    Can you help me?
    I need your help
    I have a question
    Quick question
    test
    just testing
    👍
    🎉🎉🎉
    :)
    Hallo, wie geht's dir?
    Vielen Dank, das war sehr nett
    Alles klar, bis später
    Schönes Wochenende!
    Salut, ça va ?
    Merci beaucoup, c'est parfait
    D'accord, à bientôt
    Bonne nuit
    Hola, ¿qué tal?
    Muchas gracias por todo
    De acuerdo, hasta luego
    Ciao, come stai?
    Grazie mille, a presto
    Olá, tudo bem?
    Obrigado, até logo
    Привет, как дела?
    Большое спасибо, пока
    Понятно, хорошо
    Dzień dobry, co słychać?
    Γεια σου, τι κάνεις;
    Merhaba, nasılsın?
    Teşekkür ederim, görüşürüz
    مرحبا، كيف حالك؟
    شكرا جزيلا
    שלום, מה שלומך?
    नमस्ते, आप कैसे हैं?
    बहुत धन्यवाद
    你好，最近怎么样？
    谢谢你，再见
    好的，没问题
    こんにちは、お元気ですか？
    ありがとうございます
    なるほど、わかりました
    안녕하세요, 잘 지내세요?
    고마워요, 안녕
    สวัสดี สบายดีไหม
    """.splitlines()
    if line.strip()
)


# Templates and what fills them; any two of one language make a sentence that nobody needs to remember.
_TEMPLATES = (
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
_ENDINGS = ("", "!", "...", " :)", "!!", " 😄", " 🙈")
_REPLIES = (
    "You're welcome!",
    "Glad to hear that.",
    "Indeed!",
    "Gern geschehen!",
    "Avec plaisir !",
    "¡De nada!",
    "そうですね。",
)


def make_small_talk(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Exchanges of small talk in six languages: a remark and a reply, `count` of them, the same for each seed."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        templates, fillers = chance.choice(_TEMPLATES)
        made = chance.choice(templates).format(chance.choice(fillers)) + chance.choice(_ENDINGS)
        found.append((chance.choice((made, made, chance.choice(SMALL_TALK))), chance.choice(_REPLIES)))
    return found


BUILT_IN = Utterances("small_talk", SMALL_TALK)
# A remark takes about as long as a question.
SAMPLE = 300


@dataclass(slots=True)
class SilenceCounts:
    """Counts remarks, and those that started no recall; `heard` are the remarks that got a block."""

    count: int = 0
    not_asked: int = 0
    heard: list[str] = field(default_factory=list)

    def add(self, other: SilenceCounts) -> None:
        self.count += other.count
        self.not_asked += other.not_asked
        self.heard += other.heard

    def shares(self) -> dict[str, float]:
        """Shares of all remarks. `silence` is the sum of the other two."""
        silent = self.count - len(self.heard)
        return {
            "silence": silent / self.count,
            "not_asked": self.not_asked / self.count,
            "below_floor": (silent - self.not_asked) / self.count,
        }


def sampled(texts: Sequence[str], count: int = SAMPLE) -> Sequence[str]:
    """Up to `count` texts at even distances, the same each time."""
    if len(texts) <= count:
        return texts
    return [texts[at * len(texts) // count] for at in range(count)]


def count_silence(
    subject: Subject, spaces: Sequence[tuple[str, Talk]], utterances: Utterances, asked: Callable[[], None]
) -> SilenceCounts:
    """Says each remark in the next space."""
    spoken = SilenceCounts()
    for at, text in enumerate(sampled(utterances.texts)):
        space, talk = spaces[at % len(spaces)]
        subject.clock.set(max(item.at for item in talk.items) + DAY)
        spoken.count += 1
        if subject.handed_over(space, text).text:
            spoken.heard.append(text)
        elif not needs_recall(text):
            spoken.not_asked += 1
        asked()
    return spoken
