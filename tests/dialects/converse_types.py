"""The shapes of Amazon Bedrock's Converse API, after the service model of botocore, which cannot be installed together
with our other tools."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, with_config
from typing_extensions import TypedDict

_strict = with_config(ConfigDict(extra="forbid"))


def _one_key(value: Any) -> Any:
    """A tagged union has exactly one of its members."""
    if len(value) != 1:
        raise ValueError(f"{sorted(value)} in place of one key")
    return value


@_strict
class S3Location(TypedDict):
    uri: str
    bucketOwner: NotRequired[str]


@_strict
class Source(TypedDict, total=False):
    """Of documents, images, videos and audio. Only documents have the last two."""

    bytes: bytes
    s3Location: S3Location
    text: str
    content: list["TextBlock"]


OneSource = Annotated[Source, AfterValidator(_one_key)]


@_strict
class TextBlock(TypedDict):
    text: str


@_strict
class Media(TypedDict):
    format: str
    source: OneSource


@_strict
class Document(TypedDict):
    format: NotRequired[str]
    name: str
    source: OneSource
    context: NotRequired[str]
    citations: NotRequired[dict[str, bool]]


@_strict
class SearchResult(TypedDict):
    source: str
    title: str
    content: list[TextBlock]
    citations: NotRequired[dict[str, bool]]


@_strict
class ToolUse(TypedDict):
    toolUseId: str
    name: str
    input: dict[str, Any]
    type: NotRequired[Literal["server_tool_use"]]


@_strict
class ToolResultPart(TypedDict, total=False):
    json: Any
    text: str
    image: Media
    document: Document
    video: Media
    searchResult: SearchResult


@_strict
class ToolResult(TypedDict):
    toolUseId: str
    content: list[Annotated[ToolResultPart, AfterValidator(_one_key)]]
    status: NotRequired[Literal["success", "error"]]
    type: NotRequired[str]


@_strict
class GuardedText(TypedDict):
    text: str
    qualifiers: NotRequired[list[Literal["grounding_source", "query", "guard_content"]]]


@_strict
class GuardContent(TypedDict, total=False):
    text: GuardedText
    image: Media


@_strict
class CachePoint(TypedDict):
    type: Literal["default"]
    ttl: NotRequired[Literal["5m", "1h"]]


@_strict
class ReasoningText(TypedDict):
    text: str
    signature: NotRequired[str]


@_strict
class Reasoning(TypedDict, total=False):
    reasoningText: ReasoningText
    redactedContent: bytes


@_strict
class Citation(TypedDict, total=False):
    title: str
    source: str
    sourceContent: list[TextBlock]
    location: dict[str, Any]


@_strict
class CitedContent(TypedDict, total=False):
    content: list[TextBlock]
    citations: list[Citation]


@_strict
class ContentBlock(TypedDict, total=False):
    text: str
    image: Media
    document: Document
    video: Media
    audio: Media
    toolUse: ToolUse
    toolResult: ToolResult
    guardContent: GuardContent
    cachePoint: CachePoint
    reasoningContent: Reasoning
    citationsContent: CitedContent
    searchResult: SearchResult
    toolAddition: dict[str, Any]
    toolRemoval: dict[str, Any]


@_strict
class ConverseMessage(TypedDict):
    role: Literal["user", "assistant", "system"]
    content: list[Annotated[ContentBlock, AfterValidator(_one_key)]]


@_strict
class ToolSpec(TypedDict):
    name: str
    description: NotRequired[str]
    inputSchema: dict[Literal["json"], dict[str, Any]]


@_strict
class ConverseTool(TypedDict):
    toolSpec: ToolSpec
