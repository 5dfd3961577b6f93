// The controls of a flight: which episode, and who steers.

import { element } from "./dom.js";

// Keys to actions, as the simulator numbers them.
const KEYS = { ArrowUp: 0, ArrowLeft: 1, ArrowRight: 2, ArrowDown: 3, a: 4, d: 5 };
const FORWARD = 0;
const HOW = "Arrow keys turn and go on; down turns around, A and D cast. While paused, every key is one step. "
  + "The dashed path is the navigator's, in the same episode.";
const KINDS = { zoo: "Trained navigators", classical: "Classical opponents", run: "Runs" };

// A form that chooses world, policy and seed. start(choice, failure) begins an episode.
export function chooser({ worlds, policies, first, seeds }, start) {
  const asked = { ...first, ...fromAddress(policies) };
  const world = element("select", { id: "world" }, ...worlds.map((name) => option(name, name, name === asked.world)));
  const own = option("own", "the one it was trained in", asked.world === "own");
  world.prepend(own);
  const groups = Object.entries(KINDS).map(([kind, title]) => {
    const some = policies.filter((policy) => policy.kind === kind);
    const options = some.map((policy) => option(JSON.stringify(policy), label(policy), same(policy, asked.policy)));
    return some.length ? element("optgroup", { label: title }, ...options) : null;
  });
  const policy = element("select", { id: "policy" }, ...groups.filter((group) => group !== null));
  const seed = element("input", {
    id: "seed", type: "number", min: "0", max: String(seeds - 1), step: "1", value: String(asked.seed), required: true,
  });
  const choice = () => ({ world: world.value, policy: JSON.parse(policy.value), seed: Number(seed.value) });
  const watchWorld = () => {
    const classical = choice().policy.kind === "classical";
    own.disabled = classical;
    if (classical && own.selected) world.value = first.world;
  };
  policy.addEventListener("change", watchWorld);
  watchWorld();
  const next = () => {
    seed.value = String(Number(seed.value) + 1);
    start(choice());
  };
  const failure = () => start(choice(), true);
  const root = element(
    "form",
    { class: "card choose", onsubmit: (event) => {
      event.preventDefault();
      start(choice());
    } },
    element("h2", {}, "Episode"),
    field("World", world),
    field("Policy", policy),
    field("Seed", seed),
    element("div", { class: "buttons" },
      element("button", { class: "main" }, "New episode"),
      element("button", { type: "button", onclick: next }, "Next"),
      element("button", { type: "button", onclick: failure }, "Next failure")),
  );
  return { root, choice, next, failure, setSeed: (number) => { seed.value = String(number); } };
}

// What the address asks for: #/fly?world=office&policy=zoo:turbulent&seed=3
function fromAddress(policies) {
  const query = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const asked = {};
  if (query.has("world")) asked.world = query.get("world");
  if (/^\d+$/.test(query.get("seed") ?? "")) asked.seed = Number(query.get("seed"));
  const named = policies.find((policy) => policy.name === query.get("policy"));
  if (named !== undefined) asked.policy = named;
  return asked;
}

function label(policy) {
  return policy.checkpoint === "best" ? `${policy.name}, best checkpoint` : policy.name;
}

function same(one, other) {
  return one.name === other.name && one.kind === other.kind && (one.checkpoint ?? "last") === (other.checkpoint ?? "last");
}

function option(value, text, selected) {
  return element("option", { value, selected }, text);
}

function field(name, control) {
  return element("div", { class: "field" }, element("label", { for: control.id }, name), control);
}

// Steering by keyboard and moving things by numbers, for a view of a live flight.
export function steering(view) {
  const held = new Set();
  let busy = false;
  const pressed = { type: "button", "aria-pressed": "false", onclick: () => set(!self.on) };
  const toggle = element("button", pressed, "Steer it yourself");
  const result = element("p", { class: "soft", role: "status" }, "");
  const what = element("select", { id: "what", onchange: () => self.paused() },
    option("agent", "Agent", true), option("source", "Source", false));
  const [x, y] = ["x", "y"].map((id) => element("input", { id, type: "number", min: "0", step: "any", value: "10" }));
  const root = element(
    "section",
    { class: "card" },
    element("h2", {}, "Steer and move"),
    toggle,
    element("p", { class: "soft small" }, HOW),
    result,
    element("form", { class: "move", onsubmit: (event) => {
      event.preventDefault();
      view.move({ [what.value === "agent" ? "position" : "source"]: [Number(x.value), Number(y.value)] });
    } }, field("Move", what), field("x, m", x), field("y, m", y), element("button", {}, "Move")),
    element("p", { class: "soft small" }, "The agent and the source can also be dragged in the picture."),
  );

  const release = (event) => held.delete(keyOf(event));
  addEventListener("keyup", release, { signal: view.listening.signal });
  addEventListener("blur", () => held.clear(), { signal: view.listening.signal });

  async function set(on) {
    self.on = on;
    toggle.setAttribute("aria-pressed", String(on));
    if (!on) return;
    view.canvas.focus();
    if (view.rival === null) {
      const { header } = view.flight;
      result.textContent = "The navigator flies the same episode…";
      try {
        const rival = await view.flight.rival();
        if (header !== view.flight.header) return;
        view.rival = rival;
      } catch (error) {
        view.failed(error);
        return;
      }
    }
    compare();
    view.draw();
  }

  function compare() {
    const { name } = view.flight.choice.policy;
    const theirs = told(name, view.rival.end, view.rival.steps);
    const frame = view.flight.frames[view.step];
    result.textContent = frame.end === null ? theirs : `${told("You", frame.end, frame.step)} ${theirs}`;
  }

  async function act(action) {
    const frame = view.flight.frames[view.step];
    if (busy || frame === undefined || frame.end !== null) return;
    busy = true;
    try {
      await view.flight.act(view.step, action);
      view.step += 1;
      view.draw();
      if (view.flight.ended) {
        view.pause();
        if (view.rival) compare();
      }
    } catch (error) {
      view.failed(error);
    } finally {
      busy = false;
    }
  }

  const self = {
    root,
    on: false,
    reset() {
      held.clear();
      set(false);
      result.textContent = "";
    },
    // The fields of the form say where things are now.
    paused() {
      const frame = view.flight.frames[view.step];
      if (frame === undefined) return;
      [x.value, y.value] = what.value === "agent" ? frame.agent : frame.sources[0];
    },
    // Each step of the simulation: what the keys say, or straight on.
    tick() {
      const key = [...held].pop();
      act(key === undefined ? FORWARD : KEYS[key]);
    },
    // Whether a key steers.
    pressed(event) {
      const key = keyOf(event);
      if (!self.on || !(key in KEYS)) return false;
      held.add(key);
      if (!view.playing) act(KEYS[key]);
      return true;
    },
  };
  return self;
}

function keyOf(event) {
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}

function told(who, end, steps) {
  return end === "found" ? `${who} found the source in ${steps} steps.` : `${who} did not find it in ${steps} steps.`;
}
