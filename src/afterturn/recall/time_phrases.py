"""Phrases for times in a text: tokens, the trie of all phrases of `time_words.txt`, and the tense of a sentence.

`times.py` finds the dates that a phrase means. The trie is built when a time is first read. A text is walked
through once, and every walk in the trie ends after a few tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from afterturn.text import regex

# A longer sentence is read in pieces, so that looking around a time does not take longer in a longer text.
_SENTENCE_TOKENS_MAX = 120
# A question starts with a word such as "what", or one or two words before it: "until when", "on which day".
_ASKING_TOKENS = 2

# Meanings, by their names in the table.

FLAGS = frozenset(("when", "when_first", "past", "order"))
TIMES = frozenset(
    "day period weekday weekday_of_week month day_month day_of_month year iso slash ago few_ago ahead rolling "
    "few_rolling following few_following week weekend month_unit year_unit "
    "season_of_year".split()
)
_LIMITS = frozenset("in since before after until between from early mid late weekend_of".split())
_PARTS = frozenset(("early", "mid", "late"))
_PAIRS = frozenset(("between", "from", "since", "in"))
_UNITS = "minute hour day week month year weekend quarter".split()
_PERIODS = "week month year weekend quarter spring summer autumn winter christmas".split()
_NUMBERS = (*range(1, 13), 20, 30)
NEXT = 99
"""The offset of "next", which may be the coming one or the one after it."""
UNSPACED = ("ja", "zh")
_ROWS = (
    "months months_short weekdays units periods numbers both past_tense present_tense future_tense evidence date "
    "month_date asking asking_anywhere lead told after_numbers before_names not_past fillers".split()
)


class PhraseMeaning(NamedTuple):
    name: str
    offset: int | None
    language: str
    needs_evidence: bool
    needs_tense: bool


class TimePhrase(NamedTuple):
    """A time or a flag at tokens `start` to `end`. A word such as "since" has the times that it limits in `times`."""

    start: int
    end: int
    meaning: PhraseMeaning
    values: tuple[tuple[str, Any], ...] = ()
    times: tuple[TimePhrase, ...] = ()

    def value(self, name: str) -> Any:
        for key, value in self.values:
            if key == name:
                return value
        return None


# The table.

Words: TypeAlias = dict[str, str]
"""The lines of one language by their names, without the phrases."""


@cache
def _table() -> tuple[dict[str, Words], list[tuple[str, str]]]:
    """The words of every language, and the lines of their phrases."""
    words: dict[str, Words] = {}
    phrases: list[tuple[str, str]] = []
    language = ""
    for line in Path(__file__).with_name("time_words.txt").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(": ")
        if name in _ROWS:
            known = words[language].get(name)
            words[language][name] = f"{known} {rest}" if known else rest
        elif rest and line[0] != "#":
            phrases.append((language, line))
        elif line.startswith("["):
            language = line.strip("[]")
            words[language] = {}
    return words, phrases


@cache
def language_words(language: str) -> Words:
    return _table()[0][language]


@cache
def _word_set(language: str, name: str) -> frozenset[str]:
    return frozenset(_fold(word) for word in language_words(language).get(name, "").replace("/", " ").split())


def fillers() -> frozenset[str]:
    """Words between two times that belong together."""
    return _word_set("all", "fillers")


# The trie.

# By key, the nodes below; "" has the meanings of what ends here, and None the rest of each template that comes by here,
# from which the keys are made when the node is first visited.
_Node: TypeAlias = "dict[str | None, Any]"
_ANYWHERE, _ALONE, _LIMITED, _PART, _AFTER = range(5)
# Which tries a phrase is looked up in.
_STANDALONE, _BARE, _FOLLOWING = (_ANYWHERE, _ALONE), (_ANYWHERE, _LIMITED), (_AFTER,)
_PARTED = (*_BARE, _PART)


class _Grammar(NamedTuple):
    """`roots` are the tries of phrases that stand anywhere, alone, after "in", after "early", or after a time."""

    roots: tuple[_Node, ...]
    classes: dict[str, tuple[tuple[str, Any], ...]]


@cache
def _grammar() -> _Grammar:
    roots: tuple[_Node, ...] = ({}, {}, {}, {}, {})
    classes: dict[str, dict[tuple[str, Any], None]] = {}
    words, phrases = _table()
    for language, rows in words.items():
        for word, kind, value in _vocabulary(rows) if "months" in rows else ():
            classes.setdefault(_fold(word), {})[f"{{{language}.{kind}}}", value] = None
    for language, line in phrases:
        _add_line(roots, language, line)
    for line in ("iso: {iso}", "slash: {day} / {day} / {year}; {day} . {mm} . {year}", "month: {mm} / {year}"):
        _add_line(roots, "", line)
    _grow(roots[_ANYWHERE])
    for number, character in enumerate("一二三四五六日"):
        classes.setdefault(character, {})["{zh.zhday}", number] = None
    classes.setdefault("天", {})["{zh.zhday}", 6] = None
    return _Grammar(roots, {word: tuple(kinds) for word, kinds in classes.items()})


def _vocabulary(words: Words) -> Iterator[tuple[str, str, Any]]:
    """The words of a language that have a value, their class, and the value."""
    seasons = " ".join(words["periods"].split()[5:])
    rows: tuple[tuple[str, str, Sequence[Any]], ...] = (
        ("month", words["months"], range(1, 13)),
        ("mon", words["months"], range(1, 13)),
        ("mon", words["months_short"], range(1, 13)),
        ("weekday", words["weekdays"], range(7)),
        ("unit", words["units"], _UNITS),
        ("period", words["periods"], _PERIODS),
        ("season", seasons, _PERIODS[5:]),
        ("n", words["numbers"], _NUMBERS),
    )
    for kind, row, values in rows:
        for forms, value in zip(row.split(), values, strict=True):
            yield from ((word, kind, value) for word in forms.split("/") if word != ".")
    for row, value in zip(words["units"].split(), _UNITS, strict=True):
        singular, *plurals = row.split("/")
        yield from ((word, "units", value) for word in plurals or [singular])


def _add_line(roots: tuple[_Node, ...], language: str, line: str) -> None:
    head, _, templates = line.partition(":")
    name, _, offset = head.strip("=+~?").partition(" ")
    meaning = PhraseMeaning(
        name.removeprefix("after_"),
        None if not offset else NEXT if offset == "next" else int(offset),
        language,
        needs_evidence=head.endswith("?"),
        needs_tense=head.startswith("~"),
    )
    if name.startswith("after_"):
        root = roots[_AFTER]
    elif head.startswith("="):
        root = roots[_LIMITED]
    elif head.startswith("+"):
        root = roots[_PART]
    elif head.startswith("~") or name in ("in", *FLAGS):
        root = roots[_ALONE]
    else:
        root = roots[_ANYWHERE]
    for template in templates.split(";"):
        root.setdefault(None, []).append((template.split(), meaning))


_DIGIT_CLASSES = ("n", "day", "mm", "year", "iso")


def _item_keys(item: str, language: str) -> tuple[bool, list[str]]:
    """Whether the item of a template is optional, and its keys in the trie."""
    is_optional = item.startswith("[")
    words = item.strip("[]").split("|") if len(item) > 1 else [item]
    keys = []
    for word in words:
        kind = word[1:-1]
        if not word.startswith("{"):
            keys.append(_fold(word))
        elif kind in _DIGIT_CLASSES:
            keys.append(word)
        if word.startswith("{") and kind not in _DIGIT_CLASSES[1:]:
            keys.append(f"{{{language}.{kind}}}")
    return is_optional, keys


def _grow(node: _Node) -> None:
    """Makes the keys of a node. Two threads may do so at once: both make the same."""
    grown: _Node = {}
    for items, meaning in node.get(None, ()):
        for at, item in enumerate(items):
            is_optional, keys = _item_keys(item, meaning.language)
            for key in keys:
                grown.setdefault(key, {}).setdefault(None, []).append((items[at + 1 :], meaning))
            if not is_optional:
                break
        else:
            grown.setdefault("", []).append(meaning)
    node.update(grown)
    node.pop(None, None)


# Tokens.

# Traditional and Japanese forms of characters in the table, and the wide forms of punctuation.
_SAME = str.maketrans(
    "週間時後個這兩從過來為號禮聖誕節計劃準備將會開幾麼鐘點頭終們總結訴顯示？！。，（）：～’ʼ",
    "周间时后个这两从过来为号礼圣诞节计划准备将会开几么钟点头终们总结诉显示?!.,():~''",
)
_NUMERALS = "〇零一二三四五六七八九十两"
_DIGITS = {character: number for number, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_PIECES = (
    rf"[{_NUMERALS}]+|[\u3041-\u30ff\u3400-\u9fff]"
    r"|\d{4}-\d\d(?:-\d\d)?(?![\w-])|\d{1,9}"
    r"|[^\W\d_]{1,8}'(?=[^\W\d_]{3})|(?:[^\W\d_\u3041-\u30ff\u3400-\u9fff]|[\u0300-\u036f])+(?:'[^\W\d_]{1,2}(?!\w))?"
    r"|\n|\S"
)
_ANY_PIECES = regex(_PIECES)
_CHINESE = regex(r"[\u3041-\u30ff\u3400-\u9fff]")
# The same as `_PIECES` for ASCII, in half the time.
_PLAIN_PIECES = regex(
    r"[A-Za-z]{1,8}'(?=[A-Za-z]{3})|[A-Za-z]+(?:'[A-Za-z]{1,2}(?![A-Za-z]))?"
    r"|\d{4}-\d\d(?:-\d\d)?(?![\w-])|\d{1,9}|\n|[^\sA-Za-z]"
)
_QUOTES = "\"'`“”„‘’«»「」『』"
_STOPS = frozenset(("?", "!", "\n", "."))
_END = "<end>"


@cache
def _unspaced_pattern() -> re.Pattern[str]:
    """Tokens of Japanese and Chinese: the longest words of the table, by their first characters, or one character."""
    words, phrases = _table()
    rows = [row for known in words.values() for row in known.values()] + [line for _, line in phrases]
    found = sorted({_fold(word) for row in rows for word in re.findall(r"[\u3005\u3041-\u30ff\u3400-\u9fff]{2,}", row)})
    starts = []
    for first, group in groupby(found, key=lambda word: word[0]):
        rest = sorted((word[1:] for word in group), key=len, reverse=True)
        starts.append(f"{first}(?:{'|'.join(rest)})")
    return re.compile("|".join((*starts, _PIECES)))


def _fold(word: str) -> str:
    """Without case and accents."""
    if word.isascii():
        return word.lower()
    word = word.translate(_SAME)
    if word[0] >= "\u3041":
        return word
    plain = unicodedata.normalize("NFKD", word.lower())
    return "".join(character for character in plain if not "\u0300" <= character <= "\u036f") or word


class TokenizedText:
    """The tokens of a text, and what is known about its sentences. The last token is the end of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._evidence: dict[tuple[int, str], int] = {}
        same = text if text.isascii() else text.translate(_SAME)
        if text.isascii():
            pattern = _PLAIN_PIECES
        elif _CHINESE.search(same):
            pattern = _unspaced_pattern()
        else:
            pattern = _ANY_PIECES
        self.keys: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        for piece in pattern.finditer(same):
            self.keys.append(_fold(piece[0]))
            self.starts.append(piece.start())
            self.ends.append(piece.end())
        self.keys.append(_END)
        self.starts.append(len(text))
        self.ends.append(len(text))
        self._split()

    def _split(self) -> None:
        """Finds where sentences end. A dot after a digit does not end one: "am 5. November"."""
        self.sentences: list[tuple[int, int]] = []
        self.sentence_of: list[int] = []
        start = 0
        for at, key in enumerate(self.keys):
            if at - start == _SENTENCE_TOKENS_MAX:
                self.sentences.append((start, at))
                start = at
            self.sentence_of.append(len(self.sentences))
            is_dot = key == "." and (at == 0 or self.keys[at - 1].isdigit() or self._is_inside_word(at))
            if key == _END or (key in _STOPS and not is_dot):
                self.sentences.append((start, at))
                start = at + 1
                if key != "?":
                    self.keys[at] = _END

    def _is_inside_word(self, at: int) -> bool:
        """The dot in "example.com" or "Sept. 5"."""
        after = self.text[self.ends[at] : self.ends[at] + 2]
        return not after[:1].isspace() and after != "" if after[:1] != " " else after[1:].isdigit()

    def is_in_name(self, start: int, end: int) -> bool:
        """Whether these tokens are in quotation marks, or a part of a name, such as `date.today()`."""
        before = self.text[max(0, self.starts[start] - 1) : self.starts[start]]
        after = self.text[self.ends[end - 1] : self.ends[end - 1] + 1]
        is_quoted = before != "" and after != "" and before in _QUOTES and after in _QUOTES
        return is_quoted or before in ("_", ".", "/", "@", "#", "$") or after in ("_", "(", "=", "@")

    def original(self, at: int) -> str:
        return self.text[self.starts[at] : self.ends[at]]

    def in_sentence(self, at: int) -> list[str]:
        start, end = self.sentences[self.sentence_of[at]]
        return self.keys[start:end]

    def evidence(self, at: int, language: str) -> int:
        """How many different words of the sentence are common in the language."""
        place = self.sentence_of[at], language
        if place not in self._evidence:
            known = _word_set(language, "evidence") if language else frozenset()
            self._evidence[place] = len(known.intersection(self.in_sentence(at)))
        return self._evidence[place]

    def is_asked(self, phrase: TimePhrase) -> bool:
        """Whether the sentence asks or orders: by its mark, by its words, or because it is nothing but the time.

        If the text has question marks, only what ends with one asks, and not the first part of "I am in Rome since
        Monday, can you help me?".
        """
        keys = self.in_sentence(phrase.start)
        if "?" in self.keys:
            end = self.sentences[self.sentence_of[phrase.start]][1]
            is_told = keys[0] in _word_set("all", "told") and "," in self.keys[phrase.end : end]
            return self.keys[end] == "?" and not is_told
        if len(keys) == phrase.end - phrase.start or not _word_set("all", "asking_anywhere").isdisjoint(keys):
            return True
        if keys[-1] in ("か", "吗", "呢"):
            return True
        content = [key for key in keys if key not in _word_set("all", "lead")]
        # German "was" is "what"; in English "it was" opens a statement.
        starts = [key for at, key in enumerate(content[:_ASKING_TOKENS]) if at == 0 or key != "was"]
        return not _word_set("all", "asking").isdisjoint(starts)


# Reading.


class PhraseReader:
    """Finds the times and flags of a text, from left to right."""

    def __init__(self, tokens: TokenizedText) -> None:
        self._tokens = tokens
        self._grammar = _grammar()
        self._classes = [self._classes_of(key) for key in tokens.keys]

    def _classes_of(self, key: str) -> tuple[tuple[str, Any], ...]:
        known = self._grammar.classes.get(key, ())
        first = key[0]
        if first.isdecimal():
            if not key.isdecimal() and "-" not in key:
                # One half is folded to 1, a slash and 2.
                return ()
            if "-" in key:
                parts = tuple(int(part) for part in key.split("-"))
                return (("{iso}", parts),) if 1 <= parts[1] <= 12 and all(part > 0 for part in parts) else ()
            number = int(key)
            if len(key) == 4:
                return (("{year}", number),) if 1900 <= number <= 2100 else ()
            return _small_classes(number)
        if first in _NUMERALS:
            return (*known, *_small_classes(_numeral(key)))
        return known

    def read_all(self) -> list[TimePhrase]:
        found: list[TimePhrase] = []
        at, last = 0, len(self._tokens.keys) - 1
        while at < last:
            one = self.read(at, _STANDALONE)
            if one is None:
                at += 1
                continue
            at = one.end
            if one.meaning.name != "skip":
                found.append(one)
        return found

    def read_only(self) -> list[TimePhrase]:
        """The times of a text that has nothing but times; none if it has anything else."""
        found: list[TimePhrase] = []
        at, last = 0, len(self._tokens.keys) - 1
        while at < last:
            one = self.read(at, _BARE) or self.read(at, _STANDALONE)
            if one is not None and one.meaning.name not in ("skip", *FLAGS):
                found.append(one)
                at = one.end
            elif self._tokens.keys[at] in fillers():
                at += 1
            else:
                return []
        return found

    def read(
        self, at: int, tries: Sequence[int], languages: frozenset[str] = frozenset(), depth: int = 0
    ) -> TimePhrase | None:
        """The longest phrase that starts at `at`. In `languages`, if there are any."""
        best: TimePhrase | None = None
        best_rank = (0, 0, 0)
        for end, meanings, values in self._walk(at, tries):
            limits: dict[str, set[str]] = {}
            for meaning in meanings:
                if languages and meaning.language not in languages and meaning.language:
                    continue
                if meaning.name in _LIMITS:
                    limits.setdefault(meaning.name, set()).add(meaning.language)
                    continue
                one = TimePhrase(at, end - (self._tokens.keys[end - 1] in ("?", _END)), meaning, values)
                rank = self._rank(one)
                if rank > best_rank and self._counts(one):
                    best, best_rank = one, rank
            for name, known in limits.items() if depth < 3 else ():
                limited = self._limited(at, end, name, frozenset(known), depth)
                if limited is not None and self._rank(limited) > best_rank:
                    best, best_rank = limited, self._rank(limited)
        return self._followed(best) if best is not None and best.meaning.name not in FLAGS else best

    def _rank(self, found: TimePhrase) -> tuple[int, int, int]:
        """The longest wins, then what is known as a whole, then the language with more words in the sentence."""
        whole = 2 if found.meaning.name == "skip" else int(not found.times)
        return found.end, whole, 1 + self._tokens.evidence(found.start, found.meaning.language)

    def _walk(
        self, at: int, tries: Sequence[int]
    ) -> list[tuple[int, list[PhraseMeaning], tuple[tuple[str, Any], ...]]]:
        """All phrases that start at `at`: where they end, what they mean, and the values of their classes."""
        found = []
        stack: list[tuple[_Node, int, tuple[tuple[str, Any], ...]]] = [
            (self._grammar.roots[root], at, ()) for root in tries
        ]
        keys, classes = self._tokens.keys, self._classes
        while stack:
            node, here, values = stack.pop()
            if None in node:
                _grow(node)
            if "" in node:
                found.append((here, node[""], values))
            if here == len(keys):
                continue
            child = node.get(keys[here])
            if child is not None:
                stack.append((child, here + 1, values))
            for kind, value in classes[here]:
                child = node.get(kind)
                if child is not None:
                    stack.append((child, here + 1, (*values, (kind.strip("{}").rpartition(".")[2], value))))
        return found

    def _limited(self, start: int, at: int, name: str, languages: frozenset[str], depth: int) -> TimePhrase | None:
        """A word such as "since" and the time after it, or "between" and both times."""
        time = self.read(at, _PARTED if name in _PARTS else _BARE, languages, depth + 1)
        if time is None or time.meaning.name in FLAGS or time.meaning.name == "skip":
            return None
        meaning = PhraseMeaning(name, None, time.meaning.language, needs_evidence=False, needs_tense=False)
        both = _word_set(time.meaning.language, "both") if time.meaning.language else frozenset()
        if name in _PAIRS and self._tokens.keys[time.end] in both:
            other = self.read(time.end + 1, _BARE, languages, depth + 1)
            if other is not None and other.meaning.name not in FLAGS:
                pair = meaning._replace(name="both" if name == "in" else "between")
                return TimePhrase(start, other.end, pair, (), (time, other))
        if name == "between":
            return None
        return TimePhrase(start, time.end, meaning, (), (time,))

    def _followed(self, time: TimePhrase) -> TimePhrase:
        """With what follows a time in Japanese and Chinese: 10月から, 9月から10月まで, 10月初め."""
        if time.meaning.language not in UNSPACED or time.meaning.name == "skip":
            return time
        keys = self._tokens.keys
        if keys[time.end] in _word_set(time.meaning.language, "both"):
            other = self.read(time.end + 1, _BARE, frozenset(UNSPACED), 3)
            last = other.times[0] if other is not None and other.meaning.name == "until" else other
            if other is not None and last is not None and last.meaning.name in TIMES:
                return TimePhrase(time.start, other.end, time.meaning._replace(name="between"), (), (time, last))
        for end, meanings, _ in sorted(self._walk(time.end, _FOLLOWING), key=lambda one: one[0], reverse=True):
            for meaning in meanings:
                if meaning.language == time.meaning.language:
                    return TimePhrase(time.start, end, meaning, (), (time,))
        return time

    def _counts(self, found: TimePhrase) -> bool:
        """Whether it is really a time, by the words around it."""
        meaning, keys, tokens = found.meaning, self._tokens.keys, self._tokens
        if meaning.name == "skip":
            return True
        if tokens.is_in_name(found.start, found.end):
            return False
        if meaning.needs_evidence and _word_set(meaning.language, "evidence").isdisjoint(
            tokens.in_sentence(found.start)
        ):
            return False
        if meaning.needs_tense and not self._is_adverb(found):
            return False
        if meaning.name == "when_first":
            start, end = tokens.sentences[tokens.sentence_of[found.start]]
            is_first = all(key in ("¿", "e", "et", "y", "en", "und") for key in keys[start : found.start])
            return is_first and keys[end] == "?" and "," not in keys[start:end]
        if meaning.name == "month" and self._is_verb(found):
            return False
        if meaning.name == "ahead" and found.value("unit") in ("minute", "hour"):
            return False
        if meaning.name == "ahead" and read_tense(tokens, found.start, found.end, meaning.language) < 0:
            return False
        return not self._ends_in_number(found) or self._is_free(found.end, meaning.language)

    def _is_adverb(self, found: TimePhrase) -> bool:
        """Of a weekday without a preposition: "what did I do Saturday", not "it's Saturday"."""
        tokens = self._tokens
        before = tokens.keys[found.start - 1] if found.start else ""
        return (
            before not in _word_set("all", "before_names")
            and read_tense(tokens, found.start, found.end, found.meaning.language) != 0
        )

    def _is_verb(self, found: TimePhrase) -> bool:
        """ "may 5" and "march 3" need a capital letter, unless a preposition or "5th of" is there."""
        keys = self._tokens.keys[found.start : found.end]
        verbs = [found.start + at for at, key in enumerate(keys) if key in ("may", "march", "mar")]
        is_certain = any(key in ("of", "th", "st", "nd", "rd") for key in keys) or found.value("year")
        is_certain = is_certain or (found.value("day") is None and found.meaning.offset is None)
        return bool(verbs) and not is_certain and not self._tokens.original(verbs[0])[0].isupper()

    def _ends_in_number(self, found: TimePhrase) -> bool:
        last = self._tokens.keys[found.end - 1]
        if found.meaning.name == "weekday" and found.meaning.language == "pt":
            return last != "feira"
        if found.value("year") and found.meaning.name == "month":
            return False
        is_numeric = last.isdigit() or last in ("th", "st", "nd", "rd", ".", "er", "e", "ste", "de")
        return is_numeric and found.meaning.name in ("year", "day_of_month", "month", "day_month")

    def _is_free(self, at: int, language: str) -> bool:
        """Whether no noun follows: not "in 2000 words", not "on the 24th floor"."""
        key = self._tokens.keys[at]
        if key in ("%", "$", "€", "-", "/", ":") and self._tokens.starts[at] == self._tokens.ends[at - 1]:
            return False
        if not key[0].isalpha() or key in fillers() or key in _word_set("all", "after_numbers"):
            return True
        is_verb = bool(language) and _is_past(self._tokens.original(at).lower(), _verbs(language))
        return is_verb or key in self._grammar.roots[_ANYWHERE]


def _small_classes(number: int) -> tuple[tuple[str, Any], ...]:
    if not 1 <= number <= 999:
        return ()
    kinds = [("{n}", number)]
    if number <= 31:
        kinds.append(("{day}", number))
    if number <= 12:
        kinds.append(("{mm}", number))
    return tuple(kinds)


def _numeral(key: str) -> int:
    """三 is 3, 十二 is 12, 二十 is 20; 0 for others."""
    if len(key) > 3:
        return 0
    tens, ten, ones = key.rpartition("十")
    if not ten:
        return _DIGITS[key] if len(key) == 1 else 0
    if len(tens) > 1 or len(ones) > 1 or "十" in tens:
        return 0
    return (_DIGITS[tens] if tens else 1) * 10 + (_DIGITS[ones] if ones else 0)


# Tense.


class _Verbs(NamedTuple):
    """The words that show the tense in one language."""

    past: frozenset[str]
    endings: tuple[str, ...]
    circumfixes: tuple[tuple[str, str], ...]
    present: frozenset[str]
    future: frozenset[str]


@cache
def _verbs(language: str) -> _Verbs:
    words = language_words(language)
    past = words["past_tense"].split()
    circumfixes = (word.partition("-") for word in past if "-" in word[1:])
    return _Verbs(
        frozenset(word for word in past if "-" not in word),
        tuple(word[1:] for word in past if word.startswith("-")),
        tuple((start, end) for start, _, end in circumfixes),
        frozenset(words["present_tense"].split()),
        frozenset(words["future_tense"].split()),
    )


def read_tense(tokens: TokenizedText, start: int, end: int, language: str, *, certain: bool = False) -> int:
    """-1 past, 1 present or future, 0 not known. `certain`: the present, or a mixture, is not known either.

    Only the sentence around the time at tokens `start` to `end` counts, without the time itself.
    """
    if not language:
        return 0
    first, last = tokens.sentences[tokens.sentence_of[start]]
    verbs = _verbs(language)
    if language in UNSPACED:
        sentence = tokens.text[tokens.starts[first] : tokens.starts[last]]
        is_past = any(word in sentence for word in verbs.past)
        if language == "ja":
            is_past = _JAPANESE_PAST.search(sentence) is not None
        is_future = any(word in sentence for word in verbs.future)
        is_present = False
    else:
        words = [tokens.original(at).lower() for at in range(first, last) if not start <= at < end]
        is_past = any(_is_past(word, verbs) for word in words)
        is_future = not verbs.future.isdisjoint(words)
        is_present = not verbs.present.isdisjoint(words)
    if certain:
        return 0 if is_past == is_future else -1 if is_past and not is_present else 1 if is_future else 0
    return -1 if is_past else 1 if is_future or is_present else 0


def _is_past(word: str, verbs: _Verbs) -> bool:
    if word in verbs.past:
        return True
    # Accents show more than letters do: "pasó", but not "red".
    if word in _word_set("all", "not_past") or len(word) < (5 if word.isascii() else 4):
        return False
    return word.endswith(verbs.endings) or any(
        word.startswith(start) and word.endswith(end) for start, end in verbs.circumfixes
    )


_JAPANESE_PAST = regex(r"[ただ](?:$|[\s。？?！!、,]|っけ|の|か|ん|よ|ね|こと|時|とき|人|店|本)")
