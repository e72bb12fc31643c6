// A reverse proxy on a free port of loopback. It passes heads and bodies on as they are, and adds the headers it is given.
//
// By hand: `node tests/proxy.mjs UPSTREAM_URL 'Name: value'…` prints `proxy listening on http://127.0.0.1:PORT`.

import { createServer, request } from 'node:http';
import { once } from 'node:events';
import { pathToFileURL } from 'node:url';

// Headers that belong to one connection, which each side's node writes for itself.
const HOP = new Set(['connection', 'keep-alive', 'transfer-encoding']);

/** The flat list of names and values, without those of `without` (lower case). */
function headersOf(raw, without) {
  const kept = [];
  for (let at = 0; at < raw.length; at += 2) {
    if (!without.has(raw[at].toLowerCase())) kept.push(raw[at], raw[at + 1]);
  }
  return kept;
}

/**
 * Starts a proxy. `upstream()` answers the origin that a request goes to, `headers` replace those of the same name,
 * `onExchange({ request, body, response })` is told once the head of an answer is known. Answers the proxy's origin.
 */
export async function startProxy({ upstream, headers = {}, onExchange = () => {} }) {
  const replaced = new Set([...HOP, ...Object.keys(headers).map(name => name.toLowerCase())]);
  const server = createServer((incoming, answer) => {
    const { hostname, port } = new URL(upstream());
    const onwards = request({
      hostname,
      port,
      method: incoming.method,
      path: incoming.url,
      headers: [...headersOf(incoming.rawHeaders, replaced), ...Object.entries(headers).flat()]
    });
    const body = [];
    incoming.on('data', part => body.push(part));
    incoming.pipe(onwards);
    onwards.on('response', response => {
      onExchange({ request: incoming, body: Buffer.concat(body), response });
      answer.writeHead(response.statusCode, headersOf(response.rawHeaders, HOP));
      answer.flushHeaders();
      response.pipe(answer);
      // A stream that breaks must not end like one that is complete.
      response.on('error', () => answer.destroy());
    });
    onwards.on('error', () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()));
    answer.on('close', () => onwards.destroy());
  });
  server.requestTimeout = 0;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${server.address().port}`;
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [upstream, ...lines] = process.argv.slice(2);
  const headers = Object.fromEntries(lines.map(line => line.split(/:\s*/, 2)));
  process.on('SIGTERM', () => process.exit(0));
  console.log(`proxy listening on ${await startProxy({ upstream: () => upstream, headers })}`);
}
