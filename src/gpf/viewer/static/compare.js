// Several runs next to each other: bands by variant, over seeds.

import { chart, gallery } from "./curves.js";
import { element, problem } from "./dom.js";

const WORDS = "Lines are means over the seeds of a variant; bands are 95 % intervals by Student's t. A single seed has no band.";

// Shows the runs named in `hash`, #/compare?runs=a,b, in `root`; returns a function that closes it.
export async function show(root, api, hash) {
  const listed = hash.slice(hash.indexOf("?runs=") + "?runs=".length);
  const names = hash.includes("?runs=") ? listed.split(",").filter(Boolean).map(decodeURIComponent) : [];
  const asked = names.map((name) => `run=${encodeURIComponent(name)}`).join("&");
  const found = await api.get(`/api/compare?${asked}`);
  const shown = ["measures", "structure"].map((group) => [group, gallery()]);
  for (const [group, charts] of shown) {
    charts.replace(found.curves.filter((one) => one.group === group).map((one) => chart(
      one.label,
      one.bands.map((band) => ({
        label: `${band.variant}, ${band.runs} ${band.runs === 1 ? "seed" : "seeds"}`,
        x: band.x, y: band.mean, ...(band.runs > 1 ? { low: band.low, high: band.high } : {}),
        colour: found.variants.findIndex((variant) => variant.label === band.variant),
      })),
      { unit: found.unit, steps: group === "structure" },
    )));
  }
  const variants = element("ul", {}, ...found.variants.map((variant) => element("li", {},
    element("b", {}, variant.label), ": ",
    ...variant.runs.flatMap((name, n) => [n ? ", " : "", element("a", { href: `#/run/${encodeURIComponent(name)}` }, name)]))));
  root.replaceChildren(
    element("h1", {}, "Compared runs"),
    ...found.problems.map(problem),
    element("section", { class: "card" }, element("h2", {}, "Variants"), variants, element("p", { class: "soft" }, WORDS)),
    ...shown.map(([group, charts]) => element("section", { class: "card" },
      element("h2", {}, group === "measures" ? "Learning" : "Depth and density"), charts.element)),
  );
  return () => shown.forEach(([, charts]) => charts.replace([]));
}
