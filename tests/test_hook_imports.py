"""What a hook process calls must load in milliseconds."""

import subprocess
import sys

import pytest

LIGHT = [
    "afterturn.recall.lexical",
    "afterturn.recall.ranking",
    "afterturn.recall.lanes",
    "afterturn.recall.budget",
    "afterturn.turn.ledger",
    "afterturn.context.block",
    "afterturn.dialects",
]


@pytest.mark.parametrize("module", LIGHT)
def test_a_hooks_module_loads_neither_asyncio_nor_numpy(module):
    """L6, H4, H6: lexical recall, ledger and rendering are synchronous and light."""
    program = f"import sys, {module}; print(sorted({{'asyncio', 'numpy', 'apsw', 'tokenizers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
