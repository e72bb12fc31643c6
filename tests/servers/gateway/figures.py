"""Measures the gateway beside npm's mcp-proxy in front of the server `everything`.

Compared is:
- over stdio: both start `mcp-server-everything stdio` and serve it over HTTP. The gateway runs with `--isolation shared`, so
  that one process of the server answers all clients, as it does behind mcp-proxy.
- over HTTP: both stand before `mcp-server-everything streamableHttp`. mcp-proxy serves programs alone, so it starts the bridge
  to a server over HTTP that is in the same package (`startStdioServer`), whose CPU is a part of its own.
CPU is that of the gateway; the server is another process in every case.
"""

import argparse
import atexit
import os
import re
import selectors
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from client import ECHO, WAIT, Connection, StdioServer, calls_per_second, latencies, message

ROUNDS = int(os.environ.get("ROUNDS", 5))
CALLS = 2_000
CALLS_AT_ONCE = 3_000
IN_FLIGHT = 64
WARM_UP = 200
SESSIONS = 500
LISTENERS = 1_000
UNREAD = 100
WINDOW = 15.0  # seconds
PORT_MCP_PROXY = 18_431
PORT_EVERYTHING = 18_432
# A proxy named in the environment must not be asked for a loopback address.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Running:
    """A program under measurement."""

    def __init__(self, command, directory, name, url=None, environment=None, has_bridge=False):
        self.has_bridge = has_bridge
        self.log = open(directory / f"{name}.log", "wb")
        output = subprocess.PIPE if url is None else self.log
        environment = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(command, stdout=output, stderr=self.log, stdin=subprocess.DEVNULL, env=environment)
        atexit.register(self.process.kill)
        self.url = url or self.process.stdout.readline().decode().rpartition(" ")[2].strip()
        if not self.url.startswith("http"):
            sys.exit(f"{name} printed no address; see {self.log.name}")
        self.until_it_answers()

    def until_it_answers(self):
        end = time.monotonic() + WAIT
        while True:
            try:
                connection = Connection(self.url)
                connection.open_session()
                return connection.close()
            except (OSError, RuntimeError):
                if time.monotonic() > end or self.process.poll() is not None:
                    sys.exit(f"{self.url} does not answer; see {self.log.name}")
                time.sleep(0.1)

    def cpu(self):
        """Seconds of CPU so far; those of its children, too, if one of them is a bridge."""
        pids = [self.process.pid]
        if self.has_bridge:
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                pids += [int(pid) for pid in (task / "children").read_text().split()]
        ticks = 0
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def pss(self):
        """Memory in kB, with its share of what it has in common with other processes."""
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss: +(\d+)", rollup, re.MULTILINE)[1])

    def metric(self, name):
        page = DIRECT.open(self.url.removesuffix("/mcp") + "/metrics", timeout=WAIT).read().decode()
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if re.match(rf"{name}[ {{]", line))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Variants:
    """The programs that are measured, each started anew."""

    def __init__(self, options):
        self.tidings = options.tidings
        self.directory = Path(options.dir)
        modules = Path(options.modules) / "node_modules"
        everything = modules / "@modelcontextprotocol/server-everything/dist/index.js"
        self.everything = ["node", str(everything)]
        self.bridge = Path(options.modules) / "bridge.mjs"
        self.mcp_proxy = ["node", str(modules / "mcp-proxy/dist/bin/mcp-proxy.mjs")]

    def gateway(self, *arguments):
        return Running([self.tidings, "gateway", "--port", "0", *arguments], self.directory, "gateway")

    def gateway_stdio(self):
        return self.gateway("--isolation", "shared", "--", *self.everything, "stdio")

    def gateway_http(self, server):
        return self.gateway("--isolation", "shared", server.url)

    def proxy(self, *program, has_bridge=False):
        address = ["--host", "127.0.0.1", "--port", str(PORT_MCP_PROXY), "--server", "stream"]
        command = [*self.mcp_proxy, *address, "--", *program]
        url = f"http://127.0.0.1:{PORT_MCP_PROXY}/mcp"
        return Running(command, self.directory, "mcp-proxy", url, has_bridge=has_bridge)

    def proxy_stdio(self):
        return self.proxy(*self.everything, "stdio")

    def proxy_http(self, server):
        return self.proxy("node", str(self.bridge), server.url, has_bridge=True)

    def everything_http(self):
        command = [*self.everything, "streamableHttp"]
        url = f"http://127.0.0.1:{PORT_EVERYTHING}/mcp"
        return Running(command, self.directory, "everything", url, {"PORT": str(PORT_EVERYTHING)})


def shown(values, digits=2):
    middle, least, most = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}..{most})"


def load():
    return "load average " + ", ".join(f"{value:.1f}" for value in os.getloadavg())


def measure_calls(running):
    """Returns microseconds of CPU for each call, p50 in ms, calls per second, and the share of a core of the clients."""
    connection = Connection(running.url)
    connection.open_session()
    request = connection.post(message("tools/call", ECHO))
    latencies(lambda: connection.ask(request), WARM_UP)
    before = running.cpu()
    times = latencies(lambda: connection.ask(request), CALLS)
    cpu = (running.cpu() - before) / CALLS * 1e6
    connection.close()
    rate, own = calls_per_second(running.url, IN_FLIGHT, CALLS_AT_ONCE)
    return cpu, statistics.median(times), rate, own


def direct_stdio(variants):
    server = StdioServer([*variants.everything, "stdio"])
    request = message("tools/call", ECHO, 2)
    latencies(lambda: server.ask(request), WARM_UP)
    times = latencies(lambda: server.ask(request), CALLS)
    server.close()
    return statistics.median(times)


def direct_http(server):
    connection = Connection(server.url)
    connection.open_session()
    request = connection.post(message("tools/call", ECHO))
    latencies(lambda: connection.ask(request), WARM_UP)
    times = latencies(lambda: connection.ask(request), CALLS)
    connection.close()
    return statistics.median(times)


def calls(variants):
    """CPU, latency and throughput of calls; the variants take turns."""
    rows = {"gateway, stdio": [], "mcp-proxy, stdio": [], "gateway, HTTP": [], "mcp-proxy, HTTP": []}
    direct = {"stdio": [], "HTTP": []}
    for _ in range(ROUNDS):
        direct["stdio"].append(direct_stdio(variants))
        for name, start in [("gateway, stdio", variants.gateway_stdio), ("mcp-proxy, stdio", variants.proxy_stdio)]:
            running = start()
            rows[name].append(measure_calls(running))
            running.end()
        server = variants.everything_http()
        direct["HTTP"].append(direct_http(server))
        for name, start in [("gateway, HTTP", variants.gateway_http), ("mcp-proxy, HTTP", variants.proxy_http)]:
            running = start(server)
            rows[name].append(measure_calls(running))
            running.end()
        server.end()
    print(f"{ROUNDS} rounds of {CALLS} calls in turn and {CALLS_AT_ONCE} with {IN_FLIGHT} in flight; {load()}")
    for kind, times in direct.items():
        print(f"  the server itself over {kind}: p50 {shown(times)} ms")
    for name, rounds in rows.items():
        cpu, p50, rate, own = zip(*rounds)
        before = direct["HTTP" if name.endswith("HTTP") else "stdio"]
        added = [here - there for here, there in zip(p50, before)]
        print(
            f"  {name}: {shown(cpu, 0)} us CPU per call; p50 {shown(p50)} ms, added {shown(added)} ms; "
            f"{shown(rate, 0)} calls/s, clients {statistics.median(own):.0%} of a core"
        )
    for kind, target in [("stdio", 0.25), ("HTTP", 0.35)]:
        ours, theirs = rows[f"gateway, {kind}"], rows[f"mcp-proxy, {kind}"]
        print(f"  CPU over {kind}, of mcp-proxy's: {ratio(ours, theirs, 0):.2f} x (target <= {target})")
        print(f"  throughput over {kind}, of mcp-proxy's: {ratio(ours, theirs, 2):.1f} x (target >= 3)")


def ratio(ours, theirs, column):
    return statistics.median(row[column] for row in ours) / statistics.median(row[column] for row in theirs)


def memory(variants):
    """Memory after the start, and of clients that only subscribe: in sessions of 2025-11-25 without a stream, and with the
    stream that is the subscription of 2026-07-28."""
    for name, start in [("gateway", variants.gateway_stdio), ("mcp-proxy", variants.proxy_stdio)]:
        running = start()
        time.sleep(2)
        base = running.pss()
        threads = len(list(Path(f"/proc/{running.process.pid}/task").iterdir()))
        connection = Connection(running.url)
        connection.open_session()
        uri = connection.call("resources/list", {})["resources"][0]["uri"]
        connection.close()
        each = []
        for subscribe in (subscribe_in_session, listen):
            before = running.pss()
            streams = [subscribe(running.url, uri) for _ in range(SESSIONS)]
            time.sleep(1)
            each.append((running.pss() - before) / SESSIONS)
            for stream in filter(None, streams):
                stream.close()
        print(
            f"  {name}: {base / 1024:.1f} MiB PSS after the start ({base * 1.024 / 1000:.1f} MB), {threads} threads; for each "
            f"of {SESSIONS} clients: session {each[0] * 1.024:.1f} kB, listen stream {each[1] * 1.024:.1f} kB; {load()}",
            flush=True,
        )
        running.end()


def subscribe_in_session(url, uri):
    connection = Connection(url)
    connection.open_session()
    connection.call("resources/subscribe", {"uri": uri})
    connection.close()


def listen(url, uri):
    connection = Connection(url)
    connection.listen([uri])
    return connection


class Listener:
    """A session with an open stream."""

    def __init__(self, url, uris, receive_buffer):
        connection = Connection(url)
        connection.open_session()
        self.stream = connection.stream(receive_buffer)
        for uri in uris:
            connection.call("resources/subscribe", {"uri": uri})
        connection.close()
        self.stream.setblocking(False)


VERSION = re.compile(rb'"(v\d+-[^"]*)"')


def window(waiting, seconds):
    """Reads for so long. Returns the time and the version of every notice at those that only read."""
    told = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for key, _ in waiting.select(left):
            part = key.fileobj.recv(1 << 16)
            if not part:
                sys.exit("the gateway ended a stream")
            if key.data:
                now = time.monotonic_ns()
                told += [(now, int(version[1:].split(b"-")[0])) for version in VERSION.findall(part)]
    return told


def offset_of_versions(url, times):
    """Returns the line of the server's file that would have the content of version 0."""
    connection = Connection(url)
    connection.open_session()
    read = connection.call("resources/read", {"uri": "note:///0"})
    connection.close()
    announced = [int(line) for line in times.read_text().split()]
    etag = next(value for name, value in read["_meta"].items() if name.endswith("etag"))
    return announced.index(int(read["contents"][0]["text"])) - int(etag[1:].split("-")[0])


def p99_of(told, announced, offset):
    late = sorted((now - announced[version + offset]) / 1e6 for now, version in told)
    return late[len(late) // 2], late[len(late) * 99 // 100], len(late)


def unread(variants):
    """The latency of notices while a tenth of the clients stop reading."""
    times = variants.directory / "changes"
    times.unlink(missing_ok=True)
    script = Path(__file__).with_name("note_server.py")
    running = variants.gateway("--poll", "1h", "--", sys.executable, str(script), str(times))
    rest = [Listener(running.url, ["note:///0"], None) for _ in range(LISTENERS - UNREAD)]
    all_notes = [f"note:///{number}" for number in range(20)]
    # Small buffers, so that a client that does not read is not read for by the kernel.
    idle = [Listener(running.url, all_notes, 4096) for _ in range(UNREAD)]
    reading, everyone = selectors.DefaultSelector(), selectors.DefaultSelector()
    for listener in rest:
        reading.register(listener.stream, selectors.EVENT_READ, True)
        everyone.register(listener.stream, selectors.EVENT_READ, True)
    for listener in idle:
        everyone.register(listener.stream, selectors.EVENT_READ, False)
    offset = offset_of_versions(running.url, times)
    pairs = []
    for _ in range(ROUNDS):
        window(everyone, 5)
        with_all = window(everyone, WINDOW)
        merged = running.metric("tidings_conflated_total")
        # Until the buffers of those that do not read are full.
        window(reading, 20)
        without = window(reading, WINDOW)
        merged = running.metric("tidings_conflated_total") - merged
        if offset_of_versions(running.url, times) != offset:
            sys.exit("the versions of the gateway are not the contents that it read")
        announced = [int(line) for line in times.read_text().split()]
        pairs.append((p99_of(with_all, announced, offset), p99_of(without, announced, offset), merged))
    running.end()
    for (all_p50, all_p99, all_count), (p50, p99, count), merged in pairs:
        print(
            f"  all read: p50 {all_p50:.1f}, p99 {all_p99:.1f} ms of {all_count}; {UNREAD} do not: p50 {p50:.1f}, "
            f"p99 {p99:.1f} ms of {count}, {p99 / all_p99:.2f} x; {merged:.0f} notices were merged"
        )
    quotients = [without[1] / with_all[1] for with_all, without, _ in pairs]
    print(f"  p99 of the rest while {UNREAD} of {LISTENERS} do not read: {shown(quotients)} x (target < 1.10); {load()}")


PARTS = {"calls": calls, "memory": memory, "unread": unread}


def main():
    parser = argparse.ArgumentParser()
    for option in ("--tidings", "--modules", "--dir"):
        parser.add_argument(option, required=True)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    options = parser.parse_args()
    for name in options.parts or PARTS:
        print(f"{name}:", flush=True)
        PARTS[name](Variants(options))


main()
