"""The service over HTTP/2 with the clients of nghttp2, with prior knowledge and by agreement under TLS.

nghttp shows the frames of single requests; h2load sends thousands over few connections, of which none may fail.
"""

import re

from support import ended_in_order, expect, plain_environment, run, service

URI = "/v1/resources/demo%3A%2F%2Fa"
TEXT = "all quiet"
REQUESTS = 5000
WRITES = 1000
CONNECTIONS = 4
STREAMS = 50


def headers_of(shown):
    """The headers that nghttp shows as received, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    return re.findall(r"recv \(stream_id=\d+(?:, sensitive)?\) (:?[\w-]+): (.*)", plain), plain


class Client:
    """The programs, with the address of the service."""

    def __init__(self, scheme, port):
        self.url, self.secure = f"{scheme}://127.0.0.1:{port}", scheme == "https"

    def show(self, *options, path=URI):
        return headers_of(run("nghttp", "-v", *options, f"{self.url}{path}"))

    def get(self):
        headers, shown = self.show()
        found = dict(headers)
        expect(found.get(":status") == "200" and TEXT in shown, f"GET: {shown[-1000:]}")
        expect(re.fullmatch(r'"v\d+-\d+"', found.get("etag", "")), f"GET has the etag {found.get('etag')}")
        expect("recv SETTINGS frame" in shown and "SETTINGS_ENABLE_CONNECT_PROTOCOL(0x08):1" in shown, "no offer of WebSockets")
        # Under TLS the program names what was agreed on.
        expect(("The negotiated protocol: h2" in shown) == self.secure, f"the protocol: {shown[:300]}")
        headers, shown = self.show("-H", f"if-none-match: {found['etag']}")
        expect(dict(headers).get(":status") == "304" and TEXT not in shown, f"with the etag: {shown[-1000:]}")

    def multiplied(self):
        """Requests that are sent at once have the same answer, and one that is refused harms none of them."""
        headers, shown = self.show("-n", "-m", "20")
        statuses = [value for name, value in headers if name == ":status"]
        expect(statuses == ["200"] * 20, f"20 requests at once: {statuses}")
        headers, shown = self.show("-H", "host: evil.example")
        expect(dict(headers).get(":status") == "403", f"another host: {shown[-1000:]}")
        headers, shown = self.show("-H", ":method: BREW")
        expect(dict(headers).get(":status") == "405", f"another method: {shown[-1000:]}")

    def load(self, requests, *options):
        shown = run("h2load", "-n", requests, "-c", CONNECTIONS, "-m", STREAMS, *options, f"{self.url}{URI}")
        wanted = f"{requests} total, {requests} started, {requests} done, {requests} succeeded, 0 failed, 0 errored, 0 timeout"
        expect(f"requests: {wanted}" in shown and f"status codes: {requests} 2xx, 0 3xx, 0 4xx, 0 5xx" in shown, f"h2load: {shown}")
        expect(f"Application protocol: {'h2' if self.secure else 'h2c'}" in shown, f"h2load: {shown}")


def check(report, program, work):
    body = work / "body"
    body.write_text(TEXT)
    certificate, key = work / "server.pem", work / "server.key"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate)  # fmt: skip
    secure = work / "tls.toml"
    secure.write_text(f"[tls]\ncertificate = '{certificate}'\nkey = '{key}'\n")
    for scheme, options in (("http", ()), ("https", ("--config", secure))):
        command = [program, "serve", "--listen", "127.0.0.1:0", *options]
        with service(command, work / f"{scheme}.log", env=plain_environment()) as (started, port):
            client = Client(scheme, port)
            write = ("-d", body, "-H", ":method: PUT", "-H", "content-type: text/plain")
            report.check(f"{scheme}/writes", client.load, WRITES, *write)
            report.check(f"{scheme}/get", client.get)
            report.check(f"{scheme}/multiplied", client.multiplied)
            report.check(f"{scheme}/load", client.load, REQUESTS)
            report.check(f"{scheme}/stop", ended_in_order, started)
