// Why was this session not told of that resource? The question that no count of messages answers.

import * as api from './api.js';
import { badge, h, link, route, safe, set } from './dom.js';

const VERDICTS = {
  told: ['ok', '✔', 'It was told', 'The newest version was written to its connection. A client that still shows an old one did not read the resource again after the notice.'],
  pending: ['warn', '▲', 'Not yet: the notice waits', 'The notice is kept until the client reads it, and a newer one will take its place. A session without an open stream gets it when it opens one; a stalled client has to read.'],
  unchanged: ['info', '=', 'There was nothing to tell', 'The resource has not changed since it subscribed. Writing the same bytes again is no change.'],
  'not-subscribed': ['info', '○', 'It did not subscribe', 'The client has not asked for this resource, so it is told nothing of it. Look for a different spelling of the URI.'],
  denied: ['bad', '✖', 'It could not subscribe', 'The resource does not exist, is not for subscribing, or the client has no right to it.'],
  ended: ['soft', '■', 'The session has ended', 'A client that came back has another session; look for it in the list.'],
};

export function why({ params, go }) {
  const session = params.get('session') || '';
  const uri = params.get('uri') || '';
  const people = h('datalist', { id: 'people' });
  const things = h('datalist', { id: 'things' });
  const who = h('input', { id: 'who', name: 'session', value: session, list: 'people', required: true, placeholder: 's1', spellcheck: 'false', autocomplete: 'off' });
  const what = h('input', { id: 'what', name: 'uri', value: uri, list: 'things', required: true, placeholder: 'demo://status', spellcheck: 'false', autocomplete: 'off' });
  const verdict = h('section', { class: 'card verdict', 'aria-live': 'polite', 'aria-label': 'Answer', hidden: true });
  const form = h('form', { class: 'card ask' },
    h('div', null, h('label', { for: 'who' }, 'Session'), who, h('p', { class: 'hint' }, 'Its id, as in the list of ', link('sessions', {}, 'sessions'), '.')),
    h('div', null, h('label', { for: 'what' }, 'Resource'), what, h('p', { class: 'hint' }, 'Its URI, as in the list of ', link('resources', {}, 'resources'), '.')),
    h('button', { type: 'submit', class: 'primary' }, 'Why?'), people, things);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    go(route('why', { session: who.value.trim(), uri: what.value.trim() }));
  });

  async function offer(signal) {
    const [sessions, resources] = await Promise.all([api.sessions({ limit: 50 }, signal), api.resources({ sort: 'changed', limit: 50 }, signal)]);
    set(people, sessions.items.map((item) => h('option', { value: item.id }, item.client || item.label)));
    set(things, resources.items.map((item) => h('option', { value: item.uri })));
  }

  function explain({ explanation }) {
    const [kind, sign, title, advice] = VERDICTS[explanation.verdict] || ['soft', '?', explanation.verdict, ''];
    verdict.hidden = false;
    set(verdict, h('h2', null, badge(kind, sign, title)),
      h('p', { class: 'large' }, link('session', { id: session }, session), ' and ', h('a', { href: route('resource', { uri }) }, safe(uri)), ': ', safe(explanation.text, 600), '.'),
      h('p', null, advice),
      explanation.etag && h('p', { class: 'hint' }, 'Etag ', h('code', null, explanation.etag), ', position ', h('code', null, explanation.position)));
  }

  async function look(signal) {
    if (!session || !uri) return;
    try {
      explain(await api.session(session, uri, signal));
    } catch (error) {
      if (error.status !== 404 && error.status !== 400) throw error;
      verdict.hidden = false;
      set(verdict, h('h2', null, badge('bad', '✖', 'No answer')), h('p', null, safe(error.message, 400)));
    }
  }

  return {
    title: 'Why?',
    heading: 'Why was it not told?',
    intro: 'Choose a session and a resource, and the service says whether it was told of the newest version, and if not, what stands in the way.',
    node: h('div', { class: 'stack' }, form, verdict),
    looks: [[look, 2000], [offer, 15000]],
  };
}
