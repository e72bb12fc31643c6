// Line charts as SVG, each with its values as a table.

import { h, svg, set, number } from './dom.js';

const HEIGHT = 150;
const LEFT = 46;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;

/** Rounds up to a number that is easy to read on an axis. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

const short = (value) => (value >= 10000 ? `${number(Math.round(value / 1000))}k` : number(value));

/** A chart of series that are told apart by colour and by the kind of their line. */
export function chart({ title, unit, names, hint }) {
  const box = h('div', { class: 'plot' });
  const legend = h('ul', { class: 'legend' });
  const body = h('tbody');
  const twin = h('details', null, h('summary', null, 'As table'),
    h('table', { class: 'plain' }, h('caption', { class: 'unseen' }, `${title}, last 15 minutes`),
      h('thead', null, h('tr', null, ['Series', 'Now', 'Least', 'Most'].map((label) => h('th', { scope: 'col' }, label)))), body));
  const node = h('section', { class: 'card chart', 'aria-label': title }, h('h2', null, title, ' ', h('small', null, unit)), h('p', { class: 'hint' }, hint), box, legend, twin);
  let shown = { series: names.map(() => []), step: 5000 };

  const last = (values) => values.findLast((value) => value !== null);
  const text = (value) => (value === undefined || value === null ? '–' : number(value));

  function drawTexts() {
    const known = shown.series.map((values) => values.filter((value) => value !== null));
    set(legend, names.map((name, at) => h('li', null, svg('svg', { width: 22, height: 8, 'aria-hidden': 'true' }, svg('line', { class: `line s${at}`, x1: 0, x2: 22, y1: 4, y2: 4 })), ` ${name} `, h('b', null, text(last(shown.series[at]))))));
    set(body, names.map((name, at) => h('tr', null, h('th', { scope: 'row' }, name), h('td', null, text(last(shown.series[at]))), h('td', null, known[at].length ? text(Math.min(...known[at])) : '–'), h('td', null, known[at].length ? text(Math.max(...known[at])) : '–'))));
  }

  function draw() {
    const width = box.clientWidth || 320;
    const inner = width - LEFT - RIGHT;
    const bottom = HEIGHT - BOTTOM;
    const top = ceiling(Math.max(0, ...shown.series.flat().filter((value) => value !== null)));
    // A service that was started just now has a short past, which would fill a corner of the chart alone.
    const count = Math.min(180, Math.max(24, shown.series[0].length));
    const start = count - shown.series[0].length;
    const x = (at) => LEFT + ((start + at) / (count - 1)) * inner;
    const y = (value) => bottom - (value / top) * (bottom - TOP);
    const picture = svg('svg', { class: 'picture', width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': `${title}: ${names.map((name, at) => `${name} ${text(last(shown.series[at]))} ${unit}`).join(', ')}` });
    for (const part of [0, 0.5, 1]) {
      picture.append(svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(top * part), y2: y(top * part) }));
      picture.append(svg('text', { x: LEFT - 6, y: y(top * part) + 4, 'text-anchor': 'end' }, short(top * part)));
    }
    const minutes = Math.round((count * shown.step) / 60000);
    picture.append(svg('text', { x: LEFT, y: HEIGHT - 5 }, `${minutes} min ago`), svg('text', { x: width - RIGHT, y: HEIGHT - 5, 'text-anchor': 'end' }, 'now'));
    shown.series.forEach((values, number) => {
      let path = '';
      let open = false;
      values.forEach((value, at) => {
        if (value === null) { open = false; return; }
        path += `${open ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        // A sample alone would have no length, and would not be seen.
        if (!open) path += 'h.01';
        open = true;
      });
      if (number === 0 && values.length > 1 && values.every((value) => value !== null)) {
        picture.append(svg('path', { class: 'area', d: `${path}L${x(values.length - 1).toFixed(1)} ${bottom}L${x(0).toFixed(1)} ${bottom}Z` }));
      }
      if (path) picture.append(svg('path', { class: `line s${number}`, d: path }));
    });
    const cursor = svg('line', { class: 'cursor', y1: TOP, y2: bottom, visibility: 'hidden' });
    const tip = h('div', { class: 'tip', hidden: true });
    picture.append(cursor);
    picture.addEventListener('pointermove', (event) => {
      const at = Math.round(((event.offsetX - LEFT) / inner) * (count - 1)) - start;
      const isIn = at >= 0 && at < shown.series[0].length;
      tip.hidden = !isIn;
      cursor.setAttribute('visibility', isIn ? 'visible' : 'hidden');
      if (!isIn) return;
      cursor.setAttribute('x1', x(at));
      cursor.setAttribute('x2', x(at));
      const ago = ((shown.series[0].length - 1 - at) * shown.step) / 1000;
      set(tip, h('b', null, ago ? `${Math.floor(ago / 60)} min ${ago % 60} s ago` : 'now'), names.map((name, which) => h('div', null, `${name} ${text(shown.series[which][at])}`)));
      tip.style.left = `${Math.min(Math.max(0, x(at) + 10), width - 150)}px`;
    });
    picture.addEventListener('pointerleave', () => {
      tip.hidden = true;
      cursor.setAttribute('visibility', 'hidden');
    });
    set(box, picture, tip);
  }

  new ResizeObserver(draw).observe(box);
  function update(series, step) {
    shown = { series, step };
    drawTexts();
    // The cursor of a user who looks at a value stays.
    if (!box.matches(':hover')) draw();
  }
  return { node, update };
}
