// A run: its network as it grows, its events, curves and spectra; it is followed while it is in progress.

import { runPath } from "./api.js";
import { chart, gallery } from "./curves.js";
import { announce, element, problem } from "./dom.js";
import { follow } from "./follow.js";
import { networkView } from "./network.js";
import { short } from "./sketch.js";
import { spectrumFigure } from "./spectra.js";
import { timeline } from "./timeline.js";

const TITLES = { measures: "Learning", structure: "Depth and density", plasticity: "Plasticity", cost: "Cost" };
const MINOR = ["round", "epoch", "low", "high", "flops"]; // numbers that are not shown at the top
const MOST_ADDED = 3000; // points since the page was loaded; after more it loads the run again, thinned
const PAUSE = 1000; // milliseconds between two loadings of a run, at least
const SETTLED = 80; // milliseconds that a moment is looked at before its network is asked for
const MOST_HELD = 40; // networks that are kept
const REFRESH = 3000; // milliseconds between two drawings of a network that is learning

// Shows a run in `root`; returns a function that closes it.
export async function show(root, api, name) {
  let [run, parts, stop, closed, loadedAt] = [null, null, () => {}, false, 0];
  const status = element("p", { class: "status", role: "status" });
  const body = element("div", {});
  root.replaceChildren(element("h1", {}, name), status, body);

  async function load() {
    await new Promise((done) => setTimeout(done, Math.max(0, loadedAt + PAUSE - Date.now())));
    if (closed) return;
    loadedAt = Date.now();
    const fresh = await api.get(runPath("/api/run", name));
    if (closed) return;
    run = Object.assign(fresh, { added: 0, end: () => Math.max(0, ...run.curves.map((one) => one.x.at(-1) ?? 0)) });
    const at = parts?.position() ?? null;
    parts?.close();
    parts = page(body, api, name, run, at);
    if (api.recorded === null) stop = follow(api, name, query, { message, status: (text) => { status.textContent = text; } });
  }

  const query = () => ({ unit: run.unit, state: run.state, ...run.cursor });

  async function message(told) {
    if (told.type === "gone" || "error" in told) {
      status.textContent = "";
      root.replaceChildren(element("h1", {}, name), problem(told.message ?? told.error), body);
    } else if (told.type === "lines" && run.added <= MOST_ADDED && parts.add(told)) {
      // it is drawn
    } else if (["reset", "lines"].includes(told.type)) {
      stop();
      try {
        await load();
      } catch (error) {
        root.replaceChildren(element("h1", {}, name), problem(error.message), body);
      }
    } else if (told.type === "state") {
      run.state = told.state;
      run.failure = told.failure;
      parts.said();
      announce(`The run is ${told.state} now.`);
    } else if (told.type === "checkpoint") parts.learned();
  }

  await load();
  return () => {
    closed = true;
    stop();
    parts?.close();
  };
}

// All that is below the title; `at` is the moment that was looked at before, or null.
function page(body, api, name, run, at) {
  const headline = element("p", { class: "soft" });
  const cards = element("div", { class: "cards" });
  const view = networkView();
  const about = element("p", { class: "soft about" });
  const spectra = gallery();
  const spectraNote = element("p", { class: "soft" });
  const held = new Map(); // answers about networks, by moment
  const line = timeline(run, moved);
  const learning = learningSection(run, () => xOf(run, line.position()));
  let [asked, timer, settling, drawnAt] = [0, null, null, 0];

  function moved(position) {
    clearTimeout(settling);
    if (held.has(momentOf(run, position))) drawNetwork(position);
    else settling = setTimeout(() => drawNetwork(position), SETTLED);
    learning.redraw();
  }

  async function drawNetwork(position) {
    const mine = ++asked;
    const moment = momentOf(run, position);
    const shape = shapeOf(run, position);
    if (moment === null) {
      view.draw(shape, null);
      about.textContent = "The weights of this moment are not on disk; depth, density and frozen layers are those that the event reports.";
      spectra.replace([]);
      spectraNote.textContent = "";
      return;
    }
    try {
      if (!held.has(moment)) {
        held.set(moment, api.get(`${runPath("/api/network", name)}?moment=${moment}`));
        if (held.size > MOST_HELD) held.delete(held.keys().next().value);
      }
      const network = await held.get(moment);
      if (mine !== asked) return;
      view.draw(shape, network);
      about.textContent = network.about;
      spectra.replace(network.spectra.map(spectrumFigure));
      spectraNote.textContent = network.spectra_left_out
        ? `${network.spectra_left_out} matrices are left out here (too small, or too large); gpf spectra analyses all.` : "";
    } catch (error) {
      held.delete(moment);
      if (mine !== asked) return;
      view.draw(shape, null);
      about.textContent = error.message;
      spectra.replace([]);
    }
  }

  function said() {
    const parts = [run.task ?? run.kind, run.seed === null ? null : `seed ${run.seed}`, run.kind === "run" ? run.state : null];
    headline.textContent = parts.filter((part) => part !== null).join(", ") + (run.failure ? `: ${run.failure}` : "");
    headline.classList.toggle("running", run.state === "running");
  }

  function fillCards() {
    const shown = Object.entries(run.numbers).filter(([key]) => !MINOR.includes(key)).slice(0, 10);
    cards.replaceChildren(...shown.map(([key, value]) => element("div", { class: "number" },
      element("b", {}, short(value)), element("span", {}, key.replaceAll("_", " ").replaceAll(".", ", ")))));
  }

  said();
  fillCards();
  const spectraSection = section("Spectra", element("p", { class: "soft" },
    "Eigenvalues of the weight matrices at the moment above (bars), the Marchenko-Pastur density of random weights (line), and spikes above it (dashed)."),
  spectra.element, spectraNote);
  body.replaceChildren(headline, ...run.problems.map(problem), cards,
    section("Network", line.controls, about, view.element),
    ...learning.sections, spectraSection, section("Events", line.table), settings(run), compareWith(api, name, run),
    ...flyWith(api, name, run));
  if (at !== null && at <= run.events.length) line.go(at);
  else drawNetwork(line.position());

  return {
    said,
    position: () => (line.isNow() ? null : line.position()),
    add(told) { // returns whether the page has room for all of it
      const wasNow = line.isNow();
      for (const added of told.curves) {
        const curve = run.curves.find((one) => one.key === added.key);
        if (curve) {
          curve.x.push(...added.x);
          curve.y.push(...added.y);
        } else {
          run.curves.push(added);
          if (!learning.add(added)) return false;
        }
        run.added += added.x.length / run.curves.length;
      }
      const next = run.events_left_out + run.events.length;
      run.events.push(...told.events.map((event) => ({ ...event, n: next + event.n })));
      if (told.moments) run.moments = told.moments;
      Object.assign(run.numbers, told.numbers);
      run.cursor = told.cursor;
      fillCards();
      line.grown(wasNow);
      learning.redraw();
      if (told.events.length) announce(`New: ${told.events.map((event) => event.kind).join(", ")}.`);
      return true;
    },
    learned() { // there is a newer checkpoint
      if (timer !== null) return;
      timer = setTimeout(() => {
        timer = null;
        drawnAt = Date.now();
        for (const moment of ["last", "best", "here"]) held.delete(moment);
        if (line.isNow()) {
          if (!run.moments.some((one) => one.id === "last")) run.moments.push({ id: "last", event: null, when: "last" });
          drawNetwork(line.position());
        }
      }, Math.max(0, drawnAt + REFRESH - Date.now()));
    },
    close() {
      clearTimeout(timer);
      clearTimeout(settling);
      asked++; // what still comes is not drawn
      for (const part of [line, view, learning]) part.close();
      spectra.replace([]);
    },
  };
}

function section(title, ...content) {
  const id = `section-${title.toLowerCase().replaceAll(" ", "-")}`;
  return element("section", { class: "card", "aria-labelledby": id }, element("h2", { id }, title), ...content);
}

// The curves by group; plasticity is shown for one measure at a time, with a curve for each layer.
function learningSection(run, at) {
  const more = { unit: run.unit, events: run.events, regimes: run.visits, span: () => [0, run.end()], at };
  const of = (group) => run.curves.filter((one) => one.group === group);
  const adders = new Map(); // by group, what draws one more curve
  const galleries = [];
  const sections = [];
  for (const group of ["measures", "structure", "plasticity", "cost"]) {
    if (!of(group).length) continue;
    const shown = gallery();
    galleries.push(shown);
    if (group === "plasticity") {
      const picked = plasticity(() => of(group), shown, more);
      adders.set(group, picked.fill);
      sections.push(section(TITLES[group], element("label", {}, "Measure ", picked.element), shown.element));
      continue;
    }
    const draw = (one) => chart(one.label, [one], { ...more, steps: group === "structure" });
    shown.replace(of(group).map(draw));
    adders.set(group, (one) => shown.add(draw(one)));
    const thinned = of(group).some((one) => one.of > one.x.length)
      ? element("p", { class: "soft" }, "Long curves are thinned: each stretch is shown by its least and its greatest value.") : null;
    const events = run.events.length ? element("p", { class: "soft" }, "Triangles mark events.") : null;
    sections.push(section(TITLES[group], group === "measures" ? events : null, thinned, shown.element));
  }
  return {
    sections,
    add(curve) { // returns whether there is a place for it
      adders.get(curve.group)?.(curve);
      return adders.has(curve.group);
    },
    redraw: () => galleries.forEach((one) => one.redraw()),
    close: () => galleries.forEach((one) => one.replace([])),
  };
}

// A choice of measures; of the one that is chosen, a chart with a curve for each layer.
function plasticity(curves, shown, more) {
  const measures = [...new Set(curves().map((one) => one.key.slice(one.key.lastIndexOf(":") + 1)))];
  const picked = element("select", { onchange: fill },
    ...measures.map((one) => element("option", { value: one }, one.replaceAll("_", " "))));
  picked.value = measures.includes("effective_rank") ? "effective_rank" : measures[0];

  function fill() {
    const names = [...new Set(curves().map((one) => one.label))];
    const chosen = curves().filter((one) => one.key.endsWith(`:${picked.value}`));
    for (const one of chosen) one.colour = names.indexOf(one.label);
    shown.replace([chart(picked.value.replaceAll("_", " "), chosen, more)]);
  }

  fill();
  return { element: picked, fill };
}

function settings(run) {
  return section("Settings", ...Object.entries(run.settings).map(([title, values]) => element("details", {},
    element("summary", {}, title),
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title },
      element("table", { class: "numbers" }, element("tbody", {}, ...Object.entries(values).map(([key, value]) =>
        element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, value)))))))));
}

// The way to episodes of a navigator.
function flyWith(api, name, run) {
  if (api.recorded !== null || run.task !== "plume") return [];
  return [element("p", {}, element("a", { href: `#/fly?world=own&policy=${encodeURIComponent(name)}` }, "Fly this navigator"))];
}

// Other runs of the same task, to be chosen; the list is read when it is opened.
function compareWith(api, name, run) {
  if (api.recorded !== null || run.kind !== "run") return null;
  const list = element("div", { class: "choices" });
  const link = element("a", { href: `#/compare?runs=${encodeURIComponent(name)}` }, "Compare");
  const update = () => {
    const chosen = [...list.querySelectorAll("input:checked")].map((box) => box.value);
    link.href = `#/compare?runs=${[name, ...chosen].map(encodeURIComponent).join(",")}`;
  };
  async function open() {
    if (!details.open || list.childElementCount) return;
    try {
      const rows = await api.get("/api/runs");
      const others = rows.filter((row) => row.task === run.task && row.run !== name);
      list.replaceChildren(...others.map((row) => element("label", {},
        element("input", { type: "checkbox", value: row.run, onchange: update }), ` ${row.run}`)));
      if (!others.length) list.textContent = "There are no other runs of this task.";
    } catch (error) {
      list.replaceChildren(problem(error.message));
    }
  }
  const details = element("details", { ontoggle: open }, element("summary", {}, "Compare with other runs"), list, link);
  return element("section", { class: "card" }, details);
}

// The moment whose weights are those of a position of the timeline; null if they are not on disk.
function momentOf(run, position) {
  const has = (id) => run.moments.find((one) => one.id === id)?.id ?? null;
  const snapshot = (event, when) => run.moments.find((one) => one.event === event && one.when === when)?.id ?? null;
  if (position === run.events.length + 1) return has("last") ?? has("here") ?? has("best");
  if (position === 0) return run.events.length ? snapshot(run.events[0].n, "before") : null;
  const { n } = run.events[position - 1];
  return snapshot(n, "after") ?? snapshot(n + 1, "before");
}

// Depth, density and frozen layers at a position of the timeline.
function shapeOf(run, position) {
  if (position === 0 && run.events.length) return run.events[0].before;
  const after = run.events[Math.min(position, run.events.length) - 1]?.after ?? null;
  if (position <= run.events.length && run.events.length) return after;
  const latest = (key) => run.curves.find((one) => one.key === key)?.y.at(-1) ?? after?.[key] ?? null;
  return { depth: latest("depth"), density: latest("density"), frozen: after?.frozen ?? [] };
}

function xOf(run, position) {
  return position === 0 || position > run.events.length ? null : run.events[position - 1].x;
}
