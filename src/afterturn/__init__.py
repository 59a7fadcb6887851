"""afterturn: host-managed memory for LLM agents.

The public names. Each one is loaded when it is first used, so importing afterturn costs almost nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afterturn import blocking as blocking
    from afterturn.config import Config as Config
    from afterturn.config import Settings as Settings
    from afterturn.conversation.compactor import Compacted as Compacted
    from afterturn.conversation.compactor import CompactionReason as CompactionReason
    from afterturn.conversation.conversation import Conversation as Conversation
    from afterturn.conversation.conversation import Standing as Standing
    from afterturn.conversation.replay import Replay as Replay
    from afterturn.conversation.replay import Replayed as Replayed
    from afterturn.conversation.scope import ConversationOptions as ConversationOptions
    from afterturn.conversation.subagents import Tools as Tools
    from afterturn.conversation.trace import Trace as Trace
    from afterturn.conversation.trace import TraceAnswer as TraceAnswer
    from afterturn.conversation.trace import TracedBlock as TracedBlock
    from afterturn.conversation.trace import TracedRecall as TracedRecall
    from afterturn.conversation.trace import TracedRule as TracedRule
    from afterturn.conversation.trace import TracedTurn as TracedTurn
    from afterturn.conversation.turn import PhaseName as PhaseName
    from afterturn.conversation.turn import Turn as Turn
    from afterturn.dialects.history import comprehensive_history as comprehensive_history
    from afterturn.dialects.history import curated_history as curated_history
    from afterturn.errors import AfterturnError as AfterturnError
    from afterturn.errors import CalledFromHandler as CalledFromHandler
    from afterturn.errors import ConfigError as ConfigError
    from afterturn.errors import Conflict as Conflict
    from afterturn.errors import DeadlineExceeded as DeadlineExceeded
    from afterturn.errors import EmbedderUnavailable as EmbedderUnavailable
    from afterturn.errors import EmptyText as EmptyText
    from afterturn.errors import ExtraMissing as ExtraMissing
    from afterturn.errors import ForeignFile as ForeignFile
    from afterturn.errors import ForkedProcess as ForkedProcess
    from afterturn.errors import InvalidFile as InvalidFile
    from afterturn.errors import InvalidInput as InvalidInput
    from afterturn.errors import InvalidName as InvalidName
    from afterturn.errors import InvalidText as InvalidText
    from afterturn.errors import KeyMissing as KeyMissing
    from afterturn.errors import KeysUnavailable as KeysUnavailable
    from afterturn.errors import MemoryClosed as MemoryClosed
    from afterturn.errors import ModelAnswerInvalid as ModelAnswerInvalid
    from afterturn.errors import ModelError as ModelError
    from afterturn.errors import ModelPaused as ModelPaused
    from afterturn.errors import ModelRefused as ModelRefused
    from afterturn.errors import ModelUnavailable as ModelUnavailable
    from afterturn.errors import NotAllowed as NotAllowed
    from afterturn.errors import NotFound as NotFound
    from afterturn.errors import OverBudget as OverBudget
    from afterturn.errors import SelectionVoid as SelectionVoid
    from afterturn.errors import StoreCorrupt as StoreCorrupt
    from afterturn.errors import StoreError as StoreError
    from afterturn.errors import StoreFull as StoreFull
    from afterturn.errors import StoreLocked as StoreLocked
    from afterturn.errors import StoreMoved as StoreMoved
    from afterturn.errors import StoreReadOnly as StoreReadOnly
    from afterturn.errors import StoreTooNew as StoreTooNew
    from afterturn.errors import StoreUnavailable as StoreUnavailable
    from afterturn.errors import TooLarge as TooLarge
    from afterturn.memory import EventHandler as EventHandler
    from afterturn.memory import Memory as Memory
    from afterturn.memory import OpenOptions as OpenOptions
    from afterturn.memory import Space as Space
    from afterturn.memory import StoreTarget as StoreTarget
    from afterturn.memory import open as open
    from afterturn.models.chat import OpenAICompatible as OpenAICompatible
    from afterturn.oneshot import recall_block_once as recall_block_once
    from afterturn.oneshot import recall_once as recall_once
    from afterturn.ports import ChatModel as ChatModel
    from afterturn.ports import Embedder as Embedder
    from afterturn.ports import Interaction as Interaction
    from afterturn.ports import KeyProvider as KeyProvider
    from afterturn.ports import RecordingProvider as RecordingProvider
    from afterturn.recall.explain import Explained as Explained
    from afterturn.recall.profile import Profile as Profile
    from afterturn.recall.profile import ProfileSubject as ProfileSubject
    from afterturn.recall.scoring import ScoreKind as ScoreKind
    from afterturn.scanners.detection import Detection as Detection
    from afterturn.scanners.detection import ScanAction as ScanAction
    from afterturn.scanners.detection import Scanner as Scanner
    from afterturn.scanners.detection import ScanPolicy as ScanPolicy
    from afterturn.services import Components as Components
    from afterturn.space.arguments import DraftFields as DraftFields
    from afterturn.space.inbox import Decided as Decided
    from afterturn.space.inbox import Proposal as Proposal
    from afterturn.space.markdown import Bullet as Bullet
    from afterturn.space.markdown import Edit as Edit
    from afterturn.space.markdown import Edited as Edited
    from afterturn.space.markdown import Edits as Edits
    from afterturn.space.markdown import SkippedEdit as SkippedEdit
    from afterturn.space.reviews import Review as Review
    from afterturn.space.reviews import ReviewedChange as ReviewedChange
    from afterturn.space.transfer import Imported as Imported
    from afterturn.standing.audit import StandingLine as StandingLine
    from afterturn.tool_rules.advice import ToolAdvice as ToolAdvice
    from afterturn.tool_rules.advice import ToolRule as ToolRule
    from afterturn.types import Added as Added
    from afterturn.types import Candidate as Candidate
    from afterturn.types import Changed as Changed
    from afterturn.types import Decision as Decision
    from afterturn.types import Draft as Draft
    from afterturn.types import EmbedderIdentity as EmbedderIdentity
    from afterturn.types import Entry as Entry
    from afterturn.types import Event as Event
    from afterturn.types import Filter as Filter
    from afterturn.types import Finding as Finding
    from afterturn.types import Forgotten as Forgotten
    from afterturn.types import History as History
    from afterturn.types import Hit as Hit
    from afterturn.types import Kind as Kind
    from afterturn.types import Lane as Lane
    from afterturn.types import LoggedOperation as LoggedOperation
    from afterturn.types import Message as Message
    from afterturn.types import Metadata as Metadata
    from afterturn.types import NoRecallReason as NoRecallReason
    from afterturn.types import Operation as Operation
    from afterturn.types import Origin as Origin
    from afterturn.types import Outcome as Outcome
    from afterturn.types import Phase as Phase
    from afterturn.types import Purpose as Purpose
    from afterturn.types import RecallCause as RecallCause
    from afterturn.types import RecallRow as RecallRow
    from afterturn.types import RemainingBytes as RemainingBytes
    from afterturn.types import ReviewKind as ReviewKind
    from afterturn.types import ReviewRow as ReviewRow
    from afterturn.types import ReviewState as ReviewState
    from afterturn.types import Scalar as Scalar
    from afterturn.types import Scope as Scope
    from afterturn.types import SearchResults as SearchResults
    from afterturn.types import Showing as Showing
    from afterturn.types import SpaceSummary as SpaceSummary
    from afterturn.types import Status as Status
    from afterturn.types import Step as Step
    from afterturn.types import Taint as Taint
    from afterturn.types import Target as Target
    from afterturn.types import TimelinePage as TimelinePage
    from afterturn.types import TurnRow as TurnRow
    from afterturn.types import TurnStatus as TurnStatus
    from afterturn.types import Undone as Undone
    from afterturn.types import UsageRow as UsageRow
    from afterturn.types import Verb as Verb

# The same names by module, for use at run time. A test compares the two lists.
_NAMES = {
    "afterturn.config": "Config Settings",
    "afterturn.conversation.conversation": "Conversation Standing",
    "afterturn.conversation.replay": "Replay Replayed",
    "afterturn.conversation.scope": "ConversationOptions",
    "afterturn.conversation.subagents": "Tools",
    "afterturn.tool_rules.advice": "ToolAdvice ToolRule",
    "afterturn.conversation.trace": "Trace TraceAnswer TracedBlock TracedRecall TracedRule TracedTurn",
    "afterturn.conversation.turn": "PhaseName Turn",
    "afterturn.dialects.history": "comprehensive_history curated_history",
    "afterturn.errors": (
        "AfterturnError CalledFromHandler ConfigError Conflict DeadlineExceeded EmbedderUnavailable EmptyText "
        "ExtraMissing ForeignFile ForkedProcess InvalidFile InvalidInput InvalidName InvalidText KeyMissing "
        "KeysUnavailable MemoryClosed ModelAnswerInvalid ModelError ModelPaused ModelRefused ModelUnavailable "
        "NotAllowed NotFound OverBudget SelectionVoid StoreCorrupt StoreError StoreFull StoreLocked StoreMoved "
        "StoreReadOnly StoreTooNew StoreUnavailable TooLarge"
    ),
    "afterturn.memory": "EventHandler Memory OpenOptions Space StoreTarget open",
    "afterturn.models.chat": "OpenAICompatible",
    "afterturn.oneshot": "recall_block_once recall_once",
    "afterturn.ports": "ChatModel Embedder Interaction KeyProvider RecordingProvider",
    "afterturn.conversation.compactor": "Compacted CompactionReason",
    "afterturn.recall.explain": "Explained",
    "afterturn.recall.profile": "Profile ProfileSubject",
    "afterturn.recall.scoring": "ScoreKind",
    "afterturn.scanners.detection": "Detection ScanAction Scanner ScanPolicy",
    "afterturn.services": "Components",
    "afterturn.space.arguments": "DraftFields",
    "afterturn.space.inbox": "Decided Proposal",
    "afterturn.space.markdown": "Bullet Edit Edited Edits SkippedEdit",
    "afterturn.space.reviews": "Review ReviewedChange",
    "afterturn.standing.audit": "StandingLine",
    "afterturn.space.transfer": "Imported",
    "afterturn.types": (
        "Added Candidate Changed Decision Draft EmbedderIdentity Entry Event Filter Finding Forgotten History "
        "Hit Kind Lane LoggedOperation Message Metadata NoRecallReason Operation Origin Outcome Phase "
        "Purpose RecallCause RecallRow RemainingBytes ReviewKind ReviewRow ReviewState Scalar "
        "Scope SearchResults Showing SpaceSummary Status Step Taint Target TimelinePage TurnRow TurnStatus Undone "
        "UsageRow Verb"
    ),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULES, "blocking"])
__version__ = "0.1.0"


if not TYPE_CHECKING:  # a type checker reports a misspelled name

    def __getattr__(name: str) -> Any:
        import importlib

        if name == "blocking":
            return importlib.import_module("afterturn.blocking")
        if name not in _MODULES:
            raise AttributeError(f"module 'afterturn' has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
