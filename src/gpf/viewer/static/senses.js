// What the agent senses and thinks: readings over time, tokens, probabilities of actions, value, memory.

import { element, styleValue } from "./dom.js";

const SHOWN = 150; // steps of the curves
const CURVES = { left: "left antenna", right: "right antenna", air: "odour in the air", whiff: "whiff" };
const LOW = 3e-4, HIGH = 3; // readings at the ends of the logarithmic axis

export class Senses {
  constructor() {
    this.readings = element("canvas", { class: "trace", role: "img" });
    this.tokens = element("dl", { class: "tokens" });
    this.actions = element("ul", { class: "bars", "aria-label": "Actions" });
    this.value = element("canvas", { class: "trace low", role: "img" });
    this.memory = element("ul", { class: "bars signed", "aria-label": "Memory features" });
    this.state = element("canvas", { class: "cells", role: "img" });
    this.valuePart = part("Value", this.value);
    this.memoryPart = part("Memory features", this.memory);
    this.statePart = part("Recurrent state", this.state);
    this.actionsTitle = element("h2", {}, "Actions");
    this.root = element(
      "div",
      { class: "senses" },
      part("Readings, logarithmic", this.readings, element("p", { class: "marks soft" },
        ...Object.entries(CURVES).flatMap(([name, text]) => [key(name), ` ${text}  `]))),
      part("Tokens", this.tokens),
      element("section", { class: "card" }, this.actionsTitle, this.actions),
      this.valuePart,
    );
    this.setTheme();
  }

  setTheme() {
    const names = [...Object.keys(CURVES), "line", "accent"];
    this.colours = Object.fromEntries(names.map((name) => [name, styleValue(`--${name}`)]));
  }

  setEpisode(header) {
    this.header = header;
    this.tokenTexts = ["Left", "Right", "Wind"].map((name) => {
      const text = element("dd", {}, "-");
      return { name, text };
    });
    this.tokens.replaceChildren(...this.tokenTexts.map(({ name, text }) => element("div", {}, element("dt", {}, name), text)));
    this.bars = header.actions.map((name, n) => bar(name, `--action-${n}`));
    this.actions.replaceChildren(...this.bars.map((one) => one.root));
    this.features = header.inputs.map((name) => bar(name, "--accent"));
    this.memory.replaceChildren(...this.features.map((one) => one.root));
    this.memoryPart.hidden = !header.inputs.length;
    this.actionsTitle.textContent = header.values ? "Values of actions" : "Actions";
  }

  draw(frames, step) {
    const frame = frames[step];
    const first = Math.max(0, step - SHOWN + 1);
    const some = frames.slice(first, step + 1);
    this.#drawReadings(some);
    const [levels, octants] = this.header.tokens;
    const names = [levels[frame.tokens[0]], levels[frame.tokens[1]], octants[frame.tokens[2]]];
    this.tokenTexts.forEach(({ text }, n) => { text.textContent = names[n]; });
    this.#drawActions(frame);
    const value = frame.value ?? null;
    this.valuePart.hidden = value === null;
    if (value !== null) this.#drawValue(some);
    (frame.inputs ?? []).forEach((number, n) => this.features[n]?.setSigned(number));
    const state = frame.state ?? [];
    this.statePart.hidden = !state.length;
    if (state.length) this.#drawState(state);
  }

  #drawActions(frame) {
    const scores = frame.scores ?? null;
    if (!this.header.values) this.actionsTitle.textContent = scores === null ? "Next action" : "Probabilities of actions";
    const low = scores ? Math.min(...scores) : 0, span = scores ? Math.max(...scores) - low || 1 : 1;
    this.bars.forEach((one, n) => {
      const chosen = frame.proposed === n;
      if (scores === null) one.set(chosen ? 1 : 0, chosen ? "chosen" : "", chosen);
      else if (this.header.values) one.set((scores[n] - low) / span, short(scores[n]), chosen);
      else one.set(scores[n], `${(100 * scores[n]).toFixed(0)} %`, chosen);
    });
  }

  #drawReadings(some) {
    const { context, width, height } = prepared(this.readings);
    const level = (reading) => Math.log(Math.min(Math.max(reading, LOW), HIGH) / LOW) / Math.log(HIGH / LOW);
    const y = (reading) => height - 3 - (height - 6) * level(reading);
    const x = (n) => (n / (SHOWN - 1)) * width;
    context.strokeStyle = this.colours.line;
    context.setLineDash([4, 4]);
    line(context, [[0, y(this.header.whiff)], [width, y(this.header.whiff)]]);
    context.setLineDash([]);
    context.fillStyle = this.colours.whiff;
    some.forEach((frame, n) => frame.whiff && context.fillRect(x(n) - 1, 0, 2.5, 7));
    for (const [which, n] of [["left", 0], ["right", 1]]) {
      context.lineWidth = 1;
      context.globalAlpha = 0.55;
      context.strokeStyle = this.colours.air;
      line(context, some.map((frame, k) => [x(k), y(frame.air[n])]));
      context.globalAlpha = 1;
      context.lineWidth = 1.6;
      context.strokeStyle = this.colours[which];
      line(context, some.map((frame, k) => [x(k), y(frame.readings[n])]));
    }
    const { readings } = some[some.length - 1];
    this.readings.setAttribute("aria-label", `Readings: left ${short(readings[0])}, right ${short(readings[1])}`);
  }

  #drawValue(some) {
    const { context, width, height } = prepared(this.value);
    const values = some.map((frame) => frame.value);
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    context.strokeStyle = this.colours.accent;
    context.lineWidth = 1.6;
    line(context, values.map((value, n) => [(n / (SHOWN - 1)) * width, height - 4 - ((height - 8) * (value - low)) / span]));
    const now = short(values[values.length - 1]);
    this.value.setAttribute("aria-label", `Value: ${now}`);
    this.valuePart.firstChild.textContent = `Value: ${now}`;
  }

  #drawState(state) {
    const { context, width, height } = prepared(this.state);
    const columns = Math.ceil(Math.sqrt(state.length * 4)), rows = Math.ceil(state.length / columns);
    const greatest = Math.max(...state.map(Math.abs), 1e-9);
    state.forEach((number, n) => {
      context.globalAlpha = Math.abs(number) / greatest;
      context.fillStyle = number > 0 ? this.colours.right : this.colours.left;
      const [column, row] = [n % columns, Math.floor(n / columns)];
      context.fillRect((column * width) / columns, (row * height) / rows, width / columns - 1, height / rows - 1);
    });
    context.globalAlpha = 1;
    this.state.setAttribute("aria-label", `Recurrent state of ${state.length} units, orange above zero and blue below`);
  }
}

function part(title, ...children) {
  return element("section", { class: "card" }, element("h2", {}, title), ...children);
}

function key(name) {
  return element("span", { class: `mark ${name}`, "aria-hidden": "true" });
}

function bar(name, colour) {
  const fill = element("span", { class: "fill" });
  fill.style.background = `var(${colour})`;
  const number = element("span", { class: "amount" });
  const track = element("span", { class: "track", "aria-hidden": "true" }, fill);
  const root = element("li", {}, element("span", { class: "name" }, name), track, number);
  return {
    root,
    set(share, text, chosen) {
      fill.style.width = `${100 * share}%`;
      number.textContent = text;
      root.classList.toggle("chosen", chosen);
    },
    setSigned(value) {
      const share = Math.min(Math.abs(value), 1) / 2;
      fill.style.left = `${100 * (value < 0 ? 0.5 - share : 0.5)}%`;
      fill.style.width = `${100 * share}%`;
      number.textContent = value.toFixed(2);
    },
  };
}

function prepared(canvas) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const width = canvas.clientWidth || 300, height = canvas.clientHeight || 90;
  if (canvas.width !== Math.round(width * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.lineWidth = 1;
  return { context, width, height };
}

function line(context, points) {
  context.beginPath();
  for (const point of points) context.lineTo(...point);
  context.stroke();
}

export function short(number) {
  return Math.abs(number) < 1e-3 && number !== 0 ? number.toExponential(1) : String(Number(number.toPrecision(3)));
}
