"""Texts to measure with: generated sentences, texts of a file, and memories with questions about a team's work."""

from __future__ import annotations

import functools
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from afterturn.errors import InvalidInput
from afterturn.text import STOP_WORDS, words
from afterturn.types import Draft, Kind

_COMMON = (
    "the a of to in and for with on at from by after before about that this every her his their our when because "
    "while under over without between during"
).split()
_PLAIN = (
    "account address answer apartment approves archive asks autumn backup bakery balcony bicycle birthday branch "
    "bread breakfast bridge brother budget builds calendar calls canal ceramics changed checks chooses cinema city "
    "client coast coffee colleague column compiler concert contract cooks corner cousin customer cycles daughter "
    "deadline decided deploys desk dinner doctor document door drinks early editor email engineer evening expects "
    "export family favourite ferry festival finds folder forest friend function garden gateway goes grandmother green "
    "guitar harbour hates holiday hospital house hotel import inbox index interview invoice island jacket journey "
    "keeps kitchen knows ladder language laptop latency learned letter library likes listens lives lunch manager "
    "market meeting meets mentioned migration module money monthly morning mountain moved museum music needs "
    "neighbour network never night northern notebook notes novel office often oolong orders owns package painting "
    "parser password patient pays piano picture pipeline plans platform plays policy prefers printer project promised "
    "protocol query quiet railway rarely reads receipt recipe refund release remembers renewal repairs report reviews "
    "river room runs sailing salad saturday schema school script sells sends sensor september server several sister "
    "sleeps small soup speaks spring square staging station still street studies summer supplier swims table taxes "
    "teacher team teapot tennis terminal theatre thinks ticket timeout token tomorrow train travels tuesday uses "
    "usually vacation vegetarian version visits waits walks wants warehouse weekend western wheel window winter works "
    "writes yellow yesterday"
).split()
_SYLLABLES = (
    "ba ce do fi ga hu ji ka lo mi na pe qui ro sa te ul va wi xo yu zen mar lin tor bel dan fer gri hol".split()
)
_NAMES = 4000
_WORDS_MIN, _WORDS_MAX = 8, 20


def sentences(count: int, seed: int) -> list[str]:
    """Of 8 to 20 words, in which few words are frequent and many are rare, as in real text."""
    random = Random(seed)
    vocabulary, weights = _vocabulary(Random(1))
    found: list[str] = []
    for _ in range(count):
        words = random.choices(vocabulary, cum_weights=weights, k=random.randint(_WORDS_MIN, _WORDS_MAX))
        found.append(" ".join(words).capitalize() + ".")
    return found


def _vocabulary(random: Random) -> tuple[list[str], list[float]]:
    names = ["".join(random.choices(_SYLLABLES, k=random.randint(2, 4))).capitalize() for _ in range(_NAMES)]
    plain = random.sample(_PLAIN, len(_PLAIN))
    words = [*_COMMON, *plain, *names]
    return words, list(accumulate(1 / (rank + 3) for rank in range(len(words))))


_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_SENTENCE_CHARS_MAX = 400
_SENTENCES_MAX = 8
_ITEM_CHARS_MAX = 2000
_ASKED_WORDS = (3, 6)
_BATCH = 10_000
_STATEMENT_EVERY = 5
_CONVERSATION = 40
_SPEAKERS = ("Ada", "assistant")
_SECONDS_APART = 60.0
# A fixed day: the same store can be made again, and nothing in it is from the future.
_LAST = 1_780_000_000.0


@dataclass(frozen=True, slots=True)
class Corpus:
    """`items` and `asked` are those of a file, empty for generated text. `name` tells two corpora apart."""

    name: str
    items: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    @property
    def is_real(self) -> bool:
        return bool(self.items)

    def texts(self, count: int, seed: int) -> Iterator[str]:
        """All different. Of real text: the items first, then as many sentences of several items as one has."""
        if not self.is_real:
            for start in range(0, count, _BATCH):
                yield from sentences(min(_BATCH, count - start), seed=seed * 1_000 + start // _BATCH)
            return
        seen: set[str] = set()
        for text in self._recombined(Random(seed)):
            if len(seen) == count:
                return
            if text not in seen:
                seen.add(text)
                yield text

    def questions(self, count: int, texts: list[str], seed: int) -> list[str]:
        """Those of the file; without any, some telling words of one of `texts` each, so that there is an answer."""
        random = Random(seed)
        if self.asked:
            return [random.choice(self.asked) for _ in range(count)]
        return [_question(random.choice(texts), random) for _ in range(count)]

    def _recombined(self, random: Random) -> Iterator[str]:
        yield from random.sample(self.items, len(self.items))
        pool = [_split(item) for item in self.items]
        flat = [sentence for found in pool for sentence in found]
        while True:
            size = max(2, min(_SENTENCES_MAX, len(random.choice(pool))))
            yield " ".join(random.choices(flat, k=size))[:_ITEM_CHARS_MAX]


def load_corpus(path: Path | None) -> Corpus:
    """A conversation file (JSON, also gzipped), lines of JSON with a "text", or plain text by lines. InvalidInput."""
    if path is None:
        return Corpus("generated")
    try:
        items, asked = _read(path)
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read as text: {error}. See `python -m lab.bench --help`.") from error
    cut = tuple(dict.fromkeys(text[:_ITEM_CHARS_MAX].strip() for text in items if text.strip()))
    if not cut:
        raise InvalidInput(f"{path} holds no text. Name a file that does.")
    return Corpus(path.name, cut, tuple(dict.fromkeys(asked)))


def drafts(texts: Iterator[str], count: int) -> Iterator[Draft]:
    """As conversations leave them: messages of two speakers, and a statement for every few of them."""
    for at, text in enumerate(texts):
        said_at = _LAST - (count - at) * _SECONDS_APART
        if at % _STATEMENT_EVERY == 0:
            yield Draft(text, occurred_at=said_at)
            continue
        yield Draft(
            text,
            kind=Kind.RECORD,
            conversation=f"c{at // _CONVERSATION}",
            position=at % _CONVERSATION,
            speaker=_SPEAKERS[at % 2],
            occurred_at=said_at,
        )


def _read(path: Path) -> tuple[list[str], list[str]]:
    data = path.read_bytes()
    content = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    return _conversations(content) if content.lstrip().startswith("[") else _lines(content)


def _conversations(content: str) -> tuple[list[str], list[str]]:
    found: list[dict[str, Any]] = json.loads(content)
    items = [item["text"] for conversation in found for item in conversation["items"]]
    return items, [asked["question"] for conversation in found for asked in conversation.get("questions", ())]


def _lines(content: str) -> tuple[list[str], list[str]]:
    lines = content.splitlines()
    if lines[:1] and lines[0].lstrip().startswith("{"):
        return [json.loads(line)["text"] for line in lines if line.strip()], []
    return lines, []


def _split(text: str) -> list[str]:
    return [part[:_SENTENCE_CHARS_MAX] for part in _SENTENCE.split(text) if part.strip()]


def _question(text: str, random: Random) -> str:
    telling = [word for word in words(text) if word not in STOP_WORDS] or [text]
    size = min(len(telling), random.randint(*_ASKED_WORDS))
    chosen = sorted(random.sample(range(len(telling)), size))
    return f"What about {' '.join(telling[at] for at in chosen)}?"


USER = "bench"
SPACE = f"user:{USER}"
SYSTEM = "You are the assistant of a small team that runs a shop on the web. Answer briefly and use the tools."
TOOLS = ("read_file", "search_code", "run_tests", "list_orders")
_TOOL_LINES = 500


@dataclass(frozen=True, slots=True)
class Topic:
    """Statements that were learned about something, and questions about it, asked at different times."""

    facts: tuple[str, ...]
    questions: tuple[str, ...]


TOPICS = (
    Topic(
        (
            "The staging server is deployed from the branch release/next, every weekday at 17:00, by the deploy bot.",
            "Deploys to production need two approvals, and Mira must be one of the approvers on Fridays.",
            "A failed deploy is rolled back with `make rollback`, which brings the image and the schema back.",
            "Deploy keys are rotated on the first Monday of a quarter; the runbook is in docs/deploy-keys.md.",
            "The deploy of the search service takes twelve minutes because its index is rebuilt on every node.",
        ),
        (
            "How do we deploy to the staging server, and from which branch?",
            "The production deploy failed a minute ago. How do I roll it back, and who has to approve the next one?",
            "When were the deploy keys rotated last, and why does deploying the search service take so long?",
        ),
    ),
    Topic(
        (
            "Ada prefers short answers with the conclusion first, and no bullet lists under three items.",
            "Ada writes commit messages in the imperative and wants the reason for a change in the body.",
            "Ada reviews code in the morning, before ten, and does not want to be pinged after six in the evening.",
            "Ada uses a split keyboard with the Colemak layout, so shortcuts that need the home row annoy her.",
            "Ada asked for British spelling in everything that customers read.",
        ),
        (
            "Write a commit message for this change the way Ada prefers them.",
            "When does Ada review code, and may I ping her this evening?",
            "Draft a short answer to a customer for Ada, in the spelling that she asked for.",
        ),
    ),
    Topic(
        (
            "Invoices are created at midnight UTC by the billing job, which retries a failed customer three times.",
            "Refunds above 500 euros need an approval from finance, who answer within one working day.",
            "The billing provider sends webhooks twice now and then, so every handler checks the event id first.",
            "Customers in Switzerland get invoices in francs, rounded to five centimes.",
            "An invoice that was sent can not be edited: it is cancelled by a credit note and created anew.",
        ),
        (
            "A customer wants a refund of 800 euros. What do I have to do for the refund?",
            "Why did the billing webhook create the same invoice twice?",
            "How is a wrong invoice corrected after it was sent to a customer in Switzerland?",
        ),
    ),
    Topic(
        (
            "The flaky test test_checkout_total depends on the time zone; it passes with TZ=UTC.",
            "Integration tests need the containers from compose.test.yml, and take about nine minutes on a laptop.",
            "Snapshot tests of the e-mail templates are updated with `make snapshots`, never by hand.",
            "Tests that touch the payment sandbox are marked `slow` and run only at night.",
            "Coverage below 85 percent fails the build of the pricing module, and of no other module.",
        ),
        (
            "Why is test_checkout_total flaky on my machine when the other tests pass?",
            "How long do the integration tests take, and which containers do they need?",
            "How do I update the snapshot tests of the e-mail templates, and which tests run only at night?",
        ),
    ),
    Topic(
        (
            "The orders table is partitioned by month, and partitions older than two years live on slow disks.",
            "Migrations must be reversible and are reviewed by Tomas, who looks at locks and at table sizes.",
            "The read replica lags up to four seconds in the evening, so the checkout reads from the primary database.",
            "The column customers.phone is encrypted, and searching it needs the blind index customers.phone_index.",
            "Database backups are taken every six hours and restored into a scratch cluster once a week as a test.",
        ),
        (
            "Write a migration that adds a column to the orders table. What does its review look at?",
            "Why does the checkout read from the primary database instead of the replica?",
            "How can I search customers by phone when the column is encrypted, and when was the last backup restored?",
        ),
    ),
    Topic(
        (
            "The search service ranks products by sales of the last thirty days and by how well the title matches.",
            "Synonyms for search live in search/synonyms.yaml, and a change needs a rebuild of the index.",
            "SearchMode for an article number must put that article first, which is covered by test_article_numbers.",
            "The search index holds 2.4 million products and fits in 11 gigabytes of memory.",
            "Misspelled search words are corrected only when nothing at all was found.",
        ),
        (
            "How does the search service rank products, and where do I add a synonym?",
            "A customer typed an article number and the search put another product first. Which test covers that?",
            "How large is the search index, and when are misspelled words corrected?",
        ),
    ),
    Topic(
        (
            "The team meets on Tuesday at 9:30 for planning and on Thursday at 15:00 for a demo.",
            "Lena is on parental leave until September and Jonas takes her reviews of the mobile app.",
            "The on-call week begins on Wednesday at noon, and the calendar of it is kept by Priya.",
            "New colleagues get a laptop from the IT desk in room 2.14 and an account from Priya.",
            "The office in Ghent closes at seven in the evening, after which the badge opens the side door only.",
        ),
        (
            "When does the team meet for planning this week, and when is the demo?",
            "Who reviews changes of the mobile app while Lena is on leave?",
            "Who is on call after Wednesday noon, and where does a new colleague get a laptop?",
        ),
    ),
    Topic(
        (
            "Feature flags are kept in the flags service, and a flag without an owner is removed after ninety days.",
            "The flag new_checkout is on for 20 percent of the customers in Belgium and for nobody else.",
            "Turning a flag off must work without a deploy, so code behind flags is never on the import path.",
            "Experiments behind a flag end with a note in docs/experiments.md that says what was learned.",
            "The flags service caches for sixty seconds, so a change shows after a minute at the latest.",
        ),
        (
            "For whom is the feature flag new_checkout on at the moment?",
            "I turned a feature flag off and nothing changed. How long does the flags service cache?",
            "What happens to a flag without an owner, and how does an experiment behind a flag end?",
        ),
    ),
    Topic(
        (
            "The mobile app supports Android 10 and newer and iOS 16 and newer; older ones get the web shop.",
            "Push messages of the mobile app go out between nine and twenty local time, and never on Sunday.",
            "The mobile app's login token lives thirty days and is renewed silently in its last week.",
            "Crash reports of the mobile app arrive in the channel app-crashes and are read by Jonas every morning.",
            "A release of the mobile app waits two days at five percent before it goes to everybody.",
        ),
        (
            "Which versions of Android and iOS does the mobile app support?",
            "A push message of the mobile app did not arrive on Sunday. Is that expected?",
            "How is a release of the mobile app rolled out, and who reads its crash reports?",
        ),
    ),
    Topic(
        (
            "The warehouse in Liège ships until 16:00, and orders after that leave on the next working day.",
            "Parcels over 31 kilograms go by freight, and the customer is asked for a delivery slot by phone.",
            "Returns are free for thirty days, and the label is created on the order page, not by e-mail.",
            "The stock of an article is reserved for twenty minutes when it is put into a basket.",
            "Articles that are out of stock for sixty days are hidden from the shop, and stay findable by number.",
        ),
        (
            "Until when does the warehouse ship today, and what happens to later orders?",
            "How does a customer return a parcel, and where is the label created?",
            "Why is an article out of stock hidden in the shop, and how long is stock reserved in a basket?",
        ),
    ),
)


def memories(others: int) -> list[str]:
    """All facts, mixed with the given number of statements about other things."""
    return [*(fact for topic in TOPICS for fact in topic.facts), *sentences(others, seed=7)]


def questions(count: int) -> list[str]:
    """The first about each topic, then the second about each, and so on, from the beginning again when all are asked.

    So topics come back, as they do in a long conversation.
    """
    every = [topic.questions[at] for at in range(len(TOPICS[0].questions)) for topic in TOPICS]
    return [every[at % len(every)] for at in range(count)]


def tool_call(at: int) -> tuple[str, dict[str, Any]]:
    return TOOLS[at % len(TOOLS)], {"query": f"step {at}", "limit": 20}


def tool_result(call: dict[str, Any], at: int) -> dict[str, Any]:
    """Some 600 bytes, different at each place of a conversation."""
    content = json.dumps({"place": at, "lines": _tool_lines()[at % _TOOL_LINES : at % _TOOL_LINES + 6]})
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


@functools.cache
def _tool_lines() -> list[str]:
    return sentences(_TOOL_LINES + 6, seed=13)


def past(count: int) -> list[dict[str, Any]]:
    """The system prompt and the given number of earlier messages, alternating between user and agent."""
    said = sentences(count, seed=11)
    return [
        {"role": "system", "content": SYSTEM},
        *({"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)),
    ]
