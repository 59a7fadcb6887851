"""Fakes for tests, and the store conformance suite, for afterturn's own tests and for yours."""

from afterturn.testing.clock import ManualClock as ManualClock
from afterturn.testing.clock import SequentialIds as SequentialIds
from afterturn.testing.events import EventLog as EventLog
from afterturn.testing.hashing import HashingEmbedder as HashingEmbedder
from afterturn.testing.model import Held as Held
from afterturn.testing.model import ModelCall as ModelCall
from afterturn.testing.model import ObedientModel as ObedientModel
from afterturn.testing.model import ScriptedModel as ScriptedModel
from afterturn.testing.model import SelectingModel as SelectingModel
from afterturn.testing.model import call_tools as call_tools
