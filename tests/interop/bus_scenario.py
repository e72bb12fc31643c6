"""Two processes of one server share their notices through Tidings, and clients of both miss no last content.

Owns Tidings, the processes, the clients and the writers; kills one process and Tidings on the way. A client reads a
resource when it is told of it, and all of them after it had to listen anew; it never looks by itself.
Ends with exit code 0, or 1 and a last line `reason: …` on stderr.
"""

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from mcp import Client
from mcp.client.subscriptions import ResourceUpdated

WAIT = 60.0  # seconds in which a process must start, and in which clients must know the last contents
NOTES = 40
LANES = 4  # writers at a time
AT_ONCE = 20  # changes of one call
CLIENTS = 2  # of each process


class Failed(Exception):
    """A promise that was not kept; its text is what the run reports."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Program:
    """A process that is started, killed and started again on the same port."""

    def __init__(self, name, port, command, folder):
        self.name, self.port, self.command, self.folder, self.process = name, port, command, folder, None

    async def start(self):
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + WAIT
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            if self.process.returncode is not None:
                raise Failed(f"{self.name} ended with code {self.process.returncode}, see {self.folder}/{self.name}.log")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} does not listen after {WAIT:.0f} s, see {self.folder}/{self.name}.log")
            await asyncio.sleep(0.05)

    async def kill(self):
        if self.process and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()


class Reader:
    """A client that knows what it was told."""

    def __init__(self, name, url):
        self.name, self.url = name, url
        self.known, self.told, self.lists, self.listened, self.ready = {}, 0, 0, 0, asyncio.Event()

    async def run(self):
        while True:
            with suppress(Exception):
                await self.follow()
            await asyncio.sleep(0.1)

    async def follow(self):
        uris = [f"note://{number}" for number in range(NOTES)]
        async with (
            Client(self.url, read_timeout_seconds=WAIT) as client,
            client.listen(resource_subscriptions=uris, tools_list_changed=True) as changes,
        ):
            self.listened += 1
            for uri in uris:
                await self.read(client, uri)
            self.ready.set()
            async for change in changes:
                if isinstance(change, ResourceUpdated):
                    self.told += 1
                    await self.read(client, change.uri)
                else:
                    self.lists += 1

    async def read(self, client, uri):
        result = await client.read_resource(uri)
        self.known[uri] = result.contents[0].text


class Writer:
    """Changes its own notes, in order, by calls to one process or the other; a call that fails is made again."""

    def __init__(self, lane, urls, final):
        self.lane, self.urls, self.final, self.retried = lane, urls, final, 0

    async def run(self, changes, progress):
        mine = [number for number in range(NOTES) if number % LANES == self.lane]
        turn = self.lane
        for first in range(0, changes, AT_ONCE):
            notes = [[str(random.choice(mine)), f"{self.lane}-{first + at}"] for at in range(min(AT_ONCE, changes - first))]
            while True:
                turn += 1
                try:
                    async with Client(self.urls[turn % len(self.urls)], read_timeout_seconds=WAIT) as client:
                        answer = await client.call_tool("write", {"notes": notes})
                    if answer.is_error:
                        raise Failed(f"write answered {answer.content}")
                    break
                except Exception:
                    # The process was killed: its caller does not know how far it came, and calls again.
                    self.retried += 1
                    await asyncio.sleep(0.1)
            for name, text in notes:
                self.final[f"note://{name}"] = text
            await progress(len(notes))


class Run:
    def __init__(self, arguments):
        self.arguments, self.folder, self.done = arguments, arguments.dir, 0
        notes = self.folder / "notes"
        notes.mkdir(parents=True)
        self.final = {}
        for number in range(NOTES):
            (notes / str(number)).write_text("first")
            self.final[f"note://{number}"] = "first"
        port = free_port()
        tidings = [arguments.tidings, "serve", "--listen", f"127.0.0.1:{port}"]
        server = [*arguments.server, "--tidings", f"http://127.0.0.1:{port}", "--folder", str(notes)]
        if arguments.what != "forget":
            tidings += ["--data", str(self.folder / "data")]
        if arguments.what == "limit":
            config = self.folder / "tidings.toml"
            config.write_text("[session]\nsubscriptions_max = 10\n")
            tidings += ["--config", str(config)]
        if arguments.what == "content":
            server.append("--content")
        if arguments.what == "token":
            tidings += ["--config", str(self.guarded())]
            server += ["--token-file", str(self.folder / "token")]
        if arguments.alone:
            server.append("--alone")
        self.tidings = Program("tidings", port, tidings, self.folder)
        ports = [free_port(), free_port()]
        self.servers = [Program(f"server-{at}", port, [*server, "--port", str(port)], self.folder) for at, port in enumerate(ports)]
        self.urls = [f"http://127.0.0.1:{port}/mcp" for port in ports]
        self.events = {}

    def guarded(self):
        """A configuration that lets in the bus alone, with the rights that it needs and no more."""
        config = self.folder / "tidings.toml"
        config.write_text(
            '[auth]\nanonymous = "none"\n\n[[auth.token]]\nname = "notes"\nfile = "tokens"\nroles = ["bus"]\n\n[[auth.rule]]\n'
            'roles = ["bus"]\nmay = ["list", "read", "subscribe", "publish"]\nmatch = ["note://*", "mcp-list://servers/*"]\n'
        )
        made = subprocess.run(
            [self.arguments.tidings, "token", "new", "notes", "--file", str(self.folder / "tokens")],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        (self.folder / "token").write_text(made.stdout.split()[-1])
        return config

    async def progress(self, count):
        """Counts changes, and starts what happens on the way."""
        before, self.done = self.done, self.done + count
        for share, act in ((0.3, self.kill_server), (0.6, self.kill_tidings)):
            at = self.arguments.changes * share
            if before < at <= self.done:
                self.events[act.__name__] = asyncio.create_task(act())

    async def kill_server(self):
        await self.servers[1].kill()
        await asyncio.sleep(1.0)
        await self.servers[1].start()

    async def kill_tidings(self):
        await self.tidings.kill()
        await asyncio.sleep(1.0)
        await self.tidings.start()

    async def run(self):
        await self.tidings.start()
        await asyncio.gather(*(server.start() for server in self.servers))
        readers = [Reader(f"client {at} of process {of}", url) for of, url in enumerate(self.urls) for at in range(CLIENTS)]
        tasks = [asyncio.create_task(reader.run()) for reader in readers]
        await asyncio.wait_for(asyncio.gather(*(reader.ready.wait() for reader in readers)), WAIT)
        begin = time.monotonic()
        writers = [Writer(lane, self.urls, self.final) for lane in range(LANES)]
        share = self.arguments.changes // LANES
        await asyncio.gather(*(writer.run(share, self.progress) for writer in writers))
        written = time.monotonic() - begin
        await asyncio.gather(*self.events.values())
        if len(self.events) != 2:
            raise Failed(f"only {list(self.events)} happened on the way")
        missed = await self.settled(readers)
        settled = time.monotonic() - begin - written
        print(
            f"{share * LANES} changes in {written:.1f} s, {sum(writer.retried for writer in writers)} calls made again; "
            f"told {[reader.told for reader in readers]}, listened {[reader.listened for reader in readers]}; "
            f"finals missed: {len(missed)}, settled after {settled:.1f} s"
        )
        if missed:
            raise Failed(f"{len(missed)} last contents missed, such as {missed[0]}")
        await self.check_lists(readers)
        if self.arguments.what == "content":
            await self.check_equal_content(readers)
        for task in tasks:
            task.cancel()
        for reader, of in zip(readers, [0] * CLIENTS + [1] * CLIENTS, strict=True):
            if of == 0 and reader.listened != 1:
                raise Failed(f"{reader.name} had to listen {reader.listened} times, though its process was never killed")
            if of == 1 and reader.listened < 2:
                raise Failed(f"{reader.name} listened once, though its process was killed")

    async def call(self, tool, arguments):
        async with Client(self.urls[0], read_timeout_seconds=WAIT) as client:
            answer = await client.call_tool(tool, arguments)
        if answer.is_error:
            raise Failed(f"{tool} answered {answer.content}")

    async def check_lists(self, readers):
        """A change of a list reaches the clients of both processes."""
        await self.call("announce", {})
        deadline = time.monotonic() + WAIT
        while not all(reader.lists for reader in readers):
            if time.monotonic() > deadline:
                raise Failed(f"the list was told to {[reader.lists for reader in readers]}")
            await asyncio.sleep(0.05)

    async def check_equal_content(self, readers):
        """A note that is written with its own text is told to no client; a new text shows when to look."""
        # Tidings was killed on the way, and what it told again may still be on its way.
        told = None
        while told != (told := [reader.told for reader in readers]):
            await asyncio.sleep(1.0)
        await self.call("write", {"notes": [["0", self.final["note://0"]]]})
        await self.call("write", {"notes": [["1", "the end"]]})
        self.final["note://1"] = "the end"
        if missed := await self.settled(readers):
            raise Failed(missed[0])
        if (now := [reader.told for reader in readers]) != [count + 1 for count in told]:
            raise Failed(f"one new content and one equal one were told {now}, after {told}")

    async def settled(self, readers):
        deadline = time.monotonic() + WAIT
        while True:
            missed = [
                f"{reader.name}: {uri} is {text}, known {reader.known.get(uri)}"
                for reader in readers
                for uri, text in self.final.items()
                if reader.known.get(uri) != text
            ]
            if not missed or time.monotonic() > deadline:
                return missed
            await asyncio.sleep(0.1)

    async def end(self):
        for program in [*self.servers, self.tidings]:
            await program.kill()


async def main(arguments):
    run = Run(arguments)
    try:
        await run.run()
    finally:
        await run.end()


parser = argparse.ArgumentParser()
parser.add_argument("--what", choices=("keep", "forget", "token", "limit", "content"), required=True)
parser.add_argument("--changes", type=int, default=1000)
parser.add_argument("--tidings", required=True, help="the binary")
parser.add_argument("--dir", type=Path, required=True)
parser.add_argument("--alone", action="store_true", help="without Tidings between the processes: then finals are missed")
parser.add_argument("server", nargs="+", help="the command that starts a process of the server")
options = parser.parse_args()
try:
    asyncio.run(main(options))
except BaseException as error:
    traceback.print_exc()
    text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    print("reason:", " ".join(text.split()), file=sys.stderr)
    sys.exit(1)
