// A run: placeholder of the run view.

import { runPath } from "./api.js";
import { element } from "./dom.js";

// Shows a run in `root`; returns a function that closes it.
export async function show(root, api, name) {
  const run = await api.get(runPath("/api/run", name));
  root.replaceChildren(element("h1", {}, name), element("p", {}, `Task: ${run.task}`));
  return () => {};
}
