"""A small server written with the official Python package, for `tidings watch` to watch: one resource, a file's text.

`listen` tells of changes, `silent` only promises to, `etag` has the tool and promises nothing, `read` has neither.
Speaks on stdin and stdout, or over HTTP on the port it is given.
"""

import argparse
import hashlib
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated

URI = "demo://note"
LOOK_EVERY = 0.02  # seconds between two looks at the file


def build(arguments, bus):
    server = MCPServer("notes", subscriptions=bus if arguments.what in ("listen", "silent") else False)

    @server.resource(URI)
    def note() -> str:
        return arguments.file.read_text()

    if arguments.what == "etag":

        @server.tool()
        def get_resource_etag(uri: str) -> dict[str, str]:
            return {"uri": uri, "etag_encoded": hashlib.sha256(arguments.file.read_bytes()).hexdigest()}

    return server


async def tell(file, bus):
    known = file.read_text()
    while True:
        await anyio.sleep(LOOK_EVERY)
        text = file.read_text()
        if text != known:
            known = text
            await bus.publish(ResourceUpdated(URI))


async def main(arguments):
    bus = InMemorySubscriptionBus()
    server = build(arguments, bus)
    async with anyio.create_task_group() as group:
        if arguments.what == "listen":
            group.start_soon(tell, arguments.file, bus)
        if arguments.port:
            await server.run_streamable_http_async(port=arguments.port)
        else:
            await server.run_stdio_async()
        group.cancel_scope.cancel()


parser = argparse.ArgumentParser()
parser.add_argument("--what", choices=("listen", "silent", "etag", "read"), required=True)
parser.add_argument("--file", type=Path, required=True)
parser.add_argument("--port", type=int)
anyio.run(main, parser.parse_args())
