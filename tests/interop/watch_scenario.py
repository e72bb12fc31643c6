"""`tidings watch --json` against a small server written with an official package.

Owns the steps, the deadlines and the words of a failure. Starts the server, or has `tidings watch` start it, and ends
what it started. Ends with exit code 0, or 1 and a last line `reason: …` on stderr.
"""

import argparse
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

WAIT = 25.0  # seconds any single wait may take: the first verification comes after 10 s, a silent server gets 2 s more
QUIET = 0.7  # seconds in which nothing may arrive
URI = "demo://note"
MODERN = "2026-07-28"


class Failed(Exception):
    """A promise that was not kept; its text is what the run reports."""


def check(condition, text):
    if not condition:
        raise Failed(text)


class Lines:
    """The lines of a stream, as they come."""

    def __init__(self, stream, echo):
        self.all = []
        self._new = queue.Queue()
        threading.Thread(target=self._read, args=(stream, echo), daemon=True).start()

    def _read(self, stream, echo):
        for line in stream:
            print(echo, line, end="", flush=True)
            self.all.append(line)
            self._new.put(line)

    def next(self, why):
        try:
            return self._new.get(timeout=WAIT)
        except queue.Empty:
            raise Failed(f"{why}: no line within {WAIT:.0f} s") from None

    def find(self, text, why):
        line = self.next(why)
        while text not in line:
            line = self.next(why)
        return line

    def silence(self, why):
        try:
            raise Failed(f"{why}: expected silence, got {self._new.get(timeout=QUIET)!r}")
        except queue.Empty:
            return


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, server):
    deadline = time.monotonic() + WAIT
    while True:
        check(server.poll() is None, f"the server ended with code {server.poll()} before it was ready")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            check(time.monotonic() < deadline, f"the server did not listen within {WAIT:.0f} s")
            time.sleep(0.05)


def write(file, text):
    staged = file.with_name("staged")
    staged.write_text(text)
    os.replace(staged, file)


def expect(lines, why, road, current=False):
    line = json.loads(lines.next(why))
    check(line["uri"] == URI, f"{why}: the line names {line['uri']}")
    check(line.get("current", False) == current, f"{why}: expected current={current}, got {line}")
    check(line["road"] == road, f"{why}: expected the road {road}, got {line}")


def watched(out, err, arguments, file):
    """One line for the beginning and one per change, by the road that is expected."""
    # These servers know no resources/subscribe, even where they promise it to a session of the older revisions.
    promised = arguments.revision == MODERN and arguments.what in ("listen", "silent")
    road = "listen" if promised else {"etag": "etag"}.get(arguments.what, "read")
    expect(out, "the beginning", road, current=True)
    write(file, "second text\n")
    if promised and arguments.what == "silent":
        step = err.find("goes from", "a change that nobody was told of")
        check("subscriptions/listen to resources/read" in step, f"the step does not name its roads: {step!r}")
        road = "read"
    expect(out, "the first change", road)
    write(file, "second text\n")
    out.silence("the same text again")
    write(file, "third text\n")
    expect(out, "the second change", road)
    out.silence("after the last change")


def run(arguments):
    file = Path(arguments.dir) / "note"
    write(file, "first text\n")
    server_command = [*arguments.server, "--what", arguments.what, "--file", str(file)]
    era = "modern" if arguments.revision == MODERN else "legacy"
    watch_command = [arguments.tidings, "watch", "--json", "--era", era]
    server = watch = None
    try:
        if arguments.transport == "http":
            port = free_port()
            server = subprocess.Popen([*server_command, "--port", str(port)], stdin=subprocess.DEVNULL)
            wait_for_port(port, server)
            watch_command += [f"http://127.0.0.1:{port}/mcp", URI]
        else:
            watch_command += [URI, "--", *server_command]
        pipe = subprocess.PIPE
        watch = subprocess.Popen(watch_command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        out, err = Lines(watch.stdout, "out:"), Lines(watch.stderr, "err:")
        watched(out, err, arguments, file)
        watch.send_signal(signal.SIGINT)
        code = watch.wait(WAIT)
        check(code == 0, f"tidings watch ended with code {code} after SIGINT, expected 0")
    finally:
        for process in (watch, server):
            if process and process.poll() is None:
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", choices=("listen", "silent", "etag", "read"), required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--transport", choices=("http", "stdio"), required=True)
    parser.add_argument("--tidings", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("server", nargs="+", help="the server's command, after --")
    try:
        run(parser.parse_args())
    except Exception as error:
        text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        print("reason:", " ".join(text.split()), file=sys.stderr)
        sys.exit(1)


main()
