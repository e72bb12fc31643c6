// A `ServerEventBus` of the official TypeScript package over Tidings: processes of one server share their notices.
//
// `TidingsBus` publishes by `POST /v1/resources` (a touch, or a put of the content) and listens on `/v1/ws`. Of several
// changes of one resource the newest counts, in both directions. A connection that is lost is opened again with
// back-off; then the etags of all resources are compared with those known, and the difference is told, so nothing is
// lost. It never delivers a notice by itself: what a process publishes comes back to it through Tidings like to every
// other.

import type { ServerEvent, ServerEventBus } from '@modelcontextprotocol/server';
import WebSocket from 'ws';

const LISTS = { tools: 'tools_list_changed', prompts: 'prompts_list_changed', resources: 'resources_list_changed' } as const;
const NAMES_MAX = 200; // names of one request: they must fit into `ws.message_bytes_max`
const LINES_MAX = 200; // lines of one batch, of `http.batch_max` allowed
const BATCH_BYTES = 1_000_000; // bytes of one batch, of `http.body_bytes_max` allowed
const BACKOFF_MIN = 100; // milliseconds
const BACKOFF_MAX = 10_000;
const ANSWER = 30_000; // milliseconds that Tidings may take to answer
const PING = 15_000; // milliseconds between two looks at an idle connection
const RECOMPARE = 2_000; // milliseconds between two comparisons of what cannot be subscribed to
const RETRIED = [408, 425, 429, 500, 502, 503, 504, 507];

export interface TidingsBusOptions {
  /** A bearer token, or a function that returns the current one. */
  token?: string | (() => string);
  /** The beginnings of the URIs that are this server's; all unless given. */
  prefixes?: string[];
  /** The servers that share list events, which travel as resources `mcp-list://GROUP/tools`; `servers` unless given. */
  group?: string;
  /**
   * Reads a resource, so that Tidings gets its content and equal content is no change. Without it a publish is a touch,
   * and always tells.
   */
  content?: (uri: string) => Promise<string | Uint8Array | undefined>;
  /** Milliseconds that `connect` waits for Tidings before it goes on trying beside the server; 10,000 unless given. */
  startTimeout?: number;
  /** Milliseconds in which several changes of one resource become one notice; 20 unless given. */
  pause?: number;
  /**
   * Is told why Tidings is away, once until it is back, and of changes that it refuses for good; prints them to standard
   * error unless given.
   */
  onerror?: (error: Error) => void;
}

/** Tidings refused a change for good: a missing right, another owner, a URI that is none. */
export class PublishRefused extends Error {}

/** A change on its way to Tidings. */
interface Change {
  create: boolean;
}

interface Answer {
  status: number;
  error?: string;
}

interface Message {
  type: string;
  id?: number;
  uri: string;
  etag: string;
  message?: string;
  subscribed: Record<string, string>;
  refused: Record<string, string>;
}

/** A bus for `createMcpHandler(factory, { bus })` whose events reach all processes that use the same Tidings. */
export class TidingsBus implements ServerEventBus {
  readonly #url: string;
  readonly #options: TidingsBusOptions;
  readonly #lists: string;
  readonly #prefixes: string[];
  readonly #listeners = new Map<symbol, (event: ServerEvent) => void>();
  // What is to be sent and to be told: one entry per URI, so both are bounded by the number of resources.
  #outgoing = new Map<string, Change>();
  #batch = new Map<string, Change>();
  readonly #incoming = new Set<string>();
  readonly #sent = new Signal();
  readonly #told = new Signal();
  // The newest etag known of each resource, and the resources that this process has published.
  readonly #etags = new Map<string, string>();
  readonly #published = new Set<string>();
  readonly #ended = new AbortController();
  readonly #reported = new Set<string>();
  #synced = false;
  #onSynced = () => {};
  #work: Promise<unknown> = Promise.resolve();

  private constructor(url: string, options: TidingsBusOptions) {
    this.#url = url.replace(/\/+$/, '');
    this.#options = options;
    this.#lists = `mcp-list://${options.group ?? 'servers'}/`;
    this.#prefixes = options.prefixes?.length ? [this.#lists, ...options.prefixes] : [''];
  }

  /** Makes a bus over the Tidings at an address such as `http://127.0.0.1:8808`, and waits until it was reached. */
  static async connect(url: string, options: TidingsBusOptions = {}): Promise<TidingsBus> {
    const bus = new TidingsBus(url, options);
    const synced = new Promise<boolean>(done => (bus.#onSynced = () => done(true)));
    bus.#work = Promise.all([bus.#listen(), bus.#send(), bus.#tell()]);
    const late = bus.#wait(options.startTimeout ?? 10_000).then(() => false);
    if (!(await Promise.race([synced, late]))) bus.report(new Error(`${url} was not reached; the bus goes on trying`));
    return bus;
  }

  /** Publishes an event. It is sent as soon as Tidings can be reached; `flush` waits for that. */
  publish(event: ServerEvent): void {
    const uri = event.kind === 'resource_updated' ? event.uri : this.#lists + event.kind.replace('_list_changed', '');
    if (!this.#outgoing.has(uri)) this.#outgoing.set(uri, { create: false });
    this.#sent.set();
  }

  /** Registers a listener, and returns a function that removes it and may be called twice. */
  subscribe(listener: (event: ServerEvent) => void): () => void {
    const token = Symbol();
    this.#listeners.set(token, listener);
    return () => void this.#listeners.delete(token);
  }

  /** Waits until Tidings has everything that was published, or the time is over; returns true if it has. */
  async flush(timeout = 5_000): Promise<boolean> {
    const deadline = Date.now() + timeout;
    while (this.#outgoing.size > 0 || this.#batch.size > 0) {
      if (Date.now() > deadline) return false;
      await this.#wait(5);
    }
    return true;
  }

  /** Sends what is still to be published, and ends. */
  async close(): Promise<void> {
    await this.flush();
    this.#ended.abort();
    this.#sent.set();
    this.#told.set();
    await this.#work;
  }

  // Sending

  async #send(): Promise<void> {
    const backoff = new Backoff();
    while (!this.#ended.signal.aborted) {
      if (this.#outgoing.size === 0) await this.#sent.wait();
      if (this.#outgoing.size === 0) continue;
      try {
        const answers = await this.#post(await this.#take());
        let later = false;
        let line = 0;
        // One line is one change, and answered in the same order.
        for (const [uri, change] of this.#batch) later = this.#answered(uri, change, answers[line++]) || later;
        this.#batch.clear();
        this.#reported.clear();
        if (later) await this.#wait(backoff.next());
        else backoff.reset();
      } catch (error) {
        this.report(error);
        // Whatever else happened, the changes must reach Tidings in the end.
        if (!(error instanceof PublishRefused)) for (const [uri, change] of this.#batch) this.#again(uri, change);
        this.#batch.clear();
        await this.#wait(backoff.next());
      }
    }
  }

  /** Moves changes that wait into the batch, and returns its lines. */
  async #take(): Promise<string[]> {
    const lines: string[] = [];
    let size = 0;
    // Changes that come while a content is read belong to the next batch.
    for (const [uri, change] of [...this.#outgoing]) {
      if (lines.length === LINES_MAX || size >= BATCH_BYTES) break;
      this.#outgoing.delete(uri);
      this.#batch.set(uri, change);
      const line = JSON.stringify(await this.#line(uri, change));
      size += line.length;
      lines.push(line);
    }
    return lines;
  }

  async #line(uri: string, change: Change): Promise<object> {
    let body: string | Uint8Array | undefined;
    try {
      body = uri.startsWith(this.#lists) ? undefined : await this.#options.content?.(uri);
    } catch (error) {
      this.report(new Error(`the content of ${uri} cannot be read; it is touched instead`, { cause: error }));
    }
    if (typeof body === 'string') return { put: uri, text: body };
    if (body !== undefined) return { put: uri, base64: Buffer.from(body).toString('base64') };
    return change.create ? { put: uri, text: '', ifNoneMatch: '*' } : { touch: uri };
  }

  async #post(lines: string[]): Promise<Answer[]> {
    const headers = { 'content-type': 'application/x-ndjson', ...this.#authorization() };
    const response = await this.#fetch('/v1/resources', { method: 'POST', body: lines.join('\n'), headers });
    const answers = (await response.text()).split('\n').filter(line => line !== '');
    if (answers.length !== lines.length) throw new Error(`Tidings answered ${answers.length} of ${lines.length} changes`);
    return answers.map(line => JSON.parse(line) as Answer);
  }

  /** Settles a change, or puts it back; returns true if it should be sent later rather than at once. */
  #answered(uri: string, change: Change, answer: Answer | undefined): boolean {
    if (answer === undefined) return false;
    const { status, error } = answer;
    if (status < 300) {
      this.#published.add(uri);
    } else if (status === 404 || status === 412) {
      // It is not there and has to be created, or another process was faster to create it.
      this.#again(uri, { create: status === 404 });
    } else if (RETRIED.includes(status)) {
      this.#again(uri, change);
      return true;
    } else {
      this.report(new PublishRefused(`${uri}: ${error}`));
    }
    return false;
  }

  #again(uri: string, change: Change): void {
    this.#outgoing.set(uri, change);
  }

  // Listening

  async #listen(): Promise<void> {
    const backoff = new Backoff();
    while (!this.#ended.signal.aborted) {
      try {
        await this.#connection(backoff);
      } catch (error) {
        this.report(error);
      }
      await this.#wait(backoff.next());
    }
  }

  async #connection(backoff: Backoff): Promise<void> {
    const socket = new WebSocket(`${this.#url.replace(/^http/, 'ws')}/v1/ws`, {
      headers: this.#authorization(),
      handshakeTimeout: ANSWER
    });
    const end = () => socket.terminate();
    this.#ended.signal.addEventListener('abort', end);
    try {
      await new Listening(this, socket).run(backoff);
    } finally {
      this.#ended.signal.removeEventListener('abort', end);
      socket.terminate();
    }
  }

  /** All resources of this server that Tidings has, with their etags. */
  async listed(): Promise<Map<string, string>> {
    const etags = new Map<string, string>();
    let after: string | undefined;
    do {
      const query = new URLSearchParams({ limit: '1000', ...(after === undefined ? {} : { after }) });
      const response = await this.#fetch(`/v1/resources?${query}`, { headers: this.#authorization() });
      const page = (await response.json()) as { items: { uri: string; etag: string }[]; next?: string };
      for (const { uri, etag } of page.items) {
        if (this.#prefixes.some(prefix => uri.startsWith(prefix))) etags.set(uri, etag);
      }
      after = page.next;
    } while (after !== undefined);
    return etags;
  }

  /** Takes over what Tidings has, and tells what is another than known. */
  compare(listed: Map<string, string>): void {
    // The first time there is nothing to compare with: listeners that are here already may have missed anything.
    const tell = this.#synced || this.#listeners.size > 0;
    for (const [uri, etag] of listed) this.learn(uri, etag, tell);
    for (const uri of [...this.#etags.keys()]) {
      if (listed.has(uri)) continue;
      this.#etags.delete(uri);
      this.#change(uri);
    }
    // A Tidings without a store forgets; other processes learn of these from its list.
    for (const uri of this.#published) {
      if (listed.has(uri) || this.#outgoing.has(uri)) continue;
      this.#outgoing.set(uri, { create: true });
      this.#sent.set();
    }
    this.#synced = true;
    this.#reported.clear();
    this.#onSynced();
  }

  /** Notes an etag, and tells of it if it is another than the one known. */
  learn(uri: string, etag: string, tell = true): void {
    if (this.#etags.get(uri) === etag) return;
    this.#etags.set(uri, etag);
    if (tell) this.#change(uri);
  }

  /** Notes that a resource was removed, so that it is not published again after a restart of Tidings. */
  forget(uri: string): void {
    this.#published.delete(uri);
  }

  /** The etag known of a resource. */
  known(uri: string): string | null {
    return this.#etags.get(uri) ?? null;
  }

  // Telling

  #change(uri: string): void {
    this.#incoming.add(uri);
    this.#told.set();
  }

  async #tell(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      if (this.#incoming.size === 0) await this.#told.wait();
      const uris = [...this.#incoming];
      this.#incoming.clear();
      for (const uri of uris) this.#deliver(uri);
      // The listen streams write meanwhile, and later changes of the same resources become one.
      await this.#wait(this.#options.pause ?? 20);
    }
  }

  #deliver(uri: string): void {
    let event: ServerEvent = { kind: 'resource_updated', uri };
    if (uri.startsWith(this.#lists)) {
      const name = uri.slice(this.#lists.length);
      if (!(name in LISTS)) return;
      event = { kind: LISTS[name as keyof typeof LISTS] };
    }
    for (const listener of [...this.#listeners.values()]) {
      try {
        listener(event);
      } catch (error) {
        this.report(error);
      }
    }
  }

  async #fetch(path: string, request: RequestInit): Promise<Response> {
    const response = await fetch(this.#url + path, { ...request, signal: AbortSignal.timeout(ANSWER) }).catch(error => {
      // Its own message says no more than that it failed.
      throw error.cause instanceof Error ? error.cause : error;
    });
    if (response.ok) return response;
    const text = `${request.method ?? 'GET'} ${this.#url}${path}: ${response.status} ${await response.text()}`;
    throw RETRIED.includes(response.status) ? new Error(text) : new PublishRefused(text);
  }

  #authorization(): Record<string, string> {
    const { token } = this.#options;
    const value = typeof token === 'function' ? token() : token;
    return value ? { authorization: `Bearer ${value}` } : {};
  }

  /** Tells the owner of the bus of a failure, once until Tidings is back. */
  report(error: unknown): void {
    if (this.#ended.signal.aborted) return;
    const told = error instanceof Error ? error : new Error(String(error));
    if (this.#reported.has(told.message)) return;
    this.#reported.add(told.message);
    if (this.#options.onerror) this.#options.onerror(told);
    else console.error(`tidings_bus: ${told.message}`);
  }

  /** Waits, at most until the bus ends. */
  #wait(duration: number): Promise<void> {
    const { signal } = this.#ended;
    return new Promise(done => {
      const end = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', end);
        done();
      };
      const timer = setTimeout(end, duration);
      signal.addEventListener('abort', end);
      if (signal.aborted) end();
    });
  }
}

/** One connection to `/v1/ws`: the subscriptions that it has, and the answers that it waits for. */
class Listening {
  readonly #bus: TidingsBus;
  readonly #socket: WebSocket;
  readonly #subscribed = new Set<string>();
  readonly #answers = new Map<number, (message: Message) => void>();
  readonly #stale = new Signal();
  #warned = false;
  #lastId = 0;

  constructor(bus: TidingsBus, socket: WebSocket) {
    this.#bus = bus;
    this.#socket = socket;
  }

  /** Reads until the connection ends, and compares whenever the list of resources changed. */
  async run(backoff: Backoff): Promise<void> {
    let alive = true;
    const ended = new Promise<never>((_, fail) => {
      this.#socket.on('error', fail);
      this.#socket.on('close', (code, reason) => fail(new Error(`the connection ended with ${code} ${reason}`)));
      this.#socket.on('unexpected-response', (_request, response) => {
        fail(new PublishRefused(`Tidings refuses the WebSocket with ${response.statusCode}`));
      });
    });
    const opened = new Promise<void>(done => this.#socket.on('open', () => done()));
    this.#socket.on('message', data => this.#received(JSON.parse(data.toString()) as Message));
    this.#socket.on('pong', () => (alive = true));
    // A peer that vanished without a word is noticed by its silence.
    const pings = setInterval(() => {
      if (!alive) this.#socket.terminate();
      alive = false;
      if (this.#socket.readyState === WebSocket.OPEN) this.#socket.ping();
    }, PING);
    const compared = opened.then(() => this.#keepCompared(backoff));
    // Its reason arrives by the race below; one that comes after that is of no use.
    compared.catch(() => {});
    ended.catch(() => {});
    try {
      await Promise.race([ended, compared]);
    } finally {
      clearInterval(pings);
      this.#stale.set();
    }
  }

  #received(message: Message): void {
    switch (message.type) {
      case 'updated':
        this.#bus.learn(message.uri, message.etag);
        break;
      case 'removed':
        this.#bus.learn(message.uri, message.etag);
        this.#bus.forget(message.uri);
        this.#subscribed.delete(message.uri);
        this.#stale.set();
        break;
      case 'list_changed':
        this.#stale.set();
        break;
      case 'ack':
      case 'error':
        this.#answers.get(message.id ?? 0)?.(message);
        this.#answers.delete(message.id ?? 0);
    }
  }

  async #keepCompared(backoff: Backoff): Promise<void> {
    await this.#ask({ type: 'subscribe', lists: ['resources'] });
    while (this.#socket.readyState === WebSocket.OPEN) {
      this.#stale.clear();
      const listed = await this.#bus.listed();
      this.#bus.compare(listed);
      const refused = await this.#subscribe([...listed.keys()].filter(uri => !this.#subscribed.has(uri)));
      backoff.reset();
      // Beyond `session.subscriptions_max` nothing is told, so the list is compared every few seconds.
      const timer = refused ? setTimeout(() => this.#stale.set(), RECOMPARE) : undefined;
      await this.#stale.wait();
      clearTimeout(timer);
    }
  }

  /** Subscribes from the etags known, and returns true if some were refused. */
  async #subscribe(uris: string[]): Promise<boolean> {
    let refused = false;
    for (let start = 0; start < uris.length; start += NAMES_MAX) {
      const names = uris.slice(start, start + NAMES_MAX);
      const known = Object.fromEntries(names.map(uri => [uri, this.#bus.known(uri)]));
      const answer = await this.#ask({ type: 'subscribe', known });
      if (answer.type === 'error') throw new Error(answer.message);
      for (const uri of Object.keys(answer.subscribed)) this.#subscribed.add(uri);
      const [reason] = Object.values(answer.refused);
      refused ||= reason !== undefined;
      if (reason !== undefined && !this.#warned) {
        this.#warned = true;
        this.#bus.report(new Error(`some resources are compared every 2 s, not told: ${reason}`));
      }
    }
    return refused;
  }

  #ask(request: object): Promise<Message> {
    const id = ++this.#lastId;
    return new Promise((done, fail) => {
      const timer = setTimeout(() => fail(new Error('Tidings did not answer a request on the WebSocket')), ANSWER);
      this.#answers.set(id, message => {
        clearTimeout(timer);
        done(message);
      });
      this.#socket.send(JSON.stringify({ ...request, id }));
    });
  }
}

/** Something that one task waits for and others cause. */
class Signal {
  #isSet = false;
  #wake = () => {};

  set(): void {
    this.#isSet = true;
    this.#wake();
  }

  clear(): void {
    this.#isSet = false;
  }

  /** Waits until it is set, and clears it. */
  async wait(): Promise<void> {
    if (!this.#isSet) await new Promise<void>(done => (this.#wake = done));
    this.#isSet = false;
  }
}

/** Pauses that double, shortened at random so that many processes do not come back at once. */
class Backoff {
  #pause = BACKOFF_MIN;

  reset(): void {
    this.#pause = BACKOFF_MIN;
  }

  /** The next pause, in milliseconds. */
  next(): number {
    const pause = this.#pause * (0.5 + Math.random() / 2);
    this.#pause = Math.min(this.#pause * 2, BACKOFF_MAX);
    return pause;
  }
}
