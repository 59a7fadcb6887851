"""Public fakes and the store conformance suite, for afterturn's tests and for those of its users. Imports base only."""

from afterturn.testing.events import EventLog as EventLog
from afterturn.testing.model import Held as Held
from afterturn.testing.model import ModelCall as ModelCall
from afterturn.testing.model import ScriptedModel as ScriptedModel
from afterturn.testing.model import call_tools as call_tools
