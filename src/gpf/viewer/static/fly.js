// An episode: the plume in motion, and an agent that searches in it.

import { element } from "./dom.js";

// Shows episodes in `root`; returns a function that closes them.
export async function show(root, api) {
  root.replaceChildren(element("h1", {}, "Fly"));
  return () => {};
}
