// The service under test, and clients of it: publishers over HTTP, and MCP sessions without a library.

import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const DEADLINE = 30000;

export class Failed extends Error {}

export function expect(condition, reason) {
  if (!condition) throw new Failed(reason);
}

/** Waits until `look` returns something. */
export async function until(what, look, deadline = DEADLINE) {
  const end = Date.now() + deadline;
  let last;
  while (Date.now() < end) {
    last = await look();
    if (last) return last;
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Failed(`${what} did not come within ${deadline} ms`);
}

export class Service {
  constructor(binary, folder) {
    this.binary = binary;
    this.folder = folder;
    mkdirSync(folder, { recursive: true });
  }

  /** Starts `serve` with these lines of configuration; with a port, on that one. */
  async start(config, port = 0) {
    const file = join(this.folder, 'tidings.toml');
    writeFileSync(file, config);
    const log = openSync(join(this.folder, 'service.log'), 'a');
    this.process = spawn(this.binary, ['serve', '--config', file, '--listen', `127.0.0.1:${port}`], { stdio: ['ignore', 'pipe', log] });
    // A test that breaks leaves no service behind.
    process.once('exit', () => this.process.kill('SIGKILL'));
    const line = await new Promise((done, fail) => {
      this.process.stdout.once('data', (data) => done(String(data)));
      this.process.once('exit', (code) => fail(new Failed(`the service ended with ${code}, see ${this.folder}/service.log`)));
    });
    this.url = line.match(/https?:\/\/[^/]*/)[0];
    this.port = Number(new URL(this.url).port);
  }

  async end(signal = 'SIGTERM') {
    if (this.process.exitCode !== null) return;
    const ended = new Promise((done) => this.process.once('exit', done));
    this.process.kill(signal);
    await ended;
  }

  /** Makes a token of this principal, and returns it. */
  token(name) {
    const made = spawnSync(this.binary, ['token', 'new', name, '--file', join(this.folder, name)], { encoding: 'utf8' });
    expect(made.status === 0, made.stderr);
    return made.stdout.trim();
  }

  /** Makes a certificate for this machine that its own key has signed; returns the lines that configure it. */
  certificate() {
    const [key, certificate] = ['tls.key', 'tls.pem'].map((name) => join(this.folder, name));
    const made = spawnSync('openssl', [
      'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
      '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', certificate,
    ], { encoding: 'utf8' });
    expect(made.status === 0, `openssl: ${made.error ?? made.stderr}`);
    return `[tls]\ncertificate = "${certificate}"\nkey = "${key}"\n`;
  }

  async put(uri, text) {
    const answer = await fetch(`${this.url}/v1/resources/${encodeURIComponent(uri)}`, { method: 'PUT', headers: { 'content-type': 'text/plain' }, body: text });
    expect(answer.ok, `PUT ${uri}: ${answer.status} ${await answer.text()}`);
  }

  remove(uri) {
    return fetch(`${this.url}/v1/resources/${encodeURIComponent(uri)}`, { method: 'DELETE' });
  }

  /** Publishes many resources, a thousand in a request. */
  async putAll(items) {
    for (let at = 0; at < items.length; at += 1000) {
      const lines = items.slice(at, at + 1000).map((item) => JSON.stringify(item)).join('\n');
      const answer = await fetch(`${this.url}/v1/resources`, { method: 'POST', headers: { 'content-type': 'application/x-ndjson' }, body: lines });
      const refused = (await answer.text()).split('\n').filter((line) => line && JSON.parse(line).error);
      expect(answer.ok && refused.length === 0, `a batch: ${answer.status} ${refused[0]}`);
    }
  }

  async cpuSeconds() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    return Number(text.match(/^process_cpu_seconds_total (\S+)/m)[1]);
  }
}

/** An MCP session of the revision 2025-11-25. */
export class Session {
  static async open(service, name) {
    const session = new Session();
    session.url = `${service.url}/mcp`;
    const answer = await session.post('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name, version: '1' } }, 1);
    session.id = answer.headers.get('mcp-session-id');
    await answer.text();
    await (await session.post('notifications/initialized')).text();
    return session;
  }

  post(method, params, id) {
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    if (this.id) Object.assign(headers, { 'mcp-session-id': this.id, 'mcp-protocol-version': '2025-11-25' });
    return fetch(this.url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id, method, params }) });
  }

  async subscribe(uri) {
    const answer = await this.post('resources/subscribe', { uri }, 2);
    const text = await answer.text();
    expect(answer.ok && !text.includes('"error"'), `subscribe ${uri}: ${text}`);
  }

  /** Opens the stream of notifications, and reads it to its end. */
  async listen() {
    const answer = await fetch(this.url, { headers: { accept: 'text/event-stream', 'mcp-session-id': this.id, 'mcp-protocol-version': '2025-11-25' } });
    expect(answer.ok, `a stream: ${answer.status}`);
    const reader = answer.body.getReader();
    (async () => {
      try {
        while (!(await reader.read()).done);
      } catch {
        // The service was ended, and its streams with it.
      }
    })();
  }
}
