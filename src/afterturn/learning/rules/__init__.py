"""The rule-based reviewer: finds what users state explicitly, without a model. Pure functions; nothing is written here.

`sentences` splits a message, `clauses` has the shape of a rule, `english` and `languages` the rules, `extraction`
applies them. The patterns are compiled when the modules are imported, so that no review has to wait for that.
"""

from afterturn.learning.rules.clauses import Lesson
from afterturn.learning.rules.extraction import find_lessons
from afterturn.learning.rules.sentences import LANGUAGES, may_teach

__all__ = ["LANGUAGES", "Lesson", "find_lessons", "may_teach"]
