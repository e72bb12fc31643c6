"""Clients of an MCP server that cost little: sockets with requests that were made before."""

import json
import os
import selectors
import socket
import subprocess
import time
import urllib.parse

ECHO = {"name": "echo", "arguments": {"message": "hello"}}
WAIT = 60.0  # seconds, the longest that anything may take


def initialize():
    about = {"name": "figures", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
    return message("initialize", params)


def message(method, params, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Connection:
    """A kept connection to a server over HTTP, in one session."""

    def __init__(self, url, session=None):
        self.url = urllib.parse.urlsplit(url)
        self.session = session
        self.socket = self.connect()

    def connect(self):
        connection = socket.create_connection((self.url.hostname, self.url.port), timeout=WAIT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def head(self, method, length, extra=()):
        lines = [
            f"{method} {self.url.path} HTTP/1.1",
            f"host: {self.url.netloc}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            *(extra or ["mcp-protocol-version: 2025-11-25"]),
            f"content-length: {length}",
        ]
        if self.session:
            lines.append(f"mcp-session-id: {self.session}")
        return "\r\n".join(lines + ["", ""]).encode()

    def post(self, content):
        body = json.dumps(content).encode()
        return self.head("POST", len(body)) + body

    def ask(self, request):
        """Sends a request and returns the head and the body of its answer."""
        self.socket.sendall(request)
        answer = b""
        while not is_whole(answer):
            part = self.socket.recv(1 << 16)
            if not part:
                raise RuntimeError(f"the server closed the connection after {answer!r}")
            answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status not in (200, 202):
            raise RuntimeError(f"{answer!r}")
        return head, body

    def open_session(self):
        head, _ = self.ask(self.post(initialize()))
        for line in head.decode().split("\r\n"):
            name, _, value = line.partition(": ")
            if name.lower() == "mcp-session-id":
                self.session = value
        self.ask(self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        return self.session

    def call(self, method, params):
        _, body = self.ask(self.post(message(method, params)))
        text = body.decode()
        result = json.loads(text[text.index("{") : text.rindex("}") + 1])
        if "result" not in result:
            raise RuntimeError(f"{method}: {result}")
        return result["result"]

    def stream(self, receive_buffer=None):
        """Opens the stream of the session on a connection of its own."""
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(WAIT)
        connection.connect((self.url.hostname, self.url.port))
        connection.sendall(self.head("GET", 0))
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"no stream: {head!r}")
        return connection

    def listen(self, uris):
        """Subscribes in the way of 2026-07-28: by a request whose answer is a stream, on this connection."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "figures", "version": "1"},
        }
        params = {"notifications": {"resourceSubscriptions": uris}, "_meta": meta}
        body = json.dumps(message("subscriptions/listen", params)).encode()
        headers = ["mcp-protocol-version: 2026-07-28", "mcp-method: subscriptions/listen"]
        self.socket.sendall(self.head("POST", len(body), headers) + body)
        answer = b""
        while b"acknowledged" not in answer:
            part = self.socket.recv(1 << 16)
            if not part:
                raise RuntimeError(f"no stream: {answer!r}")
            answer += part

    def close(self):
        self.socket.close()


def is_whole(answer):
    """Returns true if the answer is complete: by its length, or by its last chunk."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    head = head.lower()
    if b"transfer-encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    length = head.partition(b"content-length: ")[2].split(b"\r\n")[0]
    return len(body) >= int(length or 0)


class StdioServer:
    """The server itself, without anything between."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.ask(initialize())
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, content):
        self.process.stdin.write(json.dumps(content).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, request):
        self.send(request)
        while True:
            line = self.process.stdout.readline()
            answer = json.loads(line)
            if answer.get("id") == request["id"] and "method" not in answer:
                return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(WAIT)


def latencies(ask, count):
    """Returns the times of so many calls, one after the other, in milliseconds."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        times.append((time.perf_counter() - began) * 1e3)
    return times


def calls_per_second(url, in_flight, count):
    """Calls `echo` so many times, with so many calls in flight on as many connections, each with its own session."""
    waiting = selectors.DefaultSelector()
    connections = []
    for _ in range(in_flight):
        connection = Connection(url)
        connection.open_session()
        connection.call("tools/call", ECHO)
        request = connection.post(message("tools/call", ECHO))
        connections.append(connection)
        waiting.register(connection.socket, selectors.EVENT_READ, [connection.socket, request, b""])
    sent = done = 0
    own = sum(os.times()[:2])
    began = time.perf_counter()
    for key in list(waiting.get_map().values()):
        key.data[0].sendall(key.data[1])
        sent += 1
    while done < count:
        for key, _ in waiting.select(WAIT):
            state = key.data
            state[2] += state[0].recv(1 << 16)
            if not is_whole(state[2]):
                continue
            if b"hello" not in state[2]:
                raise RuntimeError(f"{state[2]!r}")
            state[2] = b""
            done += 1
            if sent < count:
                state[0].sendall(state[1])
                sent += 1
    took = time.perf_counter() - began
    own = sum(os.times()[:2]) - own
    for connection in connections:
        connection.close()
    return count / took, own / took
