"""English: lasting facts that people tell of themselves. Closed sets of what lasts, so that chat stays chat."""

from __future__ import annotations

from afterturn.base.types import Target
from afterturn.learn.rules.clause import Rule, pattern
from afterturn.learn.rules.lesson import FACT
from afterturn.learn.rules.preferences import POINTS

_AM = r"(?:i'm|im|i\sam)\s"
_NOW = r"(?:currently\s|now\s)?"
_KIN = r"""(?:wife|husband|partner|girlfriend|boyfriend|son|daughter|brother|sister|mother|father|mum|mom|dad|dog|cat|
    baby)"""
_SERVANTS = r"(?:manager|boss|dentist|doctor|gp|therapist|landlord|vet|accountant|lawyer)"
_BEING = r"""(?:vegetarian|vegan|pescatarian|lactose[\s-]intolerant|coeliac|celiac|diabetic|colou?r[\s-]?blind|
    left-handed|right-handed|dyslexic|deaf|hard\sof\shearing|blind|autistic|gluten[\s-]intolerant|night\sowl|
    early\sbird|divorced|
    widowed|retired)"""
_FOODS = r"""(?:any\s)?(?:red\s)?(?:meat|pork|beef|fish|seafood|shellfish|dairy|gluten|eggs?|nuts|peanuts|sugar|wheat|
    lactose|milk|alcohol|coffee|caffeine|wine|beer|soy|tofu|cheese|bread|spicy\sfood|sweets|animal\sproducts)
    (?=\s*(?:$|[,;]|or\b|and\b|any\s?more|at\sall|because|but|so\b|for\b|since))"""
_JOBS = r"""(?:engineer|developer|programmer|designer|teacher|nurse|doctor|physician|student|lawyer|attorney|
    architect|
    accountant|scientist|researcher|professor|lecturer|analyst|consultant|chef|cook|carpenter|electrician|plumber|
    pilot|
    journalist|writer|author|photographer|musician|artist|illustrator|translator|librarian|pharmacist|dentist|
    veterinarian|paramedic|firefighter|social\sworker|therapist|psychologist|freelancer|entrepreneur|product\smanager|
    project\smanager|sysadmin|retiree|pensioner|farmer|mechanic|driver)"""
_FIELDS = r"""(?:marketing|finance|sales|it|healthcare|education|law|insurance|logistics|hr|advertising|construction|
    retail|banking|hospitality|consulting|publishing|tech|pharma|biotech)"""
_CONDITIONS = r"""(?:(?:type\s[12]\s)?diabetes|asthma|adhd|co?eliac(?:\sdisease)?|epilepsy|dyslexia|arthritis|
    hypertension|high\sblood\spressure|chronic\s(?:pain|migraines?|fatigue|illness|insomnia|back|kidney|fatigue)|
    a\sheart\scondition|a\spacemaker|tinnitus|crohn'?s(?:\sdisease)?|ibs|
    an?\s(?:(?:severe|bad)\s)?[\w-]+\s(?:allergy|intolerance)|an?\s(?:allergy|intolerance)\sto|
    a\sbad\s(?:knee|back|hip|shoulder))(?![\w-])"""
_FAMILY = r"""twins\b|(?:an?|one|two|three|four|five|six|\d+)\s
    (?:(?:older|younger|little|big|twin|small|young|adult|grown|teenage|rescue)\s){0,2}
    (?:kids?|child|children|daughters?|sons?|cats?|dogs?|brothers?|sisters?|siblings?|twins|parrots?|rabbits?|horses?|
    grandchildren|tortoise|hamsters?)\b"""
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*"


def _fact(head: str, wants: str = "", bars: str = "", *, proper: bool = False, single: bool = False) -> Rule:
    wanted, barred = pattern(wants) if wants else None, pattern(bars) if bars else None
    return Rule(FACT, Target.USER, pattern(head), wanted, barred, proper=proper, single=single)


_BODY = (
    _fact(
        rf"{_AM}(?:severely\s|very\s|highly\s|also\s|quite\s|deathly\s)?allergic\sto\s",
        bars=rf"^(?:work|mondays?|people|you|bullshit|exercise|stupid)|{POINTS}",
    ),
    _fact(
        rf"{_AM}(?:an?\s|also\s|strictly\s|mostly\s){{0,2}}{_BEING}\b",
        bars=r"^\s(?:to|by(?!\sthe\sway\b)|from|with|for)\b",
    ),
    _fact(r"i\s(?:don't|dont|do\snot|can't|cannot|can\snot|never)\s(?:eat|drink)\s", _FOODS),
    _fact(r"i\s(?:don't|dont|do\snot|can't)\s(?:drive|smoke|drink|swim)(?=\s*(?:$|[,;]|at\sall|so\b))"),
    _fact(rf"i\s(?:have|suffer\sfrom|was\sdiagnosed\swith)\s{_CONDITIONS}"),
    _fact(r"i\s(?:use|need)\sa\s(?:wheelchair|hearing\said|screen\sreader|guide\sdog)\b"),
)
_PLACES = (
    _fact(rf"i\s{_NOW}live\s(?:in|near|at)\s", proper=True),
    _fact(rf"{_AM}{_NOW}(?:based|living)\s(?:in|near)\s", proper=True),
    _fact(rf"{_AM}(?:originally\s)?from\s", proper=True),
    _fact(r"i\swas\s(?:born|raised)\s(?:and\sraised\s)?(?:in|on)\s", r"\w*\d|(?-i:[A-Z])"),
    _fact(r"i\sgrew\sup\sin\s", proper=True),
    _fact(r"i\s(?:also\s)?speak\s(?:fluent\s|some\s)?", proper=True),
)
_JOB = (
    _fact(rf"i\s{_NOW}work\s(?:remotely\s)?as\san?\s", single=True),
    _fact(
        rf"i\s{_NOW}work\s(?:at|for)\s",
        r"(?!the\b|least\b|home\b|night\b)(?:(?-i:[A-Z0-9])|an?\s|myself)",
        single=True,
    ),
    _fact(r"i\s(?:usually\s|always\s)?work\s(?:night|early|late)\sshifts?", bars=POINTS),
    _fact(rf"i\s{_NOW}work\sin\s{_FIELDS}\b", bars=r"^\s(?:the|this|a)\b", single=True),
    _fact(rf"{_AM}doing\s(?:an?|my)\s(?:phd|master'?s|bachelor'?s|doctorate)\b", single=True),
    _fact(rf"{_AM}an?\s(?:[\w-]+\s){{0,3}}{_JOBS}\b", bars=r"^\s(?:of|who|that)\b", single=True),
)
_PEOPLE = (
    _fact(
        rf"(?:i|we)(?:\shave|'ve\sgot|\shave\sgot)\s(?:{_FAMILY})",
        r"\s*$|[,;(]|\s(?:and|named|called|who|at|with|aged|in|but|so|from)\b",
        r"\bfight\b|\bto\s\w+",
    ),
    _fact(rf"{_AM}(?:married|engaged)\sto\s", proper=True),
    _fact(rf"my\s{_KIN}(?:'s\sname)?\sis\s(?:called|named)\s", proper=True),
    _fact(rf"my\s{_KIN}'s\sname\sis\s", proper=True),
    _fact(
        rf"my\s{_KIN}\sis\s(?:(?:severely\s)?allergic\sto\s|(?:a\s)?(?:vegan|vegetarian|diabetic|celiac|deaf)\b)",
        bars=POINTS,
    ),
    _fact(rf"my\s{_SERVANTS}(?:'s\sname)?\sis\s", proper=True),
)
_DATA = (
    _fact(
        r"(?:my|our)\s(?:wedding\s)?(?:birthday|anniversary|birth\sdate|date\sof\sbirth)\s(?:is|falls)\s",
        rf"(?:on\s|in\s)?(?:the\s)?(?:\w+\sthe\s)?(?:\d|{_MONTH})",
    ),
    _fact(r"my\stime\s?zone\sis\s", r"(?:(?-i:[A-Z])|utc|gmt)"),
    _fact(r"my\s(?:shoe\s|shirt\s|dress\s|clothing\s)size\sis\s", r"\w{1,3}\b"),
    _fact(
        r"my\s(?:native\slanguage|mother\stongue|first\slanguage|blood\s(?:type|group)|nationality)\sis\s",
        bars=r"^not\b",
    ),
    _fact(r"my\s(?:home\s|postal\s|mailing\s|billing\s)?address\sis\s", r"(?=.*\d)"),
    _fact(r"my\s(?:work\s)?e-?mail(?:\saddress)?\sis\s", r"\S+@\S+"),
    _fact(r"my\s(?:phone|mobile|cell|customer|account|member(?:ship)?|client)\s?(?:number|id)\sis\s", r"[+(\#\w-]*\d"),
    _fact(
        r"my\s(?:phone|laptop|car|computer|bike|camera|tablet)\sis\san?\s",
        bars=r"^(?:bit|little|lot|mess|disaster|wreck|problem|joke|total|complete|vm|virtual|test)\b",
    ),
    _fact(r"my\s(?:phone|laptop|computer)\sruns\s", r"(?-i:[A-Z])|\w+\s\d"),
)

FACTS = (*_BODY, *_PLACES, *_JOB, *_PEOPLE, *_DATA)
