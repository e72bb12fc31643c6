"""Registers one resource through the service's HTTP API: BASE_URL URI MEDIA_TYPE BODY_FILE."""

import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path


def main(base_url, uri, media_type, body_file):
    request = urllib.request.Request(
        f"{base_url}/v1/resources/{urllib.parse.quote(uri, safe='')}",
        data=Path(body_file).read_bytes(),
        method="PUT",
        headers={"Content-Type": media_type},
    )
    # A proxy named in the environment must not be asked for a loopback address.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        answer = direct.open(request, timeout=10)
    except urllib.error.HTTPError as refused:
        sys.exit(f"PUT {request.full_url}: {refused.code} {refused.read()[:500]!r}")
    except OSError as error:
        sys.exit(f"PUT {request.full_url}: {error}")
    if answer.status not in (201, 204) or not answer.headers.get("ETag"):
        sys.exit(f"PUT {request.full_url}: expected 201 or 204 with an ETag, got {answer.status} {dict(answer.headers)}")


main(*sys.argv[1:])
