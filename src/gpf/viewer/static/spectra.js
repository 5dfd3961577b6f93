// Eigenvalues of weight matrices, with the density that random weights of the same variance would have.

import { element, styleValue } from "./dom.js";
import { FONT, short, sketch, ticks } from "./sketch.js";

// A figure for one spectrum of /api/network.
export function spectrumFigure(spectrum) {
  const canvas = element("canvas", { class: "chart", role: "img", "aria-label": inWords(spectrum) });
  const drawn = sketch(canvas, (context, width, height) => paint(context, spectrum, width, height));
  const caption = element("figcaption", {}, element("b", {}, spectrum.name), ` ${spectrum.shape.join(" × ")}`);
  const details = element("p", { class: "soft" }, numbers(spectrum));
  return { element: element("figure", { class: "curve" }, caption, canvas, details), redraw: drawn.redraw, close: drawn.close };
}

function numbers(spectrum) {
  const rank = `Stable rank ${short(spectrum.stable_rank)}`;
  if (spectrum.law === null) return `${rank}; too few eigenvalues for a predicted density.`;
  const spikes = spectrum.spikes.length;
  return `${rank}; ${spikes} ${spikes === 1 ? "spike" : "spikes"} above the bulk; distance to the law ${short(spectrum.distance)}.`;
}

function inWords(spectrum) {
  return `Histogram of the eigenvalues of ${spectrum.name}, up to ${short(spectrum.top)}. ${numbers(spectrum)}`;
}

function paint(context, spectrum, width, height) {
  const [left, right, top, floor] = [8, width - 8, 6, height - 22];
  const inside = (spectrum.law?.y ?? []).filter((_, n) => spectrum.law.x[n] > 0.02 * spectrum.top);
  const most = 1.1 * Math.max(...spectrum.heights, ...inside, 1e-12);
  const across = (x) => left + (x / spectrum.top) * (right - left);
  const up = (y) => floor - (Math.min(y, most) / most) * (floor - top);
  context.font = FONT;
  context.fillStyle = styleValue("--series-1");
  context.globalAlpha = 0.6;
  const each = (right - left) / spectrum.heights.length;
  spectrum.heights.forEach((tall, n) => context.fillRect(left + n * each, up(tall), each - 0.5, floor - up(tall)));
  context.globalAlpha = 1;
  if (spectrum.law !== null) {
    context.strokeStyle = styleValue("--series-2");
    context.lineWidth = 2;
    context.beginPath();
    spectrum.law.x.forEach((x, n) => context.lineTo(across(x), up(spectrum.law.y[n])));
    context.stroke();
  }
  context.strokeStyle = styleValue("--series-4");
  context.lineWidth = 1.5;
  context.setLineDash([4, 3]);
  for (const spike of spectrum.spikes) {
    context.beginPath();
    context.moveTo(across(spike), top);
    context.lineTo(across(spike), floor);
    context.stroke();
  }
  context.setLineDash([]);
  context.fillStyle = styleValue("--soft");
  context.textBaseline = "top";
  for (const value of ticks(0, spectrum.top, 4)) {
    context.textAlign = value === 0 ? "left" : across(value) > right - 20 ? "right" : "center";
    context.fillText(short(value), across(value), floor + 5);
  }
}
