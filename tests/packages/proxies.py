"""The proxies of docs/proxies.md, with the lines of the page: each runs in front of the service, and everything passes at once.

Only what belongs to this machine is replaced: ports, paths of certificates and, for Caddy, the certificate itself.
"""

import contextlib
import http.client
import json
import re
import socket
import ssl
import subprocess
import time
import urllib.parse

import proxies_http2
from proxy_clients import Http1, Http2
from support import WAIT, Failed, ended_in_order, expect, free_port, get, plain_environment, process, run, service, until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

PAGE = "docs/proxies.md"
HOST = "bus.example"
ORIGIN = f"https://{HOST}"
URI = "demo://a"
PATH = "/v1/resources/" + urllib.parse.quote(URI, safe="")
REVISION = "2025-11-25"
NEWEST = "2026-07-28"
# The service writes to a silent stream every 15 seconds, and what has left is to be found sooner.
PROMPT = 10
MESSAGE = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
# A caller that may see the figures; the page has none, since its proxy passes /metrics on as everything else.
OPERATOR = """
[[auth.token]]
name = "operator"
file = "tokens/operator"
roles = ["operator"]

[[auth.rule]]
roles = ["operator"]
may = ["metrics"]
"""


def block(tag, at=0, of=1):
    """The block of the page with this tag, or the one at this place of several."""
    found = re.findall(rf"^```{tag}\n(.*?)^```$", open(PAGE).read(), re.M | re.S)
    expect(len(found) == of, f"{len(found)} blocks with the tag {tag}")
    return found[at]


def replaced(text, *pairs):
    for old, new in pairs:
        expect(old in text, f"the page has no {old!r}")
        text = text.replace(old, str(new))
    return text


class Stage:
    """The service, a certificate, and a proxy in front."""

    def __init__(self, program, work):
        self.program, self.work = program, work
        self.certificate, self.key = work / "bus.pem", work / "bus.key"
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", self.key, "-out", self.certificate)  # fmt: skip
        self.trust = ssl.create_default_context(cafile=self.certificate)
        (work / "tokens").mkdir()
        self.token, self.operator = (
            run(program, "token", "new", name, "--file", work / "tokens" / name).split()[0] for name in ("publisher", "operator")
        )
        self.service_port = self.port = self.started = self.again = None
        self.front = "1.1"

    @contextlib.contextmanager
    def served(self, port=0, more=""):
        """The service with the lines of the page, on a free port unless one is given, with more lines for the section `[http]`."""
        configuration = self.work / "tidings.toml"
        listen = 'listen = "127.0.0.1:'
        configuration.write_text(replaced(block("toml"), (f"{listen}8808", f"{more}{listen}{port}")) + OPERATOR)
        command = [self.program, "serve", "--config", configuration]
        with service(command, self.work / "service.log", env=plain_environment()) as (started, self.service_port):
            yield
            ended_in_order(started)

    @contextlib.contextmanager
    def behind(self, name, command, **options):
        """A proxy on `self.port`; it is there once it passes a probe on."""
        with contextlib.ExitStack() as kept:

            def start(life):
                log = self.work / f"{name}-{life}.log"
                self.started = kept.enter_context(process(command, log, **options))
                until("answer of the service", self.answers, self.started, log)

            start("first")
            self.again = lambda: start("second")
            yield

    def answers(self):
        with contextlib.suppress(OSError, ssl.SSLError, http.client.HTTPException):
            return self.ask("GET", "/readyz", token=None)[0] == 200

    def headers(self, token, more):
        credentials = {"Authorization": f"Bearer {self.token}"} if token else {}
        return {"Host": HOST, "Accept": "*/*", **credentials, **more}

    def client(self):
        return (Http2 if self.front == "2" else Http1)(HOST, self.port, self.certificate)

    def ask(self, method, path, headers=None, body=b"", token=True):
        """Returns status, headers and body of one request through the proxy."""
        return self.client().ask(method, path, self.headers(token, headers or {}), body)

    def stream(self, path, headers, method="GET", body=b""):
        """An event stream through the proxy."""
        return self.client().stream(method, path, self.headers(True, {"Accept": "text/event-stream", **headers}), body)

    def publish(self, text, path=PATH):
        """A change, made at the service itself, so that a proxy's buffer of requests plays no part."""
        headers = {"Host": HOST, "Authorization": f"Bearer {self.token}", "Content-Type": "text/plain"}
        status, answer, body = get(self.service_port, path, headers, "PUT", text.encode())
        expect(status in (201, 204), f"PUT: {status} {body}")
        return answer["ETag"].strip('"')

    def figure(self, name):
        """A figure of the service, asked for at the service itself over HTTP/1.1."""
        headers = {"Host": HOST, "Authorization": f"Bearer {self.operator}"}
        status, _, body = get(self.service_port, "/metrics", headers)
        expect(status == 200, f"/metrics: {status} {body}")
        return int(re.search(rf"^{name} (\d+)$", body.decode(), re.M)[1])

    def rpc(self, method, params, session):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        if method.startswith("notifications/"):
            del message["id"]
        return self.ask("POST", "/mcp", {**MESSAGE, **session}, json.dumps(message).encode())

    def session(self, uris):
        """Opens a session that is subscribed to these; returns the headers that name it."""
        about = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}}
        status, headers, body = self.rpc("initialize", about, {})
        expect(status == 200, f"initialize: {status} {body}")
        session = {"Mcp-Session-Id": headers["mcp-session-id"], "Mcp-Protocol-Version": REVISION}
        self.rpc("notifications/initialized", {}, session)
        for uri in uris:
            status, _, body = self.rpc("resources/subscribe", {"uri": uri}, session)
            expect(status == 200 and b'"error"' not in body, f"subscribe: {status} {body}")
        return session

    def listen(self, known):
        """A listen stream of the newest revision for resources whose etags are known, or None."""
        about = {"protocolVersion": NEWEST, "clientCapabilities": {}, "clientInfo": {"name": "check", "version": "1"}}
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in about.items()}
        meta["io.github.tidings/etag"] = known
        params = {"notifications": {"resourceSubscriptions": list(known)}, "_meta": meta}
        method = "subscriptions/listen"
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        return self.stream("/mcp", {**MESSAGE, "Mcp-Protocol-Version": NEWEST, "Mcp-Method": method}, "POST", body)

    # The checks.

    def requests(self):
        etag = self.publish("one")
        status, headers, body = self.ask("GET", PATH)
        expect((status, body) == (200, b"one"), f"{status} {body}")
        expect(headers["ETag"].strip('"') == etag, f"another etag: {headers['ETag']}")
        status, _, _ = self.ask("GET", PATH, {"If-None-Match": f'"{etag}"'})
        expect(status == 304, f"with the etag: {status}")
        status, _, body = self.ask("PUT", PATH, {"Content-Type": "text/plain", "If-Match": f'"{etag}"'}, b"x" * 300_000)
        expect(status == 204, f"a body of 300 kB: {status} {body}")
        expect(self.ask("GET", PATH, token=None)[0] == 401, "without a token it is let in")

    def origins(self):
        for origin, expected in ((ORIGIN, 200), ("https://evil.example", 403)):
            status, _, body = self.ask("GET", "/v1/resources", {"Origin": origin})
            expect(status == expected, f"Origin {origin}: {status} {body}")
        status, _, body = self.ask("GET", "/v1/resources", {"Host": "evil.example"})
        # Caddy answers names that it does not serve with 200 and nothing.
        expect(status != 200 or body == b"", f"another Host is let in: {body}")

    def events(self):
        self.publish("two")
        with self.stream("/v1/events", {}) as stream:
            for text in ("three", "four"):
                stream.wait_for(self.publish(text))

    def mcp(self):
        session = self.session([URI])
        with self.stream("/mcp", session) as stream:
            stream.wait_for(self.publish("five"))
        self.ask("DELETE", "/mcp", session)
        with self.listen({URI: None}) as stream:
            stream.wait_for("notifications/subscriptions/acknowledged")
            stream.wait_for(self.publish("a listener's"))

    def pages(self):
        status, headers, body = self.ask("GET", "/ui/", token=None)
        expect(status == 200 and b"<html" in body, f"/ui/: {status} {body[:200]}")
        credentials = {"Authorization": f"Bearer {self.operator}"}
        status, _, body = self.ask("GET", "/metrics", credentials, token=None)
        expect(status == 200 and b"tidings_http2_streams" in body, f"/metrics: {status} {body[:200]}")

    def leave(self):
        """A client that leaves ends its stream at the service, before anything is written to it."""
        until("end of the streams before", lambda: self.figure("tidings_events_streams") == 0)
        with self.stream("/v1/events", {}) as stream:
            stream.wait_for(self.publish("before it leaves"))
            expect(self.figure("tidings_events_streams") == 1, "the service has no stream")
        begun = time.monotonic()
        until("end of the stream", lambda: self.figure("tidings_events_streams") == 0)
        took = time.monotonic() - begun
        expect(took < PROMPT, f"the stream of a client that has left ended after {took:.0f} s")

    def websocket(self):
        address = f"wss://{HOST}/v1/ws"
        credentials = {"Authorization": f"Bearer {self.token}"}
        opened = connect(address, sock=socket.create_connection(("127.0.0.1", self.port), WAIT), ssl=self.trust,
                         server_hostname=HOST, additional_headers=credentials, origin=ORIGIN, proxy=None, open_timeout=WAIT)  # fmt: skip
        with opened as messages:
            messages.send(json.dumps({"type": "subscribe", "uris": [URI]}))
            answer = json.loads(messages.recv(WAIT))
            expect(answer["type"] == "ack" and URI in answer["subscribed"], f"subscribe: {answer}")
            etag = self.publish("six")
            told = json.loads(messages.recv(WAIT))
            expect(told["type"] == "updated" and told["etag"] == etag, f"told {told}, expected {etag}")
        try:
            connect(address, sock=socket.create_connection(("127.0.0.1", self.port), WAIT), ssl=self.trust,
                    server_hostname=HOST, additional_headers=credentials, origin="https://evil.example", proxy=None)  # fmt: skip
        except InvalidStatus as refused:
            expect(refused.response.status_code == 403, f"of another origin: {refused}")
        else:
            raise Failed("a page of another origin gets a connection")


def nginx(stage):
    place = stage.work / "nginx"
    place.mkdir()
    lines = replaced(
        block("nginx"),
        ("listen 443", f"listen 127.0.0.1:{stage.port}"),
        ("127.0.0.1:8808", f"127.0.0.1:{stage.service_port}"),
        ("/etc/ssl/bus.example.pem", stage.certificate),
        ("/etc/ssl/bus.example.key", stage.key),
    )
    folders = "".join(f"{name}_temp_path {place}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;\n" if subprocess.run(["id", "-u"], capture_output=True).stdout == b"0\n" else ""
    head = f"{user}daemon off;\npid {place}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}"
    (place / "nginx.conf").write_text(f"{head}{lines}}}\n")
    return stage.behind("nginx", ["nginx", "-p", place, "-e", "stderr", "-c", place / "nginx.conf"])


def caddy(stage, backend=1):
    site = replaced(
        block("caddyfile", backend - 1, 2),
        (f"{HOST} {{", f"https://{HOST}:{stage.port} {{\n    bind 127.0.0.1\n    tls {stage.certificate} {stage.key}"),
        ("127.0.0.1:8808", f"127.0.0.1:{stage.service_port}"),
    )
    place = stage.work / f"caddy-{backend}"
    place.mkdir(exist_ok=True)
    (place / "Caddyfile").write_text("{\n    admin off\n    auto_https disable_redirects\n}\n" + site)
    environment = plain_environment(HOME=str(place), XDG_DATA_HOME=str(place), XDG_CONFIG_HOME=str(place))
    return stage.behind(place.name, ["caddy", "run", "--config", place / "Caddyfile", "--adapter", "caddyfile"], env=environment)


def caddy_http2(stage):
    return caddy(stage, 2)


def haproxy(stage, reuse="never"):
    # It wants the key in the file of the certificate, or in one of that name with `.key`.
    both = stage.work / "both.pem"
    both.write_bytes(stage.certificate.read_bytes() + stage.key.read_bytes())
    lines = replaced(
        block("haproxy"),
        ("bind :443", f"bind 127.0.0.1:{stage.port}"),
        ("127.0.0.1:8808", f"127.0.0.1:{stage.service_port}"),
        ("/etc/ssl/bus.example.pem", both),
        ("http-reuse never", f"http-reuse {reuse}"),
    )
    file = stage.work / f"haproxy-{reuse}.cfg"
    file.write_text(lines)
    return stage.behind(file.stem, ["haproxy", "-db", "-f", file])


def haproxy_shared(stage):
    return haproxy(stage, "always")


def envoy(stage):
    from images import tool

    lines = replaced(
        block("yaml"),
        ("address: 0.0.0.0, port_value: 443", f"address: 127.0.0.1, port_value: {stage.port}"),
        ("address: 127.0.0.1, port_value: 8808", f"address: 127.0.0.1, port_value: {stage.service_port}"),
        ("/etc/ssl/bus.example.pem", stage.certificate),
        ("/etc/ssl/bus.example.key", stage.key),
    )
    file = stage.work / "envoy.yaml"
    file.write_text(lines)
    return stage.behind("envoy", [tool("envoy"), "-c", file, "--concurrency", "1", "--disable-hot-restart", "-l", "warning"])


# What speaks HTTP/1.1 with the service, and what speaks HTTP/2.
PROXIES = {"nginx": nginx, "caddy": caddy, "envoy": envoy}
HTTP2_PROXIES = {"haproxy": haproxy, "caddy-http2": caddy_http2}
PARTS = ("requests", "origins", "events", "mcp", "websocket", "pages", "leave")
# The same over HTTP/2 in front of the proxy.
HTTP2_PARTS = ("requests", "origins", "events", "mcp", "pages", "leave")


def check(report, program, work):
    stage = Stage(program, work)
    with stage.served():
        for name, started in {**PROXIES, **HTTP2_PROXIES}.items():
            stage.port, stage.front = free_port(), "1.1"

            def checks(name=name, started=started):
                with started(stage):
                    for stage.front, parts in (("1.1", PARTS), ("2", HTTP2_PARTS)):
                        for part in parts:
                            report.check(f"{name}/{stage.front}/{part}", getattr(stage, part))
                        for part in proxies_http2.PARTS if name in HTTP2_PROXIES else ():
                            report.check(f"{name}/{stage.front}/{part.__name__}", part, stage)
                    # Caddy has no WebSocket over HTTP/2, on either side.
                    if name == "haproxy":
                        report.check("haproxy/2/websocket", proxies_http2.websocket, stage)

            report.check(f"{name}/start", checks)
    # Each with its answer while there is no service.
    for name, started, absent in (("haproxy", haproxy_shared, 503), ("caddy-http2", caddy_http2, 502)):
        report.check(f"{name}/connections", proxies_http2.connections, report, stage, name, started, absent)
