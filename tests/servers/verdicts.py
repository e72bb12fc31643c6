"""`tidings check` against the servers of `servers.toml`: its verdicts have to be those written there.

Each server is checked once more behind `tidings gateway`, which may add no fault of its own.
Two servers are checked at a time, while two loops that do nothing keep the machine busy, since a verdict must not depend
on speed. Starts the servers that speak HTTP, and ends what it started. Prints `ok NAME` or `FAIL NAME: reason` for each
server, and at the end `N passed, N failed`.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).resolve().parent
AT_ONCE = 2
BUSY = 2
START = 60.0  # seconds in which a server has to open its port
RUN = 120.0  # seconds for the check of one server
END = 10.0  # seconds for a server to end after SIGTERM
QUIET = "1s"
# Ends by itself when the process that started it is gone.
LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"
REVISIONS = ("2025-11-25", "2026-07-28")


class Failed(Exception):
    """The reason for which a server was not checked."""


# What runs, to be ended when the run is interrupted.
running = set()


def start(command, **options):
    """Starts a program in a group of its own, since a launcher may not pass on the signal that ends it."""
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    running.add(started)
    return started


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process):
    deadline = time.monotonic() + START
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise Failed(f"the server did not listen within {START:.0f} s") from None
            time.sleep(0.05)
    raise Failed(f"the server ended with code {process.returncode} before it listened")


def send(process, number):
    """Sends a signal to a process and to those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def end(process):
    send(process, signal.SIGTERM)
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        send(process, signal.SIGKILL)
        process.wait()
    running.discard(process)


def leave(number, _):
    """Ends the run at once, with all that it started."""
    for process in list(running):
        send(process, signal.SIGKILL)
    os._exit(128 + number)


class Server:
    """One server of the table, in a folder of its own."""

    def __init__(self, name, about, arguments):
        self.name = name
        self.about = about
        self.tidings = arguments.tidings
        self.work = arguments.work / name
        self.work.mkdir(parents=True)
        self.port = free_port() if any("{port}" in part for part in self.parts()) else None
        self.places = {
            "node_modules": arguments.scripts / "node_modules",
            "scripts": arguments.scripts,
            "python": arguments.python,
            "tests": HERE,
            "work": self.work,
            "port": self.port,
        }

    def parts(self):
        return [*self.about["command"], *self.about.get("environment", {}).values()]

    def fill(self, text):
        for name, value in self.places.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def command(self):
        return [self.fill(part) for part in self.about["command"]]

    def environment(self):
        added = {name: self.fill(value) for name, value in self.about.get("environment", {}).items()}
        return os.environ | added

    def check(self):
        """Returns the exit code and the report."""
        for name, text in self.about.get("files", {}).items():
            (self.work / name).write_text(text)
        if self.port is None:
            return self.report(["--", *self.command()])
        with open(self.work / "server.log", "wb") as log:
            started = start(self.command(), stdout=log, stderr=log, cwd=self.work, env=self.environment())
        try:
            wait_for_port(self.port, started)
            return self.report([f"http://127.0.0.1:{self.port}/mcp"])
        finally:
            end(started)

    def report(self, target):
        command = [self.tidings, "check", "--json", "--quiet-time", QUIET, *self.about.get("check", []), *target]
        with open(self.work / "check.json", "wb") as out, open(self.work / "check.log", "wb") as log:
            started = start(command, stdout=out, stderr=log, cwd=self.work, env=self.environment())
            try:
                code = started.wait(RUN)
            except subprocess.TimeoutExpired:
                raise Failed(f"tidings check took more than {RUN:.0f} s") from None
            finally:
                # With the server that it started, should the check have left one.
                end(started)
        try:
            return code, json.loads((self.work / "check.json").read_text())
        except json.JSONDecodeError:
            raise Failed(f"tidings check ended with code {code} and no report") from None

    def differences(self):
        """Returns what differs from the verdicts of the table."""
        code, report = self.check()
        if report["incomplete"]:
            yield f"incomplete: {report['incomplete']}"
        found = {(check["revision"], check["id"]): check for check in report["checks"]}
        for revision in REVISIONS:
            for id, verdict, texts in expected(self.about[revision]):
                check = found.pop((revision, id), None)
                if check is None:
                    yield f"{id} [{revision}] is missing"
                    continue
                seen = check["seen"]
                if verdict != verdict_of(check):
                    yield f"{id} [{revision}] is {verdict_of(check)}, expected {verdict}: {seen}"
                for text in texts:
                    if text not in seen:
                        yield f"{id} [{revision}] does not say '{text}': {seen}"
        for (revision, id), check in found.items():
            yield f"{id} [{revision}] is not in the table: {verdict_of(check)}: {check['seen']}"
        if code != self.about["exit"]:
            yield f"the exit code is {code}, expected {self.about['exit']}"


class Behind(Server):
    """The same server behind `tidings gateway`, which may add no fault of its own."""

    def __init__(self, name, about, arguments):
        super().__init__(f"{name}-gateway", about, arguments)

    def report(self, target):
        variables = [f"--env={variable}" for variable in self.about.get("environment", {})]
        if target[0] == "--":
            return super().report(["--", self.tidings, "gateway", "--stdio", *variables, *target])
        return super().report(["--", self.tidings, "gateway", "--stdio", *target])

    def differences(self):
        """Returns the faults that the server does not have by itself."""
        _, report = self.check()
        own = set()
        for revision in REVISIONS:
            own |= {id for id, verdict, _ in expected(self.about[revision]) if verdict in ("error", "warning")}
        for check in report["checks"]:
            verdict = verdict_of(check)
            if verdict == "error" or (verdict == "warning" and check["id"] not in own):
                yield f"{check['id']} [{check['revision']}] is {verdict}: {check['seen']}"


def expected(about):
    """Yields the id, the verdict and the texts of each check of one revision in the table."""
    for id in about["pass"]:
        yield id, "pass", []
    for verdict in ("error", "warning", "info", "skipped"):
        for id, texts in about.get(verdict, {}).items():
            yield id, verdict, texts


def verdict_of(check):
    return check["severity"] if check["verdict"] == "fail" else check["verdict"]


def tell(server):
    """Checks one server and prints the outcome; returns true if it is the right one."""
    begun = time.monotonic()
    try:
        differences = list(server.differences())
    except Failed as reason:
        differences = [str(reason)]
    lines = [f"{'FAIL' if differences else 'ok'} {server.name} ({server.about['package']}, {time.monotonic() - begun:.1f} s)"]
    if differences:
        lines[0] += f": {differences[0]}"
        lines += [f"    {difference}" for difference in differences[1:]]
        lines += last_lines(server.work / "check.log") + last_lines(server.work / "server.log")
    print("\n".join(lines), flush=True)
    return not differences


def last_lines(log):
    if not log.exists():
        return []
    return [f"    last lines of {log}:"] + [f"    | {line}" for line in log.read_text(errors="replace").splitlines()[-15:]]


@contextlib.contextmanager
def busy():
    """Keeps the machine busy meanwhile."""
    loops = [start([sys.executable, "-c", LOOP]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for loop in loops:
            end(loop)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--tidings", type=Path)
    parser.add_argument("--scripts", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("pattern", nargs="*", default=["*"])
    arguments = parser.parse_args()
    table = tomllib.loads((HERE / "servers.toml").read_text())
    if arguments.list:
        for name, about in table.items():
            print(f"{name:28}{about['package']}")
        return 0
    chosen = [name for name in table if any(fnmatch(name, pattern) for pattern in arguments.pattern)]
    if not chosen:
        print(f"error: no server matches {' '.join(arguments.pattern)}; see --list", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    servers = [kind(name, table[name], arguments) for name in chosen for kind in (Server, Behind)]
    with busy(), ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(tell, servers))
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
