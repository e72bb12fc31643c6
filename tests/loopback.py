"""One request to a service on this machine, for the checks below `tests/`."""

import http.client


def ask(address, method, path, body=None, headers=None, wait=60.0):
    """Returns status, headers and body of an answer that may take `wait` seconds. `address` is host:port."""
    connection = http.client.HTTPConnection(address, timeout=wait)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()
