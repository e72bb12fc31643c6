// The frame of the page: routes, the banner, the viewer and the timers. Each view is a module of its own.

import * as api from './api.js';
import { h, set, duration } from './dom.js';
import { overview } from './overview.js';
import { sessions, session } from './sessions.js';
import { resources, resource } from './resources.js';
import { why } from './why.js';
import { changes } from './changes.js';
import { subscribers } from './subscribers.js';

const VIEWS = { overview, sessions, session, resources, resource, why, changes, subscribers };
const NAV = [
  ['overview', 'Overview'], ['sessions', 'Sessions'], ['resources', 'Resources'],
  ['why', 'Why?'], ['changes', 'Changes'], ['subscribers', 'Subscribers'],
];
const PARENT = { session: 'sessions', resource: 'resources' };
const ANNOUNCE_EVERY = 5000;

const at = (id) => document.getElementById(id);
const main = at('main');
let leave = new AbortController();
let viewer = { login: false, admin: true };

/** Says something to a screen reader, at most once in 5 s; the last of several is said. */
let said = 0;
let waiting;
export function announce(text) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    said = Date.now();
    at('live').textContent = text;
  }, Math.max(0, said + ANNOUNCE_EVERY - Date.now()));
}

function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const name = Object.hasOwn(VIEWS, path) ? path : 'overview';
  return { name, params: new URLSearchParams(query) };
}

function drawNav(name) {
  const here = PARENT[name] || name;
  set(at('nav'), NAV.map(([id, label]) => h('a', { href: `#/${id}`, 'aria-current': id === here ? 'page' : undefined }, label)));
}

/** Waits, and longer while nobody looks at the page. */
function rest(ms, signal) {
  return new Promise((done) => {
    const ready = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', ready);
      done();
    };
    const timer = setTimeout(() => {
      document.addEventListener('visibilitychange', ready);
      ready();
    }, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); ready(); done(); }, { once: true });
  });
}

/** Runs `look` again and again until the view is left. */
async function keepLooking(look, period, signal, problem) {
  while (!signal.aborted) {
    try {
      await look(signal);
      problem(null);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof api.Refused) {
        problem(error);
        if (error.status === 401) return void start();
      } else if (!(error instanceof api.Lost)) {
        throw error;
      }
    }
    await rest(api.connection.failures ? api.pause() : period, signal);
  }
}

function show(moved) {
  leave.abort();
  leave = new AbortController();
  const { name, params } = parse();
  drawNav(name);
  if (viewer.principal === undefined && viewer.login) return showLogin();
  const view = VIEWS[name]({ params, signal: leave.signal, viewer, announce, go: (hash) => { history.replaceState(null, '', hash); show(false); } });
  document.title = `${view.title} · Tidings`;
  const problem = h('p', { class: 'notice bad', role: 'alert', hidden: true });
  const heading = h('h1', { tabindex: '-1' }, view.heading || view.title);
  set(main, heading, view.intro && h('p', { class: 'intro' }, view.intro), problem, view.node);
  const tell = (error) => {
    problem.hidden = !error;
    if (error) problem.textContent = error.status === 403 && viewer.login ? `${sentence(error.message)} You can log in with another token, above.` : sentence(error.message);
  };
  for (const [look, period] of view.looks || []) keepLooking(look, period, leave.signal, tell);
  if (moved) heading.focus({ preventScroll: true });
  if (moved) scrollTo(0, 0);
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

function showLogin(message) {
  leave.abort();
  document.title = 'Log in · Tidings';
  const token = h('input', { type: 'password', id: 'token', name: 'token', autocomplete: 'current-password', required: true, spellcheck: 'false' });
  const refusal = h('p', { class: 'notice bad', role: 'alert', hidden: true });
  const button = h('button', { type: 'submit', class: 'primary' }, 'Log in');
  const form = h('form', { class: 'card login' },
    h('label', { for: 'token' }, 'Token'), token,
    h('p', { class: 'hint' }, 'A token as the service takes it in “Authorization: Bearer”. It is sent once, to this service, and not kept: a cookie stands for it until its end, 8 hours at most.'),
    refusal, button);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await api.logIn(token.value);
      await start(true);
    } catch (error) {
      refusal.hidden = false;
      refusal.textContent = sentence(error.message);
      button.disabled = false;
      token.select();
    }
  });
  set(main, h('h1', { tabindex: '-1' }, 'Log in'), h('p', { class: 'intro' }, message || 'This service lets in only callers with credentials.'), form);
  token.focus();
}

function drawViewer() {
  const out = h('button', { type: 'button', class: 'quiet', onclick: async () => { await api.logOut(); await start(true); } }, 'Log out');
  const enter = h('button', { type: 'button', class: 'quiet', onclick: () => showLogin('With a token you have the rights of its owner.') }, 'Log in');
  set(at('viewer'), viewer.login && [viewer.principal && h('span', { class: 'who' }, viewer.principal), viewer.session ? out : enter]);
}

/** Asks who is looking, and draws everything anew. */
async function start(moved) {
  try {
    viewer = await api.viewer();
  } catch (error) {
    if (error instanceof api.Refused) return void set(main, h('h1', null, 'Tidings'), h('p', { class: 'notice bad', role: 'alert' }, sentence(error.message)));
    await new Promise((done) => setTimeout(done, api.pause()));
    return start(moved);
  }
  drawViewer();
  show(moved);
}

let ticking;
api.onConnection((lost) => {
  const banner = at('banner');
  document.body.classList.toggle('lost', lost);
  banner.hidden = !lost;
  clearInterval(ticking);
  if (!lost) return announce('The service answers again.');
  const text = h('span');
  const draw = () => { text.textContent = `The service has not answered for ${duration(Date.now() - api.connection.since)}. What you see is from before; the page keeps trying.`; };
  draw();
  ticking = setInterval(draw, 1000);
  set(banner, h('span', { 'aria-hidden': 'true' }, '⚠ '), text);
  announce('The service does not answer.');
});

addEventListener('hashchange', () => {
  if (location.hash === '#main') return;
  show(true);
});
start(false);
