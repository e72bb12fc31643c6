"""A real browser's EventSource and WebSocket against the service.

Owns: the service, two web servers for the page (one of an allowed origin, one of a foreign one), a proxy that can cut what
it carries and notes what the browser sends, and the browser. The page reports what it sees; each expectation waits for its
report. Prints `ok NAME` or `FAIL NAME: reason`, and at the end `N passed, N failed`.
"""

import argparse
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

DEADLINE = 30
PAGE = pathlib.Path(__file__).with_name("page.html").read_bytes()
ENVIRONMENT = {
    "TIDINGS_EVENTS__RETRY": "200ms",
    "TIDINGS_HTTP__KEEP_ALIVE": "1s",
    "TIDINGS_SHUTDOWN__DRAIN_TIMEOUT": "5s",
}


class Failed(Exception):
    pass


class Service:
    """`tidings serve` with a store, so that a second life goes on where the first one ended."""

    def __init__(self, binary, place):
        self.log = open(place / "service.log", "ab")
        command = [binary, "serve", "--data", str(place / "data"), "--listen", "127.0.0.1:0"]
        environment = {**os.environ, **ENVIRONMENT}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True
        )
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise Failed(f"the service did not start, see {self.log.name}")
        self.port = int(line.split("http://")[1].split("/")[0].rsplit(":", 1)[1])

    def put(self, uri, text):
        url = f"http://127.0.0.1:{self.port}/v1/resources/{urllib.parse.quote(uri, safe='')}"
        request = urllib.request.Request(url, text.encode(), {"content-type": "text/plain"}, method="PUT")
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return answer.headers["etag"].strip('"')

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE)
        if code != 0:
            raise Failed(f"the service ended with code {code}, see {self.log.name}")


class Proxy:
    """Carries bytes to the service, notes the head of each request, and cuts everything on demand."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = None
        self.heads = []
        self.open = []
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        try:
            with self.lock:
                server = socket.create_connection(("127.0.0.1", self.target or 1))
                self.open += [client, server]
        except OSError:
            client.close()
            return
        threading.Thread(target=self.pump, args=(server, client, None), daemon=True).start()
        self.pump(client, server, [])

    def pump(self, source, sink, head):
        try:
            while data := source.recv(65536):
                if head is not None:
                    head.append(data)
                    if b"\r\n\r\n" in b"".join(head):
                        self.heads.append(b"".join(head).decode("latin-1"))
                        head = None
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, target):
        """Cuts everything; what comes from now on goes to `target`, or nowhere."""
        with self.lock:
            self.target = target
            for end in self.open:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.open.clear()


class Seen:
    """What a page has reported, in order."""

    def __init__(self):
        self.reports = []
        self.changed = threading.Condition()

    def add(self, report):
        with self.changed:
            self.reports.append(report)
            self.changed.notify_all()

    def all(self):
        with self.changed:
            return list(self.reports)

    def wait(self, what, after=0, **wanted):
        """The first report with these fields at or behind the place `after`; answers the place behind it and itself."""
        until = time.monotonic() + DEADLINE
        with self.changed:
            while True:
                for at, report in enumerate(self.reports[after:], after):
                    if all(report.get(name) == value for name, value in wanted.items()):
                        return at + 1, report
                left = until - time.monotonic()
                if left <= 0:
                    last = json.dumps(self.reports[-5:])
                    raise Failed(f"not seen within {DEADLINE} s: {what}; the last reports are {last}")
                self.changed.wait(left)


def serve_page(host):
    """Serves the page on a free port of `host`; answers its origin and what it reports."""
    seen = Seen()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)

        def do_POST(self):
            seen.add(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://{host}:{server.server_address[1]}", seen


class Browser:
    """A headless browser that keeps one page open."""

    def __init__(self, program, place, name, url):
        profile = place / f"profile-{name}"
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--no-proxy-server", "--remote-debugging-port=0", f"--user-data-dir={profile}", url,
        ]
        self.log = open(place / f"browser-{name}.log", "wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def close(self):
        try:
            # A browser is several processes, all in the session that was made for it.
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(DEADLINE)


def last_event_id(head):
    """The header in the head of a request; None when there is none."""
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "last-event-id":
            return value.strip()
    return None


def expect(condition, reason):
    if not condition:
        raise Failed(reason)


class Story:
    """The scenarios, in the order in which they happen to one page."""

    def __init__(self, binary, browser, place):
        self.binary, self.browser, self.place = binary, browser, place
        self.proxy = Proxy()
        self.service = Service(binary, place)
        self.etag = self.service.put("demo://a", "1")
        self.proxy.cut(self.service.port)
        origin, self.seen = serve_page("127.0.0.1")
        self.page = Browser(browser, place, "allowed", f"{origin}/?service=127.0.0.1:{self.proxy.port}")
        self.id = None

    def close(self):
        self.page.close()
        if self.service.process.poll() is None:
            self.service.process.kill()

    def the_page_is_told_where_its_stream_begins(self):
        _, first = self.seen.wait("the first event", **{"from": "events"})
        expect(first["kind"] == "resumed" and first["data"]["complete"], f"the first event is {first}")
        expect(first["id"] == first["data"]["from"], f"the verdict has another id: {first}")

    def both_transports_tell_of_a_change(self):
        _, ack = self.seen.wait("the answer to subscribe", **{"from": "ws", "type": "ack"})
        expect(ack["subscribed"] == {"demo://a": self.etag}, f"subscribed is {ack}")
        self.etag = self.service.put("demo://a", "2")
        _, event = self.seen.wait("the event", **{"from": "events", "kind": "updated"})
        _, message = self.seen.wait("the message", **{"from": "ws", "type": "updated"})
        expect(event["data"]["etag"] == message["etag"] == self.etag, f"told {event} and {message}")
        expect(event["id"] == message["position"], "the two name other positions")
        self.id = event["id"]

    def after_a_cut_the_browser_says_what_it_has_and_gets_the_rest(self):
        after = len(self.seen.all())
        self.proxy.cut(None)
        self.seen.wait("the loss of the stream", after, **{"from": "events", "kind": "error"})
        self.seen.wait("the loss of the socket", after, **{"from": "ws", "type": "close"})
        self.etags = [self.service.put("demo://a", text) for text in ("3", "4", "5")]
        self.proxy.cut(self.service.port)
        at, verdict = self.seen.wait("the verdict", after, **{"from": "events", "kind": "resumed"})
        expect(verdict["data"] == {"complete": True, "from": self.id, "missed": 0}, f"the verdict is {verdict}")
        told = []
        for _ in self.etags:
            at, event = self.seen.wait("what was missed", at, **{"from": "events", "kind": "updated"})
            told.append(event["data"]["etag"])
        expect(told == self.etags, f"told {told}, expected {self.etags}")
        said = [last_event_id(head) for head in self.proxy.heads if head.startswith("GET /v1/events")]
        expect(said[-1] == self.id, f"the browser sent Last-Event-ID {said}")
        self.id = event["id"]
        _, other = self.seen.wait("the newest on the socket", after, **{"from": "ws", "type": "updated"})
        expect(other["etag"] == self.etags[-1], f"the socket was told {other}")

    def after_a_restart_the_stream_goes_on_where_it_ended(self):
        after = len(self.seen.all())
        self.service.stop()
        self.seen.wait("the end of the stream", after, **{"from": "events", "kind": "end"})
        _, closed = self.seen.wait("the end of the socket", after, **{"from": "ws", "type": "close"})
        expect(closed["code"] == 1001, f"the socket was closed with {closed}")
        self.proxy.cut(None)
        self.service = Service(self.binary, self.place)
        self.proxy.cut(self.service.port)
        at, verdict = self.seen.wait("the verdict", after, **{"from": "events", "kind": "resumed"})
        expect(verdict["data"]["complete"], f"the verdict is {verdict}")
        # Held in memory, so it is registered anew: other content is a new version, and told as one.
        etag = self.service.put("demo://a", "6")
        at, event = self.seen.wait("the change", at, **{"from": "events", "kind": "updated"})
        expect(event["data"]["etag"] == etag, f"told {event}, expected {etag}")
        expect(etag.split("-")[0] == "v6", f"the version is {etag}")

    def nothing_was_told_twice(self):
        ids = [seen["id"] for seen in self.seen.all() if seen.get("kind") in ("updated", "resources_list_changed")]
        expect(len(ids) == len(set(ids)), f"ids came twice: {ids}")
        expect(len(ids) >= 5, f"only {len(ids)} events came")

    def a_page_of_a_foreign_origin_gets_neither(self):
        origin, seen = serve_page("127.0.0.2")
        page = Browser(self.browser, self.place, "foreign", f"{origin}/?service=127.0.0.1:{self.service.port}")
        try:
            _, error = seen.wait("the refusal of the stream", **{"from": "events"})
            expect(error["kind"] == "error" and error["state"] == 2, f"the stream: {error}")
            _, closed = seen.wait("the refusal of the socket", **{"from": "ws"})
            expect(closed["type"] == "close" and closed["code"] == 1006, f"the socket: {closed}")
        finally:
            page.close()


SCENARIOS = [
    "the_page_is_told_where_its_stream_begins",
    "both_transports_tell_of_a_change",
    "after_a_cut_the_browser_says_what_it_has_and_gets_the_rest",
    "after_a_restart_the_stream_goes_on_where_it_ended",
    "nothing_was_told_twice",
    "a_page_of_a_foreign_origin_gets_neither",
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tidings", required=True)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--dir", required=True)
    options = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=options.dir))
    passed = failed = 0
    story = Story(options.tidings, options.browser, place)
    try:
        for name in SCENARIOS:
            try:
                getattr(story, name)()
                print(f"ok {name}")
                passed += 1
            except Exception as error:
                print(f"FAIL {name}: {error} (logs in {place})")
                failed += 1
    finally:
        story.close()
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(1 if failed else 0)


main()
