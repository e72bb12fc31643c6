// A small server written with the official TypeScript package, for `tidings watch` to watch: one resource, a file's text.
// `listen` tells of changes, `silent` only promises to, `etag` has the tool and promises nothing, `read` has neither.
// Speaks on stdin and stdout, or over HTTP on the port it is given.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const URI = 'demo://note';
const LOOK_EVERY = 20; // milliseconds between two looks at the file

const string = { type: 'string' };
const { values: options } = parseArgs({ options: { what: string, file: string, port: string } });
const text = () => readFileSync(options.file, 'utf8');
const promises = options.what === 'listen' || options.what === 'silent';

const servers = new Set();

function build() {
  const server = new McpServer(
    { name: 'notes', version: '1' },
    { capabilities: { resources: promises ? { subscribe: true } : {} } }
  );
  server.registerResource('note', URI, { mimeType: 'text/plain' }, uri => ({ contents: [{ uri: uri.href, text: text() }] }));
  if (options.what === 'etag') {
    server.registerTool('get_resource_etag', { inputSchema: z.object({ uri: z.string() }) }, ({ uri }) => {
      const answer = { uri, etag_encoded: createHash('sha256').update(text()).digest('hex') };
      return { content: [{ type: 'text', text: JSON.stringify(answer) }] };
    });
  }
  servers.add(server);
  return server;
}

let tell;
if (options.port) {
  const handler = createMcpHandler(build);
  createServer(toNodeHandler(handler)).listen(Number(options.port), '127.0.0.1');
  tell = () => handler.notify.resourceUpdated(URI);
} else {
  serveStdio(build);
  process.stdin.on('end', () => process.exit(0));
  // Which of the instances has the connection is the library's secret; the others are not connected and refuse.
  tell = () => servers.forEach(server => server.server.sendResourceUpdated({ uri: URI }).catch(() => {}));
}

if (options.what === 'listen') {
  let known = text();
  setInterval(() => {
    if (text() === known) return;
    known = text();
    tell();
  }, LOOK_EVERY);
}
