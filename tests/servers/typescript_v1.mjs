// A small server written with version 1 of the official TypeScript package, for `tidings check`: the texts of two files.
// `good` tells each subscriber of its resource. `blanket` advertises subscriptions without knowing `resources/subscribe`, and
// tells every session of both resources whenever one of them changes, as early servers did.
// Speaks on stdin and stdout, or over HTTP on the port it is given, with a session for each client.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { McpError, SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const URI = 'demo://note';
const OTHER = 'demo://other';
const LOOK_EVERY = 20; // milliseconds between two looks at the file
const UNKNOWN_RESOURCE = -32002;

const string = { type: 'string' };
const { values: options } = parseArgs({ options: { what: string, file: string, port: string } });
const isBlanket = options.what === 'blanket';
const text = () => readFileSync(options.file, 'utf8');

const clients = new Set();

function build() {
  const server = new McpServer({ name: 'notes', version: '1' }, { capabilities: { resources: { subscribe: true } } });
  const contents = { [URI]: text, [OTHER]: () => 'always the same' };
  for (const [uri, read] of Object.entries(contents)) {
    server.registerResource(uri, uri, { mimeType: 'text/plain' }, () => ({ contents: [{ uri, text: read() }] }));
  }
  const subscribed = new Set();
  if (!isBlanket) {
    server.server.setRequestHandler(SubscribeRequestSchema, ({ params: { uri } }) => {
      if (!(uri in contents)) throw new McpError(UNKNOWN_RESOURCE, `there is no ${uri}`);
      subscribed.add(uri);
      return {};
    });
    server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params: { uri } }) => {
      subscribed.delete(uri);
      return {};
    });
  }
  const client = { server, subscribed };
  clients.add(client);
  server.server.onclose = () => clients.delete(client);
  return server;
}

function tell() {
  for (const { server, subscribed } of clients) {
    const uris = isBlanket ? [URI, OTHER] : [URI].filter(uri => subscribed.has(uri));
    for (const uri of uris) server.server.sendResourceUpdated({ uri });
  }
}

const sessions = new Map();

async function handle(request, response) {
  const id = request.headers['mcp-session-id'];
  let transport = sessions.get(id);
  if (id && !transport) return response.writeHead(404).end();
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: given => sessions.set(given, transport),
      onsessionclosed: given => sessions.delete(given)
    });
    await build().connect(transport);
  }
  await transport.handleRequest(request, response);
}

if (options.port) {
  createServer(handle).listen(Number(options.port), '127.0.0.1');
} else {
  await build().connect(new StdioServerTransport());
  process.stdin.on('end', () => process.exit(0));
}

let known = text();
setInterval(() => {
  const now = text();
  if (now === known) return;
  known = now;
  tell();
}, LOOK_EVERY);
