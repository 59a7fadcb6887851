"""Who keeps finished turns: memory's own store, nobody, or a provider that the host has brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from simple_host import CONFIG

import afterturn
from afterturn import blocking
from afterturn.config import Config
from afterturn.conversation import record_sinks
from afterturn.conversation.spill import Spill
from afterturn.errors import StoreLocked
from afterturn.ports import Clock, Store, Unit
from afterturn.stores.sqlite.store import open_store
from afterturn.testing import EventLog
from afterturn.testing.clock import ManualClock
from afterturn.types import Filter, Kind, TurnStatus, UnitScope

R = TypeVar("R")
RECORDS = Filter(kind=Kind.RECORD)
OUTAGE = ConnectionError("the archive is away")


class Archive(afterturn.RecordingProvider):
    """Keeps turns in a list, unless it is told otherwise: answers and errors of `script` come first, one a call."""

    def __init__(self, *script: bool | BaseException, always: bool | BaseException = True) -> None:
        self.script = list(script)
        self.always = always
        self.asked: list[str] = []
        self.kept: list[tuple[afterturn.Scope, afterturn.Interaction]] = []

    async def record(self, scope: afterturn.Scope, interaction: afterturn.Interaction) -> bool:
        self.asked.append(interaction.run_id)
        answer = self.script.pop(0) if self.script else self.always
        if isinstance(answer, BaseException):
            raise answer
        if answer:
            self.kept.append((scope, interaction))
        return answer

    @property
    def texts(self) -> list[list[str]]:
        return [[message.text for message in interaction.messages] for _, interaction in self.kept]


class Forgetful:
    """The Store port over a real store, which does not take a write while `fails` is set."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.fails = False

    async def write(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        if self.fails:
            raise StoreLocked("The store is busy today. Ask again tomorrow.")
        return await self._inner.write(work, at=at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Host:
    """Opens memories on one file, whose turns an archive is to keep."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "memory.db"
        self.told = EventLog()
        self.clock = ManualClock()
        self.stores: list[Forgetful] = []

    @property
    def waiting(self) -> Path:
        return Path(f"{self.path}.waiting")

    def open(self, provider: afterturn.RecordingProvider | None, **config: object) -> afterturn.Memory:
        timeout = config.pop("provider_timeout", 5.0)
        parts = afterturn.Components(clock=self.clock, store=self._opened, provider_timeout=timeout)  # type: ignore[arg-type]
        settings = {**CONFIG, **config}
        return afterturn.open(self.path, settings, provider=provider, on_event=self.told, components=parts)

    async def heard(self, name: str, count: int = 1) -> afterturn.Event:
        return await asyncio.to_thread(self.told.wait, name, count)

    def _opened(self, target: Path, config: Config, clock: Clock) -> Forgetful:
        self.stores.append(Forgetful(open_store(target, config, clock)))
        return self.stores[-1]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def leave(memory: afterturn.Memory, text: str, *, id: str = "turn-1", **where: Any) -> afterturn.Turn:
    """A finished turn, of Ada's unless `where` says otherwise; nobody has waited for it."""
    owner = {} if "owner" in where else {"user": "ada"}
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
    async with memory.conversation("c", **owner, **where).turn(messages, id=id) as turn:
        pass
    return turn


async def records(memory: afterturn.Memory, space: str = "user:ada") -> Sequence[afterturn.Entry]:
    return await memory.space(space).list(filter=RECORDS)


async def test_a_provider_keeps_the_turn_in_memorys_place(host: Host) -> None:
    """C7: it gets the messages with the turn's id and where they were said; the store holds none of them."""
    archive = Archive()
    async with host.open(archive) as memory:
        turn = await leave(memory, "I like tea", agent="cook", project="kitchen")
        assert await turn.wait_recorded()
        stored = await records(memory)
    [(_, interaction)] = archive.kept
    assert [(message.role, message.text) for message in interaction.messages] == [
        ("user", "I like tea"),
        ("assistant", "Noted."),
    ]
    assert interaction.run_id == "turn-1"
    assert {"conversation": "c", "agent": "cook", "project": "kitchen"}.items() <= dict(interaction.metadata).items()
    assert stored == []


async def test_the_scope_is_the_owners_for_every_speaker(host: Host) -> None:
    """C7, L2: the conversation's owner, not the speaker, and not the space that it may write."""
    archive = Archive()
    messages = [{"role": "user", "content": "We ship on Fridays"}, {"role": "assistant", "content": "Brave."}]
    async with host.open(archive) as memory:
        conversation = memory.conversation("c", owner="project:api", writes="team:all", reads=["user:bo"])
        async with conversation.turn(messages, speaker="bo") as turn:
            pass
        assert await turn.wait_recorded()
    [(scope, interaction)] = archive.kept
    assert scope == afterturn.Scope("default", ("project:api",))
    assert interaction.messages[0].speaker == "bo"
    assert interaction.metadata["writes"] == "team:all"


class Silent(afterturn.RecordingProvider):
    """Says nothing about how it would keep a turn."""


@pytest.mark.parametrize(
    "provider, recorder", [(Silent(), "verbatim"), (Archive(always=False), "verbatim"), (None, "none")]
)
async def test_a_turn_that_is_declined_is_not_recorded_and_says_so(
    host: Host, provider: afterturn.RecordingProvider | None, recorder: str
) -> None:
    """C7, C1: the port's default, a provider that declines and `recorder=none` keep nothing; the turn is over."""
    async with host.open(provider, recorder=recorder) as memory:
        conversation = memory.conversation("c", user="ada")
        turn = await leave(memory, "I like tea")
        assert not await turn.wait_recorded()
        (row,) = await host.stores[-1].read(lambda unit: unit.conversations.turns(conversation._scope.key), at=None)
        assert await records(memory) == []
    assert [event.data["reason"] for event in host.told.named("not_recorded")] == ["declined"]
    assert (row.status, row.recorded_at) == (TurnStatus.COMPLETED, None)


async def test_a_turn_that_was_taken_is_not_offered_again(host: Host) -> None:
    """C3, C7: idempotent by turn id, also for the next process; another turn with the same words is another turn."""
    archive = Archive()
    for _ in range(2):
        async with host.open(archive) as memory:
            turns = [await leave(memory, "I like tea"), await leave(memory, "I like tea", id="turn-2")]
            assert [await turn.wait_recorded() for turn in turns] == [True, True]
    assert sorted(archive.asked) == ["turn-1", "turn-2"]
    assert len(host.told.named("recorded")) == 2


async def test_a_turn_that_is_left_twice_at_once_is_offered_once(host: Host) -> None:
    """C3, C7: the second waits until it is known what became of the first."""

    class Slow(Archive):
        def __init__(self) -> None:
            super().__init__()
            self.free = asyncio.Event()

        async def record(self, scope: afterturn.Scope, interaction: afterturn.Interaction) -> bool:
            recorded = await super().record(scope, interaction)
            await self.free.wait()
            return recorded

    slow = Slow()
    async with host.open(slow) as memory:
        first = await leave(memory, "I like tea")
        second = await leave(memory, "I like tea")
        assert (await host.heard("recording_waits")).data["reason"] == "busy"
        memory._loop.post(slow.free.set)
        assert await first.wait_recorded(within=20)
        assert await second.wait_recorded(within=20)
    assert slow.asked == ["turn-1"]


async def test_a_turn_waits_while_its_provider_fails(host: Host) -> None:
    """C7, C4: in a file too, and shown; the provider is asked again, and the host hears nothing of it."""
    archive = Archive(OUTAGE)
    async with host.open(archive) as memory:
        turn = await leave(memory, "I like tea")
        waits = await host.heard("recording_waits")
        files = list(host.waiting.glob("*.json"))
        findings = [finding for finding in await memory.check() if finding.subject == "recordings"]
        assert await turn.wait_recorded(within=20)
        await host.heard("recording_recovered")
    assert (waits.data["reason"], waits.data["spilled"], len(files)) == ("ConnectionError", True, 1)
    assert [finding.level for finding in findings] == ["warning"]
    assert archive.texts == [["I like tea", "Noted."]]
    assert list(host.waiting.iterdir()) == []


async def test_the_next_process_offers_what_the_last_one_could_not(host: Host) -> None:
    """C7, C4, C3: a turn whose provider failed until closing is in a file, and is offered again once."""
    async with host.open(Archive(always=OUTAGE)) as memory:
        await leave(memory, "I like tea")
        await host.heard("recording_waits")
    archive = Archive()
    async with host.open(archive) as memory:
        assert await memory.drain(within=20)
        assert await memory.drain(within=20)
    assert archive.texts == [["I like tea", "Noted."]]
    assert archive.asked == ["turn-1"]


async def test_a_turn_that_waits_for_a_provider_is_stored_by_nobody_else(host: Host) -> None:
    """C7, C4: a process without the provider, such as a worker, leaves it where it is."""
    async with host.open(Archive(always=OUTAGE)) as memory:
        await leave(memory, "I like tea")
        await host.heard("recording_waits")
    async with host.open(None) as memory:
        assert await memory.drain(within=20)
        assert await records(memory) == []
        findings = [finding for finding in await memory.check() if finding.subject == "recordings"]
    archive = Archive()
    async with host.open(archive) as memory:
        assert await memory.drain(within=20)
    assert [finding.level for finding in findings] == ["warning"]
    assert archive.texts == [["I like tea", "Noted."]]


@pytest.mark.parametrize("provider, recorder", [(None, "none"), (Archive(), "verbatim")])
async def test_a_turn_that_waits_for_the_store_is_stored_by_the_next_process(
    host: Host, provider: Archive | None, recorder: str
) -> None:
    """C7, C4: also by a process that keeps nothing itself, or has others keep it."""
    async with host.open(None, close_timeout=0.5) as memory:
        host.stores[-1].fails = True
        await leave(memory, "I like tea")
        await host.heard("recording_waits")
    async with host.open(provider, recorder=recorder) as memory:
        assert await memory.drain(within=20)
        stored = await records(memory)
    assert sorted(entry.text for entry in stored) == ["I like tea", "Noted."]
    assert provider is None or provider.asked == []


async def test_nothing_is_kept_in_a_file_either_where_nothing_is_to_be_kept(host: Host) -> None:
    """C7, C4: a store in trouble makes no turn wait that nobody wants."""
    async with host.open(None, recorder="none", close_timeout=0.5) as memory:
        host.stores[-1].fails = True
        turn = await leave(memory, "I like tea")
        assert not await turn.wait_recorded()
    assert host.told.named("recording_waits") == []
    assert not host.waiting.exists()


async def test_a_provider_that_hangs_is_given_up_after_its_timeout(host: Host) -> None:
    """C7, C4: a call has its time; closing does not wait for it, and the turn is in a file."""

    class Hanging(afterturn.RecordingProvider):
        async def record(self, scope: afterturn.Scope, interaction: afterturn.Interaction) -> bool:
            await asyncio.Event().wait()
            return True

    async with host.open(Hanging(), provider_timeout=0.05, close_timeout=0.5) as memory:
        await leave(memory, "I like tea")
        waits = await host.heard("recording_waits")
    assert waits.data["reason"] == "TimeoutError"
    assert len(list(host.waiting.glob("*.json"))) == 1


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), StoreLocked("No.")])
async def test_whatever_a_provider_raises_memory_goes_on(host: Host, error: BaseException) -> None:
    """C7, C4: what comes out of a host's code ends neither memory's thread nor the turn."""
    archive = Archive(error)
    async with host.open(archive) as memory:
        turn = await leave(memory, "I like tea")
        assert (await host.heard("recording_waits")).data["reason"] == type(error).__name__
        assert await turn.wait_recorded(within=20)
    assert archive.asked == ["turn-1", "turn-1"]


async def test_a_provider_that_fails_for_ever_is_not_asked_for_ever(host: Host) -> None:
    """C7, C4: after a day the turn is set aside for a person to look at, and `doctor` names it."""
    archive = Archive(always=OUTAGE)
    async with host.open(archive) as memory:
        turn = await leave(memory, "I like tea")
        await host.heard("recording_waits")
        host.clock.advance(record_sinks.PATIENCE + 1)
        reason = (await host.heard("not_recorded")).data["reason"]
        assert not await turn.wait_recorded()
        assert await memory.drain(within=20)
        findings = [finding for finding in await memory.check() if finding.subject == "recordings"]
    asked = len(archive.asked)
    async with host.open(archive) as memory:
        assert await memory.drain(within=20)
    assert reason == "ConnectionError"
    assert [file.suffix for file in host.waiting.iterdir()] == [".bad"]
    assert [finding.level for finding in findings] == ["error"]
    assert len(archive.asked) == asked


async def test_a_turn_that_is_never_taken_holds_up_no_other(host: Host) -> None:
    """C7, C4: where every turn has a fate of its own, the next one is tried first."""

    class Choosy(Archive):
        async def record(self, scope: afterturn.Scope, interaction: afterturn.Interaction) -> bool:
            if interaction.run_id == "poison" or self.script:
                self.asked.append(interaction.run_id)
                self.script = self.script[1:]
                raise ValueError(interaction.run_id)
            return await super().record(scope, interaction)

    choosy = Choosy(True, True, True)
    async with host.open(choosy, close_timeout=0.5) as memory:
        await leave(memory, "It can not be kept", id="poison")
        others = [await leave(memory, f"Keep {number}", id=f"turn-{number}") for number in range(2)]
        await host.heard("recording_waits", 3)
        assert [await turn.wait_recorded(within=20) for turn in others] == [True, True]
    assert sorted(text for text, _ in choosy.texts) == ["Keep 0", "Keep 1"]


async def test_an_answer_that_the_store_could_not_note_is_not_asked_for_again(host: Host) -> None:
    """C3, C7: the provider has it; the turn waits until the store knows too."""
    archive = Archive()
    async with host.open(archive) as memory:
        host.stores[-1].fails = True
        turn = await leave(memory, "I like tea")
        assert (await host.heard("recording_waits")).data["reason"] == "StoreLocked"
        host.stores[-1].fails = False
        assert await turn.wait_recorded(within=20)
    assert archive.asked == ["turn-1"]


async def test_calls_of_a_provider_are_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4, C7: with one that hangs, further turns wait in files and not as calls."""

    class Hanging(Archive):
        async def record(self, scope: afterturn.Scope, interaction: afterturn.Interaction) -> bool:
            await super().record(scope, interaction)
            await asyncio.Event().wait()
            return True

    monkeypatch.setattr(record_sinks, "CALLS_MAX", 2)
    hanging = Hanging()
    async with host.open(hanging, close_timeout=0.5) as memory:
        for number in range(3):
            await leave(memory, f"Keep {number}", id=f"turn-{number}")
        assert (await host.heard("recording_waits")).data["reason"] == "busy"
    assert len(hanging.asked) == 2
    assert Spill(host.waiting).count() == 3


async def test_what_was_forgotten_while_it_waited_is_not_offered_again(host: Host) -> None:
    """M2, C7: a waiting turn of a forgotten conversation is gone; so is one that another process still holds."""
    archive = Archive(always=OUTAGE)
    async with host.open(archive) as memory:
        turn = await leave(memory, "My secret sentinel")
        await host.heard("recording_waits")
        kept = {file.name: file.read_bytes() for file in host.waiting.iterdir()}
        await memory.space("user:ada").forget(conversation="c")
        assert not await turn.wait_recorded()
        assert list(host.waiting.iterdir()) == []
    for name, data in kept.items():
        (host.waiting / name).write_bytes(data)
    willing = Archive()
    async with host.open(willing) as memory:
        assert await memory.drain(within=20)
    assert willing.asked == []
    assert list(host.waiting.iterdir()) == []


async def test_a_provider_gets_none_of_memorys_own_words(host: Host) -> None:
    """C5, C7: blocks are stripped before it is asked, also those of a turn that it declined."""
    archive = Archive(False)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is my cat called?"}]
    for id in ("turn-1", "turn-2"):
        async with host.open(archive, grace=5.0) as memory:
            if id == "turn-1":
                await memory.space("user:ada").add("Ada's cat is called Miso")
            conversation = memory.conversation("c", user="ada")
            async with conversation.turn(messages, id=id) as turn:
                await turn.inject(messages)
                messages.append({"role": "assistant", "content": "Miso."})
            assert await turn.wait_recorded() is (id == "turn-2")
        messages = [{"role": "user", "content": "And again?"}, *messages[1:2]] if id == "turn-1" else messages
    assert archive.texts == [["And again?", "Miso."]]


async def test_a_provider_gets_no_secrets(host: Host) -> None:
    """G1, C7: they are taken out before a turn is handed over, or waits in a file."""
    token = "ghp_" + "a1B2c3D4" * 4 + "e5F6"
    archive = Archive(OUTAGE)
    async with host.open(archive) as memory:
        turn = await leave(memory, f"My token is {token}, keep it safe")
        await host.heard("recording_waits")
        files = b"".join(file.read_bytes() for file in host.waiting.iterdir())
        assert await turn.wait_recorded(within=20)
    assert token.encode() not in files
    assert "[redacted: github token]" in archive.texts[0][0]


async def test_forgetting_names_a_provider_as_out_of_reach(host: Host) -> None:
    """M2, C7: what somebody else has kept is not ours to erase, and that is said."""
    async with host.open(Archive()) as memory:
        turn = await leave(memory, "I like tea")
        assert await turn.wait_recorded()
        forgotten = await memory.space("user:ada").forget(conversation="c")
    assert forgotten.out_of_reach == ("the records of Archive",)


async def test_a_sub_agents_turn_is_marked_for_the_provider(host: Host) -> None:
    """A3, C7: the provider can tell whose words they are."""
    archive = Archive()
    async with host.open(archive) as memory:
        turn = await leave(memory, "Find the gauge", subagent=True)
        assert await turn.wait_recorded()
    [(_, interaction)] = archive.kept
    assert interaction.metadata["subagent"] is True


async def test_nothing_is_reviewed_of_what_memory_does_not_hold(host: Host) -> None:
    """C7, V1: a review rests on records, and a provider's turns have none here."""
    async with host.open(Archive(), review_interval=1) as memory:
        turn = await leave(memory, "Remember that I like tea")
        assert await turn.wait_recorded()
        assert await memory.drain(within=20)
        assert await memory.space("user:ada").reviews() == []


def test_hosts_without_a_loop_bring_providers_too(tmp_path: Path) -> None:
    """C7: the same option, the same port."""
    archive = Archive()
    messages = [{"role": "user", "content": "I like tea"}, {"role": "assistant", "content": "Noted."}]
    with blocking.open(tmp_path / "memory.db", CONFIG, provider=archive) as memory:
        with memory.conversation("c", user="ada").turn(messages) as turn:
            pass
        assert turn.wait_recorded(within=20)
    assert archive.texts == [["I like tea", "Noted."]]
