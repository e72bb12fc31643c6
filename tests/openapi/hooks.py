"""What schemathesis must know beside the document: how lines of JSON are written."""

import json

import schemathesis


@schemathesis.hook
def before_load_schema(context, schema):
    """Makes batches of lines by the schema of a line, where the document can only say that the body is a text."""
    content = schema["paths"]["/v1/resources"]["post"]["requestBody"]["content"]["application/x-ndjson"]
    content["schema"] = {"type": "array", "items": content["x-line-schema"], "maxItems": 20}


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    values = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(line) for line in values).encode()
