#!/usr/bin/env python3
"""Counts the instructions of the service over HTTP/1.1, with valgrind (callgrind).

    benches/instructions/http1.py PROGRAM [PROGRAM ...]

Each program is a build of the service, such as target/release/tidings and one of an older commit. A figure is the
difference of two runs of different length, so that the start and the opening of the streams are not in it. Unlike
times, instructions do not depend on other load on the machine; what the kernel does is not counted.
"""

import json
import re
import socket
import subprocess
import sys
import tempfile

OLD = "2025-11-25"
NEW = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "instructions", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
STREAMS = 40
RESOURCES = 16
UPDATED = b"resources/updated"
ANSWER_MAX = 300


class Client:
    """A connection that sends one request at a time."""

    def __init__(self, address):
        self.host = "%s:%d" % address
        self.socket = socket.create_connection(address, timeout=ANSWER_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session = {}

    def send(self, method, path, headers=(), body=b""):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in dict(headers).items()]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def call(self, method, params, number=None, headers=()):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self.send("POST", "/mcp", {**accepted, **self.session, **dict(headers)}, json.dumps(message).encode())

    def call_alone(self, method, params, number, name=None):
        """Calls a method of the revision without sessions."""
        headers = {"MCP-Protocol-Version": NEW, "Mcp-Method": method}
        if name is not None:
            headers["Mcp-Name"] = name
        self.call(method, {**params, "_meta": META}, number, headers)

    def put(self, uri, text):
        path = "/v1/resources/" + uri.replace(":", "%3A").replace("/", "%2F")
        self.send("PUT", path, {"Content-Type": "text/plain"}, text.encode())

    def receive(self):
        data = self.socket.recv(64 << 10)
        if not data:
            raise SystemExit("the service ended a connection")
        return data

    def head(self):
        """Reads the head of an answer. Returns it and what came after it."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.receive()
        head, _, rest = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise SystemExit(f"the service answered {data!r}")
        return head, rest

    def answer(self):
        """Reads an answer to its end. Returns its head."""
        head, rest = self.head()
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        while length and len(rest) < int(length[1]) or b"chunked" in head and not rest.endswith(b"0\r\n\r\n"):
            rest += self.receive()
        return head

    def open_session(self):
        client = META["io.modelcontextprotocol/clientInfo"]
        self.call("initialize", {"protocolVersion": OLD, "capabilities": {}, "clientInfo": client}, 1)
        session = re.search(rb"mcp-session-id: (\S+)", self.answer(), re.IGNORECASE)[1].decode()
        self.session = {"Mcp-Session-Id": session, "MCP-Protocol-Version": OLD}
        self.call("notifications/initialized", {})
        self.answer()

    def wait_for(self, part, times=1, data=b""):
        while data.count(part) < times:
            data += self.receive()


def session_stream(address, uris):
    client = Client(address)
    client.open_session()
    for uri in uris:
        client.call("resources/subscribe", {"uri": uri}, 2)
        client.answer()
    client.send("GET", "/mcp", {"Accept": "text/event-stream", **client.session})
    client.head()
    return client


def listen_stream(address, uris):
    client = Client(address)
    client.call_alone("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}, 1)
    _, rest = client.head()
    client.wait_for(b"acknowledged", data=rest)
    return client


def deliver(open_stream, resources):
    """Returns the load of changes that each stream is told of, and the notices of one round."""

    def load(address, rounds):
        uris = [f"bench://{number}" for number in range(resources)]
        publishers = [Client(address) for _ in uris]
        for publisher, uri in zip(publishers, uris):
            publisher.put(uri, "0")
            publisher.answer()
        streams = [open_stream(address, uris) for _ in range(STREAMS)]
        for number in range(rounds):
            for publisher, uri in zip(publishers, uris):
                publisher.put(uri, f"state {number:06}")
            for publisher in publishers:
                publisher.answer()
            for stream in streams:
                stream.wait_for(UPDATED, resources)

    return load, STREAMS * resources


def poll(has_session):
    """Returns the load of polls of an etag."""

    def load(address, rounds):
        client = Client(address)
        client.put("bench://polled", "0")
        client.answer()
        if has_session:
            client.open_session()
        tool = "get_resource_etag"
        params = {"name": tool, "arguments": {"uri": "bench://polled"}}
        for number in range(1_000_000, 1_000_000 + rounds):
            if has_session:
                client.call("tools/call", params, number)
            else:
                client.call_alone("tools/call", params, number, tool)
            client.answer()

    return load, 1


LOADS = [
    ("delivery, sessions " + OLD, deliver(session_stream, 1), (100, 1_100)),
    ("delivery, listen " + NEW, deliver(listen_stream, 1), (100, 1_100)),
    ("notice, 16 changes at a time", deliver(listen_stream, RESOURCES), (40, 340)),
    ("poll of an etag, session " + OLD, poll(True), (500, 3_500)),
    ("poll of an etag, stateless " + NEW, poll(False), (500, 3_500)),
]


def count(program, load, rounds):
    """Returns the instructions of one run."""
    with tempfile.TemporaryDirectory() as folder, open(folder + "/log", "w") as log:
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        command += [program, "serve", tempfile.mkdtemp(dir=folder), "--listen", "127.0.0.1:0"]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            lines = iter(service.stdout.readline, "")
            address = next((match for match in map(re.compile(r"://([\d.]+):(\d+)").search, lines) if match), None)
            if address is None:
                raise SystemExit(f"{program} did not start: " + open(log.name).read())
            load((address[1], int(address[2])), rounds)
        finally:
            service.terminate()
            service.wait()
        return int(re.search(r"Collected : (\d+)", open(log.name).read())[1])


def main(programs):
    if not programs:
        raise SystemExit(__doc__)
    print("| instructions | " + " | ".join(programs) + " |")
    print("|---" * (len(programs) + 1) + "|")
    for name, (load, units), (few, many) in LOADS:
        figures = []
        for program in programs:
            counted = count(program, load, many) - count(program, load, few)
            figures.append(f"{counted / (many - few) / units:,.0f}")
        print(f"| {name} | " + " | ".join(figures) + " |", flush=True)


main(sys.argv[1:])
