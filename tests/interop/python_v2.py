"""The official Python client, v2: `auto` negotiates 2026-07-28 and listens, `legacy` negotiates 2025-11-25 and subscribes."""

from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost

import oauth
import scenario


class Adapter:
    def __init__(self, client):
        self.client = client
        self.revision = client.protocol_version

    async def resources(self):
        listed = await self.client.list_resources()
        return {str(item.uri): scenario.etag_in(item.meta) for item in listed.resources}

    async def read(self, uri):
        result = await self.client.read_resource(uri)
        return result.contents[0].text, scenario.etag_in(result.meta), scenario.etag_in(result.contents[0].meta)

    async def call(self, tool, arguments):
        result = await self.client.call_tool(tool, arguments)
        return scenario.tool_answer(result.structured_content, [block.text for block in result.content])

    @asynccontextmanager
    async def watching(self, uri):
        if self.revision == scenario.LISTEN_REVISION:
            async with self.client.listen(resource_subscriptions=[uri]) as subscription:
                honored = subscription.honored.resource_subscriptions
                scenario.check(honored == [uri], f"the acknowledgement honours {honored}, expected [{uri!r}]")
                yield subscription
        else:
            await self.client.subscribe_resource(uri)
            yield None
            await self.client.unsubscribe_resource(uri)

    async def ended(self, subscription):
        try:
            async for event in subscription:
                raise scenario.Failed(f"an event nobody caused: {event}")
        except SubscriptionLost as lost:
            return f"lost ({lost})"
        return "graceful"


@asynccontextmanager
async def connect(arguments, inbox):
    async def on_message(message):
        # A transport error arrives here as an exception; the scenario's own waits report what it leads to.
        if not isinstance(message, Exception):
            sent = message.model_dump(by_alias=True, mode="json", exclude_none=True)
            inbox.put(sent["method"], sent.get("params"))

    async with AsyncExitStack() as stack:
        target = arguments.url or StdioServerParameters(command=arguments.command)
        if arguments.issuer:
            timeout = httpx2.Timeout(scenario.WAIT, read=None)
            http = httpx2.AsyncClient(auth=oauth.credentials_for(arguments), timeout=timeout)
            await stack.enter_async_context(http)
            target = streamable_http_client(arguments.url, http_client=http)
        mode = "auto" if arguments.revision == scenario.LISTEN_REVISION else "legacy"
        client = Client(target, mode=mode, message_handler=on_message, read_timeout_seconds=scenario.WAIT)
        yield Adapter(await stack.enter_async_context(client))


scenario.main(connect, oauth.SCENARIOS)
