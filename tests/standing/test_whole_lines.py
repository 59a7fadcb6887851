"""Of what lasts, only sentences stand that say something to a reader who has not seen their conversation."""

from pathlib import Path

import pytest

import afterturn

pytestmark = pytest.mark.standing
# What stands, and something alike that does not.
PAIRS = [
    ("my aunt Rosalind is allergic to walnuts", "my aunt Rosalind laughed about the walnuts"),
    ("call me Wim, nobody says Willem", "call him, Wim has the number"),
    ("we deploy with skaffold, never by hand", "deployed it by hand just now, all good"),
    ("our landlord is Mr Petrossian, only reachable by phone", "the landlord called about the tap"),
    ("I work nights at the printing house in Dundee", "ok, nights then, same as last week"),
    ("no bullet points in your answers please", "no, the second one please"),
    ("the surgery is open mondays and fridays, our GP is Dr Lund", "friday is fine, around ten"),
    ("my sister Maud lives in Turku with her two boys", "Maud thinks the red one is nicer"),
    ("ich bin gegen Haselnüsse allergisch", "haselnüsse waren aus, hab mandeln genommen"),
    ("meine schwester Antje wohnt in Rostock", "ja, Antje bringt den kuchen mit"),
    ("bitte antworte immer auf englisch", "ok, mach das auf englisch"),
    ("mon frère Anatole est végétarien", "oui, pour six personnes avec terrasse"),
    ("tutoie-moi s'il te plaît", "je leur téléphone demain"),
    ("mi hija Jimena es alérgica al huevo", "vale, el jueves a las cinco"),
    ("mia moglie Rosanna è celiaca", "va bene, prendiamo la seconda"),
    ("moja żona Grażyna jest uczulona na orzechy", "tak, w piątek o ósmej"),
    ("моя сестра Глафира живёт в Омске", "да, отправляй, в пятницу"),
    ("母は卵アレルギーです", "はい、それでお願いします"),
    ("我妹妹小燕对虾过敏", "好的，就这么办"),
    ("여동생 수아는 땅콩 알레르기가 있어요", "네, 금요일로 할게요"),
]


@pytest.mark.parametrize("fact, remark", PAIRS)
async def test_a_fact_stands_and_a_reply_about_the_same_thing_does_not(tmp_path: Path, fact: str, remark: str) -> None:
    """S1: in plain or clipped words, in ten languages."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        for text in (remark, fact):
            messages = [{"role": "user", "content": text}]
            async with memory.conversation(text, user="ada").turn(messages) as turn:
                messages.append({"role": "assistant", "content": "All right."})
            assert await turn.wait_recorded(within=20)
        assert await memory.drain(within=20)
        block = await memory.conversation("new", user="ada").standing().block()
    assert [line[2:].casefold() for line in block.splitlines() if line.startswith("- ")] == [fact.casefold()]
