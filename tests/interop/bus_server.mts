// One process of a server written with the official TypeScript package, whose processes share their notices by `TidingsBus`.
// Its resources are the files of a folder that all processes have; the tool `write` replaces some of them and tells of it.

import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, InMemoryServerEventBus, McpServer, ResourceTemplate } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { TidingsBus } from './tidings_bus.ts';

const string = { type: 'string' } as const;
const { values: options } = parseArgs({
  options: { tidings: string, 'token-file': string, folder: string, port: string, content: { type: 'boolean' }, alone: { type: 'boolean' } }
});
const { 'token-file': tokenFile, folder = '' } = options;

const bus = options.alone
  ? new InMemoryServerEventBus()
  : await TidingsBus.connect(options.tidings ?? '', {
      prefixes: ['note://'],
      pause: 50,
      ...(options.content ? { content: async (uri: string) => readFileSync(join(folder, uri.replace('note://', '')), 'utf8') } : {}),
      ...(tokenFile ? { token: () => readFileSync(tokenFile, 'utf8').trim() } : {})
    });

function write(name: string, text: string): void {
  const staged = join(folder, `.${name}-${process.pid}`);
  writeFileSync(staged, text);
  renameSync(staged, join(folder, name));
  bus.publish({ kind: 'resource_updated', uri: `note://${name}` });
}

function build(): McpServer {
  const server = new McpServer({ name: 'notes', version: '1' }, { capabilities: { resources: { subscribe: true } } });
  server.registerResource('note', new ResourceTemplate('note://{name}', { list: undefined }), {}, (uri, { name }) => ({
    contents: [{ uri: uri.href, text: readFileSync(join(folder, String(name)), 'utf8') }]
  }));
  const description = 'Writes notes, each a name and a text, one after the other, and tells of each.';
  const inputSchema = z.object({ notes: z.array(z.array(z.string())) });
  server.registerTool('write', { description, inputSchema }, async ({ notes }) => {
    for (const [name = '', text = ''] of notes) write(name, text);
    if (bus instanceof TidingsBus && !(await bus.flush(60_000))) throw new Error('Tidings is away');
    return { content: [{ type: 'text', text: 'written' }] };
  });
  server.registerTool('announce', { description: 'Tells that the list of tools changed.' }, async () => {
    bus.publish({ kind: 'tools_list_changed' });
    if (bus instanceof TidingsBus && !(await bus.flush(60_000))) throw new Error('Tidings is away');
    return { content: [{ type: 'text', text: 'announced' }] };
  });
  return server;
}

createServer(toNodeHandler(createMcpHandler(build, { bus }))).listen(Number(options.port), '127.0.0.1');
