// Curves on a canvas, with events and regimes, and the same as a table.

import { element, styleValue } from "./dom.js";
import { FONT, kindColour, seriesColour, short, sketch, tick, ticks } from "./sketch.js";

const MARGIN = { left: 46, right: 10, top: 8, bottom: 22 };
const ROWS = 12; // of the table
const DASHES = [[], [8, 3], [3, 3], [9, 3, 2, 3]]; // curves differ not by colour alone

// A chart of `series`: [{ label, x, y, low, high }]. `more` may have
//   unit: what x counts,
//   events: [{ x, kind }], of which marks are drawn,
//   regimes: [{ regime, start, end }], which are shaded,
//   steps: whether a value stays until the next one,
//   span: a function that returns the least and the greatest x to be shown,
//   at: a function that returns the x that is looked at, or null.
// Returns the chart's element, `redraw` (after the arrays have changed) and `close`.
export function chart(title, series, more = {}) {
  const canvas = element("canvas", { class: "chart", role: "img" });
  const readout = element("span", { class: "readout soft" });
  const table = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `${title}, table` });
  const details = element("details", { ontoggle: () => details.open && fill() }, element("summary", {}, "Table"), table);
  const legend = element("div", { class: "legend" });
  const marks = marksOf(more.events ?? []);
  const drawn = sketch(canvas, draw);
  canvas.addEventListener("pointermove", (event) => read(event.offsetX));
  canvas.addEventListener("pointerleave", () => readout.replaceChildren());
  let range = rangeOf(series, more.span?.());

  function redraw() {
    range = rangeOf(series, more.span?.());
    canvas.setAttribute("aria-label", inWords(title, series, more.unit));
    legend.replaceChildren(...legendOf(series, more.regimes));
    if (details.open) fill();
    drawn.redraw();
  }

  const across = (x, width) => MARGIN.left + ((x - range.x0) / (range.x1 - range.x0)) * (width - MARGIN.left - MARGIN.right);
  function up(y, height) {
    const share = range.log ? Math.log(y / range.y0) / Math.log(range.y1 / range.y0) : (y - range.y0) / (range.y1 - range.y0);
    return height - MARGIN.bottom - share * (height - MARGIN.bottom - MARGIN.top);
  }

  function draw(context, width, height) {
    const [floor, top] = [height - MARGIN.bottom, MARGIN.top];
    context.font = FONT;
    const within = (x) => across(Math.max(range.x0, Math.min(range.x1, x)), width);
    drawRegimes(context, more.regimes ?? [], within, top, floor);
    drawAxes(context, width, height);
    drawEvents(context, marks((x) => across(x, width), width), floor);
    series.forEach((one, n) => drawSeries(context, one, seriesColour(one.colour ?? n), width, height));
    const at = more.at?.() ?? null;
    if (at !== null && at >= range.x0 && at <= range.x1) {
      context.strokeStyle = styleValue("--focus");
      context.lineWidth = 1.5;
      line(context, [[across(at, width), top], [across(at, width), floor]]);
    }
  }

  function drawAxes(context, width, height) {
    context.strokeStyle = styleValue("--line");
    context.fillStyle = styleValue("--soft");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of yTicks(range)) {
      const y = Math.round(up(value, height)) + 0.5;
      line(context, [[MARGIN.left, y], [width - MARGIN.right, y]]);
      context.fillText(tick(value), MARGIN.left - 5, y);
    }
    context.textBaseline = "top";
    for (const value of ticks(range.x0, range.x1, Math.max(2, width / 110))) {
      const x = across(value, width);
      context.textAlign = x > width - 30 ? "right" : x < MARGIN.left + 20 ? "left" : "center";
      context.fillText(tick(value), Math.min(x, width - 2), height - MARGIN.bottom + 6);
    }
  }

  function drawSeries(context, one, colour, width, height) {
    let points = one.x.map((x, n) => [across(x, width), up(one.y[n], height)]);
    const dots = points;
    if (more.steps) points = points.flatMap(([x, y], n) => (n ? [[x, points[n - 1][1]], [x, y]] : [[x, y]]));
    if (one.low) {
      const back = one.x.map((x, n) => [across(x, width), up(one.low[n], height)]).reverse();
      context.fillStyle = colour;
      context.globalAlpha = 0.2;
      context.beginPath();
      [...one.x.map((x, n) => [across(x, width), up(one.high[n], height)]), ...back].forEach(([x, y]) => context.lineTo(x, y));
      context.fill();
      context.globalAlpha = 1;
    }
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.6;
    context.setLineDash(DASHES[(one.colour ?? series.indexOf(one)) % DASHES.length]);
    line(context, points);
    context.setLineDash([]);
    if (dots.length < 40) for (const [x, y] of dots) context.fillRect(x - 1.8, y - 1.8, 3.6, 3.6);
  }

  function read(offset) {
    const x = range.x0 + ((offset - MARGIN.left) / (canvas.clientWidth - MARGIN.left - MARGIN.right)) * (range.x1 - range.x0);
    const found = series.filter((one) => one.x.length).slice(0, 4).map((one) => {
      const n = nearest(one.x, x);
      return `${series.length > 1 ? `${one.label} ` : ""}${short(one.y[n])} at ${short(one.x[n])}`;
    });
    readout.replaceChildren(found.join("; "));
  }

  function fill() {
    table.replaceChildren(tableOf(series, more.unit));
  }

  const caption = element("figcaption", {}, element("b", {}, title), " ", readout);
  const figure = element("figure", { class: "curve" }, caption, canvas, legend, details);
  redraw();
  return { element: figure, redraw, close: drawn.close };
}

// Shows charts; `replace` closes those that were there.
export function gallery() {
  let charts = [];
  const grid = element("div", { class: "gallery" });
  return {
    element: grid,
    replace(made) {
      for (const one of charts) one.close();
      charts = made;
      grid.replaceChildren(...made.map((one) => one.element));
    },
    add(one) {
      charts.push(one);
      grid.append(one.element);
    },
    redraw: () => charts.forEach((one) => one.redraw()),
  };
}

function rangeOf(series, span = [Infinity, -Infinity]) {
  const range = { x0: span[0], x1: span[1], y0: Infinity, y1: -Infinity, log: false };
  const sample = [];
  for (const one of series) {
    one.x.forEach((x, n) => {
      range.x0 = Math.min(range.x0, x);
      range.x1 = Math.max(range.x1, x);
      range.y0 = Math.min(range.y0, one.low?.[n] ?? one.y[n]);
      range.y1 = Math.max(range.y1, one.high?.[n] ?? one.y[n]);
      sample.push(one.y[n]);
    });
  }
  if (!sample.length) return { x0: 0, x1: 1, y0: 0, y1: 1, log: false };
  if (range.x0 === range.x1) range.x1 = range.x0 + 1;
  range.whole = sample.every(Number.isInteger);
  const median = sample.sort((a, b) => a - b)[sample.length >> 1];
  range.log = range.y0 > 0 && range.y1 > 1000 * median; // it exploded
  if (range.log) return range;
  if (range.y0 >= 0 && range.y1 <= 1 && range.y1 > 0.3) return { ...range, y0: 0, y1: 1.02 };
  const room = 0.06 * (range.y1 - range.y0) || 0.5 * Math.abs(range.y1) || 1;
  return { ...range, y0: range.y0 >= 0 ? Math.max(0, range.y0 - room) : range.y0 - room, y1: range.y1 + room };
}

function yTicks(range) {
  if (!range.log) return ticks(range.y0, range.y1, 4).filter((value) => !range.whole || Number.isInteger(value));
  const found = [];
  for (let power = Math.ceil(Math.log10(range.y0)); power <= Math.log10(range.y1); power++) found.push(10 ** power);
  return found.length ? found : [range.y0, range.y1];
}

function drawRegimes(context, regimes, across, top, floor) {
  const names = [...new Set(regimes.map((one) => one.regime))];
  context.globalAlpha = 0.16;
  for (const { regime, start, end } of regimes) {
    context.fillStyle = seriesColour(names.indexOf(regime) + 1);
    context.fillRect(across(start), top, across(end) - across(start), floor - top);
  }
  context.globalAlpha = 1;
}

// A function that returns where marks of events are drawn; of many of a kind on one pixel, one is.
function marksOf(events) {
  let [held, marks] = ["", []];
  return (across, width) => {
    const key = `${events.length} ${width} ${across(0)} ${across(1)}`;
    if (key === held) return marks;
    held = key;
    const taken = new Map(); // by kind, the pixels
    marks = [];
    for (const { x, kind } of events) {
      if (x === null) continue;
      const place = Math.round(across(x));
      if (!taken.has(kind)) taken.set(kind, new Set());
      if (place < MARGIN.left || place > width - MARGIN.right || taken.get(kind).has(place)) continue;
      taken.get(kind).add(place);
      marks.push([place, kind]);
    }
    return marks;
  };
}

function drawEvents(context, marks, floor) {
  const colours = new Map();
  for (const [place, kind] of marks) {
    if (!colours.has(kind)) colours.set(kind, kindColour(kind));
    context.fillStyle = colours.get(kind);
    context.beginPath();
    context.moveTo(place - 4, floor);
    context.lineTo(place + 4, floor);
    context.lineTo(place, floor - 8);
    context.fill();
  }
}

function line(context, points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

function legendOf(series, regimes = []) {
  const entry = (colour, text) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = `var(--series-${(colour % 8) + 1})`;
    return element("span", { class: "entry" }, swatch, text);
  };
  const names = [...new Set(regimes.map((one) => one.regime))];
  const lines = series.length > 1 ? series.map((one, n) => entry(one.colour ?? n, one.label)) : [];
  return [...lines, ...names.map((name, n) => entry(n + 1, name))];
}

// What a curve shows, for those who cannot see it.
function inWords(title, series, unit) {
  const said = series.filter((one) => one.y.length).map((one) => {
    const least = one.y.reduce((a, b) => Math.min(a, b));
    const most = one.y.reduce((a, b) => Math.max(a, b));
    const name = series.length > 1 ? `${one.label}: ` : "";
    return `${name}from ${short(one.y[0])} to ${short(one.y.at(-1))}, least ${short(least)}, greatest ${short(most)}`;
  });
  return `${title} over ${unit ?? "x"}. ${said.join(". ") || "No values yet"}.`;
}

function tableOf(series, unit) {
  const longest = series.reduce((a, b) => (b.x.length > a.x.length ? b : a), { x: [] });
  const step = Math.max(1, (longest.x.length - 1) / (ROWS - 1));
  const places = [...new Set(longest.x.map((_, n) => Math.round(Math.min(n * step, longest.x.length - 1))))];
  const head = [unit ?? "x", ...series.map((one) => one.label)];
  const cell = (one, x) => {
    const n = nearest(one.x, x);
    if (n === undefined || x < one.x[0] || x > one.x.at(-1)) return "-";
    return one.low ? `${short(one.y[n])} (${short(one.low[n])} to ${short(one.high[n])})` : short(one.y[n]);
  };
  return element(
    "table",
    { class: "numbers" },
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...places.map((n) => element("tr", {},
      element("th", { scope: "row" }, short(longest.x[n])),
      ...series.map((one) => element("td", {}, cell(one, longest.x[n])))))),
  );
}

// The place of the value nearest to x in an ascending list.
export function nearest(xs, x) {
  if (!xs.length) return undefined;
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[high] - x) < Math.abs(xs[low] - x) ? high : low;
}
