// The official TypeScript client, v1: negotiates 2025-11-25 and subscribes.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  PromptListChangedNotificationSchema,
  ResourceListChangedNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';
import { etagIn, main, toolAnswer } from './scenario.mjs';

class Adapter {
  constructor(client, transport, revision) {
    this.client = client;
    this.transport = transport;
    this.revision = revision;
  }

  async resources() {
    const { resources } = await this.client.listResources();
    return Object.fromEntries(resources.map(item => [item.uri, etagIn(item._meta)]));
  }

  async read(uri) {
    const result = await this.client.readResource({ uri });
    const [content] = result.contents;
    return { text: content.text, resultEtag: etagIn(result._meta), contentEtag: etagIn(content._meta) };
  }

  async call(name, args) {
    return toolAnswer(await this.client.callTool({ name, arguments: args }));
  }

  async watch(uri) {
    await this.client.subscribeResource({ uri });
  }

  async unwatch(uri) {
    await this.client.unsubscribeResource({ uri });
  }

  async close() {
    await this.transport.terminateSession?.();
    await this.client.close();
  }
}

await main(async (options, inbox) => {
  const client = new Client({ name: 'interop', version: '1' });
  for (const schema of [
    ResourceUpdatedNotificationSchema,
    ResourceListChangedNotificationSchema,
    ToolListChangedNotificationSchema,
    PromptListChangedNotificationSchema
  ]) {
    client.setNotificationHandler(schema, notification => inbox.put(notification));
  }
  const transport = options.url
    ? new StreamableHTTPClientTransport(new URL(options.url))
    : new StdioClientTransport({ command: options.command });
  // Both transports are told the negotiated revision; this client keeps it nowhere else.
  let revision;
  const told = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = version => {
    revision = version;
    told?.(version);
  };
  await client.connect(transport);
  return new Adapter(client, transport, revision);
});
