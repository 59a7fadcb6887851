"""The rule-based reviewer: finds what users state, without a model. Pure functions; nothing is written here.

`sentences` splits a message, `clauses` has the shape of a rule, `extraction` applies the rules for explicit cases in
English, and `statements` finds everything else by the word lists in `vocabulary`.
Patterns are compiled when the modules are imported, so that no review has to wait for that; those of `vocabulary` in
languages other than English when the first message in that language comes.
"""

from afterturn.learning.rules.clauses import Lesson
from afterturn.learning.rules.extraction import find_lessons, may_teach
from afterturn.learning.rules.statements import supersedes
from afterturn.learning.rules.vocabulary import LANGUAGE_CODES as LANGUAGES

__all__ = ["LANGUAGES", "Lesson", "find_lessons", "may_teach", "supersedes"]
