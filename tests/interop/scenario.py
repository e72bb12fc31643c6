"""The scenarios of the official Python clients; `python_v2.py` and `python_v1.py` give it the client.

Owns the steps, the deadlines and the words of a failure. Never speaks to a service itself and starts none.
Receives an adapter with `revision`, `resources()`, `read(uri)`, `call(tool, arguments)` and `watching(uri)`, and an
`Inbox` that the adapter's client fills. Ends with exit code 0, or 1 and a last line `reason: …` on stderr.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import traceback
from pathlib import Path

WAIT = 10.0  # seconds any single wait may take
QUIET = 0.7  # seconds in which nothing may arrive
ETAG_KEY = "io.github.tidings/etag"
URI = "workspace:///notes/today.md"
FILE = "notes/today.md"
UPDATED = "notifications/resources/updated"
LIST_CHANGED = "notifications/{}/list_changed"
LISTEN_REVISION = "2026-07-28"


class Failed(Exception):
    """A promise that was not kept; its text is what the run reports."""


def check(condition, text):
    if not condition:
        raise Failed(text)


def version_of(etag, where):
    found = re.fullmatch(r"v(\d+)-\d+", etag or "")
    check(found, f"{where}: expected an etag like v1-1700000000 under {ETAG_KEY}, got {etag!r}")
    return int(found.group(1))


def etag_in(meta):
    return (meta or {}).get(ETAG_KEY)


def tool_answer(structured, texts):
    """The object a tool answered with: its structured content, else its text read as JSON."""
    return structured if structured is not None else json.loads(texts[0])


class Inbox:
    """Every notification the client was given, in order, as (method, uri, etag)."""

    def __init__(self):
        self.all = []
        self._arrived = asyncio.Event()

    def put(self, method, params):
        """`params` is the notification's params as a plain object with wire names, or None."""
        params = params or {}
        self.all.append((method, params.get("uri"), etag_in(params.get("_meta"))))
        self._arrived.set()

    def updates(self):
        return [entry for entry in self.all if entry[0] == UPDATED]

    async def _more_than(self, count):
        while len(self.updates()) <= count:
            self._arrived.clear()
            await self._arrived.wait()

    async def next_update(self, known):
        """The one update after the first `known` ones."""
        try:
            await asyncio.wait_for(self._more_than(known), WAIT)
        except TimeoutError:
            raise Failed(f"no {UPDATED} within {WAIT:.0f} s of the write; so far: {self.all}") from None
        check(len(self.updates()) == known + 1, f"expected exactly one update, got {self.updates()[known:]}")
        return self.updates()[known]

    async def silence(self, known, why):
        try:
            await asyncio.wait_for(self._more_than(known), QUIET)
        except TimeoutError:
            return
        raise Failed(f"{why}: expected silence, got {self.updates()[known:]}")


class Folder:
    """The served folder, written the way careful programs write: a finished file moved into place."""

    def __init__(self, root):
        self.file = Path(root) / "resources" / FILE
        self._staged = Path(root).with_name("staged")

    def write(self, text):
        self._staged.write_text(text)
        os.replace(self._staged, self.file)


async def etag_tool(client, client_etag):
    answer = await client.call("get_resource_etag", {"uri": URI, "client_etag": client_etag})
    check(isinstance(answer.get("stale_for_client"), bool), f"get_resource_etag answered {answer}")
    return answer


async def seen_by_service(client, version):
    """Waits until the service itself has the version, so that a silence after it means something."""
    deadline = asyncio.get_running_loop().time() + WAIT
    answer = await etag_tool(client, None)
    while answer["version"] < version:
        check(asyncio.get_running_loop().time() < deadline, f"the service never saw the write: {answer}")
        await asyncio.sleep(0.02)
        answer = await etag_tool(client, None)
    check(answer["version"] == version, f"one write made more than one version: expected {version}, got {answer}")
    return answer


async def read_same(client, text, where):
    """Reads the resource; its text and all its etags must agree. Answers the etag."""
    got, result_etag, content_etag = await client.read(URI)
    check(got == text, f"{where}: expected text {text!r}, got {got!r}")
    version_of(content_etag, f"{where}, contents[0]._meta")
    check(result_etag == content_etag, f"{where}: result says {result_etag!r}, contents say {content_etag!r}")
    return content_etag


async def follow(client, inbox, arguments):
    """List, read, subscribe, hear one change, hear nothing for a no-op, unsubscribe, hear nothing."""
    folder = Folder(arguments.dir)
    first = folder.file.read_text()
    listed = await client.resources()
    check(URI in listed, f"resources/list: {URI} is missing, got {sorted(listed)}")
    read_etag = await read_same(client, first, "first read")
    check(listed[URI] == read_etag, f"resources/list says {listed[URI]!r}, the read says {read_etag!r}")
    version = version_of(read_etag, "first read")

    async with client.watching(URI):
        folder.write("second text\n")
        _, uri, new_etag = await inbox.next_update(0)
        check(uri == URI, f"the update names {uri}, expected {URI}")
        told = version_of(new_etag, UPDATED)
        check(told == version + 1, f"the update's version is {told}, expected {version + 1}")
        read_again = await read_same(client, "second text\n", "read after the update")
        check(read_again == new_etag, f"the update said {new_etag!r}, the read after it {read_again!r}")

        old = await etag_tool(client, read_etag)
        check(old["stale_for_client"], f"get_resource_etag with the old etag {read_etag!r} is not stale: {old}")
        check(old["etag_encoded"] == new_etag, f"get_resource_etag says {old}, expected {new_etag!r}")
        new = await etag_tool(client, new_etag)
        check(not new["stale_for_client"], f"get_resource_etag with the new etag {new_etag!r} is stale: {new}")

        folder.write("second text\n")
        await inbox.silence(1, "the same bytes written again")
        await seen_by_service(client, version + 1)

    folder.write("third text, of another length\n")
    await seen_by_service(client, version + 2)
    await inbox.silence(1, "a write after the subscription ended")
    check_announcements(client.revision, inbox)


def check_announcements(revision, inbox):
    """Older sessions hear of each filled list once, at the start; 2025-03-26 and an uninterested listener never."""
    once = revision not in (LISTEN_REVISION, "2025-03-26")
    for kind, filled in (("resources", True), ("tools", True), ("prompts", False)):
        method = LIST_CHANGED.format(kind)
        got = sum(entry[0] == method for entry in inbox.all)
        expected = int(once and filled)
        check(got == expected, f"{method}: expected {expected} in the whole session, got {got}")


async def ended(client, subscription, cause):
    """How the listen stream ended, which it must after the cause."""
    try:
        return await asyncio.wait_for(client.ended(subscription), WAIT)
    except TimeoutError:
        raise Failed(f"the listen stream was still open {WAIT:.0f} s after {cause}") from None


async def drain(client, inbox, arguments):
    """Listen, then ask the service to stop: the stream must end with a result, not break."""
    async with client.watching(URI) as subscription:
        os.kill(int(Path(arguments.pid_file).read_text()), signal.SIGTERM)
        how = await ended(client, subscription, "SIGTERM")
        check(how == "graceful", f"the listen stream ended {how}, expected graceful")


SCENARIOS = {"follow": follow, "drain": drain}


def reasons(error):
    """The plain errors inside an error; task groups wrap them."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from reasons(inner)
    else:
        yield error


async def run(connect, scenarios, arguments):
    inbox = Inbox()
    # What a client library reports while it closes must not hide that the scenario itself failed, nor pass for it.
    async with connect(arguments, inbox) as client:
        expected = arguments.revision
        check(client.revision == expected, f"negotiated {client.revision}, expected {expected}")
        await scenarios[arguments.scenario](client, inbox, arguments)


def main(connect, more=()):
    """Runs the scenario of the command line; `more` are scenarios of one client alone."""
    scenarios = {**SCENARIOS, **dict(more)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", choices=scenarios, default="follow")
    parser.add_argument("--revision", required=True, help="the protocol revision that must be negotiated")
    parser.add_argument("--url", help="a running service; otherwise --command is started and spoken to on stdio")
    parser.add_argument("--command")
    parser.add_argument("--dir", required=True, help="the folder the service serves")
    parser.add_argument("--pid-file", help="where the service's process id is written")
    parser.add_argument("--issuer", help="the authorization server of the service, for its own scenarios")
    parser.add_argument("--log", help="what the authorization server and its proxy saw")
    arguments = parser.parse_args()
    try:
        asyncio.run(run(connect, scenarios, arguments))
    except Exception as error:
        traceback.print_exc()
        found = list(reasons(error))
        first = next((e for e in found if isinstance(e, Failed)), found[0])
        text = str(first) if isinstance(first, Failed) else f"{type(first).__name__}: {first}"
        print("reason:", " ".join(text.split()), file=sys.stderr)
        sys.exit(1)
