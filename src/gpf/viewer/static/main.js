// The page's frame: which view is shown, by the hash of the address, and the theme.

import { connect } from "./api.js";
import * as compare from "./compare.js";
import { problem } from "./dom.js";
import * as fly from "./fly.js";
import * as list from "./list.js";
import * as run from "./run.js";
import { watchTheme } from "./theme.js";

const content = document.getElementById("content");
let close = () => {};
let shown = 0;

async function route(api) {
  const mine = ++shown;
  close();
  close = () => {};
  const hash = location.hash || api.recorded?.start || "#/";
  const root = document.createElement("div");
  content.replaceChildren(root);
  for (const link of document.querySelectorAll("header nav a")) {
    const here = (link.id === "to-fly") === hash.startsWith("#/fly");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const closing = await view(hash)(root);
    if (mine === shown) close = closing;
    else closing();
  } catch (error) {
    root.replaceChildren(problem(error.message));
    console.error(error);
  }

  function view(hash) {
    if (hash.startsWith("#/run/")) {
      const name = decodeURIComponent(hash.slice("#/run/".length));
      document.title = `${name} - gpf`;
      return (element) => run.show(element, api, name);
    }
    if (hash.startsWith("#/compare")) {
      document.title = "Compared runs - gpf";
      return (element) => compare.show(element, api, hash);
    }
    document.title = hash.startsWith("#/fly") ? "Fly - gpf" : "Runs - gpf";
    return hash.startsWith("#/fly") ? (element) => fly.show(element, api) : (element) => list.show(element, api);
  }
}

async function start() {
  const address = new URL(location.href);
  if (address.searchParams.has("token")) { // it is in a cookie now
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  watchTheme(document.getElementById("theme"));
  try {
    const api = await connect();
    if (api.recorded !== null) document.querySelector("header nav")?.remove();
    addEventListener("hashchange", () => route(api));
    await route(api);
  } catch (error) {
    content.replaceChildren(problem(error.message));
  }
}

start();
