#!/bin/sh
# Reads {"file": "hello.md"} on standard input and counts the words of that resource.
set -eu

file=$(sed -n 's/.*"file" *: *"\([A-Za-z0-9._-]*\)".*/\1/p')
if [ ! -f "resources/$file" ]; then
    echo "there is no resources/$file" >&2
    exit 1
fi
printf '{"file":"%s","words":%d}\n' "$file" "$(wc -w < "resources/$file")"
