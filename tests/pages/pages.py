"""Runs the pages: every block tagged `sh` in order, in a copy of the repository, and follows every relative link.

A block that starts a program which goes on (`tidings serve`, `tidings watch`, `curl -N` and the like) gets a terminal of
its own, and the next block begins once the program has printed something; all other blocks run one after the other in
one shell, and fail with the first command that does. A block tagged `text` that has `…` in it is the output of a
block before it, `…` standing for anything. A block after a line that ends with "in `NAME`:" is a file of that name. A
block tagged `console` is for commands that take long or need other machines: its programs must exist. Every other tag
is data, of which JSON, TOML and Python must be readable. Ports and addresses are replaced by free ones, since several runs may share a machine.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = None

WAIT = 60.0  # seconds a program may take to begin, or an expected output to appear
BLOCK = 180.0  # seconds that a block may run
PORTS = ("8808", "8810", "8812")
GOES_ON = re.compile(
    r"^(tidings serve|tidings gateway|tidings watch|curl -N|cargo run|python \S+\.py|node \S+\.m[tj]s|mcp subscriptions/listen)\b", re.M
)
# What a reader with the tags of the other blocks would expect: data in these languages is never run.
# Programs of the machines that a page is about, which the machine of this test need not have.
ELSEWHERE = {"cargo", "tidings", "nice", "sudo", "systemctl", "docker", "kubectl", "helm"}
KNOWN_TAGS = {"sh", "console", "text", "log", "json", "toml", "yaml", "rust", "rust,ignore", "python", "ts", "js", "caddyfile", "nginx", "haproxy", "dockerfile", "css", "html"}
LINK = re.compile(r"(?<!\!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)")


class Failed(Exception):
    """A reason why a page does not do what it says."""


class Block:
    """A fenced block of a page."""

    def __init__(self, tag, line, text, file):
        self.tag, self.line, self.text, self.file = tag, line, text, file


def blocks_of(page):
    blocks, opened, before = [], None, ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"^( *)```(.*)$", line)
        if fence and opened is None:
            file = re.search(r"in `([\w./-]+)`:$", before)
            opened = Block(fence[2].strip(), number, "", file and file[1])
        elif fence:
            blocks.append(opened)
            opened, before = None, ""
        elif opened is not None:
            opened.text += line + "\n"
        elif line.strip():
            before = line
    if opened is not None:
        raise Failed(f"line {opened.line}: the block has no end")
    for block in blocks:
        if block.tag not in KNOWN_TAGS:
            raise Failed(f"line {block.line}: a block with the tag '{block.tag}', which is none of {sorted(KNOWN_TAGS)}")
    return blocks


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def answers(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def until(condition, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


class Terminal:
    """A shell with a block that goes on, or the one shell of all other blocks."""

    def __init__(self, reader, name):
        self.output = reader.place / f"{name}.out"
        self.reader = reader
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                ["bash"], cwd=reader.copy, env=reader.environment, stdin=subprocess.PIPE, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def send(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def seen(self):
        return self.output.read_text(errors="replace")

    def end(self):
        """Interrupts the programs of the terminal, as Ctrl-C does, and ends it."""
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sent)
            except ProcessLookupError:
                break
            if sent == signal.SIGINT:
                self.process.stdin.close()
            try:
                self.process.wait(5)
                # The shell is gone; what it left in its group must not outlive it.
                os.killpg(self.process.pid, signal.SIGKILL)
                break
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break
        self.process.wait()


class Reader:
    """One page, read from top to bottom by a person with several terminals."""

    def __init__(self, copy, place, tools):
        self.copy, self.place = copy, place
        self.ports = {port: free_port() for port in PORTS}
        self.environment = dict(
            os.environ,
            PATH=f"{tools.bin}:{os.environ['PATH']}",
            TIDINGS_HTTP__LISTEN=f"127.0.0.1:{self.ports['8808']}",
            TIDINGS_URL=f"http://127.0.0.1:{self.ports['8808']}",
            HOME=str(place),
            XDG_CONFIG_HOME=str(place / ".config"),
        )
        # What `npm install` puts beside a script.
        (copy / "node_modules").symlink_to(tools.packages)
        self.terminals = []
        self.serving = None
        self.shell = Terminal(self, "shell")
        self.shell.send("set -E; trap 'failed=$?' ERR\n")
        self.outputs = [self.shell]

    def replaced(self, text):
        for port, free in self.ports.items():
            text = text.replace(f":{port}", f":{free}")
        return text

    def write(self, block):
        (self.copy / block.file).write_text(self.replaced(block.text))

    def run(self, block):
        name = f"line-{block.line}"
        script = self.place / f"{name}.sh"
        script.write_text(self.replaced(block.text))
        if GOES_ON.search(block.text):
            self.open(block, name, script)
            return
        done = self.place / f"{name}.done"
        self.shell.send(f"failed=0; . '{script}'; echo $failed > '{done}.new'; mv '{done}.new' '{done}'\n")
        if not until(lambda: done.exists() or self.shell.process.poll() is not None, BLOCK):
            raise Failed(f"line {block.line}: the block still runs after {BLOCK:.0f} s")
        code = done.read_text().strip() if done.exists() else f"{self.shell.process.returncode}, and ended the shell"
        if code != "0":
            raise Failed(f"line {block.line}: a command of the block ended with code {code}\n{tail(self.shell.seen())}")

    def open(self, block, name, script):
        """Runs the block in a terminal of its own."""
        serves = re.search(r"^(tidings serve|tidings gateway|cargo run)\b", block.text, re.M)
        if serves and self.serving:
            self.serving.end()
            self.terminals.remove(self.serving)
        terminal = Terminal(self, name)
        state = self.place / f"{name}.state"
        self.shell.send(
            f"{{ declare -f; declare -p | grep -v '^declare -[A-Za-z]*[rA]'; }} > '{state}.new'; mv '{state}.new' '{state}'\n"
        )
        until(state.exists, WAIT)
        listen = ""
        example = re.search(r"--example (\w+)", block.text)
        if example:
            port = {"embed": "8810", "wrap": "8812"}[example[1]]
            listen = f"export PAGES_LISTEN=127.0.0.1:{self.ports[port]}; "
        terminal.send(f". '{state}' 2>/dev/null; {listen}set -e; . '{script}'\nexit\n")
        self.terminals.append(terminal)
        self.outputs.append(terminal)
        if serves:
            self.serving = terminal
        begun = until(lambda: terminal.seen() or terminal.process.poll() is not None, WAIT)
        if not begun or terminal.process.poll() is not None:
            code = terminal.process.poll()
            raise Failed(f"line {block.line}: it ended with code {code} and was to go on\n{tail(terminal.seen())}")
        if serves:
            until(lambda: "listening" in terminal.seen() or terminal.process.poll() is not None, WAIT)
            port = re.search(r"127\.0\.0\.1:(\d+)", terminal.seen())
            if port is None or not until(lambda: answers(port[1]), WAIT):
                raise Failed(f"line {block.line}: no service answers\n{tail(terminal.seen())}")

    def expect(self, block):
        """Waits until some terminal shows the text, `…` standing for anything."""
        # A command may end its output without a line end, so what `…` stands for may contain one between two lines.
        text = self.replaced(block.text).strip("\n").replace("…\n…", "\0").replace("\n", "\1")
        parts = {"…": ".*?", "\0": r"[\s\S]*?", "\1": r"[^\n]*\n(?:[^\n]*\n)*?"}
        pattern = re.compile("".join(parts.get(letter) or re.escape(letter) for letter in text))
        if until(lambda: any(pattern.search(terminal.seen()) for terminal in self.outputs), WAIT):
            return
        shown = "\n".join(tail(terminal.seen()) for terminal in self.outputs[-3:])
        raise Failed(f"line {block.line}: no output like the text\n{shown}")

    def check_terminals(self):
        for terminal in self.terminals:
            if terminal.process.poll() is not None:
                name, code = terminal.output.stem.replace("-", " "), terminal.process.returncode
                raise Failed(f"{name}: it ended with code {code} and was to go on\n{tail(terminal.seen())}")

    def end(self):
        for terminal in reversed([self.shell, *self.terminals]):
            terminal.end()


def tail(text):
    return "\n".join("    | " + line[:300] for line in text.splitlines()[-15:])


def check_console(block, root):
    """The first word of each command is a program of the repository, or one of a reader's."""
    for line in block.text.splitlines():
        words = [word for word in shlex.split(line, comments=True) if not re.match(r"^[A-Z_]+=", word)]
        if not words:
            continue
        program = words[0]
        if "/" in program and not program.startswith("target/") and not os.access(root / program, os.X_OK):
            raise Failed(f"line {block.line}: there is no program {program}")
        if "/" not in program and program not in ELSEWHERE and shutil.which(program) is None:
            raise Failed(f"line {block.line}: there is no program {program}")


def check_data(block):
    """JSON is one value or one a line; `…` in it stands for something left out."""
    try:
        if block.tag == "json" and "…" not in block.text:
            try:
                json.loads(block.text)
            except ValueError:
                for line in block.text.splitlines():
                    json.loads(line)
        elif block.tag == "toml" and tomllib:
            tomllib.loads(block.text)
        elif block.tag == "python":
            compile(block.text, "block", "exec")
    except (ValueError, SyntaxError) as error:
        raise Failed(f"line {block.line}: the block is no {block.tag}: {error}") from None


def project_files(root):
    """Returns the paths of the files of the project: what a reader has made beside them, such as the folder `notes`, is none of it."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, check=True, capture_output=True)
    return [Path(name) for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()]


def run_page(page, root, tools):
    place = tools.work / str(page).replace("/", "-")
    copy = place / "copy"
    copy.mkdir(parents=True)
    for name in project_files(root):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy / name)
    blocks = blocks_of(root / page)
    for block in blocks:
        check_data(block)
    if not any(block.tag in ("sh", "console") for block in blocks):
        return 0
    reader = Reader(copy, place, tools)
    ran = 0
    try:
        for block in blocks:
            if block.file:
                reader.write(block)
            elif block.tag == "sh":
                reader.run(block)
                ran += 1
            elif block.tag == "console":
                check_console(block, root)
            elif block.tag == "text" and "…" in block.text and ran:
                reader.expect(block)
        reader.check_terminals()
    finally:
        reader.end()
    return ran


def anchors_of(page):
    """The anchors that GitHub gives to the headings of a page."""
    anchors, fenced = set(), False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        heading = None if fenced else re.match(r"^#+ +(.*)$", line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            text = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            anchors.add(text)
    return anchors


def check_links(page, root):
    text = re.sub(r"```.*?```", "", (root / page).read_text(), flags=re.S)
    text = re.sub(r"(?<!`)`[^`\n]+`(?!`)", "code", text)
    checked = 0
    for target in LINK.findall(text):
        if re.match(r"^[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (root / page).parent / path if path else root / page
        if not file.exists():
            raise Failed(f"the link {target} leads nowhere")
        if anchor and file.suffix == ".md" and anchor not in anchors_of(file):
            raise Failed(f"the link {target} names a heading that is not there")
        checked += 1
    return checked


def attempt(name, act):
    """Runs one check and prints its result; true if it passed."""
    begin = time.monotonic()
    try:
        count = act()
    except Failed as failed:
        print(f"FAIL {name}: {failed}", flush=True)
        return False
    print(f"ok {name} ({count}, {time.monotonic() - begin:.0f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--bin", type=Path, required=True, help="the folder of the programs that the pages name")
    parser.add_argument("--packages", type=Path, required=True, help="the folder node_modules of the TypeScript examples")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    root = Path.cwd()
    pages = sorted(name for name in project_files(root) if name.suffix == ".md")
    unknown = [str(page) for page in arguments.pages if page not in pages]
    if unknown:
        sys.exit(f"no such page: {', '.join(unknown)}")
    results = []
    for page in arguments.pages or pages:
        results.append(attempt(f"links/{page}", lambda: check_links(page, root)))
        results.append(attempt(f"blocks/{page}", lambda: run_page(page, root, arguments)))
    failed = results.count(False)
    if failed:
        print(f"the terminals of the failed pages are in {arguments.work}")
    print(f"{len(results) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


main()
