// The official TypeScript client, v2: pinned to 2026-07-28 it listens, on any older revision it subscribes.

import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { credentialsFor, oauthScenarios } from './oauth.mjs';
import { check, etagIn, LIST_KINDS, LISTEN_REVISION, main, toolAnswer } from './scenario.mjs';

/** Acts, and acts again once the person before the client has consented, if that is what it takes. */
async function consenting(authProvider, transportOf, act) {
  try {
    return await act();
  } catch (error) {
    const callback = error instanceof UnauthorizedError ? authProvider?.takeCallback?.() : undefined;
    if (!callback) throw error;
    await transportOf().finishAuth(callback);
    return act();
  }
}

class Adapter {
  constructor(client, transport, authProvider) {
    this.client = client;
    this.transport = transport;
    this.authProvider = authProvider;
    this.revision = client.getNegotiatedProtocolVersion();
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
    const act = () => this.client.callTool({ name, arguments: args });
    return toolAnswer(await consenting(this.authProvider, () => this.transport, act));
  }

  async watch(uri) {
    if (this.revision !== LISTEN_REVISION) return void (await this.client.subscribeResource({ uri }));
    this.subscription = await this.client.listen({ resourceSubscriptions: [uri] });
    const honored = this.subscription.honoredFilter.resourceSubscriptions;
    check(honored?.length === 1 && honored[0] === uri, `the acknowledgement honours ${honored}, expected ${uri}`);
  }

  async unwatch(uri) {
    if (this.revision !== LISTEN_REVISION) return void (await this.client.unsubscribeResource({ uri }));
    await this.subscription.close();
    check((await this.subscription.closed) === 'local', 'the stream had ended before the client closed it');
  }

  ended() {
    return this.subscription.closed;
  }

  async close() {
    try {
      if (this.revision !== LISTEN_REVISION) await this.endSession();
    } finally {
      await this.client.close();
    }
  }

  /** `terminateSession` alone never refreshes a token that expired; a request before it does. */
  async endSession() {
    try {
      await this.transport.terminateSession?.();
    } catch (error) {
      if (error.data?.status !== 401) throw error;
      await this.client.ping();
      await this.transport.terminateSession();
    }
  }
}

await main(async (options, inbox) => {
  const modern = options.revision === LISTEN_REVISION;
  const client = new Client(
    { name: 'interop', version: '1' },
    modern
      ? { versionNegotiation: { mode: { pin: options.revision } } }
      : { versionNegotiation: { mode: 'legacy' }, supportedProtocolVersions: [options.revision] }
  );
  client.setNotificationHandler('notifications/resources/updated', notification => inbox.put(notification));
  for (const kind of LIST_KINDS) {
    client.setNotificationHandler(`notifications/${kind}/list_changed`, notification => inbox.put(notification));
  }
  const authProvider = options.issuer ? credentialsFor(options) : undefined;
  let transport;
  await consenting(authProvider, () => transport, () => {
    transport = options.url
      ? new StreamableHTTPClientTransport(new URL(options.url), { authProvider })
      : new StdioClientTransport({ command: options.command });
    return client.connect(transport);
  });
  return new Adapter(client, transport, authProvider);
}, oauthScenarios);
