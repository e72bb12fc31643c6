"""A server over stdio that serves a note, and does on request what no server should."""

import json
import sys
import threading

note = "one"
# The answer to the list of tools, made anew for each request; none for the usual list.
listed = None
lock = threading.Lock()
NO_ANSWER = object()


def write(text):
    with lock:
        sys.stdout.write(text)
        sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def updated():
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "note://a"}})


def flood(_):
    """Many announcements without a change."""
    changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    write((updated() + "\n") * 10_000 + (changed + "\n") * 1_000)


def change(arguments):
    global note
    note = arguments["text"]
    write(updated() + "\n")


def foreign_answers(arguments):
    """Answers to requests that were never made."""
    for number in range(arguments["count"]):
        send({"id": [10**9 + number, f"x{number}"][number % 2], "result": {}})


def garbage(arguments):
    """Lines that are no messages."""
    write("".join(["{]\n", '{"a": 1}\n', "\udcff no JSON\n"][number % 3] for number in range(arguments["count"])))


def long_line(arguments):
    part = "x" * (1 << 20)
    with lock:
        for _ in range(arguments["mebibytes"]):
            sys.stdout.write(part)
        sys.stdout.write("\n")
        sys.stdout.flush()


def progress(arguments):
    """Progress of requests that were never made."""
    message = {"jsonrpc": "2.0", "method": "notifications/progress"}
    for number in range(arguments["count"]):
        params = {"progressToken": f"none{number}", "progress": 1}
        write(json.dumps({**message, "params": params}) + "\n")


def errors(arguments):
    """Lines on the error output, which are longer than any that is printed, the last one excepted."""
    for _ in range(arguments["count"]):
        sys.stderr.write("y" * 10_000 + "\n")
    sys.stderr.write("the last line\n")
    sys.stderr.flush()


def tool(number, description=""):
    return {"name": f"t{number}", "description": description, "inputSchema": {"type": "object"}}


def list_tools(arguments):
    """Sets the list of tools."""
    global listed
    kind = arguments["kind"]
    if kind == "endless":
        listed = lambda: {"tools": [], "nextCursor": "again"}
    elif kind == "million":
        page = [{"name": f"t{number}", "inputSchema": {}} for number in range(1_000_000)]
        listed = lambda: {"tools": page}
    elif kind == "crowded":
        # More than a list may have, in one message.
        page = [{"name": "", "inputSchema": {}}] * arguments.get("count", 50_000)
        listed = lambda: {"tools": page}
    elif kind == "silent":
        listed = lambda: NO_ANSWER
    elif kind == "fat":
        fat = tool(1, "z" * (8 << 20))
        listed = lambda: {"tools": [fat], "nextCursor": "again"}
    else:
        listed = None


ACTS = {act.__name__: act for act in [flood, change, foreign_answers, garbage, long_line, progress, errors, list_tools]}


def resources():
    steering = {"uri": "note://steering", "name": "\x1b[2J\x07\u202egnp.exe\r\n", "description": "\x00\x1b]0;t\x07"}
    return [{"uri": "note://a", "name": "a"}, steering, {"uri": "note://b\x1b[2J\n", "name": "b"}]


def answer(method, params):
    if method == "initialize":
        capabilities = {"resources": {"subscribe": True}, "tools": {"listChanged": True}}
        server = {"name": "rude", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": server}
    if method == "resources/list":
        return {"resources": resources()}
    if method == "resources/read" and params["uri"] in [resource["uri"] for resource in resources()]:
        return {"contents": [{"uri": params["uri"], "text": note}]}
    if method == "tools/list":
        return listed() if listed else {"tools": [tool(0)]}
    if method == "tools/call":
        ACTS[params["name"]](params.get("arguments", {}))
        return {"content": [{"type": "text", "text": "done"}]}
    if method in ("resources/subscribe", "resources/unsubscribe", "ping"):
        return {}
    return None


sys.stdout.reconfigure(errors="surrogateescape")
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params") or {})
        error = {"code": -32601 if request["method"] != "resources/read" else -32002, "message": "not found"}
        if result is not NO_ANSWER:
            send({"id": request["id"], **({"error": error} if result is None else {"result": result})})
