// A browser that notes what its pages complain of, and the run of scenarios.

import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { expect } from './service.mjs';

export const LOOKS = {
  light: { colorScheme: 'light', viewport: { width: 1280, height: 900 } },
  dark: { colorScheme: 'dark', viewport: { width: 1280, height: 900 } },
  phone: { colorScheme: 'light', viewport: { width: 320, height: 640 } },
};
const PICTURE_HEIGHT_MAX = 8000;
const PICTURE_TRIES = 5;
const STANDARDS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** The arguments of a test: the programs, the folder for what it leaves behind, the modules, and the parts that are to run. */
export const { values: options, positionals: parts } = parseArgs({ allowPositionals: true, options: { tidings: { type: 'string' }, browser: { type: 'string' }, dir: { type: 'string' }, modules: { type: 'string' } } });
const load = createRequire(join(options.modules, 'node_modules', 'x.js'));
const axe = readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');
mkdirSync(options.dir, { recursive: true });
const browser = await load('playwright-core').chromium.launch({ executablePath: options.browser, args: ['--no-sandbox'] });

/** One page, which may make requests to addresses like `own` alone. */
export class Viewer {
  static async open(look = LOOKS.light, own = /^(data:|http:\/\/127\.0\.0\.1:)/) {
    const viewer = new Viewer();
    viewer.context = await browser.newContext(look);
    viewer.page = await viewer.context.newPage();
    viewer.complaints = [];
    viewer.foreign = [];
    viewer.page.on('console', (message) => ['error', 'warning'].includes(message.type()) && viewer.complaints.push(message.text()));
    viewer.page.on('pageerror', (error) => viewer.complaints.push(error.message));
    viewer.page.on('request', (request) => !own.test(request.url()) && viewer.foreign.push(request.url()));
    return viewer;
  }

  async show(service, view) {
    await this.page.goto(`${service.url}/ui/#/${view}`);
    await this.page.locator('h1').waitFor();
    await this.page.locator('main', { hasNotText: 'Looking…' }).waitFor();
  }

  text() {
    return this.page.evaluate(() => document.body.textContent);
  }

  /** Holds the page against the rules of accessibility, and against the width of its window. */
  async check(name) {
    await this.page.evaluate(axe);
    const found = await this.page.evaluate(async (runOnly) => {
      const { violations, passes } = await axe.run(document, { runOnly });
      return { passes: passes.length, violations: violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)}`) };
    }, STANDARDS);
    expect(found.violations.length === 0, `${name}: ${found.violations.join(' | ')}`);
    expect(found.passes > 15, `${name}: only ${found.passes} rules applied`);
    const width = await this.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    expect(width[0] <= width[1], `${name} scrolls sideways: ${width}`);
  }

  /** Leaves a picture of the page for a person to look at; of its beginning if it is taller than a browser can draw at once. */
  async picture(name) {
    const [width, height] = await this.page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]);
    const clip = { x: 0, y: 0, width, height: Math.min(height, PICTURE_HEIGHT_MAX) };
    for (let tries = PICTURE_TRIES; ; tries -= 1) {
      try {
        return await this.page.screenshot({ path: join(options.dir, `${name}.png`), fullPage: true, clip });
      } catch (error) {
        // A browser on a busy machine gives a picture up, which says nothing about the page.
        if (tries === 1) throw error;
      }
    }
  }

  /** Ends the viewer, which must have had nothing to complain of. */
  async close() {
    await this.context.close();
    expect(this.complaints.length === 0, `the console has: ${this.complaints.slice(0, 3).join(' | ')}`);
    expect(this.foreign.length === 0, `requests to other hosts: ${this.foreign.slice(0, 3).join(', ')}`);
  }
}

/** Ends the browser. */
export const finish = () => browser.close();

/** Runs scenarios in order, prints a line for each and the counts; returns the number of those that failed. */
export async function runAll(scenarios) {
  let failed = 0;
  for (const scenario of scenarios) {
    try {
      await scenario();
      console.log(`ok ${scenario.name}`);
    } catch (error) {
      console.log(`FAIL ${scenario.name}: ${error.message.split('\n')[0]} (pictures and logs in ${options.dir})`);
      failed += 1;
    }
  }
  await finish();
  console.log(`${scenarios.length - failed} passed, ${failed} failed`);
  return failed;
}
