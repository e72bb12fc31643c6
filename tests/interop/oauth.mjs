// The scenarios of the official TypeScript client before a service that lets in only callers with tokens of an issuer.
//
// `oauth_provider.mjs` issues the tokens and writes the log that the steps are judged by: what the client was answered,
// and what tokens it was given.

import { ClientCredentialsProvider } from '@modelcontextprotocol/client';
import { readFileSync } from 'node:fs';
import { ended, etagTool, Folder, LISTEN_REVISION, pause, readSame, URI, WAIT, check, FIRST_TEXT } from './scenario.mjs';

/** A public client with a person before it, who consents by the provider's page `/person`. */
class PersonProvider {
  redirectUrl = 'http://127.0.0.1/callback';
  clientMetadata = {
    client_name: 'person-app',
    redirect_uris: [this.redirectUrl],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none'
  };

  constructor(issuer) {
    this.issuer = issuer;
  }

  clientInformation() {
    return { client_id: 'person-app', issuer: this.issuer };
  }

  tokens() {
    return this.saved;
  }

  saveTokens(tokens) {
    this.saved = tokens;
  }

  saveDiscoveryState(state) {
    this.discovered = state;
  }

  discoveryState() {
    return this.discovered;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  codeVerifier() {
    return this.verifier;
  }

  async redirectToAuthorization(url) {
    const answer = await fetch(`${this.issuer}/person`, { method: 'POST', body: url.href });
    const text = await answer.text();
    check(answer.ok, `the provider did not lead back from ${url}: ${text}`);
    this.callback = new URL(text).searchParams;
  }

  /** The parameters of the callback, once. */
  takeCallback() {
    const callback = this.callback;
    this.callback = undefined;
    return callback;
  }
}

/** The credentials of a scenario. */
export function credentialsFor({ scenario, issuer }) {
  if (scenario === 'code' || scenario === 'refresh') return new PersonProvider(issuer);
  return new ClientCredentialsProvider({ clientId: 'machine', clientSecret: 'machine-secret', expectedIssuer: issuer });
}

const shown = value => JSON.stringify(value);
const words = text => (text ?? '').split(' ').sort().join(' ');

class Log {
  constructor({ log, url }) {
    this.file = log;
    this.url = new URL(url);
    this.metadata = `${this.url.origin}/.well-known/oauth-protected-resource${this.url.pathname}`;
  }

  entries() {
    const lines = readFileSync(this.file, 'utf8').split('\n');
    // The last line may be half written.
    return lines.slice(0, -1).map(line => JSON.parse(line));
  }

  tokens() {
    return this.entries().filter(entry => entry.kind === 'token');
  }

  exchanges() {
    return this.entries().filter(entry => entry.kind === 'exchange');
  }

  /** The parameters of a challenge, `error`, `scope` and so on. */
  challenge({ challenge }) {
    check(challenge?.startsWith('Bearer '), `expected a challenge Bearer, got ${shown(challenge)}`);
    const found = Object.fromEntries([...challenge.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]));
    check(found.resource_metadata === this.metadata, `the challenge names the metadata ${found.resource_metadata}, expected ${this.metadata}`);
    return found;
  }

  /** 401, metadata, token: in this order, and nothing was refused afterwards. */
  checkFirstToken(grant) {
    const entries = this.entries();
    const [first] = entries;
    check(first.kind === 'exchange' && !first.authorized && first.status === 401, `expected 401 at first, got ${shown(first)}`);
    const { error, scope } = this.challenge(first);
    check(error === undefined, `a request without a token was told of the error ${error}`);
    check(scope === 'read', `the first challenge asks for the scope ${scope}, expected read`);
    const path = new URL(this.metadata).pathname;
    const metadata = entries.findIndex(entry => entry.path === path && entry.status === 200);
    const token = entries.findIndex(entry => entry.kind === 'token');
    check(metadata > 0 && token > metadata, `expected metadata, then a token, got ${shown(entries)}`);
    const given = entries[token];
    check(given.grant === grant && given.resource === this.url.href && given.scope === 'read', `the first token is ${shown(given)}`);
    const refused = entries.slice(token).find(entry => entry.status === 401);
    check(!refused, `a good token was refused: ${shown(refused)}`);
  }

  /** One 403 that names the scope, then a token with the union of scopes. */
  checkStepUp(grant) {
    const refused = this.exchanges().filter(entry => entry.status === 403);
    check(refused.length === 1 && refused[0].authorized, `expected 403 once, got ${shown(refused)}`);
    const { error, scope } = this.challenge(refused[0]);
    check(error === 'insufficient_scope' && scope === 'tools', `the challenge says ${refused[0].challenge}`);
    const tokens = this.tokens();
    check(tokens.length === 2, `expected two tokens, got ${shown(tokens)}`);
    const [, second] = tokens;
    check(second.grant === grant && words(second.scope) === 'read tools', `the second token is ${shown(second)}`);
  }

  /** All requests after the first token were of one session. */
  checkOneSession() {
    const opened = this.exchanges().filter(entry => entry.rpc === 'initialize' && entry.status === 200);
    check(opened.length === 1, `expected one session, got ${shown(opened)}`);
    const named = new Set(this.exchanges().flatMap(entry => entry.session ?? []));
    check(named.size === 1, `expected one session id, got ${shown([...named])}`);
  }
}

async function lists(client) {
  const listed = await client.resources();
  check(URI in listed, `resources/list: ${URI} is missing, got ${shown(Object.keys(listed))}`);
  await readSame(client, FIRST_TEXT, 'the read with a token');
}

/** 401, metadata, token, answers; then a tool that needs one more scope: 403, a token with both scopes, the answer. */
async function stepsUp(client, options, grant) {
  const log = new Log(options);
  await lists(client);
  log.checkFirstToken(grant);
  await etagTool(client, null);
  log.checkStepUp(grant);
  await lists(client);
}

/** Client credentials. */
const credentials = (client, _inbox, options) => stepsUp(client, options, 'client_credentials');

/** Authorization code with PKCE. */
const code = (client, _inbox, options) => stepsUp(client, options, 'authorization_code');

/** Tokens of a few seconds: the client refreshes them, and what it asked for is told all the same. */
async function refresh(client, inbox, options) {
  const log = new Log(options);
  await client.watch(URI);
  const tokens = log.tokens().length;
  if (client.revision === LISTEN_REVISION) {
    const how = await ended(client, 'its token expired');
    check(how === 'graceful', `the listen stream ended '${how}' with its token, expected 'graceful'`);
    await client.watch(URI);
  }
  const deadline = Date.now() + WAIT;
  while (log.tokens().length === tokens) {
    check(Date.now() < deadline, `no token was refreshed within ${WAIT} ms`);
    await readSame(client, FIRST_TEXT, 'a read while the token expires');
    await pause(100);
  }
  // The token was let in for the leeway after its end, and the stream that it opened ended with that.
  if (client.revision === LISTEN_REVISION) await client.watch(URI);
  new Folder(options.dir).write('second text\n');
  const update = await inbox.nextUpdate(0);
  check(update.uri === URI, `the update names ${update.uri}, expected ${URI}`);
  const etag = await readSame(client, 'second text\n', 'read after the update');
  check(etag === update.etag, `the update said ${update.etag}, the read after it ${etag}`);

  const grants = log.tokens().map(token => token.grant);
  check(
    grants[0] === 'authorization_code' && grants.length > 1 && grants.slice(1).every(grant => grant === 'refresh_token'),
    `expected a code once and refreshed tokens after it, got ${shown(log.tokens())}`
  );
  for (const exchange of log.exchanges().filter(entry => entry.authorized && entry.status === 401)) {
    const { error } = log.challenge(exchange);
    check(error === 'invalid_token', `an expired token was answered with ${exchange.challenge}`);
  }
  if (client.revision !== LISTEN_REVISION) log.checkOneSession();
}

/** Client credentials with tokens that the service looks up. */
const opaque = credentials;

export const oauthScenarios = { credentials, opaque, code, refresh };
