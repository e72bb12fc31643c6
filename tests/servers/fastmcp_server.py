"""A small server written with FastMCP, for `tidings check`: the text of a file, and no notices.

Speaks on stdin and stdout, or over HTTP on the port it is given.
"""

import argparse
from pathlib import Path

from fastmcp import FastMCP

parser = argparse.ArgumentParser()
parser.add_argument("--file", type=Path, required=True)
parser.add_argument("--port", type=int)
arguments = parser.parse_args()

server = FastMCP("notes")


@server.resource("data://note")
def note() -> str:
    return arguments.file.read_text()


if arguments.port:
    server.run(transport="http", host="127.0.0.1", port=arguments.port, show_banner=False)
else:
    server.run(show_banner=False)
