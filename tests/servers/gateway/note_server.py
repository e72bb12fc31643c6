"""An MCP server over stdio whose notes change together four times a second. Their content is the time of the change.

It announces each change of those that are subscribed to. Each content of the first one that is read goes into the file of
its first argument: it is that of one version, since a gateway knows of a content by reading it."""

import json
import sys
import threading
import time

NOTES = 20
INTERVAL = 0.25

lock = threading.Lock()
subscribed = set()
text = "0"
last_read = None


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def change():
    global text
    due = time.monotonic()
    while True:
        due += INTERVAL
        time.sleep(max(0.0, due - time.monotonic()))
        text = str(time.monotonic_ns())
        for uri in list(subscribed):
            send({"method": "notifications/resources/updated", "params": {"uri": uri}})


def read(uri):
    global last_read
    content = text
    if uri == "note:///0" and content != last_read:
        last_read = content
        log.write(content + "\n")
    return {"contents": [{"uri": uri, "text": content}]}


def answer(method, params):
    if method == "initialize":
        about = {"name": "notes", "version": "1"}
        capabilities = {"resources": {"subscribe": True}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": about}
    if method == "resources/list":
        return {"resources": [{"uri": f"note:///{number}", "name": str(number)} for number in range(NOTES)]}
    if method == "resources/read":
        return read(params["uri"])
    if method == "resources/subscribe":
        subscribed.add(params["uri"])
        return {}
    return None


log = open(sys.argv[1], "a", buffering=1)
threading.Thread(target=change, daemon=True).start()
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params"))
        end = {"result": result} if result is not None else {"error": {"code": -32601, "message": "not found"}}
        send({"id": request["id"], **end})
