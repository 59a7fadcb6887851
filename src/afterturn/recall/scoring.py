"""Light words: said in conversations about anything, so that sharing one says less than its rarity makes believe."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from afterturn.text import terms, words
from afterturn.types import Hit, Kind, Origin

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LIGHT_WORDS = """
able absolutely actually afraid agree ahead almost already alright always amaze amazing another anybody anymore anyone
anything anytime anyway apologise apologize apology apparently appreciate around ask asked asking asks away awesome
awful back bad basically become begin believe best bet better big bit bless brilliant bring brought bye call came
carry certainly chance check cheer cheers clear come comes coming completely confirm congrats congratulations continue
cool correct correctly course crazy curious currently cute damn day dear definitely delighted different done double
easy either else enjoy enough especially even ever every everybody everyone everything exactly excellent excited
exciting excuse fabulous fact fair fantastic far feel feeling feels felt finally find fine first found fun funny gave
get gets getting give given gives giving glad go goes going gone gonna good goodness gorgeous gosh got gotcha gotta
grateful great guess guy guys haha happen happened happening happens happy hard hear heard hello help helped helpful
helping helps hey hi hmm hold honestly hope hoping idea imagine important incredible indeed instead interested
interesting keep keeping kept kind kinda kindly kinds knew know knowing known knows kudos last late later least leave
left less letting like liked likely little lol long longer look looked looking looks lot lots lovely luck lucky made
main make makes making many matter matters may maybe mean means meant might mind minute minutes moment much must near
need needed needs never nevermind new next nice nope noted nothing obvious obviously oh ok okay old one ones ooh oops
pardon particular particularly perfect perfectly perhaps pleasure possible possibly pretty probably proceed put
question questions quick quickly quite rather ready real really recently repeat right said saw say saying says second
see seeing seem seemed seems seen sense serious seriously set several short shortly show showed shows silly simple
simply since small someone something sometimes somewhere soon sorry sort sound sounds specific specifically start
started starting stay still stop stuff suggest super suppose supposed sure surely surprised take taken takes taking
talk talked talking tell telling tells terrible thank thankful thanks thing things think thinking thinks though
thought thoughts time times today together told tomorrow tonight took totally toward towards tried true truly try
trying ugh unbelievable understand understood unfortunately upon use used uses using usual usually verify via wait
waiting want wanted wanting wants way ways welcome well went whatever whether whoa whole wish wishes without wonder
wonderful wondering word words worries worry worth wow wrong yay yeah yep yes yesterday yet yikes yup
"""
# Greetings, thanks and assent elsewhere, with the small words around them. Some mean something else in English, so
# they count only where nothing else is said.
_COURTESIES = """
guten morgen abend hallo servus tschüss danke dankeschön vielen dank bitte gerne genau richtig klar alles ja nein doch
sehr schön freut mich mir dir dich ihnen ich wir sie es das ist geht gehts wie von noch auch machen nett okay
bonjour bonsoir salut merci beaucoup oui non ça va très bien parfait plaît je tu vous nous est le la les c j l n qu
hola buenos buenas días tardes noches gracias muchas por qué tal cómo estás está usted sí claro vale eso es el la
olá obrigado obrigada bom tudo bem não dia tarde noite você está
ciao buongiorno buonasera grazie prego stai sta sì perfetto va bene
hallo goedemorgen bedankt dank je wel graag gedaan ja nee gaat het jou prima
dzień dobry cześć dziękuję bardzo proszę tak nie jak się masz dobrze
merhaba teşekkürler teşekkür ederim evet tamam lütfen iyi
"""
# The same where letters stay beyond ASCII when accents are folded.
_COURTESIES_BEYOND = """
günaydın nasılsın nasılsınız hayır
привет здравствуйте доброе утро добрый день вечер спасибо большое пожалуйста как дела да нет конечно хорошо отлично
понятно ладно это очень
привіт дякую дуже будь ласка добрий ранок так ні справи
مرحبا السلام عليكم صباح الخير مساء النور كيف حالك شكرا جزيلا نعم لا من فضلك تمام حسنا جيد
नमस्ते नमस्कार आप कैसे हैं कैसी बहुत धन्यवाद शुक्रिया हाँ नहीं ठीक है अच्छा
你好 您好 早上好 晚上好 谢谢 谢谢你 非常感谢 不客气 好的 没问题 是的 对 明白了 知道了 太好了 再见 今天怎么样 你好吗
おはようございます こんにちは こんばんは ありがとうございます ありがとう どうも はい いいえ わかりました
了解しました お願いします すみません そうですね 大丈夫です 元気ですか
안녕하세요 감사합니다 고마워요 고맙습니다 네 아니요 좋아요 알겠습니다 괜찮아요 어떻게 지내세요
"""
LIGHT_TERMS = frozenset(terms(_LIGHT_WORDS))
_PLAIN_EMPTY_TERMS = LIGHT_TERMS | frozenset(terms(_COURTESIES))
_QUESTION = frozenset(
    "am are can could did do does had has have how is was were what when where which who whom whose why".split()
)
_ASKER = frozenset("i me mine my myself our ours us we".split())


def says_something(terms: Collection[str]) -> bool:
    """ "Noted.", "Sure, happy to!" do not: what is said around them would make them answers."""
    if "".join(terms).isascii():
        return not _PLAIN_EMPTY_TERMS.issuperset(terms)
    return not _empty_terms().issuperset(terms)


def is_remark(text: str, asked: Collection[str]) -> bool:
    """Of empty words alone, and no question but to the agent: "sounds good", "what do you mean?", "¿cómo estás?"."""
    # "LA" and "EST" are no courtesies.
    if says_something(asked) or (text.isascii() and text.strip().isupper()):
        return False
    said = words(text)
    is_question = said[0] in _QUESTION and not ("you" in said and _ASKER.isdisjoint(said))
    return _courtesy_terms().issuperset(asked) or not is_question


@cache
def _courtesy_terms() -> frozenset[str]:
    # When first needed: reading them takes 8 ms, and a program's first question is seldom a courtesy.
    return frozenset(terms(_COURTESIES + _COURTESIES_BEYOND))


@cache
def _empty_terms() -> frozenset[str]:
    return LIGHT_TERMS | _courtesy_terms()


# How words, meaning and what is known of an entry make one score, and the order of hits.
#
# The formulas take numbers or arrays of them: the pure path weighs entry by entry, a shelf all of a space at once.
# Their constants were chosen on conversations of three kinds (short turns, long answers, months of sessions); around
# each there is a wide plateau, and `afterturn eval` shows what changing one does.

N = TypeVar("N", float, "NDArray[Any]")

CONTEXT = (0.8, 0.4)
"""What a term in the next message counts, and in the one behind it, before `said_shortly`."""
REACH = len(CONTEXT)
"""So many messages before and after one belong to its context."""
LIGHT = 0.6
"""What a light word weighs of its rarity."""
FOLLOWS = 0.9
"""What comes beside a good answer may be weaker: of the floor, so much."""
NEAR_BEST = 0.72
"""And of the best, so much: beside a perfect answer, a fair one is noise."""
RECENT = 1000
"""Only so many of a space's newest entries are told apart by their recency."""
SIMILARITY_ASSUMED = 0.3
"""Of an entry without a vector, or for a question without one, if they share a word: as of an ordinary match."""
# A message of so many terms says half as much of its neighbours as a very short one.
_SHORT_TERMS = 30
# A term in an entry of no length is half saturated at a seventh of an occurrence, at a hundred terms at nearly one.
_LENGTH_FREE = 20
_LENGTH_PIVOT = 140
_SHARE_WORTH = 1.3
_TELLING_HALF = 8
_WEIGHT_WORTH = 0.05
_NEIGHBOUR_LIKENESS = 0.3
_GROUND = 0.3
_NAMED, _OWN, _RECENT = 0.24, 0.28, 0.4
_RECENT_HALF = 200
# Among more messages more is alike by chance, up to about five hundred.
_EVEN_ALONE = 0.8
_EVEN_TENFOLD = 0.278
_CROWD = 500
# No entry holds all of a long question, and small talk is short: each word beyond seven asks for less, up to twelve.
_WORDS_PLAIN, _WORDS_MANY = 7, 12
_EVEN_WORD = 0.04
# To stand for a record, a statement reaches so much of its words and meaning; small cosines differ by chance.
_AS_WELL, _AS_CLOSE = 0.8, 0.1
# What is so much longer says more, and nobody has to read it for that.
_LONGER_MAX = 8


def said_shortly(length: N) -> N:
    """How much a message of so many terms says of the ones around it: an answer of pages is about itself."""
    said: N = _SHORT_TERMS / (_SHORT_TERMS + length)
    return said


def saturated(count: N, length: N) -> N:
    """0 to 1: what so many occurrences in an entry of that length count, its context included in both."""
    share: N = count / (count + (length + _LENGTH_FREE) / _LENGTH_PIVOT)
    return share


def in_context(own: N, before: N, after: N) -> N:
    """Likeness to the question of an entry between two; where there is no neighbour, `own` stands for it."""
    likeness: N = (own + _NEIGHBOUR_LIKENESS * (before + after)) / (1 + 2 * _NEIGHBOUR_LIKENESS)
    return likeness


def worth(total: float, telling: float) -> float:
    """What the whole of a query's words is worth beside its meaning: the more, the more it says. `telling` is the
    weight of what is not light."""
    return _SHARE_WORTH * telling / (telling + _TELLING_HALF) + _WEIGHT_WORTH * total


def evidence(share: N, worth: float, likeness: N) -> N:
    """`share` is how much of the query's weight an entry reaches."""
    found: N = worth * share + likeness
    return found


def standing(named: N, own: N, newer: N) -> N:
    """What is known of an entry beside its words: 1 or 0 whether its speaker is named in the question, whether it is
    the user's own word or a statement; and how many entries of the space are newer, `RECENT` at the most."""
    factor: N = 1 + _NAMED * named + _OWN * own + _RECENT / (1 + newer / _RECENT_HALF)
    return factor


EVEN_STATED = 1.0
"""What makes a score of 0.5 where it was stated: nobody states small talk, so less has to speak for it."""


def even(documents: int, words: int = 0) -> float:
    """What makes a score of 0.5 of a message in a space of so many entries: about one small talk in twenty does.
    `words` are those of the question that are not light."""
    alone = _EVEN_ALONE + _EVEN_TENFOLD * math.log10(max(1, min(documents, _CROWD)))
    return alone * (1 - _EVEN_WORD * max(0, min(words, _WORDS_MANY) - _WORDS_PLAIN))


def score(evidence: N, standing: N, even: N) -> N:
    """0 to 1, or below where something means the opposite; `even` is what makes 0.5."""
    value: N = (evidence + _GROUND) * standing
    share: N = value / (value + even)
    return share


def is_own(kind: Kind, origin: Origin) -> bool:
    return kind is Kind.STATEMENT or origin is Origin.USER


def in_order(hits: Iterable[Hit]) -> list[Hit]:
    """Best first; equal scores: the newer, then by id."""
    found = list(hits)
    # As one space gives them.
    if all(one.score > other.score for one, other in pairwise(found)):
        return found
    return sorted(found, key=lambda hit: (-hit.score, -hit.entry.occurred_at, hit.entry.id, hit.entry.version))


def without_repeats(hits: Iterable[Hit]) -> list[Hit]:
    """A statement stands in for records that it rests on, at the place and with the score of the best of them (L10),
    where nothing is lost by that: what a message says beyond it must not go with it.

    Whatever is found on its own account stays, with its own score. `hits` are best first, and so is what is left.
    """
    ordered = list(hits)
    statements: dict[str, list[Hit]] = {}
    for hit in ordered:
        if hit.entry.kind is Kind.STATEMENT:
            for source in hit.entry.sources:
                statements.setdefault(source, []).append(hit)
    chosen: dict[str, Hit] = {}
    for hit in ordered:
        shown = hit if hit.entry.kind is Kind.STATEMENT else _stand_in(hit, statements.get(hit.entry.id, ()))
        chosen.setdefault(shown.entry.ref, shown)
    return list(chosen.values())


def stands_for(statement: Hit, record: Hit) -> bool:
    """Whether a statement that rests on a record answers the question about as well, and says most of what that says.

    Their scores do not tell: being stated, or recent, is worth the same whatever is asked. And only for what is trusted
    no more than it is: naming a record as its source must not silence it.
    """
    # What a review wrote stands for the user's own words that it rests on; what a tool or a page says does not.
    if statement.entry.trust < min(record.entry.trust, Origin.BACKGROUND_REVIEW.trust):
        return False
    return _answers_as_well(statement, record) and _says_most(statement.entry.text, record.entry.text)


def _answers_as_well(statement: Hit, record: Hit) -> bool:
    """With every word that the record was found by, and nearly as close to the question by words and by meaning."""
    lacking = frozenset(record.terms).difference(statement.terms, LIGHT_TERMS)
    if lacking or statement.lexical < _AS_WELL * record.lexical:
        return False
    if record.similarity is None:
        return True
    similarity = SIMILARITY_ASSUMED if statement.similarity is None else statement.similarity
    return similarity >= min(_AS_WELL * record.similarity, record.similarity - _AS_CLOSE)


def _says_most(statement: str, record: str) -> bool:
    """A question may name what both do, and ask for the rest of the message."""
    if len(record) > _LONGER_MAX * len(statement):
        return False
    said = frozenset(terms(record)).difference(LIGHT_TERMS)
    return len(said.difference(terms(statement))) <= len(said) / 2


def _stand_in(record: Hit, statements: Iterable[Hit]) -> Hit:
    chosen = next((hit for hit in statements if stands_for(hit, record)), record)
    return chosen if chosen.score >= record.score else replace(chosen, score=record.score)
