"""The image and the compose file: the instructions of the last stage are followed here, in a folder that becomes `/`."""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading

import yaml
from support import WAIT, Failed, ended_in_order, expect, get, process, run, service

# An address of loopback for a name server, whose port is fixed.
NAME_SERVER = "127.0.0.77"
DOCKERFILE = "docs/deploy/docker/Dockerfile"
COMPOSE = "docs/deploy/compose"
# Starts a program as a container is started: its own root, its user, no other environment.
ENTER = """
import os, sys
root, user, folder, *command = sys.argv[1:]
os.chroot(root)
os.chdir(folder)
os.setgroups([])
user, group = map(int, user.split(":"))
os.setgid(group)
os.setuid(user)
os.execv(command[0], command)
"""


class Image:
    """What the last stage of the Dockerfile says."""

    def __init__(self, program, work):
        self.program, self.work = program, work
        self.root, self.built = work / "image", work / "built"
        self.environment, self.user, self.folder = {}, None, "/"
        self.entrypoint = self.command = self.health = None

    def lint(self):
        run(tool("hadolint"), DOCKERFILE)

    def assemble(self):
        text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", open(DOCKERFILE).read(), flags=re.M))
        stages = re.split(r"^FROM ", text, flags=re.M)[1:]
        expect(stages[-1].startswith("scratch\n"), "the last stage is not empty at its beginning")
        expect("docs/deploy/docker/root target/dist/tidings /image" in stages[0], "the build does not lay out the files")
        run("docs/deploy/docker/root", self.program, self.built)
        self.root.mkdir()
        for line in stages[-1].splitlines()[1:]:
            name, _, rest = line.strip().partition(" ")
            getattr(self, f"do_{name.lower()}", self.unknown)(rest.strip()) if name else None
        expect(self.user and self.user.split(":")[0] not in ("0", "root"), f"the user is {self.user}")

    def unknown(self, rest):
        raise Failed(f"an instruction that this check cannot follow: {rest}")

    def do_label(self, rest):
        expect("org.opencontainers.image.licenses" in rest, "no licences among the labels")

    def do_copy(self, rest):
        *options, source, destination = rest.split()
        expect(options[0] == "--from=build" and source.startswith("/image/"), f"COPY {rest}")
        place = self.root / destination.lstrip("/")
        shutil.copytree(self.built / source.removeprefix("/image/"), place, dirs_exist_ok=True, symlinks=True)
        owner = [option for option in options if option.startswith("--chown=")]
        if owner:
            user, group = map(int, owner[0].removeprefix("--chown=").split(":"))
            os.chown(place, user, group)

    def do_user(self, rest):
        self.user = rest

    def do_workdir(self, rest):
        self.folder = rest

    def do_env(self, rest):
        self.environment.update(pair.split("=", 1) for pair in shlex.split(rest))

    def do_expose(self, rest):
        expect(self.environment["TIDINGS_HTTP__LISTEN"].endswith(f":{rest}"), f"port {rest} is not listened on")

    def do_volume(self, rest):
        [volume] = json.loads(rest)
        expect(self.environment["TIDINGS_STORE__DIR"].startswith(f"{volume}/"), f"the store is not in {volume}")

    def do_healthcheck(self, rest):
        self.health = json.loads(rest.partition("CMD ")[2])

    def do_entrypoint(self, rest):
        self.entrypoint = json.loads(rest)

    def do_cmd(self, rest):
        self.command = json.loads(rest)

    def entered(self, command):
        return [sys.executable, "-c", ENTER, self.root, self.user, self.folder, *command]

    def resolve(self):
        """Names come from the files and the name server that Docker gives a container."""
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (self.root / "etc/resolv.conf").write_text(f"nameserver {NAME_SERVER}\noptions timeout:1 attempts:5\n")
        with name_server(), socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://bus.test:{listener.getsockname()[1]}"
            with process(self.entered([*self.entrypoint, "health", "--timeout", "30s", "--url", url]), self.work / "resolve.log"):
                listener.settimeout(WAIT)
                try:
                    asked, _ = listener.accept()
                except TimeoutError:
                    raise Failed(f"bus.test is not looked up: {(self.work / 'resolve.log').read_text()}") from None
                with asked:
                    expect(asked.recv(4096).startswith(b"GET /healthz"), "another request")
                    asked.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def start(self):
        """As `docker run` starts it; only the port is another one, since this machine shares it."""
        environment = {**self.environment, "TIDINGS_HTTP__LISTEN": "0.0.0.0:0"}
        refused = subprocess.run(self.entered_text([*self.entrypoint, *self.command]), env=environment, capture_output=True, text=True, timeout=60)
        expect(refused.returncode == 78 and "auth.anonymous" in refused.stderr, f"without a word about callers it starts: {refused.stderr}")
        environment["TIDINGS_AUTH__ANONYMOUS"] = "all"
        for life in ("first", "second"):
            log = self.work / f"image-{life}.log"
            with service(self.entered([*self.entrypoint, *self.command]), log, env=environment) as (started, port):
                asked = {**environment, "TIDINGS_URL": f"http://localhost:{port}"}
                healthy = subprocess.run(self.entered_text(self.health), env=asked, capture_output=True, text=True, timeout=60)
                expect(healthy.returncode == 0 and healthy.stdout == "ok\n", f"the health check says {healthy}")
                expect(open(f"/proc/{started.pid}/status").read().split("Uid:\t")[1].split()[0] == "65532", "it runs as another user")
                if life == "first":
                    status, _, body = get(port, "/v1/resources/demo%3A%2F%2Fa", {"Content-Type": "text/plain"}, "PUT", b"one")
                    expect(status == 201, f"PUT: {status} {body}")
                status, _, body = get(port, "/v1/resources/demo%3A%2F%2Fa")
                expect((status, body) == (200, b"one"), f"{life} life: {status} {body}")
                expect(get(port, "/v1/resources", {"Host": "evil.example"})[0] == 403, "another Host is let in")
                ended_in_order(started)
        dead = subprocess.run(self.entered_text(self.health), env={**environment, "TIDINGS_URL": "http://localhost:9"}, capture_output=True, timeout=60)
        expect(dead.returncode == 1, f"the health check of a dead service ends with {dead.returncode}")

    def entered_text(self, command):
        return [str(part) for part in self.entered(command)]


@contextlib.contextmanager
def name_server():
    """Answers every question for an address (type A) with 127.0.0.1, and others with none."""

    def answer():
        while True:
            try:
                question, client = server.recvfrom(512)
            except OSError:
                return
            end = question.index(b"\0", 12) + 5
            is_a = question[end - 4 : end - 2] == b"\0\1"
            head = question[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0"
            record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if is_a else b""
            server.sendto(head + question[12:end] + record, client)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((NAME_SERVER, 53))
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield


def tool(name):
    """The program of a package of Python, beside its packages."""
    for folder in sys.path:
        for place in (os.path.join(folder, "bin"), os.path.join(folder, "..", "..", "..", "bin")):
            if os.access(os.path.join(place, name), os.X_OK):
                return os.path.join(place, name)
    raise Failed(f"{name} is not installed")


def compose_schema():
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", f"{COMPOSE}/compose.yml")
    file = yaml.safe_load(open(f"{COMPOSE}/compose.yml"))
    for name, about in file["services"].items():
        for port in about.get("ports", []):
            expect(port.startswith("127.0.0.1:"), f"{name} publishes {port} to other machines")
        for volume in about.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                expect(os.path.exists(os.path.join(COMPOSE, source)), f"{name} mounts {source}, which is not there")
            else:
                expect(source in file["volumes"], f"{name} mounts the volume {source}, which is not declared")
    build = file["services"]["tidings"]["build"]
    expect(os.path.exists(os.path.join(COMPOSE, build["context"], build["dockerfile"])), "the Dockerfile is not there")
    hosts = file["services"]["tidings"]["environment"]["TIDINGS_HTTP__ALLOWED_HOSTS"].split(",")
    scraped = yaml.safe_load(open(f"{COMPOSE}/prometheus.yml"))["scrape_configs"][0]["static_configs"][0]["targets"]
    expect([target.split(":")[0] for target in scraped] == ["tidings"] and "tidings" in hosts, "Prometheus is not let in")


def compose_prometheus(work):
    """The files as they are mounted, read by Prometheus itself."""
    place = work / "prometheus"
    place.mkdir()
    file = yaml.safe_load(open(f"{COMPOSE}/compose.yml"))
    for volume in file["services"]["prometheus"]["volumes"]:
        source, target, *_ = volume.split(":")
        if target.startswith("/etc/prometheus/"):
            shutil.copy(os.path.join(COMPOSE, source), place / os.path.basename(target))
    run("promtool", "check", "config", place / "prometheus.yml")


def check(report, program, work):
    image = Image(program, work)
    report.check("docker/lint", image.lint)
    report.check("docker/assemble", image.assemble)
    if os.geteuid() == 0:
        report.check("docker/resolve", image.resolve)
        report.check("docker/start", image.start)
    else:
        print("docker/start and docker/resolve are left out: they change the root folder of a process, which root alone may")
    report.check("compose/schema", compose_schema)
    report.check("compose/prometheus", compose_prometheus, work)
