"""A server on standard input and output that ends in the middle of a call, once for each tool.

usage: brittle_server.py FOLDER, which holds the description of its tools and the calls that ended it.
"""

import json
import os
import pathlib
import sys

FOLDER = pathlib.Path(sys.argv[1])


def tools():
    about = (FOLDER / "about").read_text()
    schema = {"type": "object"}
    return [
        {"name": "look", "description": about, "inputSchema": schema, "annotations": {"readOnlyHint": True}},
        {"name": "write", "description": "Writes.", "inputSchema": schema},
        {"name": "pid", "description": "Names the process.", "inputSchema": schema},
    ]


def call(name):
    if name == "pid":
        return str(os.getpid())
    begun = FOLDER / name
    if not begun.exists():
        begun.touch()
        os._exit(1)
    return "answered"


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "brittle", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": tools()}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": call(params["name"])}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params"))
        end = {"error": {"code": -32601, "message": "not found"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **end}), flush=True)
