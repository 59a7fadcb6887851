"""Times in questions and in statements."""

from datetime import UTC, datetime

import pytest

from afterturn.recall.times import resolve_times

# A Tuesday.
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC).timestamp()

RESOLVED = """
I moved to Berlin last weekend (14 Nov 2026).
My sister visits next week (23–29 Nov 2026).
I have a dentist appointment tomorrow (18 Nov 2026).
We launched the app two months ago (Sep 2026).
My contract ends in three weeks (8 Dec 2026).
I started at Bosch last Friday (13 Nov 2026).
I have been ill for the last two weeks (3–17 Nov 2026).
Last year (2025) I lived in Rome.
We go skiing next winter (Dec 2026 – Feb 2027).
The exam was yesterday morning (16 Nov 2026) and I passed.
I stopped smoking three years ago (2023).
In October last year (Oct 2025) I moved.
I met Tom on Friday (13 Nov 2026).
I will meet Tom on Friday (20 Nov 2026).
Ich bin letztes Wochenende (14. November 2026) nach Köln gezogen.
Heute (17. November 2026) habe ich gekündigt.
Morgen (18. November 2026) fliege ich nach Rom, guten Morgen übrigens.
Wir ziehen in zwei Wochen (1. Dezember 2026) um.
Am Freitag (13. November 2026) war ich beim Arzt.
J'ai déménagé à Lyon le mois dernier (octobre 2026).
Il y a deux semaines (3 novembre 2026) j'ai changé de travail.
La semaine prochaine (23–29 novembre 2026) nous partons, hier (16 novembre 2026) j'étais malade.
Me mudé a Madrid la semana pasada (9–15 de noviembre de 2026).
Mañana (18 de noviembre de 2026) tengo examen por la mañana.
Mi sono trasferito a Milano il mese scorso (ottobre 2026).
Due settimane fa (3 novembre 2026) ho comprato una macchina.
Mudei para o Porto na semana passada (9–15 de novembro de 2026).
Há dois anos (2024) deixei de fumar.
Ik ben vorige week (9–15 november 2026) verhuisd.
Twee maanden geleden (september 2026) ben ik begonnen bij Philips.
来週（2026年11月23日–29日）、東京に引っ越します。
昨日（2026年11月16日）から新しい仕事を始めました。
3日前（2026年11月14日）に退職しました。
我上个月（2026年10月）搬到了北京。
下周六（2026年11月28日）是我妈妈的生日。
"""
NOT_RESOLVED = [
    "I learned Spanish in two weeks.",
    "We meet next Friday.",
    "The meeting is on Friday.",
    "I go to yoga every Monday.",
    "I was born in 1984 and my birthday is in March.",
    "I may go, they march on.",
    "Hier ist es schön.",
    "Guten Morgen, ich trinke jeden Morgen Tee.",
    "Trabajo por la mañana.",
    "毎週土曜日にテニスをする。",
    "The last week of term is hard.",
    "I will be there on Friday, 20 November 2026.",
]


def without_dates(line: str) -> str:
    head, found, rest = line.replace("（", " (").replace("）", ")").partition(" (")
    return head + without_dates(rest.partition(")")[2]) if found else head


@pytest.mark.parametrize("line", RESOLVED.strip().splitlines())
def test_a_relative_time_in_a_statement_gets_its_date(line):
    """L12: in the language of the statement, and only once."""
    assert resolve_times(without_dates(line), NOW) == line
    assert resolve_times(line, NOW) == line


@pytest.mark.parametrize("line", NOT_RESOLVED)
def test_a_time_without_a_certain_date_gets_none(line):
    """L12: a wrong date is worse than none."""
    assert resolve_times(line, NOW) == line


@pytest.mark.parametrize("moment", [1e300, -1e300, float("inf"), float("nan")])
def test_a_statement_from_outside_the_calendar_is_left_alone(moment):
    """L12: its words are kept."""
    assert resolve_times("I moved last week", moment) == "I moved last week"
