// Elements, and texts of others made safe to look at. Nothing here reads HTML: every text becomes a text node.

const SVG = 'http://www.w3.org/2000/svg';
// Controls, formats (bidi marks, zero-width characters, tags), lone surrogates, private use, line separators.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/u;
const CUT_AT = 110;

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') node[name] = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/** Replaces the children of an element. */
export function set(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/** A text of somebody else: characters that cannot be seen, or that turn text round, are written out. */
export function safe(text, cutAt = CUT_AT) {
  const node = h('bdi', { dir: 'ltr', class: 'uri' });
  const all = [...String(text ?? '')];
  let plain = '';
  for (const character of all.slice(0, cutAt)) {
    if (!HIDDEN.test(character)) {
      plain += character;
      continue;
    }
    if (plain) node.append(plain);
    plain = '';
    const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0');
    node.append(h('span', { class: 'escaped', title: 'a character that cannot be seen' }, `\\u{${code}}`));
  }
  node.append(plain);
  if (all.length <= cutAt) return node;
  return h('span', null, node, h('span', { class: 'more' }, `… ${number(all.length - cutAt)} more `), copyButton(text));
}

function copyButton(text) {
  if (!navigator.clipboard) return null;
  const button = h('button', { type: 'button', class: 'small' }, 'Copy');
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  });
  return button;
}

export const number = (value) => value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function duration(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function bytes(count) {
  if (count === undefined || count === null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let at = 0;
  while (count >= 1024 && at < 3) { count /= 1024; at += 1; }
  return `${at ? count.toFixed(1) : count} ${units[at]}`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString('en', { hour12: false });

/** A word with a sign before it, so that its colour is not all that tells it apart. */
export const badge = (kind, sign, ...words) => h('span', { class: `badge ${kind}` }, h('span', { 'aria-hidden': 'true' }, `${sign} `), words);

/** A link into this page. Addresses of others never become links. */
export function link(view, parameters, ...children) {
  return h('a', { href: route(view, parameters) }, children);
}

export function route(view, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `#/${view}${query ? `?${query}` : ''}`;
}

/**
 * A table that keeps its rows from update to update, so that the focus stays where it is. A column has `label`,
 * `cell(item)` and perhaps `sort` and `class`; the first one is the head of its row and is made once per item.
 */
export function table({ caption, columns, key, empty, sorted, onsort }) {
  const heads = columns.map((column) => {
    const active = column.sort && sorted === column.sort;
    const label = column.sort
      ? h('button', { type: 'button', class: 'sort', onclick: () => onsort(column.sort) }, column.label, h('span', { 'aria-hidden': 'true' }, active ? (column.ascending ? ' ▲' : ' ▼') : ' ⇅'))
      : column.label;
    const order = active ? (column.ascending ? 'ascending' : 'descending') : undefined;
    return h('th', { scope: 'col', role: 'columnheader', class: column.class, 'aria-sort': order }, label);
  });
  const body = h('tbody', { role: 'rowgroup' });
  const note = h('p', { class: 'empty' }, empty);
  const grid = h('table', { role: 'table' },
    h('caption', null, caption),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, heads)), body);
  const rows = new Map();
  function update(items) {
    const wanted = new Set();
    let before = null;
    for (const item of items) {
      const id = key(item);
      wanted.add(id);
      let row = rows.get(id);
      if (!row) {
        row = h('tr', { role: 'row' }, h('th', { scope: 'row', role: 'rowheader', class: columns[0].class }, columns[0].cell(item)));
        rows.set(id, row);
      }
      while (row.children.length > 1) row.lastChild.remove();
      for (const column of columns.slice(1)) {
        row.append(h('td', { role: 'cell', class: column.class, 'data-label': column.label }, column.cell(item)));
      }
      const place = before ? before.nextSibling : body.firstChild;
      if (place !== row) body.insertBefore(row, place);
      before = row;
    }
    for (const [id, row] of rows) {
      if (wanted.has(id)) continue;
      row.remove();
      rows.delete(id);
    }
    grid.hidden = items.length === 0;
    note.hidden = items.length > 0;
  }
  note.hidden = grid.hidden = true;
  return { node: h('div', { class: 'card flush' }, grid, note), update };
}

/** A list of names with values. */
export function facts(rows) {
  return h('dl', { class: 'facts' }, rows.filter(Boolean).map(([name, ...value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

/** A search field that calls `found` when its user rests. */
export function search(label, text, found) {
  let timer;
  const field = h('input', { type: 'search', value: text || '', maxlength: 200, placeholder: label, 'aria-label': label, spellcheck: 'false', autocomplete: 'off' });
  field.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => found(field.value.trim()), 250);
  });
  return field;
}
