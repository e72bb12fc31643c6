"""A `SubscriptionBus` of the official Python package over Tidings: processes of one server share their notices.

`TidingsBus` publishes by `POST /v1/resources` (a touch, or a put of the content) and listens on `/v1/ws`. Of several
changes of one resource the newest counts, in both directions. A connection that is lost is opened again with back-off;
then the etags of all resources are compared with those known, and the difference is told, so nothing is lost.
It never delivers a notice by itself: what a process publishes comes back to it through Tidings like to every other.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

__all__ = ["PublishRefused", "TidingsBus"]

logger = logging.getLogger("tidings_bus")

Listener = Callable[[ServerEvent], None]
Content = Callable[[str], Awaitable["str | bytes | None"]]

LISTS: dict[type, str] = {ToolsListChanged: "tools", PromptsListChanged: "prompts", ResourcesListChanged: "resources"}
NAMES_MAX = 200  # names of one request: they must fit into `ws.message_bytes_max`
LINES_MAX = 200  # lines of one batch, of `http.batch_max` allowed
BATCH_BYTES = 1_000_000  # bytes of one batch, of `http.body_bytes_max` allowed
TELL_MAX = 200  # events told at once, of the 1,024 that a listen stream of the package holds back
BACKOFF_MIN, BACKOFF_MAX = 0.1, 10.0  # seconds
RETRIED = (408, 425, 429, 500, 502, 503, 504, 507)


class PublishRefused(Exception):
    """Tidings refused a change for good: a missing right, another owner, a URI that is none."""


class Lost(Exception):
    """The connection or the service is away; the work is done again later."""


@dataclass
class Change:
    """A change on its way to Tidings, and the callers that wait for it."""

    create: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def settle(self, error: Exception | None = None) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)


class TidingsBus:
    """A bus for `MCPServer(subscriptions=…)` whose events reach all processes that use the same Tidings.

    Use it as an async context manager around the server: entering waits until Tidings was reached, at most
    `start_timeout` seconds; leaving sends what is still to be published.

    `url`             the address of Tidings, such as http://127.0.0.1:8808
    `token`           a bearer token, or a function that returns the current one
    `prefixes`        the beginnings of the URIs that are this server's; all unless given
    `group`           the servers that share list events: they travel as resources `mcp-list://GROUP/tools`
    `content`         reads a resource, so that Tidings gets its content and equal content is no change; without it a
                      publish is a touch, and always tells
    `publish_timeout` seconds that `publish` waits for Tidings; after that it returns, and sending goes on
    `pause`           seconds in which several changes of one resource become one notice
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | Callable[[], str] | None = None,
        prefixes: Iterable[str] = (),
        group: str = "servers",
        content: Content | None = None,
        publish_timeout: float = 5.0,
        start_timeout: float = 10.0,
        pause: float = 0.02,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._lists = f"mcp-list://{group}/"
        self._prefixes = (self._lists, *prefixes) if tuple(prefixes) else ("",)
        self._content = content
        self._publish_timeout, self._start_timeout, self._pause = publish_timeout, start_timeout, pause
        self._listeners: dict[object, Listener] = {}
        # What is to be sent and to be told: one entry per URI, so both are bounded by the number of resources.
        self._outgoing: dict[str, Change] = {}
        self._batch: dict[str, Change] = {}
        self._incoming: dict[str, None] = {}
        self._sent, self._told = asyncio.Event(), asyncio.Event()
        # The newest etag known of each resource, and the resources that this process has published.
        self._etags: dict[str, str] = {}
        self._published: set[str] = set()
        self._synced = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> TidingsBus:
        self._http = httpx2.AsyncClient(timeout=httpx2.Timeout(10.0, read=30.0))
        self._tasks = [asyncio.create_task(work()) for work in (self._listen, self._send, self._tell)]
        try:
            await asyncio.wait_for(self._synced.wait(), self._start_timeout)
        except TimeoutError:
            logger.warning("%s was not reached within %g s; the bus goes on trying", self._url, self._start_timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._flush(), self._publish_timeout)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Registers a listener, and returns a function that removes it and may be called twice."""
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    async def publish(self, event: ServerEvent) -> None:
        """Publishes an event, and returns when Tidings has it or `publish_timeout` is over.

        Raises:
            PublishRefused: Tidings refuses the change for good.
        """
        uri = event.uri if isinstance(event, ResourceUpdated) else self._lists + LISTS[type(event)]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A refusal that no caller waits for any more is logged where it is made.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._outgoing.setdefault(uri, Change()).waiting.append(future)
        self._sent.set()
        done, _ = await asyncio.wait([future], timeout=self._publish_timeout)
        if done:
            future.result()
        else:
            logger.warning("%s is away; the change of %s is sent when it is back", self._url, uri)

    async def _flush(self) -> None:
        while self._outgoing or self._batch:
            await asyncio.sleep(0.01)

    # Sending

    async def _send(self) -> None:
        backoff = Backoff()
        while True:
            if not self._outgoing:
                self._sent.clear()
                await self._sent.wait()
            try:
                # One line is one change, and answered in the same order.
                answers = await self._post(await self._take())
                sent = zip(self._batch.items(), answers, strict=True)
                later = [self._answered(uri, change, answer) for (uri, change), answer in sent]
                self._batch = {}
                if any(later):
                    await backoff.wait()
                else:
                    backoff.reset()
            except PublishRefused as error:
                logger.error("publishing: %s", error)
                for change in self._batch.values():
                    change.settle(error)
                self._batch = {}
            except Exception as error:  # whatever happens, the changes must reach Tidings in the end
                logger.info("publishing: %r", error)
                for uri, change in self._batch.items():
                    self._again(uri, change)
                self._batch = {}
                await backoff.wait()

    async def _take(self) -> list[bytes]:
        """Moves changes that wait into the batch, and returns its lines."""
        lines: list[bytes] = []
        size = 0
        while self._outgoing and len(lines) < LINES_MAX and size < BATCH_BYTES:
            uri = next(iter(self._outgoing))
            self._batch[uri] = self._outgoing.pop(uri)
            lines.append(json.dumps(await self._line(uri, self._batch[uri])).encode())
            size += len(lines[-1])
        return lines

    async def _line(self, uri: str, change: Change) -> dict[str, Any]:
        body = None
        if self._content and not uri.startswith(self._lists):
            try:
                body = await self._content(uri)
            except Exception:
                logger.exception("the content of %s cannot be read; it is touched instead", uri)
        if isinstance(body, str):
            return {"put": uri, "text": body}
        if body is not None:
            return {"put": uri, "base64": base64.b64encode(body).decode()}
        return {"put": uri, "text": "", "ifNoneMatch": "*"} if change.create else {"touch": uri}

    async def _post(self, lines: list[bytes]) -> list[dict[str, Any]]:
        headers = {"content-type": "application/x-ndjson", **self._authorization()}
        response = await self._http.post(f"{self._url}/v1/resources", content=b"\n".join(lines), headers=headers)
        check_status(response)
        return [json.loads(line) for line in response.text.split("\n") if line]

    def _answered(self, uri: str, change: Change, answer: dict[str, Any]) -> bool:
        """Settles a change, or puts it back; returns true if it should be sent later rather than at once."""
        status = answer["status"]
        if status in (200, 201, 204):
            self._published.add(uri)
            change.settle()
        elif status == 404 or status == 412:
            # It is not there and has to be created, or another process was faster to create it.
            change.create = status == 404
            self._again(uri, change)
        elif status in RETRIED:
            self._again(uri, change)
        else:
            logger.error("publishing %s: %s", uri, answer.get("error"))
            change.settle(PublishRefused(f"{uri}: {answer.get('error')}"))
        return status in RETRIED

    def _again(self, uri: str, change: Change) -> None:
        newer = self._outgoing.setdefault(uri, change)
        if newer is not change:
            newer.create = change.create
            newer.waiting += change.waiting

    # Listening

    async def _listen(self) -> None:
        backoff = Backoff()
        while True:
            try:
                address = self._url.replace("http", "ws", 1) + "/v1/ws"
                async with connect(address, additional_headers=self._authorization(), max_size=None) as socket:
                    await Listening(self, socket).run(backoff)
            except Exception as error:  # whatever happens, the connection must come back
                refused = isinstance(error, PublishRefused | InvalidStatus)
                logger.log(logging.ERROR if refused else logging.INFO, "listening: %r", error)
            await backoff.wait()

    async def listed(self) -> dict[str, str]:
        """All resources of this server that Tidings has, with their etags."""
        etags: dict[str, str] = {}
        after: str | None = None
        while True:
            query = {"limit": "1000", **({"after": after} if after else {})}
            response = await self._http.get(f"{self._url}/v1/resources", params=query, headers=self._authorization())
            check_status(response)
            page = response.json()
            etags.update({item["uri"]: item["etag"] for item in page["items"] if item["uri"].startswith(self._prefixes)})
            after = page.get("next")
            if not after:
                return etags

    def compare(self, listed: dict[str, str]) -> None:
        """Takes over what Tidings has, and tells what is another than known."""
        # The first time there is nothing to compare with: listeners that are here already may have missed anything.
        tell = self._synced.is_set() or bool(self._listeners)
        for uri, etag in listed.items():
            self.learn(uri, etag, tell)
        for uri in [uri for uri in self._etags if uri not in listed]:
            del self._etags[uri]
            self._change(uri)
        # A Tidings without a store forgets; other processes learn of these from its list.
        for uri in [uri for uri in self._published if uri not in listed]:
            self._outgoing.setdefault(uri, Change())
            self._sent.set()
        self._synced.set()

    def learn(self, uri: str, etag: str, tell: bool = True) -> None:
        """Notes an etag, and tells of it if it is another than the one known."""
        if self._etags.get(uri) != etag:
            self._etags[uri] = etag
            if tell:
                self._change(uri)

    def forget(self, uri: str) -> None:
        """Notes that a resource was removed, so that it is not published again after a restart of Tidings."""
        self._published.discard(uri)

    def known(self, uri: str) -> str | None:
        """The etag known of a resource."""
        return self._etags.get(uri)

    # Telling

    def _change(self, uri: str) -> None:
        self._incoming[uri] = None
        self._told.set()

    async def _tell(self) -> None:
        while True:
            self._told.clear()
            await self._told.wait()
            while self._incoming:
                for uri in list(self._incoming)[:TELL_MAX]:
                    del self._incoming[uri]
                    self._deliver(uri)
                # The listen streams write meanwhile, and later changes of the same resources become one.
                await asyncio.sleep(self._pause)

    def _deliver(self, uri: str) -> None:
        event: ServerEvent = ResourceUpdated(uri)
        if uri.startswith(self._lists):
            kinds = [kind for kind, name in LISTS.items() if uri == self._lists + name]
            if not kinds:
                return
            event = kinds[0]()
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener raised")

    def _authorization(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        return {"authorization": f"Bearer {token}"} if token else {}


class Listening:
    """One connection to `/v1/ws`: the subscriptions that it has, and the answers that it waits for."""

    def __init__(self, bus: TidingsBus, socket: ClientConnection) -> None:
        self._bus, self._socket = bus, socket
        self._subscribed: set[str] = set()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._stale = asyncio.Event()
        self._warned = False
        self._last_id = 0

    async def run(self, backoff: Backoff) -> None:
        """Reads until the connection ends, and compares whenever the list of resources changed."""
        compared = asyncio.create_task(self._keep_compared(backoff))
        # A comparison that fails must end the connection, or it would go on without its subscriptions.
        compared.add_done_callback(lambda _: self._socket.transport.close())
        try:
            async for message in self._socket:
                self._received(json.loads(message))
        finally:
            compared.cancel()
            for future in self._answers.values():
                future.cancel()
            with suppress(asyncio.CancelledError):
                await compared

    def _received(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "updated":
                self._bus.learn(message["uri"], message["etag"])
            case "removed":
                self._bus.learn(message["uri"], message["etag"])
                self._bus.forget(message["uri"])
                self._subscribed.discard(message["uri"])
                self._stale.set()
            case "list_changed":
                self._stale.set()
            case "ack" | "error":
                future = self._answers.pop(message["id"], None)
                if future and not future.done():
                    future.set_result(message)

    async def _keep_compared(self, backoff: Backoff) -> None:
        await self._ask({"type": "subscribe", "lists": ["resources"]})
        while True:
            self._stale.clear()
            listed = await self._bus.listed()
            self._bus.compare(listed)
            refused = await self._subscribe([uri for uri in listed if uri not in self._subscribed])
            backoff.reset()
            # Beyond `session.subscriptions_max` nothing is told, so the list is compared every few seconds.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stale.wait(), 2.0 if refused else None)

    async def _subscribe(self, uris: list[str]) -> bool:
        """Subscribes from the etags known, and returns true if some were refused."""
        refused: dict[str, str] = {}
        for start in range(0, len(uris), NAMES_MAX):
            known = {uri: self._bus.known(uri) for uri in uris[start : start + NAMES_MAX]}
            answer = await self._ask({"type": "subscribe", "known": known})
            if answer["type"] == "error":
                raise Lost(answer["message"])
            self._subscribed.update(answer["subscribed"])
            refused.update(answer["refused"])
        if refused and not self._warned:
            self._warned = True
            logger.warning("some resources are compared every 2 s, not told: %s", next(iter(refused.values())))
        return bool(refused)

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        future = self._answers[self._last_id] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({**request, "id": self._last_id}))
        return await asyncio.wait_for(future, 30.0)


class Backoff:
    """Pauses that double, shortened at random so that many processes do not come back at once."""

    def __init__(self) -> None:
        self._pause = BACKOFF_MIN

    def reset(self) -> None:
        self._pause = BACKOFF_MIN

    async def wait(self) -> None:
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, BACKOFF_MAX)


def check_status(response: httpx2.Response) -> None:
    """Raises `Lost` for an answer that may be better later, and `PublishRefused` for any other error."""
    if response.status_code in RETRIED:
        raise Lost(f"{response.request.method} {response.request.url}: {response.status_code}")
    if response.is_error:
        raise PublishRefused(f"{response.request.method} {response.request.url}: {response.status_code} {response.text}")
