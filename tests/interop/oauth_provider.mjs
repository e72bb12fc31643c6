// An OAuth 2.1 authorization server (the package oidc-provider), a proxy before the service, and the person who consents.
//
// Arguments: --upstream FILE (the service's URL, read at each request, as the service starts later), --log FILE (JSON
// lines, see `note`), --lifetime SECONDS (of access tokens), --opaque (tokens that the service has to ask about). Prints
// `ISSUER RESOURCE` once both are up.
//
// Clients: `machine` with the secret `machine-secret` (client credentials), `person-app` (public; code and PKCE),
// `service` with the secret `service secret` (introspection).
// Tokens are JSON Web Tokens by ES256 for exactly the resource, with the role `agent`; scopes are `read` and `tools`.

import { appendFileSync, readFileSync } from 'node:fs';
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { errors, Provider } from 'oidc-provider';
import { startProxy } from './proxy.mjs';

const string = { type: 'string' };
const { values: options } = parseArgs({ options: { upstream: string, log: string, lifetime: { ...string, default: '300' }, opaque: { type: 'boolean' } } });
const SCOPES = 'read tools';
const CALLBACK = 'http://127.0.0.1/callback';

/** Adds a line to the log: { kind: 'exchange' | 'token', … }. */
const note = entry => appendFileSync(options.log, `${JSON.stringify(entry)}\n`);

function methodIn(body) {
  try {
    return JSON.parse(body).method;
  } catch {
    return undefined;
  }
}

const front = await startProxy({
  upstream: () => readFileSync(options.upstream, 'utf8').trim(),
  onExchange: ({ request, body, response }) =>
    note({
      kind: 'exchange',
      http: request.method,
      path: request.url,
      rpc: methodIn(body),
      session: request.headers['mcp-session-id'] ?? response.headers['mcp-session-id'],
      authorized: request.headers.authorization !== undefined,
      status: response.statusCode,
      challenge: response.headers['www-authenticate']
    })
});
const resource = `${front}/mcp`;

// The address is known before the provider is made, as it is a part of the issuer's name.
let handle;
const server = createServer((request, response) => handle(request, response));
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const issuer = `http://127.0.0.1:${server.address().port}`;

const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' });
const provider = new Provider(issuer, {
  jwks: { keys: [{ ...key, kid: 'first', use: 'sig', alg: 'ES256' }] },
  cookies: { keys: ['cookies of one run'] },
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  clients: [
    {
      client_id: 'machine',
      client_secret: 'machine-secret',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
      scope: SCOPES
    },
    {
      client_id: 'person-app',
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: [CALLBACK],
      response_types: ['code'],
      scope: SCOPES
    },
    {
      client_id: 'service',
      client_secret: 'service secret',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: []
    }
  ],
  scopes: SCOPES.split(' '),
  findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  extraTokenClaims: () => ({ roles: ['agent'] }),
  issueRefreshToken: (_context, client) => client.grantTypeAllowed('refresh_token'),
  rotateRefreshToken: true,
  ttl: { AccessToken: Number(options.lifetime), ClientCredentials: Number(options.lifetime) },
  interactions: { url: (_context, interaction) => `/interaction/${interaction.uid}` },
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_context, indicator) => {
        if (indicator !== resource) throw new errors.InvalidTarget();
        return {
          scope: SCOPES,
          audience: indicator,
          accessTokenTTL: Number(options.lifetime),
          accessTokenFormat: options.opaque ? 'opaque' : 'jwt',
          jwt: { sign: { alg: 'ES256' } }
        };
      }
    }
  }
});
provider.on('grant.success', ({ oidc, body }) =>
  note({ kind: 'token', grant: oidc.params.grant_type, scope: body.scope, resource: oidc.params.resource })
);
provider.on('introspection.error', (_context, error) => note({ kind: 'introspection', error: error.message }));
provider.on('grant.error', (_context, error) => note({ kind: 'token', error: error.error_description ?? error.message }));
provider.on('server_error', (_context, error) => console.error(error));

/** Logs the person in and grants all that the client asked for. */
async function consent(request, response) {
  const { params, prompt, session } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    return provider.interactionFinished(request, response, { login: { accountId: 'alice' } });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  grant.addResourceScope(resource, params.scope);
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}

/** Follows redirects from an authorization URL as a browser does. Answers the address that leads back to the client. */
async function browse(url) {
  const cookies = new Map();
  for (let steps = 0; steps < 10 && !url.startsWith(CALLBACK); steps += 1) {
    const answer = await fetch(url, { redirect: 'manual', headers: { cookie: [...cookies].map(pair => pair.join('=')).join('; ') } });
    for (const line of answer.headers.getSetCookie()) {
      const [name, value] = line.split(';')[0].split('=', 2);
      if (value) cookies.set(name, value);
      else cookies.delete(name);
    }
    const next = answer.headers.get('location');
    if (!next) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
    url = new URL(next, url).href;
  }
  return url;
}

async function person(request, response) {
  let body = '';
  for await (const part of request) body += part;
  response.end(await browse(body));
}

const pages = provider.callback();
handle = (request, response) => {
  const page = request.url.startsWith('/interaction/') ? consent : request.url === '/person' ? person : pages;
  Promise.resolve(page(request, response)).catch(error => {
    console.error(error);
    response.writeHead(500).end(String(error));
  });
};
process.on('SIGTERM', () => process.exit(0));
console.log(issuer, resource);
