"""Shared by the checks of the packages: their report, and services that are started and ended.

Every wait has a deadline; every process is ended by its id.
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from loopback import ask  # noqa: E402  the folder above is no package

WAIT = 60.0  # seconds that a start, an answer or an event may take


class Failed(Exception):
    """A reason why a package does not do what it promises."""


class Report:
    """Runs checks and prints a line for each."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, function, *arguments):
        try:
            function(*arguments)
        except Exception as error:  # every other failure counts, too
            self.failed += 1
            print(f"FAIL {name}: {error}", flush=True)
            if not isinstance(error, Failed):
                traceback.print_exc()
        else:
            self.passed += 1
            print(f"ok {name}", flush=True)


def expect(holds, reason):
    if not holds:
        raise Failed(reason)


def run(*command, **options):
    """Runs a command; returns its standard output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, holds, process=None, log=None):
    """Waits until `holds()` is true; a process that ends meanwhile fails the wait."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        if process is not None and process.poll() is not None:
            break
        time.sleep(0.05)
    tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-10:]) if log else ""
    state = "" if process is None else ": the process runs" if process.poll() is None else ": the process has ended"
    raise Failed(f"no {what}{state}\n{tail}")


@contextlib.contextmanager
def process(command, log, **options):
    """A program that goes on, with its output in a file."""
    with log.open("wb") as output:
        started = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options
        )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGTERM)
            try:
                started.wait(WAIT)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


@contextlib.contextmanager
def service(command, log, **options):
    """`tidings serve` on a free port; yields the process and its port once it is ready."""
    with process(command, log, **options) as started:
        def announced():
            found = re.search(r"^tidings listening on https?://[^/ ]*:(\d+)/mcp$", log.read_text(errors="replace"), re.M)
            return found and int(found[1])

        yield started, until("line with the address", announced, started, log)


def ended_in_order(started):
    """Asks a service to stop; it must end by itself with code 0."""
    started.send_signal(signal.SIGTERM)
    try:
        code = started.wait(WAIT)
    except subprocess.TimeoutExpired:
        raise Failed(f"it did not end within {WAIT} s of SIGTERM") from None
    expect(code == 0, f"it ended with code {code}")


def get(port, path, headers=None, method="GET", body=None):
    """Returns status, headers and body of an answer on loopback."""
    return ask(f"127.0.0.1:{port}", method, path, body, headers, WAIT)


def plain_environment(**more):
    """The environment without settings of the service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
    return {**kept, **more}
