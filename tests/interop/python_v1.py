"""The official Python client, v1: negotiates 2025-11-25 and subscribes."""

from contextlib import asynccontextmanager
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl

import scenario


class Adapter:
    def __init__(self, session, revision):
        self.session = session
        self.revision = str(revision)

    async def resources(self):
        listed = await self.session.list_resources()
        return {str(item.uri): scenario.etag_in(item.meta) for item in listed.resources}

    async def read(self, uri):
        result = await self.session.read_resource(AnyUrl(uri))
        return result.contents[0].text, scenario.etag_in(result.meta), scenario.etag_in(result.contents[0].meta)

    async def call(self, tool, arguments):
        result = await self.session.call_tool(tool, arguments)
        return scenario.tool_answer(result.structuredContent, [block.text for block in result.content])

    @asynccontextmanager
    async def watching(self, uri):
        await self.session.subscribe_resource(AnyUrl(uri))
        yield None
        await self.session.unsubscribe_resource(AnyUrl(uri))


@asynccontextmanager
async def streams(arguments):
    if arguments.url:
        async with streamablehttp_client(arguments.url) as (read, write, _):
            yield read, write
    else:
        async with stdio_client(StdioServerParameters(command=arguments.command)) as (read, write):
            yield read, write


@asynccontextmanager
async def connect(arguments, inbox):
    async def on_message(message):
        if isinstance(message, types.ServerNotification):
            sent = message.model_dump(by_alias=True, mode="json", exclude_none=True)
            inbox.put(sent["method"], sent.get("params"))

    timeout = timedelta(seconds=scenario.WAIT)
    async with streams(arguments) as (read, write):
        async with ClientSession(read, write, timeout, message_handler=on_message) as session:
            answer = await session.initialize()
            yield Adapter(session, answer.protocolVersion)


scenario.main(connect)
