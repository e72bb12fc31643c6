"""A server written with the official Python package, for `tidings bench` to be compared with.

Its one tool, `update {uri}`, tells every `subscriptions/listen` stream that asked for that resource, the way the
package offers it: an event on its subscription bus. Serves http://127.0.0.1:PORT/mcp on the port it is given.
"""

import argparse

from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated


def build():
    bus = InMemorySubscriptionBus()
    server = MCPServer("peer", subscriptions=bus, log_level="WARNING")

    @server.tool()
    async def update(uri: str) -> str:
        await bus.publish(ResourceUpdated(uri))
        return "told"

    return server


parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
build().run("streamable-http", port=parser.parse_args().port)
