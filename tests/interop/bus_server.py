"""One process of a server written with the official Python package, whose processes share their notices by `TidingsBus`.

Its resources are the files of a folder that all processes have; the tool `write` replaces some of them and tells of it.
"""

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ToolsListChanged

sys.path.insert(0, str(Path(__file__).parents[2] / "docs/examples/python_bus"))
from tidings_bus import TidingsBus  # noqa: E402


def build(folder, bus):
    server = MCPServer("notes", subscriptions=bus)

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return (folder / name).read_text()

    @server.tool()
    async def write(notes: list[list[str]]) -> str:
        """Writes notes, each a name and a text, one after the other, and tells of each."""
        published = []
        for name, text in notes:
            staged = folder / f".{name}-{os.getpid()}"
            staged.write_text(text)
            os.replace(staged, folder / name)
            published.append(bus.publish(ResourceUpdated(f"note://{name}")))
        await asyncio.gather(*published)
        return "written"

    @server.tool()
    async def announce() -> str:
        """Tells that the list of tools changed."""
        await bus.publish(ToolsListChanged())
        return "announced"

    return server


async def main(arguments):
    options: dict[str, Any] = {"prefixes": ["note://"], "pause": 0.05, "publish_timeout": 60.0}
    if arguments.token_file:
        options["token"] = lambda: arguments.token_file.read_text().strip()
    if arguments.content:

        async def content(uri: str) -> str:
            return (arguments.folder / uri.removeprefix("note://")).read_text()

        options["content"] = content
    if arguments.alone:
        await build(arguments.folder, InMemorySubscriptionBus()).run_streamable_http_async(port=arguments.port)
        return
    async with TidingsBus(arguments.tidings, **options) as bus:
        await build(arguments.folder, bus).run_streamable_http_async(port=arguments.port)


parser = argparse.ArgumentParser()
parser.add_argument("--tidings", required=True)
parser.add_argument("--token-file", type=Path)
parser.add_argument("--folder", type=Path, required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--content", action="store_true", help="with the contents at Tidings")
parser.add_argument("--alone", action="store_true", help="with the bus of the package, which ends at the process")
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
for noisy in ("httpx2", "mcp", "uvicorn.access"):
    logging.getLogger(noisy).setLevel(logging.WARNING)
asyncio.run(main(parser.parse_args()))
