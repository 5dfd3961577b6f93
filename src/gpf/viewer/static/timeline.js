// The events of a run on a line, from its start to now: with a slider, buttons, keys, and each event's reason.

import { announce, element, styleValue } from "./dom.js";
import { kindColour, short, sketch } from "./sketch.js";

const SHOWN = 40; // rows of the list of events
const PLAY = 700; // milliseconds for each event

// `run` has `events` and `unit`; `moved(position)` is called when another moment is looked at.
// Positions: 0 is the start, n is after the n-th event, events.length + 1 is now.
export function timeline(run, moved) {
  let position = run.events.length + 1;
  let playing = null;
  const canvas = element("canvas", { class: "strip", "aria-hidden": "true" });
  const slider = element("input", { type: "range", min: "0", class: "moment", "aria-label": "Moment of the run",
    oninput: () => go(Number(slider.value)) });
  const play = element("button", { type: "button", onclick: () => (playing ? stop() : start()) }, "Play");
  const kinds = element("select", { "aria-label": "Kind of event", onchange: list });
  const buttons = element("div", { class: "buttons" },
    play,
    button("Start", () => go(0)),
    button("Previous", () => go(position - 1), "Previous event"),
    button("Next", () => go(position + 1), "Next event"),
    button("Next growth", () => go(nextOf("grown"))),
    button("Now", () => go(last())));
  const count = element("span", { class: "soft" });
  buttons.append(count);
  const marks = element("p", { class: "key soft" }, "▲ grown, ■ pruned, ◆ frozen, ● other events.");
  const what = element("p", { class: "reason" });
  const rows = element("tbody", {});
  const more = element("p", { class: "soft" });
  const table = element("table", { class: "rows events" },
    element("thead", {}, element("tr", {}, ...["Event", "When", "Layers", "Depth", "Density", "Reason"].map(
      (name) => element("th", { scope: "col" }, name)))), rows);
  const drawn = sketch(canvas, draw);
  canvas.addEventListener("click", (event) => go(nearestTo(event.offsetX)));

  const last = () => run.events.length + 1;

  function button(text, action, label) {
    return element("button", { type: "button", onclick: () => { stop(); action(); }, "aria-label": label }, text);
  }

  function go(to) {
    position = Math.max(0, Math.min(last(), to));
    show();
    moved(position);
  }

  function nextOf(kind) {
    const found = run.events.findIndex((event, n) => n >= position && event.kind === kind);
    return found < 0 ? last() : found + 1;
  }

  // From the list, which is made anew: the focus stays where it was.
  function pick(place) {
    stop();
    go(place);
    rows.querySelector(".chosen button")?.focus();
    announce(sentence());
  }

  function start() {
    if (position === last()) go(0);
    playing = setInterval(() => (position < last() ? go(position + 1) : stop()), PLAY);
    play.textContent = "Pause";
  }

  function stop() {
    clearInterval(playing);
    playing = null;
    play.textContent = "Play";
  }

  function show() {
    slider.max = String(last());
    slider.value = String(position);
    const text = sentence();
    slider.setAttribute("aria-valuetext", text);
    what.textContent = text;
    const where = position === 0 ? "Start" : position === last() ? "Now" : `Event ${position}`;
    count.textContent = `${where}; ${run.events.length} ${run.events.length === 1 ? "event" : "events"}`;
    drawn.redraw();
    list();
  }

  function sentence() {
    if (position === 0) return run.events.length ? "The start, before the first event." : "The start.";
    if (position === last()) return run.events.length ? "Now, after the last event." : "Now. There were no events.";
    const event = run.events[position - 1];
    const layers = event.layers.length ? ` layer ${event.layers.join(", ")}` : "";
    return `Event ${event.n + 1}: ${event.kind}${layers}, at ${run.unit} ${short(event.x)}. Reason: ${event.reason || "none given"}.`;
  }

  function span(width) {
    const xs = run.events.map((event) => event.x).filter((x) => x !== null);
    const end = Math.max(run.end(), xs.at(-1) ?? 1, 1);
    return (x) => 8 + (x / end) * (width - 16);
  }

  function draw(context, width, height) {
    const across = span(width);
    context.strokeStyle = styleValue("--line");
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(8, height / 2);
    context.lineTo(width - 8, height / 2);
    context.stroke();
    const taken = new Map(); // by kind, the pixels: of many on one, one is drawn
    for (const event of run.events) {
      const place = Math.round(across(event.x ?? 0));
      if (!taken.has(event.kind)) taken.set(event.kind, new Set());
      if (taken.get(event.kind).has(place)) continue;
      taken.get(event.kind).add(place);
      context.fillStyle = kindColour(event.kind);
      mark(context, event.kind, place, height / 2);
    }
    const x = position === 0 ? 8 : position === last() ? width - 8 : across(run.events[position - 1].x ?? 0);
    context.strokeStyle = styleValue("--focus");
    context.strokeRect(x - 8, 3, 16, height - 6);
  }

  function nearestTo(offset) {
    const across = span(canvas.clientWidth);
    let best = 0;
    run.events.forEach((event, n) => {
      if (Math.abs(across(event.x ?? 0) - offset) < Math.abs(across(run.events[best].x ?? 0) - offset)) best = n;
    });
    return run.events.length ? best + 1 : last();
  }

  // The rows around the moment: a run may have thousands of events.
  function list() {
    const kind = kinds.value;
    const chosen = []; // places of events
    run.events.forEach((event, n) => (!kind || event.kind === kind) && chosen.push(n + 1));
    const here = Math.max(0, chosen.findIndex((place) => place >= Math.min(position, run.events.length)));
    const from = Math.max(0, Math.min(here - SHOWN / 2, chosen.length - SHOWN));
    const shown = chosen.slice(from, from + SHOWN);
    rows.replaceChildren(...shown.map((place) => row(run.events[place - 1], place)));
    const others = chosen.length > SHOWN ? `Events ${from + 1} to ${from + shown.length} of ${chosen.length} are listed.` : "";
    const old = run.events_left_out ? ` ${run.events_left_out} earlier events are not sent to this page.` : "";
    more.textContent = others + old;
  }

  function row(event, place) {
    const choose = element("button", { type: "button", class: "link", onclick: () => pick(place) },
      `${event.n + 1} ${event.kind}`);
    const [before, after] = [event.before, event.after];
    const cells = [choose, short(event.x), event.layers.join(", ") || "-",
      arrow(before?.depth, after?.depth, String), arrow(before?.density, after?.density, (one) => one.toFixed(3)), event.reason];
    const names = ["Event", "When", "Layers", "Depth", "Density", "Reason"];
    return element("tr", { class: place === position ? "chosen" : null, "aria-current": place === position ? "true" : null },
      ...cells.map((cell, n) => element("td", { "data-of": names[n] }, cell)));
  }

  function update() { // events were added
    const names = [...new Set(run.events.map((event) => event.kind))];
    if (kinds.options.length !== names.length + 1) {
      const held = kinds.value;
      kinds.replaceChildren(element("option", { value: "" }, "all kinds"),
        ...names.map((name) => element("option", { value: name }, name)));
      kinds.value = held;
    }
    show();
  }

  update();
  const region = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Events" }, table);
  return {
    controls: element("div", { class: "timeline" }, canvas, marks, slider, buttons, what),
    table: element("div", {}, element("label", {}, "Show ", kinds), region, more),
    position: () => position,
    go,
    isNow: () => position === last(),
    // After `run.events` has grown; who looks at now goes on doing so.
    grown(wasNow) {
      if (wasNow) position = last();
      update();
    },
    redraw: drawn.redraw,
    close() {
      stop();
      drawn.close();
    },
  };
}

// A triangle for growth, a square for pruning, a diamond for freezing, a circle for others: not by colour alone.
function mark(context, kind, x, y) {
  context.beginPath();
  if (kind === "grown") {
    context.moveTo(x - 6, y + 5);
    context.lineTo(x + 6, y + 5);
    context.lineTo(x, y - 7);
  } else if (kind === "pruned") context.rect(x - 5, y - 5, 10, 10);
  else if (kind === "frozen") {
    context.moveTo(x, y - 7);
    context.lineTo(x + 6, y);
    context.lineTo(x, y + 7);
    context.lineTo(x - 6, y);
  } else context.arc(x, y, 5, 0, 2 * Math.PI);
  context.fill();
}

function arrow(before, after, form) {
  if (after === null || after === undefined) return "-";
  if (before === null || before === undefined || form(before) === form(after)) return form(after);
  return `${form(before)} → ${form(after)}`;
}
