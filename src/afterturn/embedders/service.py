"""What an embedder's server is to us. Apart from how it is asked, so that its settings are checked in no time."""

from afterturn.base.endpoint import Service

EMBEDDINGS = Service(
    name="embedding server",
    path="/embeddings",
    url="embedder_url",
    key="embedder_key",
    model="embedder_model",
    timeout="embedder_timeout",
    # 32 vectors of 4,096 numbers, each written with twenty digits.
    answer_bytes_max=1 << 22,
)
