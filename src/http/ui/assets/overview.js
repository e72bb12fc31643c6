// The overview: what is wrong now, six figures, four charts and the slowest sessions.

import * as api from './api.js';
import { badge, bytes, duration, h, link, number, plural, set, table } from './dom.js';
import { chart } from './charts.js';
import { cluster, clusterProblems } from './cluster.js';
import { pendingOf, sessionName, stateOf } from './sessions.js';
import { upstreamProblems, upstreams } from './upstreams.js';

const newest = (values) => values?.findLast((value) => value !== null);
const shown = (value) => (value === undefined ? '–' : number(value));

function figure(label, hint, to) {
  const value = h('b', null, '–');
  return { value, node: h('a', { class: 'card figure', href: to }, h('span', null, label), value, h('small', null, hint)) };
}

/** What is wrong, each as a sentence with a way to its cause. */
function problems(stats, sinks, nodes, servers) {
  const found = [...(nodes ? clusterProblems(nodes) : []), ...upstreamProblems(servers)];
  const stalled = newest(stats?.series.stalled);
  if (stalled > 0) found.push(['warn', `${plural(stalled, 'session')} stalled: a stream is open, and its client reads nothing. The others are not held up. `, link('sessions', { stalled: 'true' }, 'Show them')]);
  if (stats?.store.state === 'failing') found.push(['bad', `The store fails since ${duration(stats.store.for_ms)}, so changes are refused; reads go on. ${stats.store.reason || ''}`]);
  if (stats?.store.state === 'slow') found.push(['warn', `The store has not answered for ${duration(stats.store.for_ms)}, so changes wait.`]);
  for (const sink of sinks || []) {
    if (sink.health === 'failing' || sink.health === 'stalled') found.push(['bad', `The subscriber ${sink.name} is ${sink.health}. `, link('subscribers', {}, 'Show its error')]);
  }
  const limits = Object.entries(stats?.limits || {});
  if (limits.length) found.push(['warn', `Limits reached in the last 15 minutes: ${limits.map(([name, times]) => `${name} (${plural(times, 'time')})`).join(', ')}.`]);
  return found;
}

export function overview({ viewer }) {
  const health = h('section', { class: 'card health', 'aria-label': 'Health' }, h('p', null, 'Looking…'));
  const figures = [
    figure('Sessions', 'connected clients', '#/sessions'),
    figure('Streams', 'open, to be told by', '#/sessions'),
    figure('Subscriptions', 'client and resource', '#/resources?sort=subscribers'),
    figure('Stalled', 'open, reading nothing', '#/sessions?stalled=true'),
    figure('Changes', 'per second', '#/changes'),
    figure('Told', 'notices per second', '#/changes'),
  ];
  const charts = [
    chart({ title: 'Changes and notices', unit: 'per second', names: ['changes', 'told'], hint: 'A change is told once to each of its subscribers.' }),
    chart({ title: 'Time to deliver', unit: 'ms', names: ['half of the notices', '99 of 100'], hint: 'From the publisher’s request to the client’s connection.' }),
    chart({ title: 'Clients', unit: 'now', names: ['sessions', 'streams', 'stalled'], hint: 'A session without a stream is told when it opens one.' }),
    chart({ title: 'Conflated', unit: 'per second', names: ['notices replaced by newer ones'], hint: 'A slow reader gets the newest version only.' }),
  ];
  const slowest = table({
    caption: 'The five slowest sessions',
    key: (item) => item.id,
    empty: ['No client is connected. Point an MCP client at ', h('code', null, new URL('../mcp', document.baseURI).href), '.'],
    columns: [
      { label: 'Session', class: 'main', cell: sessionName },
      { label: 'State', cell: stateOf },
      { label: 'Waiting for it', cell: pendingOf },
      { label: 'Subscriptions', class: 'count', cell: (item) => number(item.subscriptions) },
    ],
  });
  const process = h('p', { class: 'hint' });
  // A service that is alone has no nodes to show.
  const nodes = viewer.admin && viewer.cluster ? cluster() : null;
  const behind = upstreams();
  let stats;
  let sinks;
  let servers = [];
  let report;
  let noStats;

  function drawHealth() {
    const found = problems(stats, sinks, report, servers);
    const rows = found.map(([kind, ...words]) => h('li', null, badge(kind, kind === 'bad' ? '✖' : '▲', kind === 'bad' ? 'Failing' : 'Look'), ' ', words));
    set(health, rows.length ? h('ul', null, rows) : h('p', null, badge('ok', '✔', 'All is well'), ' No session is stalled, no subscriber fails, no limit was reached in the last 15 minutes.'), noStats && h('p', { class: 'hint' }, noStats));
  }

  function drawStats() {
    const { series, step_ms: step } = stats;
    [series.sessions, series.streams, series.subscriptions, series.stalled, series.changes_per_s, series.told_per_s].forEach((values, at) => {
      figures[at].value.textContent = shown(newest(values));
    });
    figures[3].node.classList.toggle('warn', newest(series.stalled) > 0);
    charts[0].update([series.changes_per_s, series.told_per_s], step);
    charts[1].update([series.delivery_ms.p50, series.delivery_ms.p99], step);
    charts[2].update([series.sessions, series.streams, series.stalled], step);
    charts[3].update([series.conflated_per_s], step);
    const cpu = newest(series.cpu);
    set(process, `The service uses ${bytes(newest(series.rss))} of memory${cpu === undefined ? '' : ` and ${number(cpu * 100)} % of a core`}.`);
    document.getElementById('version').textContent = `Tidings ${stats.version}.`;
  }

  async function look(signal) {
    try {
      stats = await api.stats(signal);
      noStats = null;
      drawStats();
    } catch (error) {
      if (error.status !== 404) throw error;
      noStats = `There are no figures over time: ${error.message}.`;
    }
    servers = await behind.look(signal);
    if (viewer.admin) sinks = (await api.sinks(signal)).items;
    drawHealth();
  }

  async function lookAtSessions(signal) {
    const found = await api.sessions({ limit: 5 }, signal);
    slowest.update(found.items);
    // Without a history, what can be counted is still shown.
    if (!stats) figures[0].value.textContent = number(found.total);
  }

  async function lookAtNodes(signal) {
    report = await nodes.look(signal);
    drawHealth();
  }

  return {
    title: 'Overview',
    intro: 'One change in, every client told. This is how it goes right now.',
    node: h('div', { class: 'stack' }, health,
      h('section', { class: 'figures', 'aria-label': 'Figures' }, figures.map((one) => one.node)),
      behind.node, slowest.node, nodes?.node,
      h('section', { class: 'charts', 'aria-label': 'The last 15 minutes' }, charts.map((one) => one.node)), process),
    looks: [[look, 5000], [lookAtSessions, 2000], nodes && [lookAtNodes, 2000]].filter(Boolean),
  };
}
