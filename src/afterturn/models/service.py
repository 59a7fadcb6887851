"""What a chat model's server is to us. Apart from how it is asked, so that its settings are checked in no time."""

from afterturn.base.endpoint import Service

ANSWER_BYTES_MAX = 1 << 20
CHAT = Service(
    name="model server",
    path="/chat/completions",
    url="model_url",
    key="model_key",
    model="model",
    timeout="model_timeout",
    answer_bytes_max=ANSWER_BYTES_MAX,
)
