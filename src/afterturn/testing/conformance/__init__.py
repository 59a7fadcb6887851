"""What every store must do, as tests. A store's own test module brings a fixture `store` and imports these classes.

Register the package for assertion rewriting first: `pytest.register_assert_rewrite("afterturn.testing.conformance")`.
"""

from afterturn.testing.conformance.across import TestAcrossSpaces, TestReadAgain
from afterturn.testing.conformance.carrying import TestCarried, TestStanding
from afterturn.testing.conformance.changes import TestProposedChanges, TestWithdrawals
from afterturn.testing.conformance.consolidating import TestLastShown, TestUnconsolidated
from afterturn.testing.conformance.context import TestAround, TestNewest, TestSpeakers
from afterturn.testing.conformance.conversations import TestBlocks, TestTimeline, TestTurns
from afterturn.testing.conformance.figures import TestFigures
from afterturn.testing.conformance.forgetting import TestForgetting
from afterturn.testing.conformance.history import TestKnownAt, TestUndo
from afterturn.testing.conformance.index import TestChanges, TestSearch, TestVectors
from afterturn.testing.conformance.jobs import TestJobs
from afterturn.testing.conformance.kept_reviews import TestKeptReviews
from afterturn.testing.conformance.lanes import TestExclusion, TestLanes, TestLearned, TestSeenSince, TestStates
from afterturn.testing.conformance.memories import TestMemories, TestRecords
from afterturn.testing.conformance.owners import TestOwners
from afterturn.testing.conformance.proposals import TestProposals
from afterturn.testing.conformance.reach import TestReach
from afterturn.testing.conformance.recalls import TestRecalls
from afterturn.testing.conformance.review_forgetting import TestForgottenReviews
from afterturn.testing.conformance.reviews import TestReviews, TestUnreviewed
from afterturn.testing.conformance.scopes import TestFilters, TestScopes
from afterturn.testing.conformance.shelving import TestShelved
from afterturn.testing.conformance.sight import TestConversationState, TestSight
from afterturn.testing.conformance.store import TestStore
from afterturn.testing.conformance.tombstones import TestTombstones
from afterturn.testing.conformance.traces import TestTraces
from afterturn.testing.conformance.undone_changes import TestUndoneChanges
from afterturn.testing.conformance.units import TestUnits
from afterturn.testing.conformance.usage import TestUsage

__all__ = [
    "TestAcrossSpaces",
    "TestAround",
    "TestBlocks",
    "TestCarried",
    "TestChanges",
    "TestConversationState",
    "TestExclusion",
    "TestFigures",
    "TestFilters",
    "TestForgetting",
    "TestForgottenReviews",
    "TestJobs",
    "TestKeptReviews",
    "TestKnownAt",
    "TestLanes",
    "TestLastShown",
    "TestLearned",
    "TestMemories",
    "TestNewest",
    "TestOwners",
    "TestProposals",
    "TestProposedChanges",
    "TestReach",
    "TestReadAgain",
    "TestRecalls",
    "TestRecords",
    "TestReviews",
    "TestScopes",
    "TestSearch",
    "TestSeenSince",
    "TestShelved",
    "TestSight",
    "TestSpeakers",
    "TestStanding",
    "TestStates",
    "TestStore",
    "TestTimeline",
    "TestTombstones",
    "TestTraces",
    "TestTurns",
    "TestUnconsolidated",
    "TestUndo",
    "TestUndoneChanges",
    "TestUnits",
    "TestUnreviewed",
    "TestUsage",
    "TestVectors",
    "TestWithdrawals",
]
