"""English: preferences, names and lasting facts that people tell of themselves. Closed sets, so that chat stays chat."""

from __future__ import annotations

import re

from afterturn.base.types import Target
from afterturn.learn.rules.clause import Rule
from afterturn.learn.rules.lesson import FACT, NAME, PREFERENCE
from afterturn.learn.rules.wording import told_to_agent


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


_AM = r"(?:i'm|im|i\sam)\s"
_OFTEN = (
    r"(?:(?:generally|usually|really|much|always|strongly|definitely|personally|do|still|also|just|in\sgeneral)\s){0,2}"
)
_POINTS = r"\b(?:this|that|these|those|it|here|option|version|draft|ones?|former|latter|first|second|third|last)\b"
_OF_THE_MOMENT = _pattern(rf"^(?:the|to|not|you|your|my|being|how|what|when|if|[a-z]|\d+)\b(?!')|{_POINTS}")
_KIN = (
    r"(?:wife|husband|partner|girlfriend|boyfriend|son|daughter|brother|sister|mother|father|mum|mom|dad|dog|cat|baby)"
)
_NAME = re.compile(
    r"(?:(?:Dr|Mr|Mrs|Ms|Prof)\.?\s)?[A-ZÀ-Þ][\w'-]*(?:\s[A-ZÀ-Þ][\w'-]*){0,3}|[a-zß-ÿ]{2,15}(?=\s*(?:$|[,;(]|\sand\b|\sbut\b|pls|please|btw|by\sthe|from|now))"
)
_NO_NAME = _pattern(
    r"""^(?:an?|the|when(?:ever)?|if|back|on|at|in|later|to|today|tomorrow|as|again|maybe|crazy|old|whatever|by|after|before|any\s?time|
    asap|now|from|for|up|out|once|please|pls|not|misspelled|wrong|what|too|also|missing|hard|difficult|listed|under|going|
    still|being|is|it|that|this|my|your|names|stupid|an?\sidiot|bond|ishmael|correct|right|spelled|maam|sir|tonight|soon|
    first|ever|never|about|with|there|here|directly|daily|every)\b"""
)
_FOODS = _pattern(
    r"""(?:any\s)?(?:red\s)?(?:meat|pork|beef|fish|seafood|shellfish|dairy|gluten|eggs?|nuts|peanuts|sugar|wheat|lactose|milk|alcohol|coffee|
    caffeine|wine|beer|soy|tofu|cheese|bread|spicy\sfood|sweets|animal\sproducts|anything\s(?:with|that))\b"""
)
_JOBS = r"""(?:engineer|developer|programmer|designer|teacher|nurse|doctor|physician|student|lawyer|attorney|architect|accountant|
    scientist|researcher|professor|lecturer|analyst|consultant|chef|cook|carpenter|electrician|plumber|pilot|journalist|
    writer|author|photographer|musician|artist|illustrator|translator|librarian|pharmacist|dentist|veterinarian|
    paramedic|firefighter|firefighter|social\sworker|therapist|psychologist|freelancer|entrepreneur|product\smanager|
    project\smanager|data\sscientist|sysadmin|devops\sengineer|phd\sstudent|retiree|pensioner|farmer|mechanic|driver)"""
_CONDITIONS = r"""(?:(?:type\s[12]\s)?diabetes|asthma|adhd|c(?:o)?eliac(?:\sdisease)?|epilepsy|dyslexia|arthritis|hypertension|
    high\sblood\spressure|chronic\s\w+|a\sheart\scondition|a\spacemaker|tinnitus|crohn'?s(?:\sdisease)?|ibs|
    an?\s(?:(?:severe|bad)\s)?[\w-]+\s(?:allergy|intolerance)|an?\s(?:allergy|intolerance)\sto|a\sbad\s(?:knee|back|hip|shoulder))\b"""
_FAMILY = r"""(?:an?|one|two|three|four|five|six|\d+)\s(?:(?:older|younger|little|big|twin|small|young|adult|grown|teenage|rescue)\s){0,2}
    (?:kids?|child|children|daughters?|sons?|cats?|dogs?|brothers?|sisters?|siblings?|twins|parrots?|rabbits?|horses?|
    grandchildren|tortoise|hamsters?)\b"""
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*"


def _user(
    kind: str, head: str, wants: str | re.Pattern[str] = "", bars: str | re.Pattern[str] = "", *, proper: bool = False
) -> Rule:
    wanted = _pattern(wants) if isinstance(wants, str) and wants else wants or None
    barred = _pattern(bars) if isinstance(bars, str) and bars else bars or None
    assert not isinstance(wanted, str)
    assert not isinstance(barred, str)
    return Rule(kind, Target.USER, _pattern(head), wanted, barred, proper=proper)


def _named(head: str, *, to_agent: bool = False) -> Rule:
    if to_agent:
        return Rule(NAME, Target.USER, _pattern(head), _NAME, _NO_NAME, whole=True, told=told_to_agent)
    return Rule(NAME, Target.USER, _pattern(head), _NAME, _NO_NAME, whole=True)


PREFERENCES = (
    _user(PREFERENCE, rf"i\s{_OFTEN}prefer\s", bars=_OF_THE_MOMENT),
    _user(PREFERENCE, r"when(?:ever)?\si\s[\w\s]{2,40},?\si\s(?:usually\s|always\s)?prefer\s", bars=_POINTS),
    _user(
        PREFERENCE,
        r"(?:i'd|i\swould)\s(?:generally\s|always\s|usually\s)?rather\s(?=(?:be|get|receive|read|write|use|work|talk)\b)",
        r".*\bthan\b",
        _POINTS,
    ),
    _user(PREFERENCE, rf"i\s{_OFTEN}like\s", r"[^,]+\s(?:more|better)\sthan\s", rf"^the\b|{_POINTS}"),
    _user(PREFERENCE, rf"i\s{_OFTEN}(?:don't|dont|do\snot)\s(?:really\s)?like\s", bars=_OF_THE_MOMENT),
    _user(
        PREFERENCE,
        r"i\s(?:really\s|absolutely\s)?(?:dislike|hate|can't\sstand|cannot\sstand|detest)\s",
        bars=_OF_THE_MOMENT,
    ),
    _user(PREFERENCE, r"i\s(?:really\s)?(?:hate|dislike|don't\slike)\sit\swhen\syou\s"),
    _user(
        PREFERENCE,
        r"my\s(?:favou?rite|preferred)\s(?!part|thing|bit|moment|one|memory|scene|line|way|of|quote|to)[\w-]+(?:\s[\w-]+)?\s(?:is|are)\s",
        bars=rf"^(?:the\s(?:one|first|last)|when|how|to|not|so)\b|{_POINTS}",
    ),
)

NAMES = (
    _named(r"(?:you\s(?:can|may)\s)?(?:please\s|just\s)*call\sme\s", to_agent=True),
    _named(r"(?:you\s(?:can|may)\s)?(?:please\s)?address\sme\sas\s", to_agent=True),
    _named(r"my\s(?:full\s|first\s|last\s|real\s)?name(?:'?s|\sis)\s(?:spelled\s)?"),
    _named(r"i\sgo\sby\s"),
    _named(r"(?:everyone|everybody|most\speople|my\sfriends)\scalls?\sme\s"),
    _user(NAME, r"my\spronouns\sare\s", r"\w+/\w+"),
)

FACTS = (
    _user(
        FACT,
        rf"{_AM}(?:severely\s|very\s|highly\s|also\s|quite\s|deathly\s)?allergic\sto\s",
        bars=rf"^(?:work|mondays?|people|you|bullshit|exercise|stupid)|{_POINTS}",
    ),
    _user(
        FACT,
        rf"""{_AM}(?:an?\s|also\s|strictly\s|mostly\s){{0,2}}(?:vegetarian|vegan|pescatarian|lactose[\s-]intolerant|coeliac|celiac|diabetic|
        colou?r[\s-]?blind|left-handed|right-handed|dyslexic|deaf|hard\sof\shearing|blind|autistic|gluten[\s-]intolerant|
        an?\snight\sowl|night\sowl|an?\searly\sbird|early\sbird|divorced|widowed|retired)\b""",
        bars=_pattern(r"^\s(?:to|by|from|with|for)\b"),
    ),
    _user(FACT, r"i\s(?:currently\s|now\s)?live\s(?:in|near|at)\s", proper=True),
    _user(FACT, rf"{_AM}(?:currently\s|now\s)?(?:based|living)\s(?:in|near)\s", proper=True),
    _user(FACT, rf"{_AM}(?:originally\s)?from\s", proper=True),
    _user(FACT, r"i\s(?:currently\s|now\s)?work\s(?:remotely\s)?as\san?\s"),
    _user(
        FACT,
        r"i\s(?:currently\s|now\s)?work\s(?:at|for)\s",
        r"(?!the\b|least\b|home\b|night\b)(?:[A-Z0-9]|an?\s|myself)",
    ),
    _user(FACT, r"i\s(?:usually\s|always\s)?work\s(?:night|early|late)\sshifts?", bars=_POINTS),
    _user(FACT, rf"{_AM}an?\s(?:[\w-]+\s){{0,3}}{_JOBS}\b", bars=_pattern(r"^\s(?:of|who|that)\b")),
    _user(FACT, r"i\s(?:don't|dont|do\snot|can't|cannot|can\snot|never)\s(?:eat|drink)\s", _FOODS),
    _user(FACT, rf"i\s(?:have|suffer\sfrom|was\sdiagnosed\swith)\s{_CONDITIONS}"),
    _user(FACT, rf"i\s(?:have|'ve\sgot)\s{_FAMILY}", bars=r"\bfight\b|\bto\s\w+"),
    _user(FACT, r"i\swas\s(?:born|raised)\s(?:and\sraised\s)?(?:in|on)\s", r"[\w]*\d|[A-Z]", proper=False),
    _user(FACT, r"i\sgrew\sup\sin\s", proper=True),
    _user(FACT, rf"{_AM}(?:married|engaged)\sto\s", proper=True),
    _user(FACT, r"i\s(?:also\s)?speak\s(?:fluent\s|some\s)?", proper=True),
    _user(FACT, r"i\s(?:use|need)\sa\s(?:wheelchair|hearing\said|screen\sreader|guide\sdog)\b"),
    _user(FACT, rf"my\s{_KIN}(?:'s\sname)?\s(?:is\s(?:called|named)|is\snamed)\s", proper=True),
    _user(FACT, rf"my\s{_KIN}'s\sname\sis\s", proper=True),
    _user(
        FACT,
        r"my\s(?:manager|boss|dentist|doctor|gp|therapist|landlord|vet|accountant|lawyer)(?:'s\sname)?\sis\s",
        proper=True,
    ),
    _user(
        FACT,
        r"my\s(?:birthday|anniversary|birth\sdate|date\sof\sbirth)\s(?:is|falls)\s",
        rf"(?:on\s|in\s)?(?:the\s)?(?:\w+\sthe\s)?(?:\d|{_MONTH})",
    ),
    _user(FACT, r"my\s(?:time\s?zone)\sis\s", r"(?:[A-Z]|utc|gmt)"),
    _user(FACT, r"my\s(?:shoe\s|shirt\s|dress\s|clothing\s)size\sis\s", r"\w{1,3}\b"),
    _user(
        FACT,
        r"my\s(?:native\slanguage|mother\stongue|first\slanguage|blood\s(?:type|group)|nationality|religion|star\ssign)\sis\s",
        bars=r"^not\b",
    ),
    _user(FACT, r"my\s(?:home\s|postal\s|mailing\s|billing\s)?address\sis\s", r"(?=.*\d)"),
    _user(FACT, r"my\s(?:work\s)?e-?mail(?:\saddress)?\sis\s", r"\S+@\S+"),
    _user(
        FACT, r"my\s(?:phone|mobile|cell|customer|account|member(?:ship)?|client)\s?(?:number|id)\sis\s", r"[+(#\w-]*\d"
    ),
    _user(
        FACT,
        r"my\s(?:phone|laptop|car|computer|bike|camera|tablet)\sis\san?\s",
        bars=r"^(?:bit|little|lot|mess|disaster|wreck|problem|joke|total|complete)\b",
    ),
    _user(FACT, r"my\s(?:phone|laptop|computer|server|machine)\sruns\s", r"[A-Z]|\w+\s\d"),
)
