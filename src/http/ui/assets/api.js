// Requests to the service, and what the page knows of the connection to it.

const root = new URL('../', document.baseURI);
const listeners = new Set();
const TIMEOUT = 2500;

/** The state of the connection: the requests that failed in a row. */
export const connection = { failures: 0, since: 0 };

/** Calls `listener` whenever the service is lost or found. */
export const onConnection = (listener) => listeners.add(listener);

/** A refusal of the service, with its status. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** No answer at all. */
export class Lost extends Error {}

function note(isLost) {
  const was = connection.failures > 0;
  connection.failures = isLost ? connection.failures + 1 : 0;
  if (isLost && !was) connection.since = Date.now();
  if (isLost !== was) for (const listener of listeners) listener(isLost);
}

/** The address of a path of the API, with a query. */
export function address(path, query = {}) {
  const url = new URL(path, root);
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== undefined && one !== '' && one !== false) url.searchParams.append(name, one);
  }
  return url;
}

export async function send(method, path, { query, body, signal } = {}) {
  let answer;
  const late = AbortSignal.timeout(TIMEOUT);
  try {
    answer = await fetch(address(path, query), {
      method,
      body: body && JSON.stringify(body),
      headers: body ? { 'content-type': 'application/json' } : {},
      signal: signal ? AbortSignal.any([signal, late]) : late,
      cache: 'no-store',
      credentials: 'same-origin',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    note(true);
    throw new Lost('the service does not answer');
  }
  note(false);
  const isJson = /json/.test(answer.headers.get('content-type') || '');
  const content = isJson ? await answer.json() : await answer.text();
  if (!answer.ok) throw new Refused(answer.status, content.detail || `the service answered ${answer.status}`);
  return content;
}

export const get = (path, query, signal) => send('GET', path, { query, signal });

const encode = encodeURIComponent;
export const stats = (signal) => get('v1/stats', {}, signal);
export const sessions = (query, signal) => get('v1/sessions', query, signal);
export const session = (id, uri, signal) => get(`v1/sessions/${encode(id)}`, { uri }, signal);
export const endSession = (id) => send('DELETE', `v1/sessions/${encode(id)}`);
export const resources = (query, signal) => get('v1/resources', query, signal);
export const subscribersOf = (uri, signal) => get(`v1/resources/${encode(uri)}/subscribers`, {}, signal);
export const sinks = (signal) => get('v1/subscribers', {}, signal);
export const cluster = (signal) => get('v1/cluster', {}, signal);
export const upstreams = (signal) => get('v1/upstreams', {}, signal);
export const viewer = () => get('ui/login', {});
export const logIn = (token) => send('POST', 'ui/login', { body: { token } });
export const logOut = () => send('POST', 'ui/logout');

/** The pause before the next try: 1 s, then twice as long each time, 30 s at most. */
export const pause = () => Math.min(30000, 1000 * 2 ** Math.max(0, connection.failures - 1));
