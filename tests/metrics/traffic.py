"""Traffic for a service: a session of each era with its stream, a listen stream, changes, no-ops, calls, refusals;
and changes for a node of a cluster.

Owns its sessions and threads, which end with it. Never judges an answer beyond what it needs to go on.
"""

import http.client
import json
import pathlib
import socket
import sys
import threading
import urllib.parse

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from loopback import ask  # noqa: E402  the folder above is no package

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
URI = "demo://a"
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
WAIT = 10.0  # seconds any answer may take
PAUSE = 0.05  # seconds between rounds


class Traffic:
    def __init__(self, address, node):
        self.address = address
        self.node = node
        self.stopping = threading.Event()
        self.failure = None
        self.streams = []
        self.threads = []
        self.sessions = []

    def request(self, method, path, body=None, headers=None):
        """Answers status, headers and body of one request."""
        return ask(self.address, method, path, body, headers, WAIT)

    def put(self, uri, text, address=None):
        path = "/v1/resources/" + urllib.parse.quote(uri, safe="")
        status, _, body = ask(address or self.address, "PUT", path, text, {"content-type": "text/plain"}, WAIT)
        if status not in (201, 204):
            raise RuntimeError(f"PUT {uri}: {status} {body!r}")

    def post(self, message, headers):
        return self.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), {**JSON, **headers})

    def open_session(self, revision):
        about = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "traffic", "version": "1"}}
        status, headers, body = self.post({"id": 0, "method": "initialize", "params": about}, {})
        if status != 200:
            raise RuntimeError(f"initialize {revision}: {status} {body!r}")
        session = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": revision}
        self.post({"method": "notifications/initialized"}, session)
        self.post({"id": 1, "method": "resources/subscribe", "params": {"uri": URI}}, session)
        self.sessions.append(session)
        return session

    def follow(self, method, body, headers):
        """Opens a stream and reads it until the end."""
        connection = http.client.HTTPConnection(self.address, timeout=90)
        connection.request(method, "/mcp", body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{method} of a stream: {answer.status} {answer.read()!r}")
        self.streams.append(connection)

        def read():
            try:
                while answer.readline():
                    pass
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                pass  # it was closed from here

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self.threads.append(thread)

    def listen(self):
        meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
        wanted = {"resourceSubscriptions": [URI], "resourcesListChanged": True}
        params = {"notifications": wanted, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params}
        headers = {**JSON, "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
        self.follow("POST", json.dumps(message), headers)

    def call(self, session, name, arguments):
        self.post({"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}}, session)

    def start(self):
        self.put(URI, "0")
        for revision in LEGACY:
            session = self.open_session(revision)
            self.follow("GET", None, {**session, "accept": "text/event-stream"})
        # One that is told nothing, so that something waits and is conflated.
        self.open_session(LEGACY[-1])
        self.listen()
        thread = threading.Thread(target=self.rounds, daemon=True)
        thread.start()
        self.threads.append(thread)

    def rounds(self):
        number = 0
        try:
            while not self.stopping.wait(PAUSE):
                number += 1
                self.round(number)
        except Exception as failure:  # shown by whoever waits for data that never comes
            self.failure = failure

    def round(self, number):
        session = self.sessions[number % len(self.sessions)]
        self.put(URI, str(number))
        self.put(URI, str(number))
        self.put(f"demo://{number % 7}", str(number))
        self.put(URI, str(number), self.node)
        self.call(session, "get_resource_etag", {"uri": URI})
        self.call(session, "get_resource_etag", {"uri": "demo://nowhere"})
        self.call(session, "no_such_tool", {})
        self.post({"id": 3, "method": "resources/subscribe", "params": {"uri": "demo://nowhere"}}, session)
        self.request("DELETE", "/v1/resources/" + urllib.parse.quote(f"demo://{(number + 3) % 7}", safe=""))
        if number % 10 == 0:
            brief = self.open_session(LEGACY[2])
            self.sessions.remove(brief)
            self.request("DELETE", "/mcp", None, brief)

    def stop(self):
        self.stopping.set()
        for connection in self.streams:
            # Closing would wait for the thread that reads; this ends what it reads.
            if connection.sock:
                connection.sock.shutdown(socket.SHUT_RDWR)
