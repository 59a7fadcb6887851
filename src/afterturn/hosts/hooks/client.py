"""The script that a coding agent runs as a hook: passes the event on to the helper, and prints its answer.

It runs as `python -I -S client.py CLIENT EVENT` and imports nothing of afterturn, because its start is what the user
waits for. Whatever happens, it prints a JSON object and exits with 0; failures are noted in the state folder.
"""

import os
import sys

PROTOCOL = b"afterturn-hook 1"
PAYLOAD_BYTES_MAX = 4 * 1024 * 1024
ANSWER_BYTES_MAX = 1024 * 1024
FAILURES_BYTES_MAX = 64 * 1024
QUEUE_MAX = 2_000
# Seconds: all together, for the helper's answer, and for a helper that is being started.
LIMIT = 4
ANSWER_WITHIN = 3.0
CONNECT_WITHIN = 0.5
START_WITHIN = 2.0
RETRY_AFTER = 30
PROMPTS = ("UserPromptSubmit", "BeforeAgent", "userPromptSubmitted")
TOOL_CALLS = ("PreToolUse", "BeforeTool", "preToolUse")
# The helper lives longer than the agent that started it, so it does not inherit the agent's keys.
KEPT_VARIABLES = "HOME USER LOGNAME PATH LANG LANGUAGE TZ TMPDIR NO_PROXY HTTPS_PROXY HTTP_PROXY SSL_CERT_FILE".split()
KEPT_PREFIXES = ("AFTERTURN_", "XDG_", "LC_")
# A file of the state folder is never written through a symbolic link.
WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW


def state_folder() -> str:
    """Agrees with `afterturn.config.state_folder`."""
    named = os.environ.get("AFTERTURN_STATE")
    if named:
        return named
    parent = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(parent, "afterturn")


def helper_name() -> str:
    """Settings come from the environment, so each environment has its own helper."""
    import binascii

    facts = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name == "HOME" or (name.startswith(("AFTERTURN_", "XDG_")) and name != "AFTERTURN_STATE")
    ]
    return f"hooks-{binascii.crc32(chr(0).join(facts).encode(errors='surrogateescape')):08x}"


def stamp() -> str:
    """Changes when the package is upgraded: the helper then starts again."""
    found = os.stat(__file__)
    return f"{found.st_mtime_ns}-{found.st_size}"


class Hook:
    """One event on its way to the helper."""

    def __init__(self, client: str, event: str) -> None:
        self.client = client
        self.event = event
        self.cwd = ""
        self.folder = ""
        self.payload = b""
        self.is_read = False
        self.is_answered = False
        self.is_delivered = False
        self.is_leaving = False
        self.shown = ""

    def run(self) -> None:
        self.folder = open_folder()
        if os.path.exists(os.path.join(self.folder, "paused")):
            self.answer(b"{}")
            return
        self.payload = read_input()
        self.is_read = True
        try:
            self.cwd = os.getcwd()
        except OSError:
            self.cwd = "/"
        # The name of a socket has at most 107 bytes, so it is named from within its folder.
        os.chdir(self.folder)
        if (answer := self.ask()) is not None:
            self.answer(answer)
            return
        if self.event in TOOL_CALLS:
            self.answer(self.ask_again() if start_helper(self.folder) else b"{}")
        elif self.event in PROMPTS:
            self.answer(self.answer_alone())
        self.give_up()

    def request(self) -> bytes:
        fields = (stamp(), self.client, self.event, self.cwd, self.shown)
        return b"\0".join([PROTOCOL, *(os.fsencode(field) for field in fields), self.payload])

    def ask(self) -> "bytes | None":
        """The helper's answer, or None if it does not have the event."""
        import _socket

        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_WITHIN)
            try:
                connection.connect(helper_name() + ".sock")
            except OSError:
                return None
            connection.settimeout(ANSWER_WITHIN)
            try:
                connection.sendall(self.request())
                connection.shutdown(_socket.SHUT_WR)
            except OSError:
                # Cut off, it is not JSON, so the helper does nothing with it.
                return None
            received = b""
            while len(received) <= ANSWER_BYTES_MAX and (part := connection.recv(65536)):
                received += part
        except TimeoutError:
            # It was sent, so the helper acts on it, only too late for an answer.
            note_failure(self.folder, f"{self.client} {self.event}: the helper did not answer in time")
            self.is_delivered = True
            return b"{}"
        except OSError:
            return None
        finally:
            connection.close()
        if received[:1] != b"=":
            return None
        self.is_delivered = True
        return received[1:]

    def ask_again(self) -> bytes:
        """A call may have to be refused, so it waits a little for a helper that is being started."""
        import time

        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            time.sleep(0.02)
            if (answer := self.ask()) is not None:
                return answer
        return b"{}"

    def answer_alone(self) -> bytes:
        """Recall by words alone, in this process."""
        import gc

        # A tenth of the time of importing, and the process ends soon.
        gc.disable()
        import_package()
        from afterturn.hosts.hooks.cold import answer_prompt

        answer, self.shown = answer_prompt(self.client, self.event, self.payload, self.cwd)
        return answer

    def answer(self, text: bytes) -> None:
        self.is_answered = True
        while text:
            text = text[os.write(1, text) :]

    def give_up(self) -> None:
        """Leaves an event that the helper does not have in a file for the next one, which is started now."""
        if not self.is_answered:
            self.answer(b"{}")
        if self.is_delivered:
            return
        self.is_leaving = self.is_delivered = True
        if not self.is_read:
            return
        put_in_queue(self.folder, self.request())
        start_helper(self.folder)


def open_folder() -> str:
    folder = state_folder()
    if not os.path.isabs(folder):
        # It would be in the folder of a project. Without a home folder, the default is relative too.
        raise ValueError("the state folder is not an absolute path")
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.stat(folder)
    if found.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)
    return folder


def read_input() -> bytes:
    parts = []
    size = 0
    while part := os.read(0, 1024 * 1024):
        size += len(part)
        if size > PAYLOAD_BYTES_MAX:
            raise ValueError(f"the event has more than {PAYLOAD_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def put_in_queue(folder: str, request: bytes) -> None:
    import time

    queue = os.path.join(folder, helper_name() + ".queue")
    os.makedirs(queue, mode=0o700, exist_ok=True)
    if os.path.islink(queue):
        raise OSError(f"{queue} is a symbolic link, so no event is written there. Remove it")
    if len(os.listdir(queue)) >= QUEUE_MAX:
        raise OSError(f"{QUEUE_MAX} events wait for a helper; this one is dropped")
    name = os.path.join(queue, f"{time.time_ns():020d}-{os.getpid()}")
    descriptor = os.open(name + ".part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while request:
            request = request[os.write(descriptor, request) :]
    finally:
        os.close(descriptor)
    os.rename(name + ".part", name)


def start_helper(folder: str) -> bool:
    """Starts a helper unless one runs or is being started: its lock is taken here and inherited by it.

    False if there will be none, because one could not start a moment ago.
    """
    import fcntl

    lock = os.open(os.path.join(folder, helper_name() + ".lock"), WRITE | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        if has_just_failed(os.path.join(folder, helper_name() + ".failed")):
            return False
        os.set_inheritable(lock, True)
        log = os.path.join(folder, helper_name() + ".log")
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", os.path.abspath(__file__), "--serve", folder, helper_name(), str(lock)],
            {
                name: value
                for name, value in os.environ.items()
                if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
            },
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, log, WRITE | os.O_APPEND, 0o600),
            ],
            setsid=True,
        )
        return True
    finally:
        os.close(lock)


def has_just_failed(marker: str) -> bool:
    """Whether a helper could not start a moment ago: the next hooks do not try again at once."""
    import time

    try:
        return time.time() - os.stat(marker).st_mtime < RETRY_AFTER
    except OSError:
        return False


def note_failure(folder: str, text: str) -> None:
    """One line for `afterturn doctor`. The file stays small."""
    import time

    if not os.path.isabs(folder):
        return
    try:
        path = os.path.join(folder, "hook-failures.log")
        line = f"{int(time.time())} {' '.join(text.split())[:300]}\n".encode(errors="replace")
        flags = WRITE | os.O_APPEND
        if os.path.exists(path) and os.stat(path).st_size > FAILURES_BYTES_MAX:
            flags |= os.O_TRUNC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError:
        return  # there is no place left to say it


def touch(path: str) -> None:
    """Creates an empty file, or sets its time to now."""
    descriptor = os.open(path, WRITE, 0o600)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def import_package() -> None:
    """Makes this very package importable, with what it needs: `-I -S` leaves out all installed packages.

    Other packages are next to it, except while it is developed.
    """
    root = os.path.dirname(os.path.abspath(__file__))
    for _ in range(3):
        root = os.path.dirname(root)
    is_installed = os.path.isdir(os.path.join(root, "apsw"))
    if not is_installed and "site" not in sys.modules:
        import site

        site.main()
    sys.path.insert(0, root)


def run_hook(client: str, event: str) -> None:
    import _signal  # type: ignore[import-not-found]  # `signal` takes four times as long to import

    hook = Hook(client, event)

    def stop(number: int, frame: object) -> None:
        if hook.is_leaving:
            return  # a few calls to the file system are left; without them the event would be lost
        note_failure(hook.folder or state_folder(), f"{client} {event}: took more than {LIMIT} seconds")
        hook.give_up()
        os._exit(0)

    _signal.signal(_signal.SIGALRM, stop)
    _signal.alarm(LIMIT)
    try:
        hook.run()
    except BaseException as error:  # noqa: BLE001  the boundary to the agent, which must not notice a failure
        note_failure(hook.folder or state_folder(), f"{client} {event}: {type(error).__name__}: {error}")
        try:
            hook.give_up()
        except BaseException as other:  # noqa: BLE001
            note_failure(hook.folder or state_folder(), f"{client} {event}: {type(other).__name__}: {other}")
    finally:
        # Without the end of the interpreter, which takes two milliseconds.
        os._exit(0)


def main(arguments: "list[str]") -> None:
    if arguments[:1] == ["--serve"]:
        import_package()
        from afterturn.hosts.hooks.daemon import serve

        folder, name, lock = arguments[1:]
        serve(folder, name, int(lock))
    elif len(arguments) == 2:
        run_hook(arguments[0], arguments[1])
    else:
        sys.stderr.write("usage: python -I -S client.py CLIENT EVENT\n")


if __name__ == "__main__":
    main(sys.argv[1:])
