// Changes as they happen. A stream that is too fast to read is counted by resource instead.

import { address } from './api.js';
import { badge, clock, h, link, number, plural, route, safe, set } from './dom.js';

const KINDS = { updated: 'Updated', removed: 'Removed', resources_list_changed: 'Resource list', tools_list_changed: 'Tool list', prompts_list_changed: 'Prompt list' };
const ROWS_MAX = 200;
const COUNTED_MAX = 1000;
const FLUSH_EVERY = 250;
const FAST = 50;

// Without a number where it is unknown, or counts changes that this viewer may not see.
function missedNote(missed) {
  return missed === null ? 'Some changes were missed' : `${plural(missed, 'change')} missed`;
}

export function changes({ params, signal, announce }) {
  let prefix = params.get('prefix') || '';
  let kind = params.get('kind') || '';
  let paused = false;
  let waiting = [];
  let held = 0;
  let counts = null;
  let uncounted = 0;
  let recent = [];
  let stream;
  let retry = 1000;

  const log = h('ol');
  const box = h('div', { class: 'log', role: 'log', 'aria-live': 'off', 'aria-label': 'Changes', tabindex: '0' }, log);
  const status = h('p', { class: 'hint' });
  const field = h('input', { type: 'search', value: prefix, maxlength: 200, 'aria-label': 'Begins with', placeholder: 'Begins with, for example demo://', spellcheck: 'false', autocomplete: 'off' });
  const choice = h('select', { 'aria-label': 'Kind' }, h('option', { value: '' }, 'All kinds'), Object.entries(KINDS).map(([value, label]) => h('option', { value, selected: value === kind }, label)));
  const hold = h('button', { type: 'button', 'aria-pressed': 'false' }, 'Pause');
  const speak = h('input', { type: 'checkbox' });
  speak.addEventListener('change', () => box.setAttribute('aria-live', speak.checked ? 'polite' : 'off'));

  function row(change) {
    if (change.note) return h('li', { class: 'gap' }, badge('warn', '▲', change.note));
    const version = change.etag && `v${change.etag.slice(1).split('-')[0]}`;
    return h('li', null, h('time', null, clock(change.time)), ' ', badge(change.kind === 'removed' ? 'bad' : 'info', change.kind === 'removed' ? '−' : '•', KINDS[change.kind] || change.kind), ' ',
      change.uri && h('a', { href: route('resource', { uri: change.uri }) }, safe(change.uri)), ' ', version && h('span', { class: 'soft' }, version), change.replaced && h('span', { class: 'soft' }, ` and ${plural(change.replaced, 'older change')}`));
  }

  function drawCounts() {
    const most = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 40);
    set(log, h('li', { class: 'gap' }, badge('info', '#', `More than ${FAST} changes a second: counted by resource`)),
      most.map(([uri, count]) => h('li', null, h('b', { class: 'tally' }, number(count)), ' ', safe(uri))),
      counts.size > 40 && h('li', { class: 'soft' }, `and ${plural(counts.size - 40, 'other resource')}`),
      uncounted > 0 && h('li', { class: 'soft' }, `${plural(uncounted, 'change')} of further resources`));
  }

  function flush() {
    const now = Date.now();
    recent = recent.filter(([time]) => now - time < 2000);
    const rate = recent.reduce((sum, [, count]) => sum + count, 0) / 2;
    if (paused) {
      set(status, `Paused; ${plural(held, 'change')} came meanwhile.`);
      return;
    }
    set(status, stream?.readyState === 1 ? `${number(rate)} changes a second. The newest ${ROWS_MAX} are kept.` : 'Connecting…');
    if (!counts && rate > FAST) counts = new Map();
    else if (counts && rate < FAST / 2) {
      counts = null;
      uncounted = 0;
      set(log);
    }
    if (!waiting.length) return;
    const batch = waiting;
    waiting = [];
    if (counts) {
      for (const change of batch) {
        const name = change.uri || change.note || KINDS[change.kind];
        if (counts.has(name) || counts.size < COUNTED_MAX) counts.set(name, (counts.get(name) || 0) + 1);
        else uncounted += 1;
      }
      drawCounts();
      return;
    }
    log.prepend(...batch.slice(-ROWS_MAX).reverse().map(row));
    while (log.children.length > ROWS_MAX) log.lastChild.remove();
  }

  function take(change) {
    if (prefix && change.uri && !change.uri.startsWith(prefix)) return;
    if (prefix && !change.uri && !change.note) return;
    recent.push([Date.now(), 1]);
    if (paused) { held += 1; return; }
    waiting.push(change);
    // What no list will show need not wait.
    if (waiting.length > 20000) waiting.splice(0, 10000);
  }

  function connect() {
    stream?.close();
    if (signal.aborted) return;
    const query = { kind };
    // The service filters by the beginning of a URI, which needs its scheme.
    if (prefix.includes(':')) query.uri = `${prefix}*`;
    stream = new EventSource(address('v1/events', query));
    for (const name of Object.keys(KINDS)) stream.addEventListener(name, (event) => take(JSON.parse(event.data)));
    stream.addEventListener('gap', (event) => take({ note: missedNote(JSON.parse(event.data).missed) }));
    stream.addEventListener('resumed', (event) => {
      retry = 1000;
      const { missed, complete } = JSON.parse(event.data);
      if (!complete) take({ note: missedNote(missed) });
    });
    stream.addEventListener('error', () => {
      if (stream.readyState !== 2 || signal.aborted) return;
      setTimeout(connect, retry);
      retry = Math.min(30000, retry * 2);
    });
  }

  let timer;
  field.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => { prefix = field.value.trim(); again(); }, 300);
  });
  choice.addEventListener('change', () => { kind = choice.value; again(); });
  hold.addEventListener('click', () => {
    paused = !paused;
    held = 0;
    hold.textContent = paused ? 'Go on' : 'Pause';
    hold.setAttribute('aria-pressed', String(paused));
    announce(paused ? 'Changes are paused.' : 'Changes go on.');
  });
  function again() {
    history.replaceState(null, '', route('changes', { prefix, kind }));
    waiting = [];
    counts = null;
    set(log);
    connect();
  }

  const flushing = setInterval(flush, FLUSH_EVERY);
  signal.addEventListener('abort', () => { clearInterval(flushing); stream?.close(); });
  connect();
  return {
    title: 'Changes',
    intro: 'Every change of a resource or a list, as it happens. It begins when you open this view.',
    node: h('div', { class: 'stack' },
      h('div', { class: 'tools' }, field, choice, hold, h('button', { type: 'button', onclick: () => set(log) }, 'Clear'), h('label', { class: 'check' }, speak, ' Read aloud')),
      status, h('div', { class: 'card' }, box, h('p', { class: 'hint' }, 'Ask ', link('why', {}, 'why'), ' a session was not told of one of them.'))),
  };
}
