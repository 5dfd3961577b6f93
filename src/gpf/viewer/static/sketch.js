// A canvas that stays as sharp as the screen, and is drawn again when its size or the theme changes.

import { styleValue } from "./dom.js";

export function sketch(canvas, draw) {
  let size = "";
  function redraw() {
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!width || !height) return;
    if (size !== (size = `${width} ${height} ${ratio}`)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  }
  const observer = new ResizeObserver(redraw);
  observer.observe(canvas);
  addEventListener("themechange", redraw);
  return {
    redraw,
    close() {
      observer.disconnect();
      removeEventListener("themechange", redraw);
    },
  };
}

export const FONT = "12px system-ui, sans-serif";
const KINDS = ["grown", "pruned", "frozen"];

// The colour of an event.
export function kindColour(kind) {
  return styleValue(`--${KINDS.includes(kind) ? kind : "other"}`);
}

// The n-th colour of curves, variants or regimes.
export function seriesColour(n) {
  return styleValue(`--series-${(n % 8) + 1}`);
}

// A number in few characters: 1.2M, 0.035, 12.
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(1);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(3))}${letter}`;
  }
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

// A number at an axis, where there is room for five letters.
export function tick(value) {
  return Math.abs(value) >= 1e4 && Math.abs(value) < 1e6 ? `${Number((value / 1000).toPrecision(3))}k` : short(value);
}

// Round numbers from low to high.
export function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((one) => one * power >= raw) * power;
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) found.push(n * step);
  return found;
}
