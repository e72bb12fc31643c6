// Resources: the list, and one of them with its subscribers.

import * as api from './api.js';
import { bytes, clock, duration, facts, h, link, number, plural, route, safe, search, set, table } from './dom.js';
import { sessionTable } from './sessions.js';

const CAPTIONS = { uri: 'In the order of their URIs', changed: 'The ones that changed last', subscribers: 'The ones with the most subscribers' };

const version = (item) => (item.etag ? `v${item.etag.slice(1).split('-')[0]}` : '–');

function changed(item) {
  if (item.changed === undefined) return '–';
  // Known to a second.
  const ago = Math.max(0, Date.now() - item.changed);
  return h('time', { datetime: new Date(item.changed).toISOString(), title: new Date(item.changed).toLocaleString('en') }, ago < 1500 ? 'just now' : `${duration(ago)} ago`);
}

export function resources({ params, go, viewer }) {
  const sort = params.get('sort') || 'changed';
  const after = params.get('after') || '';
  let text = params.get('q') || '';
  const count = h('p', { class: 'hint' });
  const pages = h('div', { class: 'tools' });
  const list = table({
    caption: CAPTIONS[sort] || 'Resources',
    empty: text ? 'No resource is like that.' : 'There is no resource yet. Publish one with “tidings publish demo://status report.json”, or serve a folder.',
    key: (item) => item.uri,
    sorted: sort,
    onsort: (now) => go(route('resources', { q: text, sort: now })),
    columns: [
      { label: 'Resource', class: 'main', sort: 'uri', ascending: true, cell: (item) => h('div', null, h('a', { href: route('resource', { uri: item.uri }) }, safe(item.uri)), item.title || item.name !== item.uri.split('/').pop() ? h('div', { class: 'soft title' }, safe(item.title || item.name, 80)) : '') },
      { label: 'Version', class: 'count', cell: version },
      { label: 'Last change', sort: 'changed', cell: changed },
      viewer.admin && { label: 'Subscribers', class: 'count', sort: 'subscribers', cell: (item) => (item.subscribers === undefined ? '–' : number(item.subscribers)) },
      { label: 'Size', class: 'count', cell: (item) => bytes(item.bytes) },
      { label: 'Type', cell: (item) => safe(item.mediaType || '–', 40) },
    ].filter(Boolean),
  });
  let wake = () => {};
  const field = search('Search URI, name or title', text, (now) => {
    text = now;
    history.replaceState(null, '', route('resources', { q: now, sort }));
    wake();
  });

  async function look(signal) {
    const found = await api.resources({ q: text, sort, after: text === (params.get('q') || '') ? after : '', limit: 100 }, signal);
    list.update(found.items);
    set(count, found.total !== undefined ? (found.total > found.items.length ? `${number(found.items.length)} of ${plural(found.total, 'resource')}` : plural(found.total, 'resource')) : '');
    set(pages, after && link('resources', { q: text, sort }, '← First page'), found.next && link('resources', { q: text, sort, after: found.next }, 'Next page →'));
  }
  wake = () => look().catch(() => {});

  return {
    title: 'Resources',
    intro: 'Everything that clients can read and subscribe to.',
    node: h('div', { class: 'stack' }, h('div', { class: 'tools' }, field, count), list.node, pages),
    looks: [[look, 2000]],
  };
}

export function resource({ params, viewer }) {
  const uri = params.get('uri') || '';
  const top = h('div', { class: 'card' }, 'Looking…');
  const list = sessionTable('Its subscribers, the slowest first', 'Nobody is subscribed to it by name.');
  const count = h('p', { class: 'hint' });

  async function look(signal) {
    const found = await api.resources({ q: uri.length <= 250 ? uri : '', sort: 'changed', limit: 1000 }, signal);
    const item = found.items.find((one) => one.uri === uri);
    set(top, item ? facts([
      ['URI', safe(item.uri, 2000)],
      ['Name', safe(item.name)],
      item.title && ['Title', safe(item.title)],
      item.description && ['Description', safe(item.description, 400)],
      ['Version', version(item)],
      ['Etag', h('code', null, item.etag || '–')],
      ['Last change', changed(item), item.changed === undefined ? '' : `, at ${clock(item.changed)}`],
      ['Size', bytes(item.bytes)],
      ['Type', safe(item.mediaType || '–')],
      ['Clients may subscribe', item.subscribable ? 'yes' : 'no'],
    ]) : facts([['URI', safe(uri, 2000)], ['State', 'It is not in the list: it was removed, or was never there.']]));
    if (!viewer.admin) return;
    const subscribers = await api.subscribersOf(uri, signal);
    list.update(subscribers.items);
    set(count, plural(subscribers.total, 'subscriber'), subscribers.items.length ? '. To see why one was not told, choose ' : '', subscribers.items.length ? link('why', { uri }, 'Why?') : '');
  }

  return {
    title: 'Resource',
    heading: ['Resource ', safe(uri, 80)],
    node: h('div', { class: 'stack' }, h('div', { class: 'tools' }, link('resources', {}, '← All resources'), link('why', { uri }, 'Why was it not told?')), top, count, list.node),
    looks: [[look, 2000]],
  };
}
