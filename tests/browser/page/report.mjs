// The page that `tidings bench --html` writes, in a real browser: its figures, its looks, and names that try to be more.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect } from './service.mjs';
import { HOSTILE, RAW } from './names.mjs';
import { Viewer, options, runAll } from './viewer.mjs';

const LOOKS = {
  phone: { colorScheme: 'light', viewport: { width: 390, height: 844 } },
  desktop: { colorScheme: 'light', viewport: { width: 1280, height: 800 } },
  dark: { colorScheme: 'dark', viewport: { width: 1280, height: 800 } },
  narrow: { colorScheme: 'light', viewport: { width: 320, height: 640 } },
};
/** The units in which a figure is shown, as parts of that in which the report has it. */
const UNITS = { 'µs': 1, ms: 1e3, s: 1e6, KiB: 1, MiB: 1024, GiB: 1024 ** 2, '': 1 };
/** A file may have such a name. */
const HOSTILE_FILE = '<img src=x onerror=window.ran=1>\u202E.json';

const folder = options.dir;
const path = (name) => join(folder, name);
const read = (name) => JSON.parse(readFileSync(path(name), 'utf8'));

/** Runs `tidings bench` with these arguments. */
function bench(...args) {
  const done = spawnSync(options.tidings, ['bench', ...args], { encoding: 'utf8', timeout: 60000, maxBuffer: 64 << 20 });
  expect(done.status === 0, `bench ${args.join(' ')}: ${done.status} ${done.stderr.slice(-300)}`);
}

/** Measures a service for a second or two. */
function measure(name, ...args) {
  const serve = ['--serve-command', `${options.tidings} serve --listen 127.0.0.1:{port}`];
  bench(...serve, '--warm-up', '200ms', '--settle', '1s', '--json', path(`${name}.json`), '--html', path(`${name}.html`), ...args);
}

/** Opens a page of the folder. Every request but that for the page itself is a foreign one. */
async function open(name, look) {
  const url = pathToFileURL(path(name)).href;
  const viewer = await Viewer.open(look, { test: (asked) => asked === url });
  await viewer.page.goto(url);
  await viewer.page.locator('h1').waitFor();
  return viewer;
}

async function report_is_clean_in_every_look() {
  for (const name of ['first', 'second']) {
    for (const [look, settings] of Object.entries(LOOKS)) {
      const viewer = await open(`${name}.html`, settings);
      await viewer.picture(`${name}-${look}`);
      await viewer.check(`${name} ${look}`);
      await viewer.close();
    }
  }
}

async function figures_are_those_of_the_report() {
  const report = read('first.json');
  const viewer = await open('first.html', LOOKS.desktop);
  const shown = await viewer.page.evaluate(() => [...document.querySelectorAll('data[data-field]')].map((node) => ({ field: node.dataset.field, value: node.value, text: node.textContent })));
  expect(shown.length > 40, `only ${shown.length} figures`);
  for (const { field, value, text } of shown) {
    const expected = field.split('.').reduce((part, name) => part?.[name], report);
    expect(typeof expected === 'number' && Number(value) === expected, `${field} is ${value}, and ${expected} in the report`);
    const [, digits, unit] = text.match(/^([\d,.]+) ?(\D*)$/) ?? [];
    const read = Number(digits?.replaceAll(',', '')) * UNITS[unit];
    // It is shown with at least two digits.
    expect(Math.abs(read - expected) <= Math.abs(expected) * 0.05, `${field} is ${expected}, and shown as ${text}`);
  }
  for (const field of ['groups.0.latency.p99_us', 'deliveries_per_s', 'opened.sessions', 'groups.0.missing_finals', 'server.cpu_us_per_delivery', 'server.kib_per_session']) {
    expect(shown.some((one) => one.field === field), `${field} is not shown`);
  }
  await viewer.close();
}

async function verdict_and_big_figures_come_first() {
  for (const look of [LOOKS.phone, LOOKS.desktop]) {
    const viewer = await open('first.html', look);
    const places = await viewer.page.evaluate(() => ['.verdict', '.figures', 'figure', 'table'].map((one) => document.querySelector(one).getBoundingClientRect().top));
    expect(places.every((place, at) => at === 0 || place > places[at - 1]), `verdict, figures, charts and tables are at ${places}`);
    const bottom = await viewer.page.evaluate(() => document.querySelector('.figure').getBoundingClientRect().bottom);
    expect(bottom <= look.viewport.height, `the first figure ends at ${bottom}, below the window`);
    expect((await viewer.text()).includes('✓ Passed'), 'the verdict is missing');
    await viewer.close();
  }
}

async function axes_stand_where_their_labels_are() {
  for (const look of [LOOKS.phone, LOOKS.desktop]) {
    const viewer = await open('second.html', look);
    const charts = await viewer.page.evaluate(() => {
      const middle = (node) => { const box = node.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; };
      const all = (area, selector) => [...area.querySelectorAll(selector)].map(middle);
      return [...document.querySelectorAll('.area')].map((area) => ({
        down: [all(area, 'svg .grid.x'), all(area, 'span.x')], across: [all(area, 'svg .grid:not(.x)'), all(area, 'span.y')],
        hidden: area.querySelectorAll('span.minor').length, lines: area.querySelectorAll('.line').length,
        legend: area.closest('figure').querySelectorAll('.legend li').length,
      }));
    });
    expect(charts.length === 5, `${charts.length} charts`);
    for (const { down, across, lines, legend, hidden } of charts) {
      expect(lines === legend && lines >= 2, `${lines} lines and ${legend} entries in the legend`);
      expect(down[0].length === down[1].length && across[0].length === across[1].length && across[0].length > 2, `labels and lines of the grid: ${JSON.stringify([down, across])}`);
      down[0].forEach(([x], at) => {
        // A label that is left out on a phone has no place.
        const label = down[1][at][0];
        expect(Math.abs(x - label) <= 1 || (hidden > 0 && label === 0), `a line at ${x} has its label at ${label}`);
      });
      across[0].forEach(([, y], at) => expect(Math.abs(y - across[1][at][1]) <= 1, `a line at ${y} has its label at ${across[1][at][1]}`));
    }
    const broken = await viewer.page.evaluate(() => {
      const words = [...document.querySelectorAll('th[scope=row] .foreign')].filter((node) => node.textContent.length < 16 && !/[ /]/.test(node.textContent));
      const tall = words.filter((node) => node.getBoundingClientRect().height > 1.9 * parseFloat(getComputedStyle(node).fontSize));
      return { words: words.length, tall: tall.map((node) => node.textContent) };
    });
    expect(broken.words > 5 && broken.tall.length === 0, `words are broken: ${JSON.stringify(broken)}`);
    await viewer.close();
  }
}

async function second_run_stands_beside_the_first() {
  const viewer = await open('second.html', LOOKS.desktop);
  const text = await viewer.text();
  const [first, second] = [read('first.json'), read('second.json')];
  expect(text.includes('The loads differ') && text.includes('rate 20 and 40'), 'the difference of the loads is not named');
  const rows = await viewer.page.locator('section:has(h2:text-is("Both runs")) tbody tr').evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
  const row = (name) => rows.find(([head]) => head === name) ?? [];
  const heads = await viewer.page.locator('section:has(h2:text-is("Both runs")) thead th').allTextContents();
  expect(heads.join() === 'figure,first.json,second.json,ratio,change', `the columns are ${heads}`);
  expect(Number(row('notices/s')[1]) === Math.round(first.deliveries_per_s * 100) / 100, `notices/s: ${row('notices/s')}`);
  expect(Number(row('notices/s')[2]) === Math.round(second.deliveries_per_s * 100) / 100, `notices/s: ${row('notices/s')}`);
  const p99 = (report) => (report.groups[0].latency.p99_us / 1000).toFixed(2);
  expect(Number(row('reading: p99, ms')[1]) === Number(p99(first)) && Number(row('reading: p99, ms')[2]) === Number(p99(second)), `p99: ${row('reading: p99, ms')}`);
  expect((await viewer.page.locator('.figure .change').count()) >= 5, 'the big figures do not say what changed');
  await viewer.close();
}

async function hostile_names_stay_names() {
  const report = read('first.json');
  const names = HOSTILE.map((name) => name.toWellFormed());
  report.version = report.settings.url = report.settings.publish = names[0];
  report.problems = names.filter((_, at) => at % 8 === 1);
  // Each has a dozen rows, so a part of the names will do; all of them are settings.
  report.groups = names.filter((_, at) => at % 8 === 0).map((name) => ({ ...report.groups[0], name, conflated: 1 }));
  names.forEach((name, at) => { report.settings[`${at} ${name}`] = name; });
  mkdirSync(folder, { recursive: true });
  writeFileSync(path(HOSTILE_FILE), JSON.stringify(report));
  bench('--compare', path('second.json'), path(HOSTILE_FILE), '--html', path('hostile.html'));
  bench('--compare', path(HOSTILE_FILE), path('second.json'), '--html', path('hostile-earlier.html'));
  for (const name of ['hostile.html', 'hostile-earlier.html']) {
    const viewer = await open(name, LOOKS.narrow);
    const state = await viewer.page.evaluate(() => ({
      ran: window.ran,
      odd: document.querySelectorAll('body :is(img, iframe, object, embed, base, style, script, link, form, input, a, foreignObject, animate)').length,
      logos: document.querySelectorAll('header svg').length,
      sideways: document.documentElement.scrollWidth > innerWidth,
      escaped: document.querySelectorAll('.escaped').length,
      rows: document.querySelectorAll('tbody tr').length,
    }));
    expect(state.ran === undefined && state.odd === 0 && state.logos === 1, `${name}: ${JSON.stringify(state)}`);
    expect(!state.sideways, `${name} scrolls sideways`);
    expect(state.escaped > 20 && state.rows >= 300, `${name}: ${JSON.stringify(state)}`);
    const raw = (await viewer.text()).match(RAW);
    expect(!raw, `${name} shows U+${raw?.[0].codePointAt(0).toString(16)} as it is`);
    await viewer.picture(name.replace('.html', ''));
    await viewer.close();
  }
}

async function policy_stops_what_got_through() {
  const viewer = await open('first.html', LOOKS.desktop);
  await viewer.page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.ran = 1';
    const picture = document.createElement('img');
    picture.src = 'http://127.0.0.1:1/x';
    picture.setAttribute('onerror', 'window.ran = 1');
    document.body.append(script, picture);
  });
  await viewer.page.waitForFunction(() => document.images[0].complete);
  expect((await viewer.page.evaluate(() => window.ran)) === undefined, 'a script ran');
  expect(viewer.complaints.length >= 2 && viewer.complaints.every((text) => text.includes('Content Security Policy')), `the console has: ${viewer.complaints}`);
  // The browser asks for neither, and says so.
  viewer.complaints = [];
  viewer.foreign = [];
  await viewer.close();
}

measure('first', '--sessions', '40', '--rate', '20', '--duration', '3s', '--stalled', '2', '--churn', '3', '--calibrate');
measure('second', '--sessions', '40', '--rate', '40', '--duration', '3s', '--baseline', path('first.json'));
const failed = await runAll([
  report_is_clean_in_every_look, figures_are_those_of_the_report, verdict_and_big_figures_come_first, axes_stand_where_their_labels_are,
  second_run_stands_beside_the_first, hostile_names_stay_names, policy_stops_what_got_through,
]);
process.exit(failed ? 1 : 0);
