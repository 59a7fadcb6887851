"""Statements to measure with: varied English-like sentences, the same for the same seed."""

from itertools import accumulate
from random import Random

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
