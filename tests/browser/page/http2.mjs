// A real browser over TLS, with which it agrees on HTTP/2: more event streams on one page than HTTP/1.1 allows for one host
// (six), a WebSocket beside them, and requests. All of it is one connection.

import { join } from 'node:path';
import { Service, expect, until } from './service.mjs';
import { LOOKS, Viewer, options, runAll } from './viewer.mjs';

const STREAMS = 12;
const uri = (at) => `demo://${at}`;

const service = new Service(options.tidings, join(options.dir, 'service'));
await service.start(service.certificate());
const viewer = await Viewer.open({ ...LOOKS.light, ignoreHTTPSErrors: true }, /^https:\/\/127\.0\.0\.1:/);
const { page, context } = viewer;

/** A change, and the figures, over connections that are not those of the page. */
async function put(at, text) {
  const answer = await context.request.put(`${service.url}/v1/resources/${encodeURIComponent(uri(at))}`, { headers: { 'content-type': 'text/plain' }, data: text });
  expect(answer.ok(), `PUT ${uri(at)}: ${answer.status()} ${await answer.text()}`);
  return answer.headers().etag.replaceAll('"', '');
}

async function figure(name) {
  const text = await (await context.request.get(`${service.url}/metrics`)).text();
  return Number(text.match(new RegExp(`^${name} (\\d+)$`, 'm'))[1]);
}

/** What the page has noted under this name. */
const noted = (name) => page.evaluate((of) => window[of], name);

async function twelve_streams_of_a_page_all_get_their_event() {
  await page.goto(`${service.url}/healthz`);
  await page.evaluate(([many, scheme]) => {
    window.told = {};
    window.open = 0;
    window.streams = Array.from({ length: many }, (_, at) => {
      const stream = new EventSource(`/v1/events?kind=updated&uri=${encodeURIComponent(`${scheme}${at}`)}`);
      stream.addEventListener('resumed', () => { window.open += 1; });
      stream.addEventListener('updated', (event) => { window.told[at] = JSON.parse(event.data); });
      return stream;
    });
  }, [STREAMS, uri('')]);
  await until(`${STREAMS} open streams`, async () => (await noted('open')) === STREAMS, 10000).catch(async (error) => {
    throw new Error(`${error.message}: the page has ${await noted('open')}`);
  });
  for (let at = 0; at < STREAMS; at += 1) {
    const etag = await put(at, `text ${at}`);
    const told = await until(`the event of stream ${at}`, async () => (await noted('told'))[at]);
    expect(told.uri === uri(at) && told.etag === etag, `stream ${at} was told ${JSON.stringify(told)}, expected ${etag}`);
  }
  const protocols = await page.evaluate(() => performance.getEntriesByType('navigation').map((entry) => entry.nextHopProtocol));
  expect(protocols.join() === 'h2', `the page came over ${protocols}`);
}

async function websocket_is_a_stream_of_the_same_connection() {
  const before = await figure('tidings_http2_streams');
  await page.evaluate((name) => {
    window.messages = [];
    window.socket = new WebSocket(`wss://${location.host}/v1/ws`);
    window.socket.onmessage = ({ data }) => window.messages.push(JSON.parse(data));
    window.socket.onopen = () => window.socket.send(JSON.stringify({ type: 'subscribe', uris: [name] }));
    window.socket.onclose = ({ code }) => window.messages.push({ type: 'close', code });
  }, uri(0));
  await until('the answer to subscribe', async () => (await noted('messages'))[0]?.type === 'ack');
  const etag = await put(0, 'for the socket');
  const told = await until('the message', async () => (await noted('messages'))[1]);
  expect(told.type === 'updated' && told.etag === etag, `told ${JSON.stringify(told)}, expected ${etag}`);
  const streams = await figure('tidings_http2_streams');
  expect(streams === before + 1, `${streams} streams of HTTP/2 with the WebSocket, ${before} without it`);
}

async function page_has_one_connection() {
  const answers = await page.evaluate(async (name) => {
    const all = Array.from({ length: 20 }, () => fetch(`/v1/resources/${encodeURIComponent(name)}`, { signal: AbortSignal.timeout(30000) }).then((answer) => answer.status));
    return (await Promise.all(all)).join();
  }, uri(1));
  expect(answers === Array(20).fill(200).join(), `20 requests at once: ${answers}`);
  const connections = await figure('tidings_http2_connections');
  expect(connections === 1, `${connections} connections of HTTP/2`);
  await viewer.close();
}

const failed = await runAll([twelve_streams_of_a_page_all_get_their_event, websocket_is_a_stream_of_the_same_connection, page_has_one_connection]);
await service.end('SIGKILL');
process.exit(failed ? 1 : 0);
