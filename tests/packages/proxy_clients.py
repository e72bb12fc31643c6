"""Clients of a proxy: requests and streams over HTTP/1.1 with a socket, over HTTP/2 with curl, and a WebSocket over HTTP/2.

Each speaks with the proxy at a port of this machine under the name of its certificate. Every wait has a deadline.
"""

import contextlib
import email
import http.client
import json
import os
import re
import select
import socket
import ssl
import subprocess
import time

import h2.config
import h2.connection
import h2.events
from support import WAIT, Failed, expect
from websockets.frames import Frame, Opcode

PIECE = 65536


class Stream:
    """An answer that goes on: what has come of it, and what it takes to wait for more."""

    def __init__(self, read):
        self.read, self.seen = read, b""

    def more(self):
        """Returns the next piece; nothing once the stream has ended."""
        piece = self.read()
        self.seen += piece
        return piece

    def wait_for(self, text):
        while text.encode() not in self.seen:
            try:
                piece = self.more()
            except TimeoutError:
                raise Failed(f"{text!r} does not pass within {WAIT} s; seen {self.seen[-500:]!r}") from None
            expect(piece, f"the stream ended before {text!r}; seen {self.seen[-500:]!r}")


class Http1:
    """A connection with HTTP/1.1 for each request."""

    def __init__(self, host, port, certificate):
        self.host, self.port = host, port
        self.trust = ssl.create_default_context(cafile=certificate)

    def send(self, method, path, headers, body):
        raw = socket.create_connection(("127.0.0.1", self.port), WAIT)
        try:
            connection = self.trust.wrap_socket(raw, server_hostname=self.host)
        except BaseException:
            raw.close()
            raise
        lines = [f"{method} {path} HTTP/1.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        return connection

    def ask(self, method, path, headers, body=b""):
        """Returns status, headers and body of an answer."""
        with self.send(method, path, headers, body) as connection:
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.headers, answer.read()

    @contextlib.contextmanager
    def stream(self, method, path, headers, body=b""):
        with self.send(method, path, headers, body) as connection:
            # It holds the connection open as long as it is open itself.
            with http.client.HTTPResponse(connection) as answer:
                answer.begin()
                expect(answer.status == 200, f"{path}: {answer.status} {answer.reason}")
                yield Stream(lambda: answer.read1(PIECE))


class Http2:
    """curl, which must be answered with HTTP/2."""

    def __init__(self, host, port, certificate):
        self.host, self.port, self.certificate = host, port, certificate

    def command(self, method, path, headers):
        place = f"{self.host}:{self.port}"
        command = ["curl", "-sS", "-N", "-i", "--http2", "--cacert", self.certificate, "--resolve", f"{place}:127.0.0.1", "-X", method]
        for name, value in headers.items():
            command += ["-H", f"{name}: {value}"]
        return [*command, f"https://{place}{path}"]

    def head(self, text, path):
        """Returns status and headers."""
        first, _, rest = text.decode("latin-1").partition("\r\n")
        found = re.match(r"HTTP/2 (\d{3})", first)
        expect(found, f"{path}: the answer begins with {first!r}")
        return int(found[1]), email.message_from_string(rest)

    def ask(self, method, path, headers, body=b""):
        """Returns status, headers and body of an answer."""
        command = self.command(method, path, headers)
        if body:
            command[1:1] = ["--data-binary", "@-"]
        done = subprocess.run(command, input=body, capture_output=True, timeout=WAIT)
        if done.returncode != 0:
            raise OSError(f"curl ended with {done.returncode}: {done.stderr.decode().strip()}")
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        return *self.head(head, path), answer

    @contextlib.contextmanager
    def stream(self, method, path, headers, body=b""):
        command = self.command(method, path, headers)
        if body:
            command[1:1] = ["--data-binary", body.decode()]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as curl:
            def piece():
                if not select.select([curl.stdout], [], [], WAIT)[0]:
                    raise TimeoutError
                return os.read(curl.stdout.fileno(), PIECE)

            try:
                begun = Stream(piece)
                while b"\r\n\r\n" not in begun.seen:
                    if not begun.more():
                        raise OSError(f"{path}: curl ended with {curl.wait(WAIT)} before the answer")
                head, _, begun.seen = begun.seen.partition(b"\r\n\r\n")
                status, _ = self.head(head, path)
                expect(status == 200, f"{path}: {status}")
                yield begun
            finally:
                curl.kill()


class Http2WebSocket:
    """A WebSocket as a stream of HTTP/2 (RFC 8441)."""

    def __init__(self, host, port, certificate, path, headers):
        trust = ssl.create_default_context(cafile=certificate)
        trust.set_alpn_protocols(["h2"])
        self.socket = trust.wrap_socket(socket.create_connection(("127.0.0.1", port), WAIT), server_hostname=host)
        expect(self.socket.selected_alpn_protocol() == "h2", "the proxy agrees on no HTTP/2")
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.connection.initiate_connection()
        self.events, self.data = [], b""
        self.next(h2.events.RemoteSettingsChanged)
        # 8: SETTINGS_ENABLE_CONNECT_PROTOCOL.
        expect(self.connection.remote_settings.get(8) == 1, "the proxy takes no WebSocket over HTTP/2")
        request = {":method": "CONNECT", ":protocol": "websocket", ":scheme": "https", ":authority": host, ":path": path}
        request |= {"sec-websocket-version": "13", **{name.lower(): value for name, value in headers.items()}}
        self.connection.send_headers(1, list(request.items()))
        self.status = dict(self.next(h2.events.ResponseReceived).headers)[":status"]

    def next(self, kind):
        """Waits for an event of this kind."""
        deadline = time.monotonic() + WAIT
        while True:
            self.socket.sendall(self.connection.data_to_send())
            while self.events:
                event = self.events.pop(0)
                if isinstance(event, h2.events.StreamReset):
                    raise Failed(f"the stream was reset with {event.error_code}")
                if isinstance(event, kind):
                    return event
            expect(time.monotonic() < deadline, f"no {kind.__name__} within {WAIT} s")
            received = self.socket.recv(PIECE)
            expect(received, f"the connection ended before {kind.__name__}")
            self.events += self.connection.receive_data(received)

    def send(self, message):
        frame = Frame(Opcode.TEXT, json.dumps(message).encode()).serialize(mask=True)
        self.connection.send_data(1, frame)
        self.socket.sendall(self.connection.data_to_send())

    def receive(self):
        """Returns the next message; each of those expected here has a head of 2 or 4 bytes."""
        while True:
            short = len(self.data) >= 2 and self.data[1] < 126
            head = 2 if short else 4
            length = (self.data[1] if short else int.from_bytes(self.data[2:4], "big")) if len(self.data) >= head else PIECE
            if len(self.data) >= head + length:
                opcode, message = self.data[0] & 15, self.data[head : head + length]
                self.data = self.data[head + length :]
                if opcode == Opcode.TEXT:
                    return json.loads(message)
                continue
            event = self.next(h2.events.DataReceived)
            self.connection.acknowledge_received_data(event.flow_controlled_length, 1)
            self.data += event.data

    def close(self):
        self.socket.close()
