// The servers behind a gateway, on the overview of a service that is one.

import * as api from './api.js';
import { badge, h, number, safe, table } from './dom.js';

/** What is wrong with them, in words. */
export function upstreamProblems(servers) {
  return servers.filter((item) => item.state !== 'up').map((item) => ['bad', 'There is no connection to ', safe(item.name), ', so calls and reads fail; clients stay connected. ', safe(item.last_error, 200)]);
}

export function upstreams() {
  const list = table({
    caption: 'The server behind this gateway',
    key: (item) => item.name,
    empty: '',
    columns: [
      { label: 'Server', class: 'main', cell: (item) => safe(item.name) },
      { label: 'State', cell: (item) => (item.state === 'up' ? badge('ok', '✔', 'up') : badge('bad', '✖', item.state)) },
      { label: 'Revision', cell: (item) => safe(item.revision) },
      { label: 'Restarts', class: 'count', cell: (item) => number(item.restarts) },
      { label: 'Subscriptions', class: 'count', cell: (item) => number(item.subscriptions) },
      { label: 'Connections of clients', class: 'count', cell: (item) => number(item.speakers) },
      { label: 'Calls under way', class: 'count', cell: (item) => number(item.inflight) },
    ],
  });
  const node = h('section', { 'aria-label': 'Gateway', hidden: true }, list.node);
  let isGateway;
  return {
    node,
    /** Asks for the servers, and draws them. A service that is no gateway is asked once. */
    async look(signal) {
      if (isGateway === false) return [];
      const { items } = await api.upstreams(signal);
      isGateway = items.length > 0;
      node.hidden = !isGateway;
      list.update(items);
      return items;
    },
  };
}
