// Measures the live page, and prints rows for docs/benchmarks.md.

import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { Agent, get } from 'node:http';
import { join } from 'node:path';
import { Service, Session, expect, until } from './service.mjs';
import { LOOKS, Viewer, finish, options, parts } from './viewer.mjs';

const SESSIONS = 1000;
const RESOURCES = 10000;
const MANY = 18000;
const VIEWERS = 20;
const REPEATS = 5;
/** Runs with and without viewers: a 99th percentile moves more than other figures. */
const PAIRS = 9;
const WINDOW = 20000;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const median = (values) => values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)];
const spread = (values, digits = 0) => `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)}..${Math.max(...values).toFixed(digits)})`;
const row = (...cells) => console.log(`| ${cells.join(' | ')} |`);

/** The CPU time of a process so far in seconds: what its threads, with the kernel's work for them, have run. */
function cpuOf(process) {
  const folder = `/proc/${process.pid}/task`;
  const threads = readdirSync(folder).map((thread) => Number(readFileSync(join(folder, thread, 'schedstat'), 'utf8').split(' ')[0]));
  return threads.reduce((sum, one) => sum + one, 0) / 1e9;
}

/** A service with sessions and resources. */
async function populated(name) {
  const service = new Service(options.tidings, join(options.dir, name));
  await service.start('');
  await service.putAll(Array.from({ length: RESOURCES }, (_, at) => ({ put: `many://${at}`, text: 'x' })));
  for (let at = 0; at < SESSIONS; at += 50) {
    await Promise.all(Array.from({ length: 50 }, async (_, one) => (await Session.open(service, `client ${at + one}`)).subscribe(`many://${at + one}`)));
  }
  return service;
}

/** The time from a link to the first row of a list, in a browser that has nothing of the page yet, in ms. */
async function linkToContent(service, view) {
  const viewer = await Viewer.open();
  const begin = performance.now();
  await viewer.page.goto(`${service.url}/ui/#/${view}`, { waitUntil: 'commit' });
  await viewer.page.locator('tbody tr').first().waitFor();
  const took = performance.now() - begin;
  await viewer.close();
  return took;
}

const VIEWS = [['Overview', 'overview'], ['Sessions', 'sessions'], ['Resources', 'resources'], ['Resources, searched, by subscribers', 'resources?sort=subscribers&q=9']];

async function link() {
  const service = await populated('link');
  row('view', 'from the link to its content, ms');
  row('---', '---');
  for (const [name, view] of VIEWS) {
    const took = [];
    for (let at = 0; at < REPEATS; at += 1) took.push(await linkToContent(service, view));
    row(name, spread(took));
  }
  await service.end();
}

/** The CPU that the service takes in a window of time, in percent of a core. */
async function load(service) {
  const before = cpuOf(service.process);
  const begin = performance.now();
  await sleep(WINDOW);
  return (100 * (cpuOf(service.process) - before)) / ((performance.now() - begin) / 1000);
}

async function viewers() {
  const service = await populated('viewers');
  const idle = await load(service);
  row(`view of ${VIEWERS} viewers`, 'service CPU, % of a core', 'without viewers, %', 'requests in 20 s');
  row('---', '---', '---', '---');
  for (const [name, view] of VIEWS) {
    const open = [];
    for (let at = 0; at < VIEWERS; at += 1) {
      const viewer = await Viewer.open();
      await viewer.show(service, view);
      open.push(viewer);
    }
    let requests = 0;
    for (const viewer of open) viewer.page.on('requestfinished', () => { requests += 1; });
    const busy = await load(service);
    row(name, busy.toFixed(2), idle.toFixed(2), requests);
    expect(requests >= (VIEWERS * WINDOW) / 2600, `${VIEWERS} viewers asked only ${requests} times`);
    for (const viewer of open) await viewer.close();
  }
  await service.end();
}

/** The requests of a page in a time: the path and the time after its first one. */
async function recorded(service, view, ms) {
  const viewer = await Viewer.open();
  await viewer.show(service, view);
  const seen = [];
  viewer.page.on('request', (request) => { const { pathname, search } = new URL(request.url()); seen.push({ path: pathname + search, at: performance.now() }); });
  await sleep(ms);
  await viewer.close();
  expect(seen.length > ms / 2500, `the page asked only ${seen.length} times`);
  return seen.map(({ path, at }) => ({ path, at: at - seen[0].at }));
}

/** Asks as a viewer does, again and again, until it is stopped; returns the number of its requests. */
async function replay(service, seen, period, signal) {
  const agent = new Agent({ keepAlive: true, maxSockets: 6 });
  let asked = 0;
  const pause = (ms) => new Promise((done) => { const timer = setTimeout(done, ms); signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true }); });
  // At any place of the time from the first request on, so that viewers do not ask all at once.
  for (let begin = performance.now() - Math.random() * period; !signal.aborted; begin += period) {
    for (const { path, at } of seen) {
      if (begin + at < performance.now() - 1000) continue;
      await pause(Math.max(0, begin + at - performance.now()));
      if (signal.aborted) break;
      await new Promise((done, fail) => get(`${service.url}${path}`, { agent }, (answer) => answer.resume().on('end', done)).on('error', fail));
      asked += 1;
    }
    await pause(Math.max(0, begin + period - performance.now()));
  }
  agent.destroy();
  return asked;
}

/** Runs `tidings bench` and returns its report. */
function bench(...args) {
  return new Promise((done, fail) => {
    const process = spawn(options.tidings, ['bench', ...args, '--json', '-'], { stdio: ['ignore', 'pipe', 'ignore'] });
    let text = '';
    process.stdout.on('data', (data) => { text += data; });
    process.on('exit', (code) => (code === 0 ? done(JSON.parse(text)) : fail(new Error(`bench ended with ${code}`))));
  });
}

async function fanout() {
  const service = await populated('fanout');
  const period = 10000;
  const seen = await recorded(service, 'overview', period);
  const load = [`${service.url}/mcp`, '--sessions', '1000', '--rate', '20', '--duration', '6s', '--warm-up', '1s', '--settle', '1s'];
  const halves = { without: [], beside: [] };
  const times = { without: [], beside: [] };
  const ratios = [];
  const ofHalves = [];
  let asked = 0;
  for (let at = 0; at < PAIRS; at += 1) {
    // In turn, and the other one first each time, so that a drift of the machine affects both.
    for (const kind of at % 2 ? ['beside', 'without'] : ['without', 'beside']) {
      const stop = new AbortController();
      const viewers = Array.from({ length: kind === 'beside' ? VIEWERS : 0 }, () => replay(service, seen, period, stop.signal));
      const report = await bench(...load);
      stop.abort();
      for (const viewer of viewers) asked += await viewer;
      times[kind].push(report.groups[0].latency.p99_us / 1000);
      halves[kind].push(report.groups[0].latency.p50_us / 1000);
    }
    ratios.push(times.beside.at(-1) / times.without.at(-1));
    ofHalves.push(halves.beside.at(-1) / halves.without.at(-1));
  }
  row('from the due time to the notice', 'without viewers, ms', `beside ${VIEWERS} of the overview, ms`, 'beside ÷ without');
  row('---', '---', '---', '---');
  row('p50', spread(halves.without, 2), spread(halves.beside, 2), spread(ofHalves, 2));
  row('p99', spread(times.without, 2), spread(times.beside, 2), spread(ratios, 2));
  console.log(`${asked} requests of viewers in ${PAIRS} runs`);
  await service.end();
}

async function many() {
  const service = new Service(options.tidings, join(options.dir, 'many'));
  await service.start('[http]\nconnections_max = 19000\n');
  const holding = bench(`${service.url}/mcp`, '--sessions', String(MANY), '--connect-rate', '4000', '--rate', '1', '--duration', '30s', '--settle', '2s');
  holding.catch(() => {});
  const total = async () => (await (await fetch(`${service.url}/v1/sessions?limit=1`)).json()).total;
  await until('the sessions', async () => (await total()) >= MANY, 90000);
  row(`with ${MANY.toLocaleString('en')} sessions`, 'ms');
  row('---', '---');
  for (const [name, view] of VIEWS.slice(0, 3)) {
    const took = [];
    for (let at = 0; at < 3; at += 1) took.push(await linkToContent(service, view));
    row(`${name}, from the link to its content`, spread(took));
  }
  for (const path of ['/v1/sessions?limit=100', '/v1/sessions?q=s179&limit=100', '/v1/stats']) {
    const took = [];
    for (let at = 0; at < REPEATS; at += 1) {
      const begin = performance.now();
      expect((await (await fetch(service.url + path)).text()).length > 100, `${path} has no answer`);
      took.push(performance.now() - begin);
    }
    row(`\`GET ${path}\``, spread(took, 1));
  }
  const viewer = await Viewer.open(LOOKS.light);
  const { page } = viewer;
  await viewer.show(service, 'sessions');
  await page.getByText(`The 100 slowest of ${MANY.toLocaleString('en')}`).waitFor();
  const begin = performance.now();
  await page.locator('input[type=search]').fill('s179');
  await page.waitForFunction(() => [...document.querySelectorAll('tbody tr')].every((one) => one.textContent.includes('s179')) && document.querySelectorAll('tbody tr').length > 5);
  row('a search, from the key to its rows', (performance.now() - begin).toFixed(0));
  // Ten turns of the wheel while the list is drawn anew: the longest time between two pictures.
  const gap = page.evaluate(() => new Promise((done) => {
    let longest = 0;
    let last = performance.now();
    const end = last + 5000;
    requestAnimationFrame(function frame(now) {
      longest = Math.max(longest, now - last);
      last = now;
      if (now < end) requestAnimationFrame(frame);
      else done(longest);
    });
  }));
  await page.mouse.move(640, 450);
  for (let at = 0; at < 10; at += 1) {
    await page.mouse.wheel(0, 300);
    await sleep(300);
  }
  row('longest time between two pictures while it scrolls', (await gap).toFixed(0));
  expect((await page.evaluate(() => scrollY)) > 500, 'the list did not scroll');
  await viewer.picture('many');
  await viewer.close();
  expect((await total()) >= MANY, `only ${await total()} sessions were left`);
  const report = await holding;
  expect(report.problems.length === 0, report.problems.join());
  await service.end();
}

const PARTS = { link, viewers, fanout, many };
for (const name of parts.length ? parts : Object.keys(PARTS)) {
  console.log(`\n${name}`);
  await PARTS[name]();
}
await finish();
process.exit(0);
