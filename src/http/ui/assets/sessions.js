// Sessions: the list, the slowest first, and one of them with the way to end it.

import * as api from './api.js';
import { badge, bytes, duration, facts, h, link, number, plural, route, safe, search, set, table } from './dom.js';

export const sessionName = (item) => [link('session', { id: item.id }, item.id), ' ', item.client ? safe(item.client, 60) : h('span', { class: 'soft' }, item.kind)];

/** The state in a word. */
export function stateOf(item) {
  if (item.progress.stalled) return badge('warn', '▲', 'stalled for ', duration(item.progress.untakenMs));
  if (item.streams === 0) return badge('soft', '◌', 'no stream open');
  if (item.pending.entries > 0) return badge('info', '…', 'reading');
  return badge('ok', '✔', 'up to date');
}

export function pendingOf(item) {
  if (!item.pending.entries) return h('span', { class: 'soft' }, 'nothing');
  return `${plural(item.pending.entries, 'notice')}, the oldest for ${duration(item.pending.oldestMs)}`;
}

export function sessionTable(caption, empty) {
  return table({
    caption,
    empty,
    key: (item) => item.id,
    columns: [
      { label: 'Session', class: 'main', cell: sessionName },
      { label: 'State', cell: stateOf },
      { label: 'Waiting for it', cell: pendingOf },
      { label: 'Subscriptions', class: 'count', cell: (item) => number(item.subscriptions) },
      { label: 'Told', class: 'count', cell: (item) => number(item.progress.told) },
      { label: 'Protocol', cell: (item) => `${item.revision}, ${item.transport}` },
      { label: 'Age', class: 'count', cell: (item) => duration(item.progress.ageMs) },
    ],
  });
}

export function sessions({ params, go }) {
  const q = params.get('q') || '';
  const stalled = params.get('stalled') === 'true';
  let text = q;
  const count = h('p', { class: 'hint' });
  const filter = h('input', { type: 'checkbox', checked: stalled });
  const list = sessionTable('Sessions, the slowest first', q || stalled ? 'No session is like that.' : ['No client is connected. Point an MCP client at ', h('code', null, new URL('../mcp', document.baseURI).href), '.']);
  let wake = () => {};
  const field = search('Search name, label or id', q, (now) => {
    text = now;
    history.replaceState(null, '', route('sessions', { q: now, stalled: filter.checked && 'true' }));
    wake();
  });
  filter.addEventListener('change', () => go(route('sessions', { q: text, stalled: filter.checked && 'true' })));

  async function look(signal) {
    const found = await api.sessions({ q: text, stalled: filter.checked && 'true', limit: 100 }, signal);
    list.update(found.items);
    set(count, found.total > found.items.length ? `The ${found.items.length} slowest of ${number(found.total)}. Search to see others.` : plural(found.total, 'session'));
  }
  wake = () => look().catch(() => {});

  return {
    title: 'Sessions',
    intro: 'Every connected client: the ones that wait longest come first.',
    node: h('div', { class: 'stack' }, h('div', { class: 'tools' }, field, h('label', { class: 'check' }, filter, ' Stalled only'), count), list.node),
    looks: [[look, 2000]],
  };
}

/** Asks before a session is ended. */
function confirmEnd(id, done) {
  const refusal = h('p', { class: 'notice bad', role: 'alert', hidden: true });
  const dialog = h('dialog', { 'aria-labelledby': 'end-title' });
  const end = h('button', { type: 'button', class: 'danger' }, `End session ${id}`);
  end.addEventListener('click', async () => {
    try {
      await api.endSession(id);
      dialog.close();
      done();
    } catch (error) {
      refusal.hidden = false;
      refusal.textContent = error.message;
    }
  });
  dialog.append(h('h2', { id: 'end-title' }, `End session ${id}?`),
    h('p', null, 'Its streams get what waits for them and then end. The client may open a new session at once, and most do.'), refusal,
    h('div', { class: 'tools end' }, h('button', { type: 'button', autofocus: true, onclick: () => dialog.close() }, 'Keep it'), end));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export function session({ params, viewer, announce }) {
  const id = params.get('id') || '';
  const body = h('div', { class: 'stack' }, h('p', null, 'Looking…'));
  const end = h('button', { type: 'button', class: 'danger', onclick: () => confirmEnd(id, () => announce(`Session ${id} was ended.`)) }, 'End session…');
  const tools = h('div', { class: 'tools' }, link('sessions', {}, '← All sessions'), viewer.admin && end);
  const top = h('div');
  const pending = h('ul', { class: 'uris' });
  const rest = h('p', { class: 'hint' });
  const waiting = h('section', { class: 'card' }, h('h2', null, 'Waiting to be told'), pending, rest);
  set(body, top, waiting);

  function draw(item) {
    end.disabled = Boolean(item.ended);
    if (item.ended) {
      waiting.hidden = true;
      set(top, h('div', { class: 'card' }, h('p', null, badge('soft', '■', 'ended'), ` ${duration(item.ended.agoMs)} ago: ${item.ended.reason}. ${plural(item.ended.pending, 'notice')} had not been read.`)));
      return;
    }
    const { progress } = item;
    set(top, h('div', { class: 'card' }, facts([
      ['State', stateOf(item)],
      ['Client', item.client ? safe(item.client) : h('span', { class: 'soft' }, 'has not said its name')],
      ['Protocol', `${item.revision} over ${item.transport}`],
      ['Kind', item.kind],
      ['Label', safe(item.label)],
      ['Age', duration(progress.ageMs)],
      ['Open streams', number(item.streams)],
      ['Subscriptions', number(item.subscriptions)],
      ['Told so far', plural(progress.told, 'notice')],
      ['Replaced by newer ones', plural(progress.conflated, 'notice')],
      ['Read last', progress.lastMs === undefined ? 'never' : `${duration(progress.lastMs)} ago`],
      ['Written', bytes(progress.bytes)],
    ])));
    set(pending, item.pending.uris.map((uri) => h('li', null, safe(uri), ' ', link('why', { session: id, uri }, 'Why?'))));
    const more = item.pending.urisMore;
    const lists = item.pending.entries - item.pending.uris.length - more;
    set(rest, item.pending.entries === 0 ? 'Nothing: it has read everything.' : `${plural(item.pending.entries, 'notice')}, the oldest for ${duration(item.pending.oldestMs)}${more ? `; ${plural(more, 'more resource')}` : ''}${lists > 0 ? `; ${plural(lists, 'of them is about a list', 'of them are about lists')}` : ''}.`);
  }

  return {
    title: `Session ${id}`,
    heading: ['Session ', safe(id, 40)],
    node: h('div', { class: 'stack' }, tools, body),
    looks: [[async (signal) => draw(await api.session(id, undefined, signal)), 2000]],
  };
}
