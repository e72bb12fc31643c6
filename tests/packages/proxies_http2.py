"""Checks of the proxies that speak HTTP/2 with the service.

What shares a connection, a client that reads nothing, a WebSocket over HTTP/2, and clients that go on after the proxy was
killed or the service was started again.
"""

import contextlib
import http.client
import json
import os
import threading
import time
import urllib.parse

from proxy_clients import Http2WebSocket
from support import WAIT, Failed, expect, free_port, until

STREAMS = 40
# Streams of a connection, where the service takes no more.
FEW = 8
# The body of an event is at most `http.notice_body_max`; more of them than the buffers of a proxy and two sockets take.
LARGE = "x" * 60_000
LARGE_CHANGES = 200
# A notice that waits behind a client that reads nothing would wait until the end of the test.
PROMPT = 5
ITEMS = 8
ROUNDS = 12
URI = "demo://a"
SLOW = "demo://slow"


def path_of(uri):
    return "/v1/resources/" + urllib.parse.quote(uri, safe="")


def many(stage, connections_min, connections_max):
    """The streams of many clients, each with a connection of its own to the proxy, come over this many to the service."""
    with contextlib.ExitStack() as kept:
        opened = [kept.enter_context(stage.stream("/v1/events", {})) for _ in range(STREAMS)]
        etag = stage.publish("for all")
        for stream in opened:
            stream.wait_for(etag)
        streams, connections = (stage.figure(f"tidings_http2_{what}") for what in ("streams", "connections"))
    expect(streams >= STREAMS, f"{STREAMS} clients have {streams} streams of HTTP/2")
    wanted = f"{connections_min} to {connections_max}"
    expect(connections_min <= connections <= connections_max, f"{streams} streams have {connections} connections, not {wanted}")


def connections(report, stage, name, started, absent):
    """What shares a connection, how many streams one takes, and what comes after the service was started again."""
    stage.port, stage.front = free_port(), "1.1"
    with contextlib.ExitStack() as kept:
        with stage.served():
            kept.enter_context(started(stage))
            # Each thread of a proxy has connections of its own.
            report.check(f"{name}/shared", many, stage, 1, os.cpu_count())
        status, _, _ = stage.ask("GET", path_of(URI))
        expect(status == absent, f"without a service: {status}")
        with stage.served(stage.service_port, f"h2_streams_max = {FEW}\n"):
            stage.publish("after the restart")
            status, _, body = stage.ask("GET", path_of(URI))
            expect((status, body) == (200, b"after the restart"), f"after the restart: {status} {body}")
            report.check(f"{name}/few_streams", many, stage, STREAMS // FEW, STREAMS)


def unread(stage):
    """A client that reads nothing holds up no other one, though they share a connection."""
    with stage.stream("/v1/events?body=1&uri=" + urllib.parse.quote(SLOW, safe=""), {}):
        with stage.stream("/v1/events?uri=" + urllib.parse.quote(URI, safe=""), {}) as stream:
            for at in range(LARGE_CHANGES):
                stage.publish(f"{at} {LARGE}", path_of(SLOW))
            begun = time.monotonic()
            stream.wait_for(stage.publish("beside a slow one"))
            took = time.monotonic() - begun
            expect(took < PROMPT, f"the event took {took:.1f} s")
            status, _, _ = stage.ask("GET", path_of(URI))
            expect(status == 200, f"a request beside it: {status}")


def websocket(stage):
    """A WebSocket over HTTP/2, from the client to the service."""
    credentials = {"authorization": f"Bearer {stage.token}", "origin": "https://bus.example"}
    messages = Http2WebSocket("bus.example", stage.port, stage.certificate, "/v1/ws", credentials)
    with contextlib.closing(messages):
        expect(messages.status == "200", f"status {messages.status}")
        messages.send({"type": "subscribe", "uris": [URI]})
        answer = messages.receive()
        expect(answer["type"] == "ack" and URI in answer["subscribed"], f"subscribe: {answer}")
        etag = stage.publish("over HTTP/2 alone")
        told = messages.receive()
        expect(told["type"] == "updated" and told["etag"] == etag, f"told {told}, expected {etag}")
    foreign = Http2WebSocket("bus.example", stage.port, stage.certificate, "/v1/ws", {**credentials, "origin": "https://evil.example"})
    with contextlib.closing(foreign):
        expect(foreign.status == "403", f"a page of another origin: {foreign.status}")


class Follower(threading.Thread):
    """A client that connects again whenever its stream ends, and knows the newest etag that it was told of each resource."""

    def __init__(self, name, opened):
        super().__init__(daemon=True)
        self.name, self.opened = name, opened
        self.known, self.position, self.lives, self.stopped, self.verdicts = {}, None, 0, False, []

    def run(self):
        while not self.stopped:
            try:
                with self.opened(self) as stream:
                    self.lives += 1
                    self.follow(stream)
            except (OSError, http.client.HTTPException, Failed):
                # The proxy is not there, or has answered 502 or 503.
                time.sleep(0.05)

    def follow(self, stream):
        left = b""
        piece = stream.seen
        while not self.stopped:
            *events, left = (left + piece).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                self.take(dict(line.split(": ", 1) for line in event.decode().split("\n") if ": " in line and line[0] != ":"))
            piece = stream.more()
            if not piece:
                return

    def take(self, event):
        data = json.loads(event["data"]) if event.get("data") else {}
        if event.get("event") == "resumed":
            self.verdicts.append(data)
        told = data.get("params", data)
        etag = told.get("etag") or told.get("_meta", {}).get("io.github.tidings/etag")
        # The acknowledgement of a listen stream has the etags of all, and is no notice.
        if "uri" in told and etag:
            self.known[told["uri"]] = etag
        self.position = event.get("id", self.position)

    def resume(self):
        return {} if self.position is None else {"Last-Event-ID": self.position}


def restart(stage):
    """Changes go on while the proxy is killed and started again; then every client knows the last state of each resource."""
    items = [f"restart://{at}" for at in range(ITEMS)]
    for uri in items:
        stage.publish("before", path_of(uri))
    session = stage.session(items)
    followers = [
        Follower("/v1/events", lambda follower: stage.stream("/v1/events", follower.resume())),
        Follower("2025-11-25", lambda follower: stage.stream("/mcp", {**session, **follower.resume()})),
        Follower("2026-07-28", lambda follower: stage.listen({uri: follower.known.get(uri) for uri in items})),
    ]
    for follower in followers:
        follower.start()
    until("stream of each client", lambda: all(follower.lives for follower in followers))
    last = {}
    for turn in range(ROUNDS):
        if turn == ROUNDS // 3:
            stage.started.kill()
            stage.started.wait()
        if turn == 2 * ROUNDS // 3:
            stage.again()
        # Half of them change for the last time while the proxy is not there.
        for uri in items if turn < 2 * ROUNDS // 3 else items[::2]:
            last[uri] = stage.publish(f"{turn}", path_of(uri))
    try:
        for follower in followers:
            until(f"last state at {follower.name}", lambda follower=follower: {uri: follower.known.get(uri) for uri in items} == last)
            expect(follower.lives == 2, f"{follower.name}: {follower.lives} streams, expected one before and one after")
        verdicts = followers[0].verdicts
        expect(all(verdict["complete"] for verdict in verdicts), f"/v1/events resumed with {verdicts}")
    finally:
        for follower in followers:
            follower.stopped = True
        # Ends the wait for the next piece.
        for uri in items:
            stage.publish("the end", path_of(uri))
        for follower in followers:
            follower.join(WAIT)


PARTS = (unread, restart)
