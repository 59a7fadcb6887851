"""Recognizes text that tells a model what to do: a linear classifier over phrases, words and pairs of words.

`instruction_weights.json` has the weights; `lab/train_instructions.py` trains them. A text is judged in parts of a few
sentences, in its normal form and in what is decoded from it, and counts as its most suspicious part.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

from afterturn.scanners.normal_form import CHARS_MAX, views

PART_CHARS = 240
PARTS_MAX = CHARS_MAX // 60
_WORDS_MAX = 160
# Words and pairs. Shorter texts, such as "You do.", are not judged.
WORDS_MIN = 7
_SENTENCE_WORDS = 12
# What is written in base64 or with digits for letters is to be read by a program: less is needed for an order. Pages
# are full of entities.
_DISGUISED = 1.0
_USUAL = ("", "html entities", "url encoding")

_ANY = r"[^.!?\n]{0,60}?"
_YOU = r"(?:assistant|agent|ai|model|llm|chatbot|chat ?gpt|gpt|claude|gemini|copilot|bot|you)"
_RULES = (
    r"(?:instructions?|prompts?|rules?|guidelines?|directives?|orders?|polic(?:y|ies)|constraints?|restrictions?|context"
    r"|safeguards?|filters?|safety|anweisungen|regeln|instrucciones|consignes|istruzioni|instruções)"
)
_ANSWER = (
    r"(?:answers?|responses?|repl(?:y|ies)|outputs?|messages?|summar(?:y|ies)|explanations?|solutions?|elucidation)"
)
_DATA = (
    r"(?:conversations?|messages?|chats?|histor(?:y|ies)|contents?|data|files?|credentials?|passwords?|keys?|tokens?"
    r"|secrets?|records?|context|emails?|transcripts?|inbox|\.env|contacts?|details|summary)"
)
# Phrases that speak to a model. Each is a feature of the classifier; none decides alone.
PHRASES: Mapping[str, str] = {
    "override": rf"\b(?:ignore|disregard|forget|override|overrule|bypass|neglect|drop|skip|cancel)\b{_ANY}\b(?:previous|prior|"
    rf"above|earlier|preceding|all|any|your|other|existing|former|the)\b{_ANY}\b{_RULES}",
    "override (other languages)": r"\b(?:ignorier\w*|vergiss|missachte|ignora\w*|olvida\w*|ignorez|oubliez|oublie|dimentica"
    r"|esque[çc]a|negeer|vergeet)\b|忽略|无视|無視|игнорируй|забудь",
    "forget all": r"\b(?:forget|ignore|disregard|drop)\b (?:everything|all|anything|what)\b",
    "new rules": rf"\b(?:new|updated|real|actual|following|additional|special)\b {_RULES}",
    "from now on": r"\b(?:from now on|from this point|henceforth|starting now|from here on|ab jetzt|a partir de ahora|"
    r"désormais|d'ora in poi|for all future|in all future|future sessions?)\b",
    "you are now": r"\b(?:you are|you're|you will be|act|behave|pretend|respond|roleplay|role-play|imagine)\b (?:now|as if|as"
    r"|to be|like|going to|that|a|an)\b",
    "new role": r"\b(?:new (?:role|persona|identity|task|job|character)|stay in character|in the role of|persona)\b",
    "no limits": r"\b(?:unrestricted|uncensored|unfiltered|jailbr\w+|developer mode|dan mode|do anything now|no (?:limits|"
    r"restrictions|rules|filters|ethics|limitations)|without (?:any )?(?:restrictions?|limitations?|filters?))\b",
    "switch off": r"\b(?:disable|turn off|deactivate|suspend|remove|lift|skip|bypass|relax)\b"
    rf"{_ANY}\b(?:safety|filters?|guardrails?|validation|checks?|scans?|scanning|restrictions?|confirmation|approval|"
    r"moderation|verification|protections?|logging|review)\b",
    "leak": r"\b(?:reveal|show|print|repeat|output|display|tell me|give me|share|leak|expose|disclose|dump|write out|list|"
    r"what (?:is|are|were))\b"
    rf"{_ANY}\b(?:system prompt|initial prompt|your (?:prompt|instructions?|rules|guidelines|secrets?)|hidden (?:prompt|"
    r"instructions?)|secret key|instructions (?:above|you were given)|confidential|text above|words above)\b",
    "conceal": r"\b(?:do not|don't|dont|never|without|must not|should not|not to|avoid|no need to)\b"
    rf"{_ANY}\b(?:tell|telling|mention\w*|reveal\w*|inform\w*|notify\w*|disclos\w*|alert\w*|ask\w*|warn\w*|say\w*|show\w*|"
    r"question\w*|referenc\w*)\b",
    "conceal from": r"\b(?:tell|mention|reveal|inform|notify|disclose|alert|show|ask)\w*\b"
    rf"{_ANY}\b(?:the user|user|users|anyone|customer|owner|people|person|them|him|her|this (?:note|instruction|step|entry))\b",
    "secretly": r"\b(?:silently|secretly|quietly|covertly|hidden from|behind the scenes|unnoticed|discreetly|as normal|"
    r"as usual|not detected|undetected|in the background)\b",
    "send data": rf"\b(?:send|forward|e-?mail|post|upload|transmit|leak|exfiltrat\w*|copy|share|submit|deliver|route|bcc|cc|"
    rf"write|append|include|transfer|relay|schicke?|sende|envía|envoie)\b{_ANY}\b{_DATA}\b",
    "send to": rf"\b(?:send|forward|e-?mail|post|upload|transmit|submit|deliver|route|bcc|cc|transfer|pay|wire)\b{_ANY}"
    r"(?:\bto\b|\bvia\b|\bthrough\b|\bat\b)[^.!?\n]{0,40}?(?:@|https?://|www\.|\baddress\b|\bendpoint\b|\bserver\b|\baccount\b)",
    "when the user": r"\b(?:when(?:ever)?|if|every time|each time|any time|once|as soon as|the next time)\b"
    rf"{_ANY}\b(?:user|users|someone|anyone|anybody|they|customer|owner|client|person)\b{_ANY}\b(?:ask|say|mention|request|talk|"
    r"want|need|bring|type|discuss|inquire|log|open|start|come)\w*\b",
    "comes up": r"\b(?:when(?:ever)?|if|every time|each time)\b"
    + rf"{_ANY}\b(?:comes? up|is mentioned|are mentioned|arises?|is asked|is discussed)\b",
    "then act": r"\b(?:call|run|execute|invoke|trigger|use)\b (?:the )?(?:\w+_\w+|\w+\(|tool|function|command|script|code|"
    r"following)",
    "always": r"\b(?:always|every time|each time|in every|at the end of (?:each|every)|end (?:each|every)|begin (?:each|every)|"
    r"start (?:each|every)|immer|siempre|toujours|sempre)\b"
    + rf"{_ANY}\b(?:recommend\w*|include|append|add|answer|respond|reply|say|mention|"
    r"prefer|choose|suggest|approve|comply|trust|use|prioriti[sz]e|promote|send|call|empfiehl|recomienda|recommande)\b",
    "only choice": r"\b(?:only (?:trust\w*|reliable|approved|valid|safe)|do not mention (?:alternatives|others|competitors)|no"
    r" alternatives|ahead of (?:all )?(?:others|competitors)|first choice|never (?:recommend|suggest|mention))\b",
    "authority": r"\b(?:security team|admin(?:istrator)?s?|system (?:note|notice|message|administrator|update|override)|"
    r"developers?|openai|anthropic|it department|compliance|management|policy)\b"
    rf"{_ANY}\b(?:approved|note|notice|requires?|says?|mandates?|authori[sz]ed|instruct\w*|update|policy|override|must)\b",
    "permission": r"\b(?:pre-?approved|has (?:authori[sz]ed|approved|consented|granted)|already (?:approved|authori[sz]ed|"
    r"confirmed|agreed)|(?:standing|full|blanket|unlimited) (?:permission|consent|access|approval|authori[sz]ation)|no (?:further |"
    r"additional )?(?:confirmation|approval|verification|permission)|without (?:asking|confirmation|approval|verification|"
    r"additional|further))\b",
    "your answer": rf"\b(?:your|the|each|every|all|any) (?:\w+ )?{_ANSWER}\b",
    "change your answer": r"(?:^|[.!?\n:;>\"]\s*)(?:please )?(?:modify|enhance|augment|enrich|render|adjust|alter|amend|revise|"
    r"supplement|incorporate|insert|integrate|infuse|introduce|merge|add|append|include|provide|present|craft|compose|write|"
    r"encode|translate|convert|structure|format|conclude|begin|start|end|finish|respond|reply|answer|generate|output|deliver|"
    rf"embed|weave|blend|meld|tailor|refine|expand|complement)\b{_ANY}\b(?:your|the subsequent|the following) (?:\w+ )?(?:{_ANSWER}|code|snippet|"
    r"text|excerpt|work|content)",
    "to the model": rf"\b(?:dear|hey|hello|hi|attention|note to|message (?:to|for)|instructions? (?:to|for)|important|to) (?:the |"
    rf"my |any |all |an )?{_YOU}\b[,:;! ]",
    "you must": r"\b(?:you|assistant|agent|ai|model) (?:must|should|have to|need to|shall|will|are required to|are to|are "
    r"instructed to|can now)\b",
    "names the model": r"\b(?:assistant|language model|llm|chatbot|chatgpt|ai (?:agent|assistant|model|system)|as an ai)\b",
    "prompt": r"\b(?:system prompt|prompt injection|prompt above|prompts?)\b",
    "markup": r"</?(?:system|memory|assistant|user|instructions?|information|important|tool|context|admin|inst|sys)\b[^>\n]{0,40}>|"
    r"\[/?(?:inst|system|admin|assistant|sys)\b[^\]\n]{0,40}\]|<\|[^|>\n]{1,30}\|>|<<sys>>|#{2,} ?(?:instruction|system|response|new)|"
    r"<!--[^>\n]{0,60}(?:assistant|agent|system|ai|model|instruction|ignore)|\b(?:begin|end) (?:of )?(?:system|instructions?|prompt)|={4,}|-{6,}",
    "role at start": r"(?:^|\n)\s{0,4}[\[(*#]{0,3}(?:system|assistant|admin|developer|instruction|important|todo|note to \w+|ai|agent)\b"
    r"[\])*]{0,3}\s{0,2}[:>]",
    "before the task": r"\b(?:before you (?:can|do|start|answer|solve|continue|reply)|do (?:this|the following) first|first do|instead,? "
    r"(?:do|of|please|you)|stop (?:here|what)|do the following|follow these|as (?:described|instructed) (?:below|above))\b",
    "memory": r"\b(?:remember|store|save|keep|record|memori[sz]e|copy|write|add|commit|persist|repeat)\b"
    rf"{_ANY}\b(?:memory|memories|long[- ]term|future sessions?|future conversations?|word for word|this (?:note|entry|rule|instruction|"
    r"message)|notes?)\b",
    "this note": r"\bthis (?:note|entry|memory|instruction|message|rule|text|record)\b"
    + rf"{_ANY}\b(?:exists?|must|overrides?|supersedes?|"
    r"takes|part of|copied|guideline|priority|trusted|verified|not be)\b",
    "part of guidelines": r"\b(?:your own (?:guidelines|rules|instructions|policy)|as (?:a )?(?:verified|trusted|system|official)|"
    r"highest priority|takes precedence|overrides? (?:all|any|other|every))\b",
    "procedure": r"\b(?:proven|verified|validated|standard|recommended|best) (?:workflow|procedure|practice|approach|experience|"
    r"method|shortcut)\b|\b(?:mark|report|stamp|treat)\b[^.!?\n]{0,30}?\b(?:as (?:passed|done|complete\w*|success\w*|valid\w*|safe|trusted))\b|"
    r"--force\b|--no-verify\b",
    "secret place": r"(?:~/\.\w+|\.env\b|\bid_(?:rsa|ed25519)\b|\.aws/|/etc/passwd|credentials?\b|\bapi[_ ]?keys?\b|\bpasswords?\b)",
    "tool name": r"\b(?:send_email|http_get|http_post|update_memory|delete_\w+|run_\w+|execute_\w+|\w+_(?:email|file|money|message|memory"
    r"|payment|shell|command|request|tool))\b",
    "exfiltration link": r"!\[[^\]\n]{0,60}\]\(https?://[^)\s]{0,120}[?=][^)\n]{0,120}\)|https?://[^\s)]{0,120}[?&]\w{1,12}=[<{\[(]",
    "imperative link": r"\b(?:visit|click|go to|open|browse|download|check out|fetch|navigate|refer)\b"
    + r"[^.!?\n]{0,40}?(?:https?://|www\.|\blink\b)",
    "money": r"\b(?:transfer|pay|wire|send|transaction|purchase|buy)\b[^.!?\n]{0,40}?(?:[$€£]|\busd\b|\beur\b|\bbitcoin\b|\bbtc\b|\biban\b|\baccount\b|\bmoney\b|\bfunds\b)",
    "code": r"```|\bimport \w+|\bdef \w+\(|\bexec\(|\beval\(|\bos\.system",
    "please at start": r"(?:^|[.!?\n]\s*)(?:please|kindly)\b",
    "question": r"\?\s*(?:$|\n)",
    "first person": r"\b(?:i|i'm|my|me|we|our|i'd|i've)\b",
    "hypothetical": r"\b(?:hypothetical\w*|fictional|story|novel|pretend|imagine|simulat\w+|game|character)\b",
    "password game": r"\b(?:password|secret (?:word|code|key)|the code|6-digit|passphrase|spell|letters?|encod\w+|base64|backwards|hint)\b",
}


class Weights(NamedTuple):
    """All in the units of the score: `phrases` by name, `words` by the word or the pair."""

    bias: float
    threshold: float
    phrases: Mapping[str, float]
    words: Mapping[str, float]


class Suspicion(NamedTuple):
    """How much a text looks like an instruction; above zero it is one. `how` says what it was decoded from."""

    score: float
    how: str = ""


@cache
def load_weights() -> Weights:
    path = files("afterturn.scanners").joinpath("instruction_weights.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    return Weights(content["bias"], content["threshold"], content["phrases"], content["words"])


def judge(text: str, weights: Weights | None = None) -> Suspicion:
    """The most suspicious part of a text, in any of the forms that it can be read in."""
    weights = weights or load_weights()
    found = [
        Suspicion(max(_scores(view.text, weights)) + _DISGUISED * (view.how not in _USUAL), view.how)
        for view in views(text)
    ]
    return max(found, key=lambda suspicion: suspicion.score)


def _scores(text: str, weights: Weights) -> Iterator[float]:
    yield -math.inf
    for part in split_parts(text):
        phrases, words = features_of(part)
        if len(words) >= WORDS_MIN:
            score = sum(weights.words.get(word, 0.0) for word in words) * weight_of_words(len(words))
            yield weights.bias + sum(weights.phrases[name] for name in phrases) + score - weights.threshold


def weight_of_words(count: int) -> float:
    """Words count by the square root of how many there are, and in short texts not more than in a sentence."""
    return 1 / math.sqrt(max(count, _SENTENCE_WORDS))


def split_parts(text: str) -> list[str]:
    """Parts of one or a few sentences, at most `PARTS_MAX`."""
    parts: list[str] = []
    current = ""
    for sentence in _SENTENCE.split(text[:CHARS_MAX]):
        for at in range(0, max(len(sentence), 1), 2 * PART_CHARS):
            piece = sentence[at : at + 2 * PART_CHARS]
            if current and len(current) + len(piece) > PART_CHARS:
                parts.append(current)
                current = piece
            else:
                current = f"{current}\n{piece}" if current else piece
    return [*parts, current][:PARTS_MAX]


def features_of(part: str) -> tuple[list[str], set[str]]:
    """The names of the phrases in a part, and its words and pairs of words."""
    lowered = part.lower()
    phrases = [
        phrase.name
        for phrase in _compiled()
        if (not phrase.hints or any(map(lowered.__contains__, phrase.hints))) and phrase.pattern.search(lowered)
    ]
    # Addresses are in orders and in facts alike.
    words = ["0" if word.isdigit() else word for word in _TOKEN.findall(_ADDRESS.sub(" ", lowered))[:_WORDS_MAX]]
    return phrases, {*words, *(f"{first} {second}" for first, second in pairwise(words))}


_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{2,63}|https?://\S{1,300}")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


class _Phrase(NamedTuple):
    """A text without any of the `hints` does not match."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


@cache
def _compiled() -> tuple[_Phrase, ...]:
    return tuple(_Phrase(name, _hints(pattern), re.compile(pattern)) for name, pattern in PHRASES.items())


def _hints(pattern: str) -> tuple[str, ...]:
    """How the alternatives that a pattern begins with begin: searching for these is ten times as fast."""
    if not pattern.startswith(_ALTERNATIVES):
        return ()
    depth, alternatives = 0, [""]
    for character in pattern[len(_ALTERNATIVES) :]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "|" and depth == 0:
            alternatives.append("")
        else:
            alternatives[-1] += character
    found = [_LITERAL.match(alternative) for alternative in alternatives]
    return tuple(dict.fromkeys(match.group() for match in found if match is not None)) if all(found) else ()


_ALTERNATIVES = r"\b(?:"
_LITERAL = re.compile(r"[a-zçéèíñ'. -]{2,}(?![?*])|[a-zçéèíñ'. -]+(?=[a-z][?*])")
