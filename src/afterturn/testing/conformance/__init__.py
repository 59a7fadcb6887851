"""The store conformance suite: tests of everything that the ports promise.

Import these classes into a test module with an async fixture `store` that yields an open store, and the two fixtures
that `interleaved.py` describes. Register the package for assertion rewriting first:
`pytest.register_assert_rewrite("afterturn.testing.conformance")`.
"""

from afterturn.testing.conformance.conversations import (
    TestBlocks,
    TestCarriedRecalls,
    TestConversationState,
    TestOwners,
    TestStandingBlocks,
    TestTimeline,
    TestTurns,
    TestVisibleBlocks,
)
from afterturn.testing.conformance.forget import (
    TestAcrossSpaces,
    TestForgetReach,
    TestForgetting,
    TestPositionsAfterForget,
    TestTombstones,
)
from afterturn.testing.conformance.forget_traces import TestForgottenReviews, TestForgottenTraces
from afterturn.testing.conformance.index import (
    TestAround,
    TestChanges,
    TestIndexedEntries,
    TestNewest,
    TestSearch,
    TestSpeakers,
    TestStats,
    TestVectors,
)
from afterturn.testing.conformance.interleaved import TestInterleaved
from afterturn.testing.conformance.jobs import TestJobs
from afterturn.testing.conformance.memories import TestMemories, TestRecords
from afterturn.testing.conformance.operations import TestKnownAt, TestUndo
from afterturn.testing.conformance.proposals import (
    TestProposals,
    TestProposedChanges,
    TestUndoneChanges,
    TestWithdrawals,
)
from afterturn.testing.conformance.queries import (
    TestExclusion,
    TestFilters,
    TestLanes,
    TestLearnedStatements,
    TestScopes,
    TestSeenSince,
    TestStatuses,
)
from afterturn.testing.conformance.recalls import TestRecalls
from afterturn.testing.conformance.reviews import (
    TestFinishedReviews,
    TestLastShown,
    TestReviews,
    TestUnconsolidated,
    TestUnreviewed,
    TestUsage,
)
from afterturn.testing.conformance.store import TestStore, TestUnits

__all__ = [
    "TestAcrossSpaces",
    "TestAround",
    "TestBlocks",
    "TestCarriedRecalls",
    "TestChanges",
    "TestConversationState",
    "TestExclusion",
    "TestFilters",
    "TestFinishedReviews",
    "TestForgetReach",
    "TestForgetting",
    "TestForgottenReviews",
    "TestForgottenTraces",
    "TestIndexedEntries",
    "TestInterleaved",
    "TestJobs",
    "TestKnownAt",
    "TestLanes",
    "TestLastShown",
    "TestLearnedStatements",
    "TestMemories",
    "TestNewest",
    "TestOwners",
    "TestPositionsAfterForget",
    "TestProposals",
    "TestProposedChanges",
    "TestRecalls",
    "TestRecords",
    "TestReviews",
    "TestScopes",
    "TestSearch",
    "TestSeenSince",
    "TestSpeakers",
    "TestStandingBlocks",
    "TestStats",
    "TestStatuses",
    "TestStore",
    "TestTimeline",
    "TestTombstones",
    "TestTurns",
    "TestUnconsolidated",
    "TestUndo",
    "TestUndoneChanges",
    "TestUnits",
    "TestUnreviewed",
    "TestUsage",
    "TestVectors",
    "TestVisibleBlocks",
    "TestWithdrawals",
]
