"""Runs `tidings bench` on a service whose sinks are in trouble, and checks that the trouble is seen and heals.

Starts the service with a webhook whose receiver hangs, a journal on a disk that is full (RLIMIT_FSIZE), and a WebSocket
client that sends and never reads. Each must appear in /metrics and in the log within 5 s; then the load goes on, and
each must heal when its cause is gone. Writes the report of the load to --json, and the times of all steps beside it
(.seen). All other arguments go to `tidings bench`. Needs only the standard library.
"""

import argparse
import base64
import http.client
import json
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SEEN_WITHIN = 5.0
HEALED_WITHIN = 30.0
# Shorter than the defaults: a hanging request and a blocked write are given up soon enough to be seen in time.
CONFIG = """
http.write_timeout = "2s"

[[webhook]]
name = "hanging"
url = "http://127.0.0.1:{port}/"
secret_file = "secret"
timeout = "2s"
attempts = 1000
backoff_max = "1s"
allow_private = true

[[journal]]
name = "full"
file = "journal.jsonl"
fsync = "never"
"""
URI = "demo://trouble"


class Receiver(threading.Thread):
    """Takes every connection and request, and answers none until it is well."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.well = threading.Event()
        self.start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        with connection, connection.makefile("rb") as lines:
            while True:
                length = None
                while (line := lines.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                if length is None:
                    return
                lines.read(length)
                self.well.wait()
                try:
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                except OSError:
                    return


class WebSocket:
    """A client with a small receive buffer, which reads only in `next`."""

    def __init__(self, port):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.stream = self.socket.makefile("rb")
        status = self.stream.readline()
        if b" 101 " not in status:
            raise RuntimeError(f"no WebSocket: {status!r}")
        while self.stream.readline() != b"\r\n":
            pass

    def send(self, message):
        text = json.dumps(message).encode()
        length = struct.pack("!BH", 0x80 | 126, len(text)) if len(text) > 125 else struct.pack("!B", 0x80 | len(text))
        # A mask of zeros leaves the text as it is.
        self.socket.sendall(b"\x81" + length + bytes(4) + text)

    def next(self):
        while True:
            head, length = self.stream.read(2)
            length &= 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", self.stream.read(2))
            payload = self.stream.read(length)
            if head & 0x0F == 1:
                return json.loads(payload)

    def fill(self):
        """Asks for more than the sockets between hold."""
        self.send({"type": "subscribe", "id": 1, "uris": [URI]})
        for number in range(3):
            self.send({"type": "ping", "id": str(number) * 60_000})


class Silent(threading.Thread):
    """A WebSocket client that asks, never reads, and comes back whenever it was cut."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.over = port, threading.Event()
        self.start()

    def run(self):
        while not self.over.is_set():
            client = WebSocket(self.port)
            try:
                client.fill()
            except OSError:
                pass
            poll = select.poll()
            poll.register(client.socket, 0)
            until = time.monotonic() + 6
            while not self.over.is_set() and time.monotonic() < until and not poll.poll(200):
                pass
            client.stream.close()
            client.socket.close()


class Service:
    """The service under test, and its log line by line."""

    def __init__(self, binary, folder, receiver):
        (folder / "secret").write_text("whsec_" + base64.b64encode(bytes(range(32))).decode())
        (folder / "tidings.toml").write_text(CONFIG.format(port=receiver.port))
        self.folder, self.log = folder, []
        # A full disk is answered with a signal too, which a disk is not.
        shell = ["sh", "-c", 'trap "" XFSZ; exec "$0" "$@"', binary, "serve", "--listen", "127.0.0.1:0"]
        arguments = ["--config", str(folder / "tidings.toml"), "--log", "info,tidings::http::ws=debug"]
        self.process = subprocess.Popen(
            [*shell, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self.read_log, daemon=True).start()
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        if not found:
            raise RuntimeError(f"the service did not start: {line!r} {self.log}")
        self.url, self.port = found[0], int(found[1])

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def logged(self, *words, after=0):
        return any(all(word in line for word in words) for line in self.log[after:])

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        body = connection.getresponse().read().decode()
        connection.close()
        return body

    def metric(self, series):
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else None

    def put(self, text):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        path = "/v1/resources/" + URI.replace(":", "%3A").replace("/", "%2F")
        connection.request("PUT", path, text, {"content-type": "text/plain"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status not in (201, 204):
            raise RuntimeError(f"a resource could not be put: {answer.status}")

    def fill_disk(self, limit):
        subprocess.run(["prlimit", "--pid", str(self.process.pid), f"--fsize={limit}:"], check=True)


def wait(since, within, holds):
    """Seconds since then until it holds; None when it does not in time."""
    while True:
        passed = time.monotonic() - since
        if holds():
            return round(passed, 2)
        if passed > within:
            return None
        time.sleep(0.02)


def up(service, name):
    return service.metric(f'tidings_subscriber_up{{subscriber="{name}"}}')


CUT = ['tidings_limit_reached_total{limit="http.write_timeout"}', 'tidings_sessions_ended_total{reason="write_timeout"}']


def cuts(service):
    return sum(service.metric(series) or 0 for series in CUT)


def trouble(service, seen, failures):
    """Begins all troubles, and waits until each shows in the metrics and in the log."""
    if wait(time.monotonic(), 10, lambda: up(service, "webhook/hanging") == up(service, "journal/full") == 1) is None:
        raise RuntimeError("the sinks did not start")
    service.fill_disk(1)
    since = time.monotonic()
    service.put("1")
    silent = Silent(service.port)
    looks = {
        "webhook": (lambda: up(service, "webhook/hanging") == 0, lambda: service.logged("webhook/hanging", "fails")),
        "journal": (lambda: up(service, "journal/full") == 0, lambda: service.logged("journal/full", "fails")),
        "WebSocket": (lambda: cuts(service) > 0, lambda: service.logged("WebSocket", "write_timeout")),
    }
    seen.update({name: {"metrics": None, "log": None} for name in looks})

    def all_are_seen():
        for name, checks in looks.items():
            for where, holds in zip(("metrics", "log"), checks):
                if seen[name][where] is None and holds():
                    seen[name][where] = round(time.monotonic() - since, 2)
        return all(None not in times.values() for times in seen.values())

    if wait(since, SEEN_WITHIN, all_are_seen) is None:
        missing = [f"{name} in the {where}" for name in seen for where in seen[name] if seen[name][where] is None]
        failures.append(f"not seen within {SEEN_WITHIN} s: " + ", ".join(missing))
    return silent


def heal(service, receiver, silent, seen, failures):
    """Takes the causes away, and waits until everything is as it should be."""
    for name in ("webhook/hanging", "journal/full"):
        if up(service, name) != 0:
            failures.append(f"{name} did not stay down under load")
    silent.over.set()
    silent.join(timeout=10)
    after = len(service.log)
    since = time.monotonic()
    receiver.well.set()
    service.fill_disk("unlimited")
    client = WebSocket(service.port)
    client.send({"type": "subscribe", "id": 1, "uris": [URI]})
    client.next()
    service.put("2")
    told = client.next()
    seen["WebSocket"]["healed"] = round(time.monotonic() - since, 2)
    if told.get("type") != "updated" or told.get("uri") != URI:
        failures.append(f"a WebSocket that reads was told {told}")
    left = {"webhook": "webhook/hanging", "journal": "journal/full"}

    def all_are_well():
        for short, name in list(left.items()):
            pending = service.metric(f'tidings_subscriber_pending{{subscriber="{name}"}}')
            if up(service, name) == 1 and pending == 0 and service.logged(name, "running", after=after):
                seen[short]["healed"] = round(time.monotonic() - since, 2)
                del left[short]
        return not left

    if wait(since, HEALED_WITHIN, all_are_well) is None:
        failures.append(f"not healed within {HEALED_WITHIN} s: " + ", ".join(left.values()))


def complete(service, failures):
    """Nothing may be missing in the journal: its queue was not full."""
    lines = [json.loads(line) for line in (service.folder / "journal.jsonl").read_text().splitlines()]
    if [line["seq"] for line in lines] != list(range(1, len(lines) + 1)) or any(line["kind"] == "gap" for line in lines):
        failures.append("the journal has gaps")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--json", required=True)
    options, arguments = parser.parse_known_args()
    failures, seen = [], {}
    folder = Path(tempfile.mkdtemp(prefix="tidings-isolation-"))
    receiver = Receiver()
    service = Service(options.binary, folder, receiver)
    try:
        silent = trouble(service, seen, failures)
        command = [options.binary, "bench", service.url, "--pid", str(service.process.pid), "--json", options.json, *arguments]
        bench = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if bench.returncode != 0:
            failures.append(f"the load ended with code {bench.returncode}: {bench.stdout[-1500:]}")
        heal(service, receiver, silent, seen, failures)
        complete(service, failures)
    finally:
        service.process.terminate()
        try:
            service.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            service.process.kill()
            failures.append("the service did not end")
    Path(options.json + ".seen").write_text(json.dumps(seen))
    for failure in failures:
        print(f"FAIL sinks: {failure}")
    if failures:
        print("".join(service.log[-20:]))
        print(f"what there is of the run is in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failures else 0)


main()
