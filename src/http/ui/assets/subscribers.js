// Subscribers that are no sessions: files, webhooks, logs and what a program attached.

import * as api from './api.js';
import { badge, h, number, safe, table } from './dom.js';

const HEALTH = { failing: ['bad', '✖'], stalled: ['warn', '▲'] };

function health(item) {
  const [kind, sign] = HEALTH[item.health] || ['ok', '✔'];
  return badge(kind, sign, item.health);
}

export function subscribers() {
  const list = table({
    caption: 'Attached subscribers',
    empty: 'None is attached. Files, webhooks and logs are set up in the configuration.',
    key: (item) => item.name,
    columns: [
      { label: 'Name', class: 'main', cell: (item) => safe(item.name) },
      { label: 'Health', cell: health },
      { label: 'Gets', cell: (item) => (item.class === 'latest' ? 'the latest of each resource' : 'every notice') },
      { label: 'Waiting', class: 'count', cell: (item) => `${number(item.pending)} of ${number(item.queue)}` },
      { label: 'Delivered', class: 'count', cell: (item) => number(item.delivered) },
      { label: 'Lost', class: 'count', cell: (item) => (item.lost ? badge('bad', '✖', number(item.lost)) : '0') },
      { label: 'Retries', class: 'count', cell: (item) => number(item.retries) },
      { label: 'Error', cell: (item) => (item.error ? safe(item.error, 200) : h('span', { class: 'soft' }, 'none')) },
    ],
  });
  return {
    title: 'Subscribers',
    intro: 'What is attached besides clients: files, webhooks and logs, each apart from the others.',
    node: list.node,
    looks: [[async (signal) => list.update((await api.sinks(signal)).items), 2000]],
  };
}
