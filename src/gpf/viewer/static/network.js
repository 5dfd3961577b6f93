// A network: its layers, units and weights by magnitude; pruned weights are gone, frozen layers are marked.

import { element, styleValue } from "./dom.js";
import { FONT, sketch } from "./sketch.js";

const MOST_EDGES = 700; // of a layer; the greatest are drawn
const MOST_UNITS = 24; // of a column; more are drawn as fewer, each for several
const HARD = 0.5; // belief from which a weight counts as believed in
const HATCHED = 7; // pixels at either end of a frozen layer
const COLUMN = { units: 96, matrices: 132 }; // pixels that a layer needs

// A canvas with its controls and a table. `draw(shape, held)` shows a network: `shape` has depth, density and frozen
// (any may be null), `held` is the answer of /api/network, or null where no weights are on disk.
export function networkView() {
  let [shape, held, decoded] = [null, null, []];
  const canvas = element("canvas", { class: "network", role: "img" });
  const scroll = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Drawing of the network" }, canvas);
  const view = element("select", { id: "network-view", onchange: redraw },
    element("option", { value: "units" }, "units and weights"), element("option", { value: "matrices" }, "weight matrices"));
  const colour = element("select", { id: "network-colour", onchange: redraw },
    element("option", { value: "weight" }, "weight"), element("option", { value: "belief" }, "belief"));
  const controls = element("div", { class: "buttons" },
    element("label", {}, "Show ", view), element("label", {}, "Colour ", colour));
  const key = element("p", { class: "soft key" });
  const rows = element("tbody", {});
  const head = ["Layer", "Weights", "Density", "Belief", "State"];
  const table = element("table", { class: "rows layers" },
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))), rows);
  const drawn = sketch(canvas, paint);

  function redraw() {
    const columns = columnsOf(shape, held);
    const plain = isPlain(held);
    view.disabled = !plain;
    colour.disabled = !decoded.some((layer) => layer.some((one) => one.belief));
    if (colour.disabled) colour.value = "weight";
    const kind = plain && view.value === "units" ? "units" : "matrices";
    canvas.style.minWidth = `${(columns.length + 1) * COLUMN[kind]}px`;
    canvas.setAttribute("aria-label", inWords(shape, columns, held));
    key.textContent = keyOf(held, kind, colour.value);
    rows.replaceChildren(...columns.map((one) => layerRow(one, head)));
    drawn.redraw();
  }

  function paint(context, width, height) {
    if (shape === null) return;
    context.font = FONT;
    const columns = columnsOf(shape, held);
    if (held === null) paintBoxes(context, columns, width, height);
    else if (isPlain(held) && view.value === "units") paintUnits(context, columns, decoded, colour.value, width, height);
    else paintMatrices(context, columns, decoded, colour.value, width, height);
  }

  return {
    element: element("div", {}, controls, scroll, key,
      element("details", { open: true }, element("summary", {}, "Layers"), table)),
    draw(newShape, newHeld) {
      [shape, held] = [newShape, newHeld];
      decoded = (held?.layers ?? []).map((layer) => layer.weights.map(decode));
      redraw();
    },
    close: drawn.close,
  };
}

// What the table and the drawing have a column for: layers with weights, or as many as are known of.
function columnsOf(shape, held) {
  const frozen = shape?.frozen ?? [];
  if (held === null) {
    return Array.from({ length: shape?.depth ?? 0 }, (_, place) => ({ name: `layer ${place}`, place, frozen: frozen.includes(place) }));
  }
  return held.layers.map((layer) => ({
    ...layer,
    frozen: layer.frozen || (layer.place !== null && frozen.includes(layer.place)),
    title: layer.place === null ? layer.name.replace(/\.weight$/, "") : `layer ${layer.place}`,
  }));
}

// Whether each layer is one matrix that takes what the one before it puts out.
function isPlain(held) {
  const matrices = (held?.layers ?? []).map((layer) => layer.weights);
  return matrices.length > 0 && matrices.every((some, n) => some.length === 1
    && (n === 0 || some[0].shape[1] === matrices[n - 1][0].shape[0]));
}

function decode(weights) {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return { ...weights, values: new Int8Array(bytes(weights.values).buffer), belief: weights.belief && bytes(weights.belief) };
}

function layerRow(layer, head) {
  const state = layer.place === null ? "outside the stack" : layer.frozen ? "frozen" : "learning";
  const cells = [layer.title ?? layer.name, (layer.weights ?? []).map((one) => one.shape.join(" × ")).join(", ") || "-",
    layer.density === undefined ? "-" : layer.density.toFixed(3),
    layer.belief === undefined || layer.belief === null ? "-" : layer.belief.toFixed(3), state];
  return element("tr", { "data-place": layer.place }, ...cells.map((cell, n) => element("td", { "data-of": head[n] }, cell)));
}

function inWords(shape, columns, held) {
  const inside = columns.filter((one) => one.place !== null && one.place !== undefined);
  const frozen = inside.filter((one) => one.frozen).map((one) => one.place);
  const density = shape?.density === null || shape?.density === undefined ? "" : `, density ${shape.density.toFixed(3)}`;
  return `Network of ${inside.length} layers${density}, ${frozen.length ? `frozen: ${frozen.join(", ")}` : "none frozen"}.`
    + (held === null ? " Its weights are not on disk." : "");
}

function keyOf(held, kind, colour) {
  if (held === null) return "";
  const hue = colour === "belief"
    ? "Pale: soft (belief 0); dark: hard (belief 1)."
    : "Blue: positive; orange: negative; strong: large. Pruned weights are gone.";
  const beliefs = held.layers.some((layer) => layer.belief !== null);
  const hard = kind === "units" && colour === "weight" && beliefs ? " Solid: belief of at least 0.5; dotted: less." : "";
  const cells = held.layers.some((layer) => layer.weights.some((one) => one.cells[0] < one.shape[0] || one.cells[1] < one.shape[1]));
  const groups = kind === "units" && held.layers.some((layer) => Math.max(...layer.weights[0].cells) > MOST_UNITS);
  const several = groups ? ` More than ${MOST_UNITS} units are drawn as ${MOST_UNITS}, each for several.` : "";
  return hue + hard + several + (cells ? " Large matrices are shown in cells, each by its greatest weight." : "");
}

// The colour of a cell; null if it is gone.
function inkOf(weights, n, colour, palette) {
  const value = weights.values[n];
  if (value === 0) return null;
  if (colour === "belief" && weights.belief) return [palette.belief, 0.12 + 0.88 * (weights.belief[n] / 255)];
  return [value > 0 ? palette.positive : palette.negative, 0.15 + 0.85 * (Math.abs(value) / 127)];
}

function paletteOf() {
  const names = ["positive", "negative", "belief", "frozen", "frost", "ink", "soft", "line", "card"];
  return Object.fromEntries(names.map((name) => [name, styleValue(`--${name}`)]));
}

function paintBoxes(context, columns, width, height) {
  const palette = paletteOf();
  const each = width / Math.max(1, columns.length);
  columns.forEach((layer, n) => {
    const [x, wide] = [n * each + 8, Math.min(90, each - 16)];
    frame(context, palette, layer, x, 30, wide, height - 62);
    titles(context, palette, layer, x + wide / 2, height);
  });
}

// A frozen layer has a frosted ground, hatched at its ends, and says so.
function frame(context, palette, layer, x, y, wide, high) {
  context.fillStyle = layer.frozen ? palette.frost : palette.card;
  context.fillRect(x, y, wide, high);
  context.strokeStyle = layer.frozen ? palette.frozen : palette.line;
  context.lineWidth = layer.frozen ? 2 : 1;
  context.strokeRect(x, y, wide, high);
  if (!layer.frozen) return;
  context.save();
  context.beginPath();
  context.rect(x, y, wide, HATCHED);
  context.rect(x, y + high - HATCHED, wide, HATCHED);
  context.clip();
  context.lineWidth = 1;
  context.beginPath();
  for (let start = x - high; start < x + wide; start += 9) {
    context.moveTo(start, y + high);
    context.lineTo(start + high, y);
  }
  context.stroke();
  context.restore();
}

function titles(context, palette, layer, x, height) {
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.fillStyle = palette.ink;
  context.fillText(layer.title ?? layer.name, x, 20);
  context.fillStyle = palette.soft;
  if (layer.density !== undefined) context.fillText(`density ${layer.density.toFixed(2)}`, x, height - 18);
  if (layer.frozen) {
    context.fillStyle = palette.frozen;
    context.fillText("frozen", x, height - 3);
  }
}

function paintUnits(context, columns, decoded, colour, width, height) {
  const palette = paletteOf();
  const [top, floor] = [34, height - 42];
  const gap = (width - 40) / columns.length;
  const counts = [decoded[0][0].cells[1], ...decoded.map(([one]) => one.cells[0])].map((count) => Math.min(count, MOST_UNITS));
  const place = (column, n) => [20 + column * gap, top + ((n + 0.5) / counts[column]) * (floor - top)];
  columns.forEach((layer, k) => {
    if (layer.frozen) frame(context, palette, layer, 20 + k * gap + 9, top - 8, gap - 18, floor - top + 16);
  });
  const alive = counts.map((count) => new Uint8Array(count));
  columns.forEach((layer, k) => {
    for (const edge of edgesOf(decoded[k][0], counts[k + 1], counts[k])) {
      alive[k + 1][edge.to] |= 1;
      alive[k][edge.from] |= 2;
      const [ink, strength] = inkOf(edge.weights, edge.n, colour, palette);
      const hard = !edge.weights.belief || edge.weights.belief[edge.n] >= 255 * HARD;
      context.strokeStyle = ink;
      context.globalAlpha = strength;
      context.lineWidth = 0.4 + 2.4 * edge.size;
      context.setLineDash(colour === "weight" && !hard ? [2, 3] : []);
      context.beginPath();
      context.moveTo(...place(k, edge.from));
      context.lineTo(...place(k + 1, edge.to));
      context.stroke();
    }
    context.globalAlpha = 1;
    context.setLineDash([]);
  });
  counts.forEach((count, column) => {
    const radius = Math.max(2, Math.min(6, (floor - top) / count / 2.6));
    for (let n = 0; n < count; n++) {
      const wanted = (column > 0 ? 1 : 0) | (column < counts.length - 1 ? 2 : 0);
      context.fillStyle = (alive[column][n] & wanted) === wanted ? palette.ink : palette.card;
      context.strokeStyle = palette.soft;
      context.lineWidth = 1;
      context.beginPath();
      context.arc(...place(column, n), radius, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
  });
  columns.forEach((layer, k) => titles(context, palette, layer, 20 + (k + 0.5) * gap, height));
}

// The greatest weights between the units that are drawn, the greatest last.
function edgesOf(weights, rows, columns) {
  const [high, wide] = weights.cells;
  const greatest = new Map();
  for (let n = 0; n < high * wide; n++) {
    const size = Math.abs(weights.values[n]) / 127;
    if (!size) continue;
    const to = Math.floor((Math.floor(n / wide) * rows) / high);
    const from = Math.floor(((n % wide) * columns) / wide);
    const id = to * columns + from;
    if (size > (greatest.get(id)?.size ?? 0)) greatest.set(id, { weights, n, to, from, size });
  }
  return [...greatest.values()].sort((a, b) => b.size - a.size).slice(0, MOST_EDGES).reverse();
}

function paintMatrices(context, columns, decoded, colour, width, height) {
  const palette = paletteOf();
  const each = width / columns.length;
  const [top, floor] = [34, height - 42];
  columns.forEach((layer, k) => {
    const [x, wide] = [k * each + 6, each - 12];
    frame(context, palette, layer, x, top - 6, wide, floor - top + 12);
    const across = decoded[k].length > 2 && wide > 140 ? 2 : 1;
    const down = Math.ceil(decoded[k].length / across);
    const [cellWide, cellHigh] = [(wide - 8) / across, (floor - top) / down];
    decoded[k].forEach((one, n) => {
      const [left, upper] = [x + 4 + (n % across) * cellWide, top + Math.floor(n / across) * cellHigh];
      const label = decoded[k].length > 1 && cellHigh > 34 ? 13 : 0;
      if (label) {
        context.fillStyle = palette.soft;
        context.textAlign = "left";
        context.textBaseline = "top";
        context.fillText(fitting(context, one.name.replace(/\.weight$/, ""), cellWide - 6), left, upper);
      }
      paintMatrix(context, one, colour, palette, left, upper + label, cellWide - 4, cellHigh - label - 4);
    });
    titles(context, palette, layer, x + wide / 2, height);
  });
}

// A name, or its last parts, or the beginning of its last part, as there is room.
function fitting(context, name, room) {
  let text = name;
  while (context.measureText(text).width > room && text.includes(".")) text = text.slice(text.indexOf(".") + 1);
  while (context.measureText(text).width > room && text.length > 2) text = `${text.slice(0, -2)}…`;
  return text;
}

function paintMatrix(context, weights, colour, palette, x, y, roomWide, roomHigh) {
  const [rows, columns] = weights.cells;
  const size = Math.max(0.5, Math.min(roomWide / columns, roomHigh / rows, 10));
  context.fillStyle = palette.card;
  context.fillRect(x, y, columns * size, rows * size);
  for (let n = 0; n < rows * columns; n++) {
    const ink = inkOf(weights, n, colour, palette);
    if (ink === null) continue;
    [context.fillStyle, context.globalAlpha] = ink;
    context.fillRect(x + (n % columns) * size, y + Math.floor(n / columns) * size, size, size);
  }
  context.globalAlpha = 1;
  context.strokeStyle = palette.line;
  context.lineWidth = 1;
  context.strokeRect(x, y, columns * size, rows * size);
}

