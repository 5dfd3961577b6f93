// The list of runs.

import { element, problem } from "./dom.js";

export async function show(root, api) {
  let rows;
  try {
    rows = await api.get("/api/runs");
  } catch (error) {
    root.replaceChildren(problem(error.message));
    return () => {};
  }
  const title = element("h1", {}, "Runs");
  if (!rows.length) {
    root.replaceChildren(title, element("p", {}, "There are no runs yet. gpf train makes the first."));
    return () => {};
  }
  const head = ["Run", "Task", "Seed", "Steps", "Score", "State", "Written"];
  const table = element(
    "table",
    { class: "rows" },
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => runRow(row, head))),
  );
  root.replaceChildren(title, element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Runs" }, table));
  return () => {};
}

function runRow(row, head) {
  const written = row.written ? new Date(1000 * row.written).toLocaleString() : "-";
  const name = element("a", { href: `#/run/${encodeURIComponent(row.run)}` }, row.run);
  const cells = "damaged" in row
    ? [name, "-", "-", "-", "-", `damaged: ${row.damaged}`, written]
    : [name, row.task, String(row.seed ?? "-"), row.steps.toLocaleString("en"), score(row.score), state(row), written];
  return element("tr", {}, ...cells.map((cell, n) => element("td", { "data-of": head[n] }, cell)));
}

function score(held) {
  const [name, value] = Object.entries(held ?? {})[0] ?? [];
  if (name === undefined) return "-";
  const share = ["success", "accuracy", "validation"].includes(name);
  return `${name} ${share ? `${(100 * value).toFixed(1)}%` : Number(value.toPrecision(4))}`;
}

function state(row) {
  return row.finished ? "finished" : row.running ? "running" : row.failed ? "failed" : "interrupted";
}
