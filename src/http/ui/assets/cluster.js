// The nodes of a cluster, on the overview of a service that is one of them.

import * as api from './api.js';
import { badge, duration, h, number, plural, safe, set, table } from './dom.js';

const LOG = {
  connected: ['ok', '✔', 'takes changes'],
  no_quorum: ['bad', '✖', 'has no leader, so changes wait'],
  disconnected: ['bad', '✖', 'is not reached, so changes wait'],
};
const DURABLE = { true: 'An answered change survives a loss of power of all its servers.', false: 'An answered change may be lost with the power of its servers.' };

function lists(item) {
  return item.differs.length ? badge('warn', '▲', `other ${item.differs.join(', ')}`) : badge('ok', '✔', 'equal');
}

function behind(item) {
  if (item.head === undefined) return '–';
  return number(Math.max(0, item.head - item.applied));
}

function lease(one) {
  return h('li', null, safe(one.name), ': ', one.holder ? safe(one.holder) : 'no node');
}

/** What is wrong with the cluster, in words. */
export function clusterProblems(report) {
  const found = [];
  const [kind, , text] = LOG[report.health] || LOG.disconnected;
  if (kind === 'bad') found.push([kind, `The log of the cluster ${text}; reads go on.`]);
  else if (!report.caughtUp) found.push(['warn', `This node still reads the log of its cluster: ${number(report.applied)} of ${number(report.head ?? report.applied)}.`]);
  const others = report.nodes.filter((node) => node.differs.length).length;
  if (others) found.push(['warn', `${plural(others, 'node has', 'nodes have')} other tools, prompts or templates than this one.`]);
  return found;
}

export function cluster() {
  const list = table({
    caption: 'The nodes of the cluster',
    key: (item) => item.node,
    empty: 'No node was heard lately.',
    columns: [
      { label: 'Node', class: 'main', cell: (item) => [safe(item.node), item.own && h('span', { class: 'soft' }, ' this one')] },
      { label: 'Lists', cell: lists },
      { label: 'Applied', class: 'count', cell: (item) => number(item.applied) },
      { label: 'Behind', class: 'count', cell: behind },
      { label: 'Heard', class: 'count', cell: (item) => `${duration(item.heardMs)} ago` },
      { label: 'Version', cell: (item) => safe(item.version) },
      { label: 'Address', cell: (item) => safe(item.address) },
    ],
  });
  const log = h('p', { class: 'hint' });
  const leases = h('ul', { class: 'hint', 'aria-label': 'Tasks that one node has' });
  return {
    node: h('section', { class: 'stack cluster', 'aria-label': 'Cluster' }, list.node, log, leases),
    /** Asks for the state of the cluster, and draws it. */
    async look(signal) {
      const report = await api.cluster(signal);
      list.update(report.nodes.map((node) => ({ ...node, head: report.head })));
      const [kind, sign, text] = LOG[report.health] || LOG.disconnected;
      set(log, 'The log of ', safe(report.namespace), ' ', badge(kind, sign, text), ' ', DURABLE[report.durable] || 'It is not known whether an answered change survives a loss of power.');
      set(leases, report.leases.map(lease));
      return report;
    },
  };
}
