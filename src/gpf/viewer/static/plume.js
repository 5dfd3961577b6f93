// Draws one moment of an episode: plume, wind, obstacles, sources, the agent and where it has been.

import { styleValue } from "./dom.js";
import { unpack } from "./flight.js";

const LIGHT = [[250, 250, 247], [253, 231, 200], [249, 183, 120], [228, 116, 74], [171, 55, 66], [96, 22, 63]];
const DARK = [[14, 18, 24], [44, 28, 48], [104, 40, 70], [176, 66, 66], [232, 132, 78], [255, 214, 140]];
const DECOY_LIGHT = [[250, 250, 247], [222, 228, 246], [168, 186, 230], [116, 134, 204], [88, 78, 164], [60, 34, 108]];
const DECOY_DARK = [[14, 18, 24], [24, 32, 60], [44, 60, 120], [76, 96, 180], [124, 146, 224], [190, 205, 255]];
const TAU = 2 * Math.PI;
const RINGS = 150; // more filaments than these are dots: without a GPU, a thousand circles take 25 ms

// The picture's colours in the page's theme.
export function colours() {
  const dark = document.documentElement.dataset.theme === "dark";
  const named = (name) => styleValue(`--${name}`);
  return {
    dark,
    scale: palette(dark ? DARK : LIGHT),
    decoyScale: palette(dark ? DECOY_DARK : DECOY_LIGHT),
    background: `rgb(${(dark ? DARK : LIGHT)[0].join(",")})`,
    filament: dark ? "rgba(30,14,24,.5)" : "rgba(255,255,255,.5)",
    wind: named("wind"), obstacle: named("obstacle"), source: named("good"), decoy: named("decoy"),
    ink: named("ink"), whiff: named("whiff"), rival: named("soft"),
    actions: Array.from({ length: 6 }, (_, n) => named(`action-${n}`)),
  };
}

function palette(stops) {
  const scale = new Uint32Array(256);
  for (let n = 0; n < 256; n++) {
    const at = (n / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const [r, g, b] = stops[low].map((value, channel) => value + (at - low) * (stops[low + 1][channel] - value));
    scale[n] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return scale;
}

export class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.field = document.createElement("canvas");
    this.decoyField = document.createElement("canvas");
    this.walls = document.createElement("canvas");
    this.setTheme();
  }

  setTheme() {
    this.colours = colours();
    if (this.header) this.setEpisode(this.header);
  }

  // Fit the canvas to its width on the page.
  resize() {
    if (!this.header) return;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const width = this.canvas.clientWidth || 600;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round((width * this.header.height * ratio) / this.header.width);
    this.scale = this.canvas.width / this.header.width; // pixels a metre
    this.dot = ratio;
  }

  setEpisode(header) {
    this.header = header;
    this.canvas.style.aspectRatio = `${header.width} / ${header.height}`;
    this.canvas.style.width = `min(100%, ${(78 * header.width) / header.height}vh)`;
    for (const image of [this.field, this.decoyField]) [image.height, image.width] = header.field;
    this.pixels = new ImageData(this.field.width, this.field.height);
    this.resize();
    const solid = header.obstacles;
    if (!solid.length) return;
    [this.walls.height, this.walls.width] = [solid.length, solid[0].length];
    const context = this.walls.getContext("2d");
    context.fillStyle = this.colours.obstacle;
    solid.forEach((row, y) => [...row].forEach((cell, x) => cell === "#" && context.fillRect(x, y, 1, 1)));
  }

  // Metres to pixels, and back.
  at(x, y) {
    return [x * this.scale, this.canvas.height - y * this.scale];
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    return [share[0] * this.header.width, (1 - share[1]) * this.header.height];
  }

  // frames: of the episode so far; step: which is shown; plume: the frame whose plume is shown.
  draw(frames, step, plume, { layers, rival, dragged }) {
    const { context, canvas } = this;
    const frame = frames[step];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.lineCap = context.lineJoin = "round";
    if (layers.field) this.#drawField(plume);
    else {
      context.fillStyle = this.colours.background;
      context.fillRect(0, 0, canvas.width, canvas.height);
    }
    if (this.header.obstacles.length) {
      context.imageSmoothingEnabled = false;
      context.drawImage(this.walls, 0, 0, canvas.width, canvas.height);
    }
    if (layers.filaments) this.#drawFilaments(plume);
    if (layers.wind) this.#drawWind(plume);
    this.#drawSources(frame, dragged?.what === "source" ? dragged.at : null);
    if (rival) this.#drawRival(rival, step);
    if (layers.trail) this.#drawTrail(frames, step);
    this.#drawAgent(frame, dragged?.what === "agent" ? dragged.at : null);
    this.#drawScale();
  }

  #drawField(plume) {
    const { context, canvas, pixels } = this;
    const paint = (text, image, scale) => {
      const levels = unpack(text, Uint8Array);
      const out = new Uint32Array(pixels.data.buffer);
      for (let n = 0; n < levels.length; n++) out[n] = scale[levels[n]];
      image.getContext("2d").putImageData(pixels, 0, 0);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
    };
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = "low";
    paint(plume.field, this.field, this.colours.scale);
    if (!plume.second_field) return;
    context.globalCompositeOperation = this.colours.dark ? "lighten" : "multiply";
    paint(plume.second_field, this.decoyField, this.colours.decoyScale);
    context.globalCompositeOperation = "source-over";
  }

  #drawFilaments(plume) {
    const { context, canvas } = this;
    const held = unpack(plume.filaments, Uint16Array); // all x, then all y, then all radii
    const count = held.length / 3;
    const [per_x, per_y] = [canvas.width / 65535, canvas.height / 65535];
    const per_mm = this.scale / 1000;
    context.strokeStyle = context.fillStyle = this.colours.filament;
    context.lineWidth = this.dot;
    const size = 2 * this.dot;
    for (let n = 0; n < count; n++) {
      const x = held[n] * per_x, y = canvas.height - held[count + n] * per_y;
      if (count > RINGS) {
        context.fillRect(x - size / 2, y - size / 2, size, size);
        continue;
      }
      context.beginPath();
      context.arc(x, y, Math.max(held[2 * count + n] * per_mm, size / 2), 0, TAU);
      context.stroke();
    }
  }

  #drawWind(plume) {
    const [rows, columns] = this.header.wind;
    const held = unpack(plume.wind, Int16Array);
    const { canvas, dot } = this;
    const alone = rows === 1 && columns === 1;
    const cell = canvas.width / columns;
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const n = 2 * (row * columns + column);
        const u = held[n] / 1000, v = held[n + 1] / 1000; // m/s
        const x = alone ? 44 * dot : (column + 0.5) * cell;
        const y = alone ? 44 * dot : ((row + 0.5) * canvas.height) / rows;
        const longest = alone ? 28 * dot : 0.42 * cell;
        const length = longest * Math.min(1, Math.hypot(u, v) / (alone ? 1 : 0.9));
        this.#arrow(x, y, Math.atan2(-v, u), length, (alone ? 2.5 : 1.3) * dot, alone ? 1 : 0.75);
      }
    }
  }

  #arrow(x, y, angle, length, width, opacity) {
    if (length < 2) return;
    const { context } = this;
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    const [tipX, tipY] = [x + c * length, y + s * length];
    const wing = Math.min(0.6 * length, 4 * width);
    context.globalAlpha = opacity;
    context.strokeStyle = this.colours.wind;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - c * length, y - s * length);
    context.lineTo(tipX, tipY);
    for (const turn of [2.6, -2.6]) {
      context.moveTo(tipX, tipY);
      context.lineTo(tipX + wing * Math.cos(angle + turn), tipY + wing * Math.sin(angle + turn));
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  #drawSources(frame, draggedTo) {
    const { context, dot } = this;
    frame.sources.forEach((place, n) => {
      const [x, y] = this.at(...(n === 0 && draggedTo ? draggedTo : place));
      context.strokeStyle = context.fillStyle = this.colours.source;
      context.lineWidth = 1.8 * dot;
      context.beginPath();
      context.arc(x, y, this.header.success_radius * this.scale, 0, TAU);
      context.stroke();
      context.beginPath();
      for (let k = 0; k < 10; k++) { // a star
        const radius = (k % 2 ? 3.4 : 8.5) * dot, angle = -Math.PI / 2 + (k * Math.PI) / 5;
        context.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
      }
      context.fill();
    });
    context.fillStyle = this.colours.decoy;
    for (const place of this.header.decoys) {
      const [x, y] = this.at(...place);
      context.fillRect(x - 5 * dot, y - 5 * dot, 10 * dot, 10 * dot);
    }
  }

  #drawRival(rival, step) {
    const { context, dot } = this;
    context.beginPath();
    rival.path.slice(0, step + 1).forEach((place) => context.lineTo(...this.at(...place)));
    context.setLineDash([2 * dot, 5 * dot]);
    context.strokeStyle = this.colours.rival;
    context.lineWidth = 2.5 * dot;
    context.stroke();
    context.setLineDash([]);
    const [x, y] = this.at(...rival.path[Math.min(step, rival.path.length - 1)]);
    context.beginPath();
    context.arc(x, y, 5 * dot, 0, TAU);
    context.stroke();
  }

  #drawTrail(frames, step) {
    const { context, dot } = this;
    const segment = (n) => {
      context.moveTo(...this.at(frames[n - 1].agent[0], frames[n - 1].agent[1]));
      context.lineTo(...this.at(frames[n].agent[0], frames[n].agent[1]));
    };
    const stroke = (width, colour, chosen) => {
      context.beginPath();
      for (let n = 1; n <= step; n++) if (!frames[n].moved && chosen(frames[n], frames[n - 1])) segment(n);
      context.strokeStyle = colour;
      context.lineWidth = width * dot;
      context.stroke();
    };
    stroke(8, this.colours.whiff, (frame, before) => before.whiff);
    this.colours.actions.forEach((colour, action) => stroke(2.4, colour, (frame) => frame.did === action));
    const [x, y] = this.at(frames[0].agent[0], frames[0].agent[1]);
    context.fillStyle = this.colours.ink;
    context.beginPath();
    context.arc(x, y, 3 * dot, 0, TAU);
    context.fill();
  }

  #drawAgent(frame, draggedTo) {
    const { context, dot } = this;
    const [x, y] = this.at(...(draggedTo ?? frame.agent.slice(0, 2)));
    const heading = -frame.agent[2];
    const corner = (turn, length) =>
      [x + length * dot * Math.cos(heading + turn), y + length * dot * Math.sin(heading + turn)];
    context.strokeStyle = context.fillStyle = this.colours.ink;
    context.lineWidth = 1.5 * dot;
    for (const [n, turn] of [[0, -0.5], [1, 0.5]]) { // antennae, the left one first; the screen's y points down
      const tip = corner(turn, 19);
      context.beginPath();
      context.moveTo(...corner(0, 8));
      context.lineTo(...tip);
      context.stroke();
      const smells = frame.readings[n] > this.header.whiff;
      context.beginPath();
      context.arc(...tip, (smells ? 4.5 : 2.2) * dot, 0, TAU);
      context.fillStyle = smells ? this.colours.whiff : this.colours.ink;
      context.fill();
      if (smells) context.stroke();
    }
    context.fillStyle = this.colours.ink;
    context.beginPath();
    for (const [turn, length] of [[0, 11], [2.5, 8], [Math.PI, 3], [-2.5, 8]]) context.lineTo(...corner(turn, length));
    context.fill();
  }

  #drawScale() {
    const { context, canvas, dot } = this;
    const metres = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50].find((length) => length * this.scale > 50 * dot) ?? 100;
    const length = metres * this.scale;
    const [x, y] = [canvas.width - length - 12 * dot, canvas.height - 12 * dot];
    context.strokeStyle = context.fillStyle = this.colours.ink;
    context.lineWidth = 2 * dot;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + length, y);
    context.stroke();
    context.font = `${12 * dot}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.fillText(`${metres} m`, x + length / 2, y - 5 * dot);
  }
}
