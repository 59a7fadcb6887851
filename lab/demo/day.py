"""A day of the story: what is said on it, what Ada notes down, what she has forgotten."""

from pathlib import Path

from lab.demo.host import Host, Play, StoryBroken
from lab.demo.stage import Said
from lab.demo.story import USER, Day


async def play_day(day: Day, play: Play) -> None:
    if day.forgets:
        await _forget(play, day.forgets)
    host = Host(play, play.memory.conversation(day.conversation, user=USER))
    for exchange in day.exchanges:
        await host.play(exchange, full_block=day.full_block and exchange is day.exchanges[0])
    if day.note:
        await play.ada.add(day.note)
        play.stage.moment([Said("Ada", f"+ {day.note}")], ["ada.add(…): one statement, can be undone"])


async def _forget(play: Play, text: str) -> None:
    before = count_bytes(play.store, text)
    [entry] = [entry for entry in await play.ada.list() if text in entry.text]
    forgotten = await play.ada.forget(memory=entry.id)
    after = count_bytes(play.store, text)
    play.stage.moment(
        [Said("Ada", "Forget Grace's number, please."), Said("calls", f'→ ada.forget(memory="{entry.id}")')],
        [f"{forgotten.state} for good, with every trace:", f"“{text}” in the files: {before} before, {after} now"],
    )
    if after:
        raise StoryBroken(f"Memory failed: “{text}” is still in the files after it was forgotten.")


def count_bytes(store: Path, text: str) -> int:
    """How often the text occurs in the store's files."""
    return sum(path.read_bytes().count(text.encode()) for path in store.parent.glob(f"{store.name}*") if path.is_file())
