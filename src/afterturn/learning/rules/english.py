"""The rules for English: instructions, preferences, names, facts, changes, corrections, introductions, notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from afterturn.learning.rules.clauses import (
    CORRECTION,
    FACT,
    NAME,
    PREFERENCE,
    RULE,
    Clause,
    Lesson,
    Rule,
    RuleMatch,
    capitalise,
    conjugate,
    pattern,
    state_about_user,
    state_instruction,
)
from afterturn.learning.rules.sentences import Sentence, split_sentences
from afterturn.types import Target

# Verbs of instructions. TALK and ARRANGE are about the user, WORK about the environment, GIVE depends on the object.
# "Never give up" is a saying, not an instruction.
TALK = r"""
    address answer apologi[sz]e call curse explain flatter greet interrupt joke lecture mention patroni[sz]e praise
    quote refer reply respond sign speak spell sugarcoat summari[sz]e swear talk thank translate
    """.split()
ARRANGE = r"book buy cook find look\sfor move order pick plan recommend remind reserve schedule search suggest".split()
GIVE = r"send give(?!\sup) show tell offer provide".split()
WORK = r"""
    add allow amend append approve archive ask assign assume attach back branch build bump cache catch cc change
    check cherry-pick choose clean close comment commit compile confirm copy create delete deploy disable document
    drop edit enable ensure escape export expose fix follow force force-push format generate handle hardcode
    hard-code hash ignore import include indent initiali[sz]e insert install
    keep(?!\s(?:going|smiling|calm|trying|dreaming|moving|on|the\sfaith|an\sopen)\b)
    leave link lint list load lock log make mark merge migrate mix mock modify name omit open overwrite paste pin post
    prefer prefix print process publish pull push put raise read rebase redact refactor refund release remove rename
    replace require reset restart return reuse revert review rewrite rm round run saniti[sz]e save ship skip sort split
    squash start store stage submit suppress switch tag test throw touch track trim type update upgrade upload use
    validate verify version wait warn wrap write
    """.split()

VERB = rf"(?:{'|'.join([*TALK, *ARRANGE, *GIVE, *WORK])})(?=\s|$|[,;(])"

_OF_USER = re.compile(
    rf"(?:{'|'.join([*TALK, *ARRANGE, 'be', 'stop'])})\b"
    rf"|(?:{'|'.join(GIVE)})\b(?=\sme\b|.*\b(?:temperatures?|prices?|units|dates|times|distances)\b)",
    re.IGNORECASE,
)
_OF_TALK = re.compile(
    r"""\b(?:emojis?|your\s(?:answers?|repl(?:y|ies)|responses?|messages?|tone)|(?:every|each|any|a)\s(?:answer|reply|
    response)|replies|answers|responses|talk\sto\sme|when(?:ever)?\si\sask|my\s(?:first\s|last\s|full\s)?name|
    with\sme|jargon|bullet\spoints|small\stalk|(?:british|american)\s(?:spelling|english))\b""",
    re.IGNORECASE | re.VERBOSE,
)


def _is_instruction_about_user(instruction: str) -> bool:
    """Whether an instruction that begins with its verb says how the user wants to be served."""
    return bool(_OF_USER.match(instruction) or _OF_TALK.search(instruction))


# Preferences and names. A choice between the options at hand is not a preference.

_OFTEN = r"(?:(?:generally|usually|really|much|always|strongly|definitely|personally|do|still|also|just)\s){0,2}"
# Words that point at something in the conversation: the choice holds for now only.
POINTS = r"""\b(?:this|that|these|those|it|here|option|version|draft|one|the\s(?:\w+\s)?ones|former|latter|first|
    second|
    third|line\s\d+)\b"""
_FOR_NOW = pattern(
    rf"""^(?:the|to|not|you|your|being|how|what|when|if|them|him|her|us|myself|everything|everyone|[a-z]|\d+)\b(?!')
    |{POINTS}"""
)
_NAME = re.compile(
    r"""(?:(?:Dr|Mr|Mrs|Ms|Prof)\.?\s)?[A-ZÀ-Þ][\w'-]*(?:\s[A-ZÀ-Þ][\w'-]*){0,3}(?=\s*(?:$|[,;:.!(–—-]|and\b|
        but\b|pls\b|please\b|btw\b|by\sthe\b|from\b|now\b|here\b|with\b|instead\b|not\b|too\b|so\b|-))
    |[a-zß-ÿ]{2,15}(?=\s*(?:$|[,;(]|and\b|but\b|pls|please|btw|by\sthe|from|now))""",
    re.VERBOSE,
)
_NO_NAME = pattern(
    r"""^(?:an?|the|when(?:ever)?|if|back|on|at|in|later|to|today|tomorrow|as|again|maybe|crazy|old|whatever|by|after|
    before|any\s?time|asap|now|from|for|up|out|once|please|pls|not|misspelled|wrong|what|too|also|missing|hard|
    difficult|
    listed|under|going|still|being|is|it|that|this|my|your|names|stupid|bond|ishmael|mud|legion|correct|right|spelled|
    tonight|soon|
    first|ever|never|about|with|there|here|directly|daily|every)\b"""
)


def _prefers(head: str, requires: str = "", excludes: re.Pattern[str] | None = None) -> Rule:
    return Rule(PREFERENCE, Target.USER, pattern(head), pattern(requires) if requires else None, excludes)


def _named(head: str) -> Rule:
    return Rule(NAME, Target.USER, pattern(head), _NAME, _NO_NAME, keeps_only_required=True)


def _asks_to_be_called(head: str) -> Rule:
    return Rule(NAME, Target.USER, pattern(head), _NAME, _NO_NAME, keeps_only_required=True, restate=state_instruction)


PREFERENCES = (
    _prefers(rf"i\s{_OFTEN}prefer\s", excludes=_FOR_NOW),
    _prefers(r"when(?:ever)?\si\s[\w\s]{2,40},?\si\s(?:usually\s|always\s)?prefer\s", excludes=pattern(POINTS)),
    _prefers(
        r"""(?:i'd|i\swould)\s(?:generally\s|always\s|usually\s)?rather\s
        (?=(?:be|get|receive|have)\b)""",
        requires=r".*\bthan\b",
        excludes=pattern(rf"\berror|\bfor\sthe\b|{POINTS}"),
    ),
    _prefers(
        rf"i\s{_OFTEN}like\s",
        requires=r"[^,]+\s(?:more|better)\sthan\s",
        excludes=pattern(rf"^the\b|\bthan\s(?:i|ever|before)\b|{POINTS}"),
    ),
    _prefers(rf"i\s{_OFTEN}like\smy\s", requires=r"\w+\s\w+", excludes=pattern(rf"\b(?:new|old|job|work)\b|{POINTS}")),
    _prefers(rf"i\s{_OFTEN}(?:don't|dont|do\snot)\s(?:really\s)?like\s", excludes=_FOR_NOW),
    _prefers(r"i\s(?:really\s|absolutely\s)?(?:dislike|detest)\s", excludes=_FOR_NOW),
    # "I hate regex" is a sigh; a lasting dislike takes more words.
    _prefers(
        r"i\s(?:really\s|absolutely\s)?(?:hate|can't\sstand|cannot\sstand)\s",
        r"\w+\s\w+",
        pattern(rf"\b(?:sometimes|so\smuch)\b|{_FOR_NOW.pattern}"),
    ),
    _prefers(r"i\s(?:really\s)?(?:hate|dislike|don't\slike)\sit\swhen\syou\s"),
    _prefers(
        r"""my\s(?:favou?rite|preferred)\s(?!part|thing|bit|moment|one|memory|scene|line|way|of|quote|to)
        [\w-]+(?:\s[\w-]+)?\s(?:is|are)\s""",
        excludes=pattern(
            rf"^(?:the\s(?:last|same)|when|how|to|not|so|crashing|failing|broken|gone|missing|down)\b|{POINTS}"
        ),
    ),
)

NAMES = (
    _asks_to_be_called(r"(?:you\s(?:can|may)\s)?(?:please\s|just\s)*call\sme\s"),
    _asks_to_be_called(r"(?:you\s(?:can|may)\s)?(?:please\s)?address\sme\sas\s"),
    _named(r"my\s(?:full\s|first\s|last\s|real\s)?name(?:'?s|\sis)\s(?:spelled\s)?"),
    _named(r"i\sgo\sby\s"),
    _named(r"(?:everyone|everybody|most\speople|my\sfriends)\scalls?\sme\s"),
    Rule(NAME, Target.USER, pattern(r"my\spronouns\sare\s"), pattern(r"\w+/\w+")),
)


# Lasting facts about the user. Closed lists of words keep ordinary chat out.

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


def _fact(
    head: str, requires: str = "", excludes: str = "", *, needs_name: bool = False, stops_at_and: bool = False
) -> Rule:
    wanted, barred = pattern(requires) if requires else None, pattern(excludes) if excludes else None
    return Rule(FACT, Target.USER, pattern(head), wanted, barred, needs_name=needs_name, stops_at_and=stops_at_and)


_BODY = (
    _fact(
        rf"{_AM}(?:severely\s|very\s|highly\s|also\s|quite\s|deathly\s)?allergic\sto\s",
        excludes=rf"^(?:work|mondays?|people|you|bullshit|exercise|stupid)|{POINTS}",
    ),
    _fact(
        rf"{_AM}(?:an?\s|also\s|strictly\s|mostly\s){{0,2}}{_BEING}\b",
        excludes=r"^\s(?:to|by(?!\sthe\sway\b)|from|with|for)\b",
    ),
    _fact(r"i\s(?:don't|dont|do\snot|can't|cannot|can\snot|never)\s(?:eat|drink)\s", _FOODS),
    _fact(r"i\s(?:don't|dont|do\snot|can't)\s(?:drive|smoke|drink|swim)(?=\s*(?:$|[,;]|at\sall|so\b))"),
    _fact(rf"i\s(?:have|suffer\sfrom|was\sdiagnosed\swith)\s{_CONDITIONS}"),
    _fact(r"i\s(?:use|need)\sa\s(?:wheelchair|hearing\said|screen\sreader|guide\sdog)\b"),
)
_PLACES = (
    _fact(rf"i\s{_NOW}live\s(?:in|near|at)\s", needs_name=True),
    _fact(rf"{_AM}{_NOW}(?:based|living)\s(?:in|near)\s", needs_name=True),
    _fact(rf"{_AM}(?:originally\s)?from\s", needs_name=True),
    _fact(r"i\swas\s(?:born|raised)\s(?:and\sraised\s)?(?:in|on)\s", r"\w*\d|(?-i:[A-Z])"),
    _fact(r"i\sgrew\sup\sin\s", needs_name=True),
    _fact(r"i\s(?:also\s)?speak\s(?:fluent\s|some\s)?", needs_name=True),
)
_JOB = (
    _fact(rf"i\s{_NOW}work\s(?:remotely\s)?as\san?\s", stops_at_and=True),
    _fact(
        rf"i\s{_NOW}work\s(?:at|for)\s",
        r"(?!the\b|least\b|home\b|night\b)(?:(?-i:[A-Z0-9])|an?\s|myself)",
        stops_at_and=True,
    ),
    _fact(r"i\s(?:usually\s|always\s)?work\s(?:night|early|late)\sshifts?", excludes=POINTS),
    _fact(rf"i\s{_NOW}work\sin\s{_FIELDS}\b", excludes=r"^\s(?:the|this|a)\b", stops_at_and=True),
    _fact(rf"{_AM}doing\s(?:an?|my)\s(?:phd|master'?s|bachelor'?s|doctorate)\b", stops_at_and=True),
    _fact(rf"{_AM}an?\s(?:[\w-]+\s){{0,3}}{_JOBS}\b", excludes=r"^\s(?:of|who|that)\b", stops_at_and=True),
)
_PEOPLE = (
    _fact(
        rf"(?:i|we)(?:\shave|'ve\sgot|\shave\sgot)\s(?:{_FAMILY})",
        r"\s*$|[,;(]|\s(?:and|named|called|who|at|with|aged|in|but|so|from)\b",
        r"\bfight\b|\bto\s\w+",
    ),
    _fact(rf"{_AM}(?:married|engaged)\sto\s", needs_name=True),
    _fact(rf"my\s{_KIN}(?:'s\sname)?\sis\s(?:called|named)\s", needs_name=True),
    _fact(rf"my\s{_KIN}'s\sname\sis\s", needs_name=True),
    _fact(
        rf"my\s{_KIN}\sis\s(?:(?:severely\s)?allergic\sto\s|(?:a\s)?(?:vegan|vegetarian|diabetic|celiac|deaf)\b)",
        excludes=POINTS,
    ),
    _fact(rf"my\s{_SERVANTS}(?:'s\sname)?\sis\s", needs_name=True),
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
        excludes=r"^not\b",
    ),
    _fact(r"my\s(?:home\s|postal\s|mailing\s|billing\s)?address\sis\s", r"(?=.*\d)"),
    _fact(r"my\s(?:work\s)?e-?mail(?:\saddress)?\sis\s", r"\S+@\S+"),
    _fact(r"my\s(?:phone|mobile|cell|customer|account|member(?:ship)?|client)\s?(?:number|id)\sis\s", r"[+(\#\w-]*\d"),
    _fact(
        r"my\s(?:phone|laptop|car|computer|bike|camera|tablet)\sis\san?\s",
        excludes=r"^(?:bit|little|lot|mess|disaster|wreck|problem|joke|total|complete|vm|virtual|test)\b",
    ),
    _fact(r"my\s(?:phone|laptop|computer)\sruns\s", r"(?-i:[A-Z])|\w+\s\d"),
)

FACTS = (*_BODY, *_PLACES, *_JOB, *_PEOPLE, *_DATA)


# Changes in the user's life or in the team's work, and the tools that the team uses.

_HAVE = r"i(?:'ve|\shave)?\s(?:just\s|recently\s)?"
_DOING = r"(?:work|live|eat|drink|smoke|use|drive|play|study|teach|own|run)"
_DOING_NOT = r"(?:smoking|drinking|eating|working|using|driving|playing)"
_NOT_LASTING = r"\b(?:this|that|these|those|it|here|there|our|version|flag)\b"
_TOOL = r"(?:[A-Z][\w.+#-]*|[a-z][\w.+#-]+)"
_OURS = r"""(?:project|repo|repository|codebase|team|back\s?end|front\s?end|api|company|stack|app|service|convention|
    default\sbranch|database|site)"""


def _changed(head: str, excludes: str = "", *, needs_name: bool = False) -> Rule:
    return Rule(
        CORRECTION, Target.USER, pattern(head), excludes=pattern(excludes) if excludes else None, needs_name=needs_name
    )


def _team(
    kind: str,
    head: str,
    requires: re.Pattern[str] | None = None,
    excludes: str = _NOT_LASTING,
    *,
    needs_name: bool = False,
) -> Rule:
    return Rule(kind, Target.ENVIRONMENT, pattern(head), requires, pattern(excludes), needs_name=needs_name)


CHANGES = (
    _changed(rf"{_HAVE}(?:moved|relocated)\s(?:back\s)?(?:from\s\w+\s)?to\s", needs_name=True),
    _changed(rf"i\sno\slonger\s{_DOING}\b", _NOT_LASTING),
    _changed(rf"i\s(?:don't|dont|do\snot)\s{_DOING}\b(?=[^,;]{{0,60}}\sany\s?more\b)", _NOT_LASTING),
    _changed(
        r"(?:i'm|i\sam)\snot\s(?:an?\s)?(?:vegetarian|vegan|married|single|pescatarian|a\sstudent)\sany\s?more\b",
        _NOT_LASTING,
    ),
    _changed(r"(?:i'm|i\sam)\sno\slonger\s(?=an?\s|at\s|vegetarian|vegan|married|single|working|living)", _NOT_LASTING),
    _changed(rf"{_HAVE}(?:stopped|quit|given\sup|gave\sup)\s{_DOING_NOT}\b", _NOT_LASTING),
    _changed(
        rf"{_HAVE}changed\smy\s(?:phone\snumber|number|e-?mail(?:\saddress)?|address|name)(?=\s*(?:$|[,;]|to\b|"
        rf"and\b|recently|last))"
    ),
    _changed(rf"{_HAVE}started\sa\snew\sjob\s(?:as|at)\s"),
    _changed(r"(?:i'm|i\sam)\s(?:now\s)?(?:divorced|married|retired|engaged)\snow\b"),
    _team(CORRECTION, r"we\sno\slonger\suse\s", re.compile(_TOOL), rf"{_NOT_LASTING}|\b(?:much|often|yet)\b"),
    _team(
        CORRECTION,
        r"we(?:'ve|\shave)?\s(?:recently\s)?(?:moved|switched|migrated)\s(?:over\s)?(?:from\s\S+\s)?to\s",
        needs_name=True,
    ),
)

# These count only after "no" and with the wrong value; otherwise such a sentence is part of a task.
CORRECTED = (
    _team(
        CORRECTION,
        r"(?:the|our|my)\s(?:[\w-]+\s){1,4}(?:is|runs)\son\s(?=port\s)",
        re.compile(r"port\s\d{1,5},\snot\s(?:on\s)?(?:port\s)?\d{1,5}$"),
    ),
    _team(
        CORRECTION,
        r"(?:the|our)\s(?:default|main)\sbranch\sis\s(?:called\s)?",
        re.compile(r"[\w./-]+,\snot\s[\w./-]+$"),
        r"^(?:broken|slow|fast|down|red|green|fine|ok|clean|dirty|stable|\w+ed|\w+ing)\b",
    ),
)

STACK = (
    _team(
        FACT,
        r"we\s(?:always\s|only\s|now\s)?use\s(?!to\b|it\b)",
        re.compile(rf"{_TOOL},?\s(?:not|instead\sof|rather\sthan|in\sproduction|for\s\w+|\d|now$)"),
        r"\b(?:that|these|those|it|here|there)\b",
    ),
    _team(
        FACT,
        rf"""our\s(?:\w+\s)?{_OURS}\s(?:uses|targets|runs\son|is\s(?:written|built|hosted|deployed|called)|
        is\sthat|lives\sin|requires)\s""",
    ),
    _team(
        FACT,
        r"our\s(?:\w+\s)?(?:url|domain|port|registry|endpoint|bucket|host|default\sbranch|vat\sid|"
        r"fiscal\syear)\sis\s",
        re.compile(r"\S*[./:\d_]\S|[a-z]+$"),
        r"\b(?:down|slow|broken|wrong|missing|gone|this|that)\b",
    ),
)


# Corrections such as "not Lyon but Oslo". The assistant's sentence before says what the value belongs to.

_CONTEXT_CHARACTERS_MAX = 4_000
_SENTENCE_CHARACTERS_MAX = 160
_THING = r"(?:the\s|an?\s)?[\w.@/+\#:-]{1,60}(?:\s[\w.@/+\#:-]{1,60}){0,2}"
_IT_IS = r"(?:it's|its|it\sis|that's)"

_REPLACED = pattern(
    r"""(?:,\s*|\s)(?:and\s)?(?:not|instead\sof|rather\sthan)\s(?:(?:in|at|for|to|on)\s)?(?P<old>[^,;]{1,40}?)
    (?:\sin\s(?:this|our)\s\w+)?$"""
)
_REPLACEMENTS = (
    pattern(
        rf"""(?:{_IT_IS}\snot|it\sisn't|it\sain't|(?:her|his|the|my|our)\s\w+\s(?:is\snot|isn't))\s
        (?P<old>{_THING}),?\s(?:but|{_IT_IS})\s(?P<new>{_THING})$"""
    ),
    pattern(rf"not\s(?:in\s|at\s|on\s)?(?P<old>{_THING}),\s(?:but\s|it's\s)?(?:in\s|at\s|on\s)?(?P<new>{_THING})$"),
    pattern(rf"{_IT_IS}\s(?!not\b)(?P<new>{_THING}),\snot\s(?P<old>{_THING})$"),
)
# A statement of the assistant can be corrected. Its actions, and the code at hand, belong to the task.
_DECLARES = pattern(
    r"""(?:your|you|our|his|her|the\s(?:\w+\s)?(?:branch|database|project|repo|repository|service|server|staging|
        production|team|
    company|office|port|region|package\smanager|framework|stack|site|api|pipeline|cluster|warehouse|store|shop|
    meeting))\s
    [^?]*\b(?:is|are|uses?|lives?|works?|runs?|wears?|prefers?|likes?|starts?|opens?|listens?)\b"""
)
_EQUIPMENT = pattern(
    r"""the\suser's\s(?:\w+\s)?(?:database|bucket|server|repo|repository|branch|project|service|build|pipeline|
        api|cluster|
    deployment|domain|app|site|region|stack|framework|registry)\b"""
)
_STATE = pattern(
    r"""(?:down|up|slow|fast|broken|fine|ok(?:ay)?|just|too|so|very|big|small|empty|missing|gone|full|done|ready|
        wrong|right|
    good|bad|\w+ing|\w+ed)\b"""
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """`old` is wrong, `new` is right."""

    old: str
    new: str


def split_replaced(text: str) -> tuple[str, str]:
    """ "Oslo, not Lyon" -> ("Oslo", "Lyon")."""
    found = _REPLACED.search(text)
    return (text[: found.start()], found.group("old").strip()) if found else (text, "")


def find_replacement(clause: Clause) -> Replacement | None:
    if clause.is_question:
        return None
    for shape in _REPLACEMENTS:
        found = shape.match(clause.plain)
        if found:
            return Replacement(*(clause.text[found.start(name) : found.end(name)].strip() for name in ("old", "new")))
    return None


def correct_answer(replacement: Replacement, answer: str) -> str:
    """The assistant's sentence with the right value. Empty if no sentence states the wrong value plainly."""
    if replacement.old.lower() == replacement.new.lower() or _STATE.match(replacement.new):
        return ""
    wrong = re.compile(rf"(?<![\w-]){re.escape(replacement.old)}(?![\w-])", re.IGNORECASE)
    for sentence in reversed(split_sentences(answer[-_CONTEXT_CHARACTERS_MAX:])):
        if (
            sentence.is_question
            or len(sentence.plain) > _SENTENCE_CHARACTERS_MAX
            or not _DECLARES.match(sentence.plain)
        ):
            continue
        if len(wrong.findall(sentence.plain)) == 1:
            return _state_answer(wrong.sub(lambda _: replacement.new, sentence.text))
    return ""


def is_about_user(text: str) -> bool:
    return text.startswith("The user") and not _EQUIPMENT.match(text)


def _state_answer(text: str) -> str:
    """ "You live in Oslo" -> "The user lives in Oslo"."""
    lower = text.lower()
    if lower.startswith("your "):
        return f"The user's {text[5:]}"
    if lower.startswith("you "):
        return f"The user {conjugate(text[4:])}"
    return capitalise(text)


# Introductions such as "Hi, I'm Jonas.", only right after a greeting.

_GREETING = r"(?:hi|hello|hey|good\s(?:morning|afternoon|evening))(?:\s(?:there|again))?"
_GREETS = pattern(_GREETING)
_AFTER_GREETING = pattern(rf"{_GREETING}[\s,:;–—-]{{1,4}}")
_IS_NAMED = pattern(
    r"""(?:i'm|i\sam)\s(?P<name>(?-i:(?:Dr\.?\s)?[A-ZÀ-Þ][\w'-]*[a-zß-ÿ](?:\s[A-ZÀ-Þ][\w'-]*[a-zß-ÿ]){0,2}))(?![\w'-])
    (?P<rest>\s*(?:$|[,;:(–—]|\s-\s)|\s(?:and|but|from|btw|by\sthe\sway)\b)"""
)
# Capitalised words that are not names.
_NO_INTRODUCTION = pattern(
    r"""\b(?:[\w'-]+ing|done|sorry|back|new|not|so|very|just|really|glad|happy|here|there|still|also|now|only|ready|fine|
    good|great|okay|stuck|lost|tired|bored|excited|confused|interested|curious|afraid|sure|sick|late|early|busy|free|
    in|on|at|from|with|a|an|the|your|my|writing|batman|groot|spartacus|iron|siri|alexa|claude|chatgpt|human|
    pregnant|married|single|republican|democrat|liberal|conservative|(?:mon|tues|wednes|thurs|fri|satur|sun)day|
    team|type|head|lead|senior|junior|software|product|project|data|student|director|chief|doctor|nurse|vice|president|
    professor|manager|engineer|developer|designer|owner|founder|
    aries|taurus|gemini|virgo|libra|scorpio|sagittarius|capricorn|aquarius|pisces|
    christian|catholic|protestant|orthodox|muslim|jewish|buddhist|hindu|sikh|atheist|vegan|vegetarian|gay|lesbian|
    african|albanian|algerian|american|arab|argentinian|armenian|asian|australian|austrian|bavarian|belgian|black|
    bolivian|bosnian|brazilian|british|bulgarian|canadian|catalan|chilean|chinese|colombian|croatian|cuban|czech|danish|
    dutch|egyptian|english|estonian|ethiopian|european|filipino|finnish|french|georgian|german|greek|hispanic|
    hungarian|icelandic|indian|indonesian|iranian|iraqi|irish|israeli|italian|jamaican|japanese|kenyan|korean|kurdish|
    latina?|latino|latvian|lebanese|lithuanian|malaysian|mexican|moroccan|nepali|nigerian|norwegian|pakistani|
    palestinian|persian|peruvian|polish|portuguese|romanian|russian|scottish|serbian|slovak|slovenian|spanish|swedish|
    swiss|syrian|taiwanese|thai|tunisian|turkish|ukrainian|venezuelan|vietnamese|welsh|white)\b"""
)


def find_introduction(sentences: Sequence[Sentence]) -> Lesson | None:
    """Reads the beginning of a message, or the sentence after a greeting."""
    if not sentences:
        return None
    first = sentences[0]
    if _GREETS.fullmatch(first.plain):
        return _read(sentences[1], 0) if len(sentences) > 1 else None
    greeting = _AFTER_GREETING.match(first.plain)
    return None if greeting is None else _read(first, greeting.end())


def _read(sentence: Sentence, start: int) -> Lesson | None:
    found = _IS_NAMED.match(sentence.plain, start)
    if found is None or _NO_INTRODUCTION.search(found["name"]) or (sentence.is_question and not found["rest"].strip()):
        return None
    name = sentence.text[found.start("name") : found.end("name")]
    return Lesson(f"The user's name is {name}", Target.USER, NAME, 0)


# Notes: the user asks the agent to remember something.

_PLEASE = r"""(?:(?:please|pls|also|can\syou|could\syou|would\syou|i\swant\syou\sto|i'd\slike\syou\sto|
    i\sneed\syou\sto|
    you\sshould)\s)*"""


_HEADS = (
    pattern(rf"{_PLEASE}(?:always\s)?(?:remember|don'?t\sforget|do\snot\sforget|memori[sz]e)(?:\splease)?,?\sthat\s"),
    pattern(rf"{_PLEASE}remember(?:\sthis|\sfor\s(?:later|next\stime|the\sfuture))?\s*:\s+"),
    pattern(rf"{_PLEASE}remember\s(?=(?:i|i'm|my|we|our)\s)"),
    pattern(rf"{_PLEASE}(?:keep|bear)\sin\smind,?\s(?:that\s|(?=(?:i|i'm|my|we|our)\s))"),
    pattern(rf"{_PLEASE}(?:make|take)\sa?\s?(?:mental\s)?note,?\sthat\s"),
    pattern(
        rf"{_PLEASE}(?:just\s)?(?:note|fyi|info)?,?\s?for\s(?:the\sfuture|next\stime|future\sreference|"
        rf"later)(?:\s*[,:]\s*|\s)(?:note\s)?(?:that\s)?"
    ),
    pattern(rf"{_PLEASE}note\sfor\s(?:next\stime|later|the\sfuture)\sthat\s"),
    pattern(
        rf"{_PLEASE}(?:save|store|keep|put|add)\s(?:this|that)?\s?(?:for\slater|(?:in|into|"
        rf"to)\s(?:your\s)?memory)(?:\s*:\s+|\sthat\s)"
    ),
)
# "It", "he" and "there" point at something outside the lesson; the other words announce a task or a question.
_NO_STATEMENT = pattern(
    r"""(?:it|its|it's|he|she|they|this|that|that's|these|those|there|here|you|to|what|how|why|who|where|when|if|
        and|line|page|step|
    the\s(?:input|output|function|list|array|file|user|users|test|exercise|task|deadline|code|above|following|
    first|second|
    last|next|button|form|error|loop|variable|process|text|string|result|answer|response|essay|article|title|
    program|script)|
    variable|text|sometimes|everyone|everything|[a-z]+ing\s(?:\w+\s){0,3}is|i\s(?:have\salready|already|just|
    (?:really\s)?(?:need|want)|said|told|asked|will|am\sgoing)|
    i'll|i'm\sgoing|we\sonly|we\s(?:have\sto|need|want|discussed|talked|said|will|are\sgoing))\b"""
)
_TASK = pattern(
    r"\b(?:left|already|only\shave|deadline|should|would\shave|needs?\sto|must\sbe|perfect|so\s(?!that\b|no\b|i\b|"
    r"i'm\b|we\b|the\b|it\b|they\b|he\b|she\b|you\b|don't\b|please\b)\w+\s)\b"
)
_STATES = pattern(
    r"\b(?:is|are|am|was|were|has|have|had|can|can't|must|will|do|does|don't|doesn't|need|needs|\w+s|\w+ed|i\s\w+|"
    r"we\s\w+|i'm|my)\b"
)


_POLITELY = pattern(r"(?:please\s)?(?:can|could|would)\syou\b")


def find_note_start(plain: str, *, is_question: bool) -> int | None:
    """The position of the statement to remember, or None.

    "Can you remember that ...?" is a request too; "Remember that game?" is not.
    """
    if is_question and not _POLITELY.match(plain):
        return None
    for head in _HEADS:
        found = head.match(plain)
        if found:
            return found.end() if _is_statement(plain[found.end() :]) else None
    return None


def _is_statement(rest: str) -> bool:
    if len(rest.split()) < 3 or _NO_STATEMENT.match(rest) or _TASK.search(rest):
        return False
    return bool(_STATES.search(rest))


# Standing rules: what the agent should always or never do. An instruction for the task at hand is not one.

_FROM_NOW = r"""(?:from\snow\son|from\shere\son(?:\sout)?|going\sforward|moving\sforward|from\stoday\son|henceforth|
    as\sa\s(?:general\s)?rule)"""
_LATER = r"(?:in\s(?:the\s)?future|next\stime|for\sthe\sfuture|for\sfuture\sreference)"
_EVER = r"(?:never\sever|never|always|don'?t\sever|do\snot\sever)"
_ASKED = r"(?:please|pls|you\s(?:should|must)|can\syou|could\syou|i\swant\syou\sto|i'd\slike\syou\sto)"
_NOT = rf"(?:{_EVER}\s|don'?t\s|do\snot\s|only\s)?"
_WHERE = r"in\s(?:this|our|the)\s(?:repo|repository|project|codebase|team)"
_WE = r"""(?:we\s(?:always\s|never\s)?(?:use|write|deploy|run|name|keep|put|call)\s|no\s\w+
    |i\swant\s(?!to\b)|i'd\slike\s(?!to\b))"""
_COURTESY = r"(?:please|pls|thanks|thank\syou|thx)"
# How the agent talks, whatever the task.
_MANNER = r"""(?:don'?t|do\snot)\suse\s(?:so\smany\s|any\s)?(?:emojis?|em[\s-]dashes)
    (?=$|,?\s(?:please|pls|thanks|with\sme|when\syou\s\w+|in\s(?:your|any)\s(?:answers?|repl(?:y|ies)|responses?|messages?)))"""
_STOP = r"stop\s(?:apologi[sz]ing|lecturing|flattering|repeating\syourself|using\semojis?|calling\sme)\b"

_EVER_HEAD = pattern(rf"(?:(?:also|you\smust|{_WHERE}),?\s)*{_EVER}\s(?:please\s)?|remember\sto\s(?:always|never)\s")
_TIMED_HEADS = (
    pattern(rf"{_FROM_NOW}(?:[,:]\s*|\s)(?:{_ASKED}\s)?{_NOT}"),
    pattern(rf"{_LATER}(?:[,:]\s*|\s)(?:{_ASKED}\s)?{_NOT}"),
    pattern(
        r"""(?:whenever|every\stime|each\stime)\syou\s(?!get\b|have\b|can\b|are\b|want\b|feel\b|like\b)[^,]{3,80},\s
        (?:please\s|always\s)?"""
    ),
)
_DO = pattern(VERB)
_BE = pattern(rf"be\s|{_STOP}")
_TELLS_HOW = pattern(_WE)
_ENDS_TIMED = pattern(rf"\s{_FROM_NOW}(?:,?\s{_COURTESY})*$")
_STOPPING = pattern(rf"{_STOP}|{_MANNER}")
_DO_NOT = pattern(r"(?:don'?t\s|do\snot\s)?")
_LEADS = pattern(rf"(?:(?:also|you\smust|remember\sto|{_FROM_NOW}|{_LATER}|{_ASKED})(?:[,:]\s*|\s))+")
_TAIL = pattern(rf"(?:,?\s(?:{_COURTESY}|{_FROM_NOW}))+$|,\s(?=(?:i|i'm|thanks|thank)\b)")
_BEFORE_VERB = pattern(
    rf"(?:{_EVER}\s|don'?t\s|do\snot\s|only\s|please\s|{_WHERE},?\s|(?:whenever|every\stime|"
    rf"each\stime)[^,]{{3,90}},\s)*"
)
_NOT_STANDING = pattern(
    r"""\b(?:this|that|these|those|it|here)\b(?!\s(?:repo|repository|project|codebase|team|company|house)\b)
    |\b(?:step|line)\s\d|\bnames$|^(?:always|never)\s\w+$
    |^never\s(?:ever\s)?change(?:$|[,;]|\s(?:you|for\s\w+$|on\sme))
    |\byour\s(?!answer|repl|respon|message|code|change|work|commit|step|claim|source|reason|output|tone|feedback|plan|
        suggest|summar|explan|tool|own)"""
)
_SAYING = pattern(
    r"""\b(?:scissors|a\swoman|running\ssystem|put\soff|best\sfoot|gift\shorse|book\sby|blind\sspot|seat\s?belts?|
        manual|
    strangers|hope|faith|dreams?|kids)\b"""
)


def find_standing_rule(clause: Clause) -> RuleMatch | None:
    """The rule up to the end of the sentence: exceptions and reasons are part of it."""
    opens_with_rule = clause.is_first and not clause.after_task and _opens_with_rule(clause.plain)
    if clause.is_question or not (opens_with_rule or _is_timed(clause.plain)):
        return None
    lead = _LEADS.match(clause.plain)
    start = lead.end() if lead else 0
    tail = _TAIL.search(clause.plain, start)
    end = tail.start() if tail else len(clause.plain)
    plain = clause.plain[start:end]
    if _NOT_STANDING.search(plain) or _SAYING.search(plain):
        return None
    return RuleMatch(_rule_for(plain), clause, clause.text[start:end], len(clause.plain))


def _opens_with_rule(plain: str) -> bool:
    """As in "never ..." or "answer in German from now on"."""
    ever = _EVER_HEAD.match(plain)
    if ever is not None:
        return bool(_DO.match(plain, ever.end()))
    start = _DO_NOT.match(plain)
    restate = start is not None and _DO.match(plain, start.end()) and _ENDS_TIMED.search(plain)
    return bool(restate or _STOPPING.match(plain))


def _is_timed(plain: str) -> bool:
    for at, head in enumerate(_TIMED_HEADS):
        found = head.match(plain)
        if found is not None:
            return bool(
                _DO.match(plain, found.end())
                or _BE.match(plain, found.end())
                or (at == 0 and _TELLS_HOW.match(plain, found.end()))
            )
    return False


def _rule_for(plain: str) -> Rule:
    wishes = plain.lower().startswith(("i want ", "i'd like "))
    before = _BEFORE_VERB.match(plain)
    of_user = wishes or _is_instruction_about_user(plain[before.end() if before else 0 :])
    return Rule(
        kind=PREFERENCE if of_user else RULE,
        target=Target.USER if of_user else Target.ENVIRONMENT,
        head=_EVER_HEAD,
        restate=state_about_user if wishes else state_instruction,
    )
