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
import urllib.parse

from support import WAIT, Failed, ended_in_order, expect, free_port, get, plain_environment, process, run, service, until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

PAGE = "docs/proxies.md"
HOST = "bus.example"
ORIGIN = f"https://{HOST}"
URI = "demo://a"
PATH = "/v1/resources/" + urllib.parse.quote(URI, safe="")
REVISION = "2025-11-25"


def block(tag):
    """The one block of the page with this tag."""
    found = re.findall(rf"^```{tag}\n(.*?)^```$", open(PAGE).read(), re.M | re.S)
    expect(len(found) == 1, f"{len(found)} blocks with the tag {tag}")
    return found[0]


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
        self.token = run(program, "token", "new", "publisher", "--file", work / "tokens/publisher").split()[0]
        self.service_port = self.port = None

    @contextlib.contextmanager
    def served(self):
        configuration = self.work / "tidings.toml"
        configuration.write_text(replaced(block("toml"), ("127.0.0.1:8808", "127.0.0.1:0")))
        command = [self.program, "serve", "--config", configuration]
        with service(command, self.work / "service.log", env=plain_environment()) as (started, self.service_port):
            yield
            ended_in_order(started)

    @contextlib.contextmanager
    def behind(self, name, command, **options):
        """A proxy on `self.port`; it is there once it passes a probe on."""
        log = self.work / f"{name}.log"

        def answers():
            with contextlib.suppress(OSError, ssl.SSLError):
                return self.ask("GET", "/readyz", token=None)[0] == 200

        with process(command, log, **options) as started:
            until("answer of the service", answers, started, log)
            yield

    def connected(self):
        raw = socket.create_connection(("127.0.0.1", self.port), WAIT)
        return self.trust.wrap_socket(raw, server_hostname=HOST)

    def head(self, method, path, headers, length=0):
        lines = [f"{method} {path} HTTP/1.1", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def headers(self, token, more):
        credentials = {"Authorization": f"Bearer {self.token}"} if token else {}
        return {"Host": HOST, "Accept": "*/*", **credentials, **more}

    def ask(self, method, path, headers=None, body=b"", token=True):
        """Returns status, headers and body of one request through the proxy."""
        with self.connected() as connection:
            connection.sendall(self.head(method, path, self.headers(token, headers or {}), len(body)) + body)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.headers, answer.read()

    @contextlib.contextmanager
    def stream(self, path, headers):
        """An event stream; yields a function that waits for text in it."""
        with self.connected() as connection:
            connection.sendall(self.head("GET", path, self.headers(True, {"Accept": "text/event-stream", **headers})))
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            expect(answer.status == 200, f"{path}: {answer.status} {answer.reason}")
            seen = b""

            def wait_for(text):
                nonlocal seen
                while text.encode() not in seen:
                    try:
                        part = answer.read1(65536)
                    except TimeoutError:
                        raise Failed(f"{text!r} does not pass within {WAIT} s; seen {seen!r}") from None
                    expect(part, f"the stream ended before {text!r}; seen {seen!r}")
                    seen += part

            yield wait_for

    def publish(self, text):
        """A change, made at the service itself, so that a proxy's buffer of requests plays no part."""
        headers = {"Host": HOST, "Authorization": f"Bearer {self.token}", "Content-Type": "text/plain"}
        status, answer, body = get(self.service_port, PATH, headers, "PUT", text.encode())
        expect(status in (201, 204), f"PUT: {status} {body}")
        return answer["ETag"].strip('"')

    def rpc(self, method, params, session):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **session}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        if method.startswith("notifications/"):
            del message["id"]
        return self.ask("POST", "/mcp", headers, json.dumps(message).encode())

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
        with self.stream("/v1/events", {}) as wait_for:
            for text in ("three", "four"):
                wait_for(self.publish(text))

    def mcp(self):
        about = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}}
        status, headers, body = self.rpc("initialize", about, {})
        expect(status == 200, f"initialize: {status} {body}")
        session = {"Mcp-Session-Id": headers["mcp-session-id"], "Mcp-Protocol-Version": REVISION}
        self.rpc("notifications/initialized", {}, session)
        status, _, body = self.rpc("resources/subscribe", {"uri": URI}, session)
        expect(status == 200 and b'"error"' not in body, f"subscribe: {status} {body}")
        with self.stream("/mcp", session) as wait_for:
            wait_for(self.publish("five"))
        self.ask("DELETE", "/mcp", session)

    def websocket(self):
        address = f"wss://{HOST}/v1/ws"
        credentials = {"Authorization": f"Bearer {self.token}"}
        opened = connect(address, sock=socket.create_connection(("127.0.0.1", self.port), WAIT), ssl=self.trust,
                         server_hostname=HOST, additional_headers=credentials, origin=ORIGIN, proxy=None)  # fmt: skip
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

    def http2(self):
        """curl speaks HTTP/2 with the proxy, HTTP/1.1 being the service's."""
        place = f"{HOST}:{self.port}"
        command = ["curl", "-sS", "--http2", "--cacert", self.certificate, "--resolve", f"{place}:127.0.0.1", "-o", "/dev/null",
                   "-w", "%{http_version} %{http_code}", "-H", f"Host: {HOST}", f"https://{place}/healthz"]  # fmt: skip
        expect(run(*command) == "2 200", f"curl says: {run(*command)}")


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


def caddy(stage):
    site = replaced(
        block("caddyfile"),
        (f"{HOST} {{", f"https://{HOST}:{stage.port} {{\n    bind 127.0.0.1\n    tls {stage.certificate} {stage.key}"),
        ("127.0.0.1:8808", f"127.0.0.1:{stage.service_port}"),
    )
    place = stage.work / "caddy"
    place.mkdir()
    (place / "Caddyfile").write_text("{\n    admin off\n    auto_https disable_redirects\n}\n" + site)
    environment = plain_environment(HOME=str(place), XDG_DATA_HOME=str(place), XDG_CONFIG_HOME=str(place))
    return stage.behind("caddy", ["caddy", "run", "--config", place / "Caddyfile", "--adapter", "caddyfile"], env=environment)


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


def check(report, program, work):
    stage = Stage(program, work)
    with stage.served():
        for name, started in (("nginx", nginx), ("caddy", caddy), ("envoy", envoy)):
            stage.port = free_port()

            def checks(name=name, started=started):
                with started(stage):
                    for part in ("requests", "origins", "events", "mcp", "websocket", "http2"):
                        report.check(f"{name}/{part}", getattr(stage, part))

            report.check(f"{name}/start", checks)
