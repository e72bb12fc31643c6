// The live page in a real browser, against a real service. Prints `ok NAME` or `FAIL NAME: reason`, and at the end
// `N passed, N failed`. Pictures of each view are left in the folder for a person to look at.

import { join } from 'node:path';
import { Service, Session, expect, until } from './service.mjs';
import { HOSTILE, RAW } from './names.mjs';
import { LOOKS, Viewer, options, runAll } from './viewer.mjs';
import { nodes_of_a_cluster_are_shown, service_that_is_alone_shows_no_nodes } from './nodes.mjs';

const VIEWS = {
  overview: 'overview', sessions: 'sessions', session: 'session?id=s1', resources: 'resources', resource: 'resource?uri=demo%3A%2F%2Fa',
  why: 'why?session=s1&uri=demo%3A%2F%2Fa', changes: 'changes', subscribers: 'subscribers',
};
/** Lets in one principal, which may do all that the page does. */
const GUARDED = '[auth]\nanonymous = "none"\n[[auth.token]]\nname = "ops"\nfile = "ops"\nroles = ["ops"]\n[[auth.rule]]\nroles = ["ops"]\nmay = ["list", "read", "subscribe", "admin", "metrics"]\nmatch = ["*"]\n';
const SESSIONS = 1000;
const RESOURCES = 10000;

const folder = options.dir;
const service = new Service(options.tidings, join(folder, 'service'));
const config = `[[journal]]\nname = "all"\nfile = "${join(folder, 'all.jsonl')}"\n`;
await service.start(config);
const first = await Session.open(service, 'a reader');
for (const uri of ['demo://a', 'demo://b']) await service.put(uri, '1');
await first.subscribe('demo://a');

async function views_have_no_violation_in_any_look() {
  for (const [name, look] of Object.entries(LOOKS)) {
    const viewer = await Viewer.open(look);
    for (const [view, route] of Object.entries(VIEWS)) {
      await viewer.show(service, route);
      if (view === 'changes') await until('the stream', () => viewer.page.getByText('changes a second').count());
      await viewer.picture(`${name}-${view}`);
      await viewer.check(`${name} ${view}`);
    }
    await viewer.close();
  }
}

async function hostile_names_stay_names() {
  const refused = [];
  for (let at = 0; at < HOSTILE.length; at += 1) {
    const name = HOSTILE[at];
    const lines = [{ put: `hostile://${encodeURIComponent(name.toWellFormed())}`, text: 'x', name, title: name, description: name }, { put: `hostile:${name}`, text: 'x' }];
    const answer = await fetch(`${service.url}/v1/resources`, { method: 'POST', headers: { 'content-type': 'application/x-ndjson' }, body: lines.map((line) => JSON.stringify(line)).join('\n') });
    const results = (await answer.text()).trim().split('\n').map((line) => JSON.parse(line));
    // A text that is no URI, or no name, is refused at the door and cannot be shown.
    if (results.every((result) => result.error)) refused.push(name);
  }
  const clients = HOSTILE.filter((name) => name.length < 500).slice(0, 60);
  for (const name of clients) {
    const session = await Session.open(service, name);
    await session.subscribe('demo://b');
  }
  await service.put('demo://b', '2');
  expect(HOSTILE.length - refused.length >= 300, `only ${HOSTILE.length - refused.length} names were taken`);
  const viewer = await Viewer.open(LOOKS.phone);
  let shown = 0;
  let written = 0;
  for (const route of ['resources?q=hostile&sort=uri', 'sessions', 'overview', 'why?session=s1&uri=%3Cscript%3Ewindow.ran%3D1%3C%2Fscript%3E', 'subscribers']) {
    await viewer.show(service, route);
    for (;;) {
      // The list and the way to its next page are drawn together.
      await viewer.page.locator(':is(tbody tr, .verdict, .empty):visible').first().waitFor();
      const text = await viewer.text();
      const raw = text.match(RAW);
      expect(!raw, `${route} shows U+${raw?.[0].codePointAt(0).toString(16)} as it is: ${text.slice(raw?.index - 40, raw?.index + 40)}`);
      const state = await viewer.page.evaluate(() => ({
        ran: window.ran,
        scripts: document.scripts.length,
        odd: document.querySelectorAll('main :is(img, iframe, object, embed, base, style, script, link)').length,
        links: [...document.querySelectorAll('main a')].filter((link) => !link.getAttribute('href').startsWith('#/')).length,
        sideways: document.documentElement.scrollWidth > innerWidth,
      }));
      expect(state.ran === undefined && state.scripts === 1 && state.odd === 0, `${route}: ${JSON.stringify(state)}`);
      expect(state.links === 0, `${route} links to what others wrote`);
      expect(!state.sideways, `${route} scrolls sideways`);
      shown += await viewer.page.locator('tbody tr').count();
      written += await viewer.page.locator('.escaped').count();
      const next = viewer.page.getByText('Next page →');
      if (!(await next.count())) break;
      // The address changes before the rows do, and between the two the view may be empty.
      const first = viewer.page.locator('tbody tr').first();
      const before = await first.textContent();
      await next.click();
      await until('the next page', async () => (await first.count()) > 0 && (await first.textContent()) !== before);
    }
  }
  // The question about a text that is no URI is refused, which the browser reports.
  viewer.complaints = viewer.complaints.filter((text) => !text.includes('400'));
  expect(shown >= 300, `only ${shown} rows were shown`);
  expect(written > 20, `only ${written} hidden characters are written out`);
  await viewer.close();
}

async function everything_works_by_keyboard() {
  const target = await Session.open(service, 'to be ended');
  const viewer = await Viewer.open();
  const { page } = viewer;
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
  await viewer.show(service, 'overview');
  await page.keyboard.press('Tab');
  expect((await focused()) === 'Skip to the content', `the first stop is ${await focused()}`);
  await page.keyboard.press('Enter');
  expect(await page.evaluate(() => document.activeElement.id === 'main'), 'the skip link leads to the content');
  for (let presses = 0; (await focused()) !== 'Sessions' && presses < 20; presses += 1) await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
  expect((await focused()) === 'Sessions', 'the heading of the new view has the focus');
  await page.keyboard.press('Tab');
  await page.keyboard.type('to be ended');
  const row = page.getByRole('row', { name: /to be ended/ });
  await row.waitFor();
  await until('the one row', async () => (await page.locator('tbody tr').count()) === 1);
  for (let presses = 0; !/^s\d+$/.test(await focused()) && presses < 20; presses += 1) await page.keyboard.press('Tab');
  const id = await focused();
  // The list is drawn anew meanwhile, and the focus has to stay.
  await page.waitForResponse((response) => response.url().includes('/v1/sessions'));
  expect((await focused()) === id, 'the focus was lost when the list was drawn anew');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: `Session ${id}` }).waitFor();
  const end = page.getByRole('button', { name: 'End session…' });
  await end.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  expect((await focused()) === 'Keep it', 'the harmless button has the focus');
  await page.keyboard.press('Escape');
  await until('the end of the dialog', async () => (await page.getByRole('dialog').count()) === 0);
  expect((await focused()) === 'End session…', 'the focus went back');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByText('ago: evicted').waitFor();
  expect((await target.post('ping', {}, 9)).status === 404, 'the session was ended');
  await viewer.close();
}

async function question_why_has_an_answer() {
  await service.put('demo://a', String(Date.now()));
  const viewer = await Viewer.open();
  await viewer.show(service, 'why');
  await viewer.page.getByLabel('Session', { exact: true }).fill('s1');
  await viewer.page.getByLabel('Resource', { exact: true }).fill('demo://a');
  await viewer.page.keyboard.press('Enter');
  await viewer.page.getByText('Not yet: the notice waits').waitFor();
  expect(viewer.page.url().endsWith('#/why?session=s1&uri=demo%3A%2F%2Fa'), `the address is ${viewer.page.url()}`);
  expect((await viewer.text()).includes('it never opened a stream'), 'the reason is shown');
  await first.listen();
  await viewer.page.getByText('It was told').waitFor();
  await viewer.close();
}

async function changes_are_seen_as_they_happen() {
  const viewer = await Viewer.open();
  const { page } = viewer;
  await viewer.show(service, 'changes');
  await page.getByText('changes a second').waitFor();
  await service.put('demo://seen', '1');
  await page.getByRole('log').getByText('demo://seen').waitFor();
  await page.getByPlaceholder('Begins with').fill('other:');
  await until('the other filter', () => page.evaluate(() => location.hash.includes('prefix=other')));
  await page.getByText('changes a second').waitFor();
  await service.put('demo://unseen', '1');
  await service.put('other:one', '1');
  await page.getByRole('log').getByText('other:one').waitFor();
  expect(!(await viewer.text()).includes('demo://unseen'), 'the filter lets another URI pass');
  await page.getByRole('button', { name: 'Pause' }).click();
  await service.put('other:two', '1');
  await page.getByText('1 change came meanwhile').waitFor();
  expect(!(await viewer.text()).includes('other:two'), 'a paused list went on');
  await page.getByRole('button', { name: 'Go on' }).click();
  await service.putAll(Array.from({ length: 900 }, (_, at) => ({ put: `other:fast/${at % 30}`, text: String(at) })));
  await page.getByText('counted by resource').waitFor();
  await viewer.close();
}

async function lost_service_is_told_and_found_again() {
  const own = new Service(options.tidings, join(folder, 'lost'));
  await own.start('');
  const viewer = await Viewer.open();
  await viewer.show(own, 'sessions?q=x');
  await own.end('SIGKILL');
  const lost = Date.now();
  await viewer.page.locator('#banner:not([hidden])').waitFor();
  const took = Date.now() - lost;
  expect(took <= 3000, `the banner came after ${took} ms`);
  await own.start('', own.port);
  await viewer.page.locator('#banner[hidden]').waitFor({ state: 'attached' });
  expect(viewer.page.url().endsWith('#/sessions?q=x'), 'the view stayed');
  // A browser reports each refused connection on its console, and so it should.
  viewer.complaints = viewer.complaints.filter((text) => !text.includes('ERR_'));
  await viewer.close();
  await own.end();
}

async function login_lets_in_and_out() {
  const own = new Service(options.tidings, join(folder, 'guarded'));
  const token = own.token('ops');
  await own.start(GUARDED);
  const viewer = await Viewer.open();
  const { page } = viewer;
  await viewer.show(own, 'sessions');
  await page.screenshot({ path: join(folder, 'light-login.png') });
  await page.keyboard.type('wrong');
  await page.keyboard.press('Enter');
  await page.getByText('The token is not valid here').waitFor();
  await page.getByLabel('Token').fill(token);
  await page.keyboard.press('Enter');
  await page.getByText('No client is connected').waitFor();
  expect((await viewer.text()).includes('token:ops'), 'the principal is named');
  const cookies = await viewer.context.cookies();
  expect(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === 'Strict', JSON.stringify(cookies));
  expect(!JSON.stringify(cookies).includes(token) && (await page.evaluate(() => document.cookie)) === '', 'the token is nowhere');
  await page.goto(`${own.url}/ui/#/changes`);
  await page.getByText('changes a second').waitFor();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  // The browser reports the refused token.
  viewer.complaints = viewer.complaints.filter((text) => !text.includes('401'));
  await viewer.close();
  await own.end();
}

async function login_over_tls_has_a_cookie_of_this_host_alone() {
  const own = new Service(options.tidings, join(folder, 'tls'));
  const token = own.token('ops');
  await own.start(`${GUARDED}${own.certificate()}`);
  // The browser does not know who signed the certificate, and goes on as a person may tell it to.
  const viewer = await Viewer.open({ ...LOOKS.light, ignoreHTTPSErrors: true }, /^(data:|https:\/\/127\.0\.0\.1:)/);
  const { page, context } = viewer;
  const bearer = { authorization: `Bearer ${token}`, accept: 'application/json, text/event-stream' };
  const about = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'behind TLS', version: '1' } };
  const opened = await context.request.post(`${own.url}/mcp`, { headers: bearer, data: { jsonrpc: '2.0', id: 1, method: 'initialize', params: about } });
  expect(opened.ok(), `initialize: ${opened.status()} ${await opened.text()}`);
  await viewer.show(own, 'sessions');
  const answered = page.waitForResponse((response) => response.url().endsWith('/ui/login') && response.request().method() === 'POST');
  await page.getByLabel('Token').fill(token);
  await page.keyboard.press('Enter');
  const set = await (await answered).headerValue('set-cookie');
  expect(/^__Host-tidings=[\w-]{43}; HttpOnly; Secure; SameSite=Strict; Path=\/; Max-Age=28800$/.test(set), `Set-Cookie: ${set}`);
  await page.getByText('behind TLS').waitFor();
  const [cookie, ...others] = await context.cookies();
  const { name, value, domain, path, secure, httpOnly, sameSite } = cookie;
  expect(others.length === 0 && name === '__Host-tidings' && secure && httpOnly && sameSite === 'Strict' && path === '/' && domain === '127.0.0.1', JSON.stringify([cookie, others]));
  expect((await page.evaluate(() => document.cookie)) === '' && !JSON.stringify(cookie).includes(token), 'the token, or the cookie, can be read by a script');
  await page.reload();
  await page.getByText('behind TLS').waitFor();
  // The stream of changes, and the one write that the cookie is for.
  await page.goto(`${own.url}/ui/#/changes`);
  await page.getByText('changes a second').waitFor();
  await page.goto(`${own.url}/ui/#/session?id=s1`);
  await page.getByRole('button', { name: 'End session…' }).click();
  await page.getByRole('button', { name: 'End session s1' }).click();
  await page.getByText('ago: evicted').waitFor();
  const replayed = async () => {
    const answer = await context.request.get(`${own.url}/v1/sessions`, { headers: { cookie: `${name}=${value}`, 'sec-fetch-site': 'same-origin' } });
    return answer.status();
  };
  const before = await replayed();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  expect((await context.cookies()).length === 0, 'the browser has a cookie after the logout');
  const after = await replayed();
  expect(before === 200 && after === 401, `the cookie was answered ${before} before the logout, and ${after} after it`);
  await viewer.close();
  await own.end();
}

async function page_is_quick_with_many() {
  const own = new Service(options.tidings, join(folder, 'many'));
  await own.start('');
  await own.putAll(Array.from({ length: RESOURCES }, (_, at) => ({ put: `many://${at}`, text: 'x' })));
  for (let at = 0; at < SESSIONS; at += 50) {
    await Promise.all(Array.from({ length: 50 }, async (_, one) => (await Session.open(own, `client ${at + one}`)).subscribe(`many://${at + one}`)));
  }
  for (const [view, row] of [['overview', 'tbody tr'], ['sessions', 'tbody tr'], ['resources', 'tbody tr'], ['resources?sort=subscribers&q=9', 'tbody tr']]) {
    const viewer = await Viewer.open();
    const begin = performance.now();
    await viewer.page.goto(`${own.url}/ui/#/${view}`, { waitUntil: 'commit' });
    await viewer.page.locator(row).first().waitFor();
    const took = Math.round(performance.now() - begin);
    console.log(`${view}: ${took} ms from the link to its content, with ${SESSIONS} sessions and ${RESOURCES} resources`);
    expect(took <= 1500, `${view} took ${took} ms`);
    await viewer.close();
  }
  await own.end();
}

async function alone_shows_no_nodes() {
  await service_that_is_alone_shows_no_nodes(service);
}

const failed = await runAll([
  views_have_no_violation_in_any_look, question_why_has_an_answer, changes_are_seen_as_they_happen, everything_works_by_keyboard,
  hostile_names_stay_names, lost_service_is_told_and_found_again, login_lets_in_and_out,
  login_over_tls_has_a_cookie_of_this_host_alone, page_is_quick_with_many, alone_shows_no_nodes, nodes_of_a_cluster_are_shown,
]);
await service.end('SIGKILL');
process.exit(failed ? 1 : 0);
