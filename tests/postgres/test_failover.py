"""Two host processes run turns while the server is restarted, crashes, or is replaced by its standby."""

from pathlib import Path

import pytest

from afterturn import blocking
from lab.postgres.host import CONVERSATION
from lab.postgres.hosts import Hosts, check_stored
from lab.postgres.server import PostgresServer, Standby
from lab.tables import open_tables, read_rows

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]


def outcomes(hosts: Hosts, what: str) -> set[str]:
    return {line["outcome"] for host in hosts.hosts for line in host.lines if line["what"] == what}


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_hosts_go_on_while_their_server_is_restarted(own_server: PostgresServer, tmp_path: Path, mode: str) -> None:
    """C2, C4, L1: turns never fail and say that memory was away; at the end each is stored, once."""
    with Hosts(own_server.url(), tmp_path) as hosts:
        hosts.wait("recorded", 10)
        own_server.stop(mode)
        hosts.wait("turn", 5)
        hosts.wait("recording_waits", 3)
        assert [list((tmp_path / name).rglob("*.json")) != [] for name in "ab"] == [True, True]
        own_server.start()
        hosts.wait("recording_recovered", 3)
        hosts.wait("recorded", 5)
        assert "degraded" in outcomes(hosts, "recall_ended")
        assert hosts.end() == []
    assert list(tmp_path.rglob("*.json")) == []


def test_hosts_follow_to_the_standby(own_server: PostgresServer, tmp_path: Path) -> None:
    """C2, C4, L1: the primary dies under load and its standby is promoted; what was acknowledged is there, once."""
    with Standby(own_server) as standby:
        url = own_server.url_with(standby)
        with Hosts(url, tmp_path) as hosts:
            hosts.wait("recorded", 10)
            assert read_rows(own_server.url(), "SELECT sync_state FROM pg_stat_replication") == [("sync",)]
            own_server.stop("immediate")
            hosts.wait("turn", 5)
            hosts.wait("recording_waits", 3)
            acknowledged = {turn for host in hosts.hosts for turn in host.turns("recorded")}
            standby.promote()
            stored = {turn for (turn,) in read_rows(standby.url(), "SELECT turn FROM entry WHERE kind = 'record'")}
            assert acknowledged - stored == set()
            hosts.wait("recording_recovered", 3)
            hosts.wait("recorded", 5)
            assert "degraded" in outcomes(hosts, "recall_ended")
            assert hosts.end(standby.url()) == []
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize(
    "harm, named",
    [
        ("DELETE FROM entry WHERE turn = 'a-0'", "a-0 is not stored"),
        ("DELETE FROM entry WHERE turn = 'a-0' AND position = 0", "a-0 has 1 messages"),
        ("UPDATE entry SET turn = 'a-2' WHERE turn = 'a-0'", "a-2 is stored and was never run"),
        ("UPDATE entry SET position = 2 WHERE position = 1", "position 2 is there 2 times"),
        ("UPDATE entry SET text = 'again' WHERE turn = 'a-0'", "'again' is there 2 times"),
    ],
)
def test_what_is_lost_or_doubled_is_noticed(url: str, harm: str, named: str) -> None:
    """C2: by the lab's own eyes."""
    with blocking.open(url, {"embedder": "none"}) as memory:
        for number in range(2):
            messages = [{"role": "user", "content": f"I met person{number} today."}]
            with memory.conversation(CONVERSATION, user="ada").turn(messages, id=f"a-{number}") as turn:
                messages.append({"role": "assistant", "content": f"I like person{number}."})
            assert turn.wait_recorded(within=30.0)
    assert check_stored(url, {"a-0", "a-1"}) == []
    with open_tables(url) as tables:
        assert tables.run(harm) > 0
    assert named in check_stored(url, {"a-0", "a-1"})
