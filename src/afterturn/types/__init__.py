"""The values that modules exchange, all frozen. Times are Unix seconds, UTC, as floats."""

from afterturn.types.conversations import *
from afterturn.types.entries import *
from afterturn.types.operations import *
from afterturn.types.reviews import *
from afterturn.types.searches import *
