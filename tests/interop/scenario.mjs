// The scenarios of the official TypeScript clients; `typescript_v2.mjs` and `typescript_v1.mjs` give it the client.
//
// Owns the steps, the deadlines and the words of a failure. Never speaks to a service itself and starts none.
// Receives `connect(options, inbox)`, which answers an adapter with `revision`, `resources()`, `read(uri)`,
// `call(tool, arguments)`, `watch(uri)`, `unwatch()`, `close()` and, where the client can listen, `ended()`.
// Ends with exit code 0, or 1 and a last line `reason: …` on stderr.

import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';

export const WAIT = 10_000; // milliseconds any single wait may take
const QUIET = 700; // milliseconds in which nothing may arrive
const ETAG_KEY = 'io.github.tidings/etag';
export const URI = 'workspace:///notes/today.md';
const FILE = 'notes/today.md';
export const FIRST_TEXT = 'first text\n';
const UPDATED = 'notifications/resources/updated';
export const LIST_KINDS = ['resources', 'tools', 'prompts'];
export const LISTEN_REVISION = '2026-07-28';

class Failed extends Error {}

export function check(condition, text) {
  if (!condition) throw new Failed(text);
}

const shown = value => JSON.stringify(value);

function versionOf(etag, where) {
  const found = /^v(\d+)-\d+$/.exec(etag ?? '');
  check(found, `${where}: expected an etag like v1-1700000000 under ${ETAG_KEY}, got ${shown(etag)}`);
  return Number(found[1]);
}

export const etagIn = meta => meta?.[ETAG_KEY];

/** The object a tool answered with: its structured content, else its text read as JSON. */
export const toolAnswer = result => result.structuredContent ?? JSON.parse(result.content[0].text);

export const pause = duration => new Promise(done => setTimeout(done, duration));

/** Resolves to `late` when the promise takes longer than the duration. */
async function within(promise, duration, late) {
  let timer;
  const expired = new Promise(done => (timer = setTimeout(done, duration, late)));
  try {
    return await Promise.race([promise, expired]);
  } finally {
    clearTimeout(timer);
  }
}

const LATE = Symbol('late');

/** Every notification the client was given, in order. */
class Inbox {
  all = [];
  #waiting = [];

  put({ method, params }) {
    this.all.push({ method, uri: params?.uri, etag: etagIn(params?._meta) });
    for (const wake of this.#waiting.splice(0)) wake();
  }

  updates() {
    return this.all.filter(entry => entry.method === UPDATED);
  }

  async #moreThan(count) {
    while (this.updates().length <= count) await new Promise(wake => this.#waiting.push(wake));
  }

  /** The one update after the first `known` ones. */
  async nextUpdate(known) {
    const outcome = await within(this.#moreThan(known), WAIT, LATE);
    check(outcome !== LATE, `no ${UPDATED} within ${WAIT} ms of the write; so far: ${shown(this.all)}`);
    const fresh = this.updates().slice(known);
    check(fresh.length === 1, `expected exactly one update, got ${shown(fresh)}`);
    return fresh[0];
  }

  async silence(known, why) {
    const outcome = await within(this.#moreThan(known), QUIET, LATE);
    check(outcome === LATE, `${why}: expected silence, got ${shown(this.updates().slice(known))}`);
  }
}

/** The served folder, written the way careful programs write: a finished file moved into place. */
export class Folder {
  constructor(root) {
    this.file = join(root, 'resources', FILE);
    this.staged = join(dirname(root), 'staged');
  }

  write(text) {
    writeFileSync(this.staged, text);
    renameSync(this.staged, this.file);
  }
}

export async function etagTool(client, clientEtag) {
  const answer = await client.call('get_resource_etag', { uri: URI, client_etag: clientEtag });
  check(typeof answer.stale_for_client === 'boolean', `get_resource_etag answered ${shown(answer)}`);
  return answer;
}

/** Waits until the service itself has the version, so that a silence after it means something. */
async function seenByService(client, version) {
  const deadline = Date.now() + WAIT;
  let answer = await etagTool(client, null);
  while (answer.version < version) {
    check(Date.now() < deadline, `the service never saw the write: ${shown(answer)}`);
    await pause(20);
    answer = await etagTool(client, null);
  }
  check(answer.version === version, `one write made more than one version: expected ${version}, got ${shown(answer)}`);
}

/** Reads the resource; its text and all its etags must agree. Answers the etag. */
export async function readSame(client, text, where) {
  const { text: got, resultEtag, contentEtag } = await client.read(URI);
  check(got === text, `${where}: expected text ${shown(text)}, got ${shown(got)}`);
  versionOf(contentEtag, `${where}, contents[0]._meta`);
  check(resultEtag === contentEtag, `${where}: result says ${resultEtag}, contents say ${contentEtag}`);
  return contentEtag;
}

/** List, read, subscribe, hear one change, hear nothing for a no-op, unsubscribe, hear nothing. */
async function follow(client, inbox, options) {
  const folder = new Folder(options.dir);
  const listed = await client.resources();
  check(URI in listed, `resources/list: ${URI} is missing, got ${shown(Object.keys(listed))}`);
  const readEtag = await readSame(client, readFileSync(folder.file, 'utf8'), 'first read');
  check(listed[URI] === readEtag, `resources/list says ${listed[URI]}, the read says ${readEtag}`);
  const version = versionOf(readEtag, 'first read');

  await client.watch(URI);
  folder.write('second text\n');
  const update = await inbox.nextUpdate(0);
  check(update.uri === URI, `the update names ${update.uri}, expected ${URI}`);
  const told = versionOf(update.etag, UPDATED);
  check(told === version + 1, `the update's version is ${told}, expected ${version + 1}`);
  const readAgain = await readSame(client, 'second text\n', 'read after the update');
  check(readAgain === update.etag, `the update said ${update.etag}, the read after it ${readAgain}`);

  const old = await etagTool(client, readEtag);
  check(old.stale_for_client, `get_resource_etag with the old etag ${readEtag} is not stale: ${shown(old)}`);
  check(old.etag_encoded === update.etag, `get_resource_etag says ${shown(old)}, expected ${update.etag}`);
  const fresh = await etagTool(client, update.etag);
  check(!fresh.stale_for_client, `get_resource_etag with the new etag ${update.etag} is stale: ${shown(fresh)}`);

  folder.write('second text\n');
  await inbox.silence(1, 'the same bytes written again');
  await seenByService(client, version + 1);

  await client.unwatch(URI);
  folder.write('third text, of another length\n');
  await seenByService(client, version + 2);
  await inbox.silence(1, 'a write after the subscription ended');
  checkAnnouncements(client.revision, inbox);
}

/** Older sessions hear of each filled list once, at the start; 2025-03-26 and an uninterested listener never. */
function checkAnnouncements(revision, inbox) {
  const once = revision !== LISTEN_REVISION && revision !== '2025-03-26';
  for (const kind of LIST_KINDS) {
    const method = `notifications/${kind}/list_changed`;
    const got = inbox.all.filter(entry => entry.method === method).length;
    const expected = once && kind !== 'prompts' ? 1 : 0;
    check(got === expected, `${method}: expected ${expected} in the whole session, got ${got}`);
  }
}

/** How the listen stream ended, which it must after the cause. */
export async function ended(client, cause) {
  const how = await within(client.ended(), WAIT, LATE);
  check(how !== LATE, `the listen stream was still open ${WAIT} ms after ${cause}`);
  return how;
}

/** Listen, then ask the service to stop: the stream must end with a result, not break. */
async function drain(client, _inbox, options) {
  await client.watch(URI);
  process.kill(Number(readFileSync(options['pid-file'], 'utf8')), 'SIGTERM');
  const how = await ended(client, 'SIGTERM');
  check(how === 'graceful', `the listen stream ended '${how}', expected 'graceful'`);
}

const SCENARIOS = { follow, drain };

async function run(connect, scenarios, options) {
  const inbox = new Inbox();
  const client = await connect(options, inbox);
  try {
    check(client.revision === options.revision, `negotiated ${client.revision}, expected ${options.revision}`);
    await scenarios[options.scenario](client, inbox, options);
  } finally {
    await client.close();
  }
}

/** Runs the scenario of the command line; `more` are scenarios of one client alone. */
export async function main(connect, more = {}) {
  const string = { type: 'string' };
  const { values } = parseArgs({
    options: { scenario: { ...string, default: 'follow' }, revision: string, url: string, command: string, dir: string, 'pid-file': string, issuer: string, log: string }
  });
  try {
    await run(connect, { ...SCENARIOS, ...more }, values);
  } catch (error) {
    console.error(error);
    const text = error instanceof Failed ? error.message : `${error.name}: ${error.message}`;
    console.error('reason:', text.replaceAll(/\s+/g, ' '));
    process.exitCode = 1;
  }
}
