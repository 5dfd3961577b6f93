// An episode: the plume in motion, an agent that searches in it, and what it senses and thinks.

import { announce, element, problem } from "./dom.js";
import { LiveFlight, RecordedFlight } from "./flight.js";
import { Picture } from "./plume.js";
import { Senses } from "./senses.js";
import { chooser, steering } from "./controls.js";

const LAYERS = { field: "Concentration", filaments: "Filaments", wind: "Wind", trail: "Trail" };
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32];
const GRIP = 22; // pixels around a marker in which it can be grabbed
const ENDS = { found: "Found the source", lost: "Lost the plume", timeout: "Out of time" };

// Shows episodes in `root`; returns a function that closes them.
export async function show(root, api) {
  const view = new FlyView(root, api);
  window.gpfView = view.seen(); // for tests, and for a look from the console
  await view.open();
  return () => view.close();
}

class FlyView {
  constructor(root, api) {
    this.root = root;
    this.api = api;
    this.step = 0;
    this.playing = false;
    this.speed = 1;
    this.layers = Object.fromEntries(Object.keys(LAYERS).map((name) => [name, true]));
    this.rival = null;
    this.dragged = null;
    this.listening = new AbortController();
    this.draw = this.draw.bind(this);
  }

  async open() {
    const { signal } = this.listening;
    const recorded = this.api.recorded !== null;
    this.#build();
    if (recorded) {
      this.flight = new RecordedFlight(await this.api.get("/episode"));
      const { world, policy, seed } = this.flight.choice;
      this.title.textContent = `${policy.name} in ${world}, seed ${seed}`;
    } else {
      this.flight = new LiveFlight(this.api, () => this.changed(), (error) => this.failed(error));
      this.chooser = chooser(await this.api.get("/api/fly"), (choice, failure) => this.start(choice, failure));
      this.steering = steering(this);
      this.side.prepend(this.chooser.root);
      this.below.prepend(this.steering.root);
    }
    addEventListener("themechange", () => this.setTheme(), { signal });
    addEventListener("resize", () => this.setSize(), { signal });
    document.addEventListener("keydown", (event) => this.pressed(event), { signal });
    this.#watchPointer(signal);
    this.setSize();
    if (recorded) this.begin();
    else await this.start(this.chooser.choice());
  }

  close() {
    this.playing = false;
    this.listening.abort();
    this.flight?.close();
  }

  // What is shown, as numbers: places as shares of the domain, the heading in rad.
  seen() {
    const frame = () => this.flight.frames[this.step];
    const share = ([x, y]) => [x / this.flight.header.width, y / this.flight.header.height];
    return {
      frames: () => ({ header: this.flight?.header, frames: this.flight?.frames ?? [] }),
      step: () => this.step,
      seed: () => this.flight?.header?.seed,
      heading: () => frame().agent[2],
      places: () => ({ agent: share(frame().agent), source: share(frame().sources[0]) }),
    };
  }

  #build() {
    this.canvas = element("canvas", {
      class: "plume", tabindex: "0", role: "application", "aria-label": "Plume", "aria-describedby": "status keys",
    });
    this.picture = new Picture(this.canvas);
    this.senses = new Senses();
    this.status = element("p", { id: "status", class: "now" }, "Starting the simulator…");
    this.error = element("div", {});
    this.play = element("button", { type: "button", class: "main", onclick: () => this.toggle() }, "Play");
    this.slider = element("input", {
      type: "range", min: "0", max: "0", value: "0", "aria-label": "Step", class: "scrub", oninput: () => this.scrub(),
    });
    this.speeds = element(
      "select",
      { onchange: () => { this.speed = Number(this.speeds.value); } },
      ...SPEEDS.map((speed) => element("option", { value: speed, selected: speed === 1 }, `${speed}×`)),
    );
    const layers = Object.entries(LAYERS).map(([name, title]) =>
      element("label", {}, element("input", { type: "checkbox", checked: true, onchange: (event) => {
        this.layers[name] = event.target.checked;
        this.draw();
      } }), ` ${title}`));
    this.title = element("h1", {}, "Fly");
    this.legend = element("p", { class: "marks soft" });
    this.side = element("div", { class: "side" }, this.senses.root);
    this.below = element("div", { class: "below" }, this.senses.memoryPart, this.senses.statePart);
    this.root.replaceChildren(
      this.title,
      this.error,
      element(
        "div",
        { class: "fly" },
        element(
          "div",
          { class: "stage" },
          element("div", { class: "card" },
            this.canvas,
            this.status,
            element("div", { class: "transport" },
              this.play,
              element("button", { type: "button", "aria-label": "Step back", onclick: () => this.jump(-1) }, "−1"),
              element("button", { type: "button", "aria-label": "Step forward", onclick: () => this.jump(1) }, "+1"),
              this.slider,
              element("label", {}, "Speed ", this.speeds)),
            element("fieldset", { class: "shown" }, element("legend", {}, "Layers"), ...layers),
            this.legend,
            element("p", { id: "keys", class: "soft small" }, this.api.recorded === null
              ? "Keys: space plays and pauses, left and right step, N starts the next episode, F finds the next failure."
              : "Keys: space plays and pauses, left and right step."),
          ),
        ),
        this.side,
        this.below,
      ),
    );
  }

  // A new episode as chosen, or the next one that the policy does not solve.
  async start(choice, failure = false) {
    this.pause();
    this.rival = null;
    this.error.replaceChildren();
    this.status.textContent = failure ? "Looking for a failure…" : "Starting the simulator…";
    try {
      await this.flight.start(choice, failure);
    } catch (error) {
      this.failed(error);
      this.draw();
      return;
    }
    this.chooser.setSeed(this.flight.choice.seed);
    this.steering.reset();
    this.begin();
  }

  begin() {
    const { header } = this.flight;
    this.step = 0;
    this.ended = false;
    this.picture.setEpisode(header);
    this.senses.setEpisode(header);
    this.#writeLegend(header);
    this.setSize();
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.resume();
    this.flight.fill(0).catch((error) => this.failed(error));
  }

  #writeLegend({ actions, decoys }) {
    const keys = actions.map((name, n) => {
      const mark = element("span", { class: "mark", "aria-hidden": "true" });
      mark.style.background = `var(--action-${n})`;
      return element("span", { class: "item" }, mark, ` ${name}`);
    });
    const others = ["whiff", "source", ...(decoys.length ? ["decoy"] : [])];
    for (const kind of others) {
      const mark = element("span", { class: `mark ${kind}`, "aria-hidden": "true" });
      keys.push(element("span", { class: "item" }, mark, ` ${kind}`));
    }
    this.legend.replaceChildren("Trail: ", ...keys);
  }

  failed(error) {
    this.pause();
    this.error.replaceChildren(problem(error.message));
    this.status.textContent = "";
  }

  // --- playing ---

  toggle() {
    if (this.playing) this.pause();
    else {
      if (this.step === this.flight.last && this.flight.ended) this.step = 0;
      this.resume();
    }
  }

  resume() {
    if (this.playing || !this.flight.header) return;
    this.playing = true;
    this.play.textContent = "Pause";
    this.time = performance.now();
    this.due = 0;
    requestAnimationFrame((now) => this.tick(now));
    this.draw();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.play.textContent = "Play";
    this.steering?.paused();
    announce(this.status.textContent);
  }

  tick(now) {
    if (!this.playing) return;
    const { seconds } = this.flight.header;
    this.due += Math.min(((now - this.time) / 1000) * (this.speed / seconds), 40); // steps
    this.time = now;
    const whole = Math.floor(this.due);
    if (whole > 0) {
      this.due -= whole;
      if (this.steering?.on) this.steering.tick();
      else this.advance(whole);
    }
    requestAnimationFrame((later) => this.tick(later));
  }

  advance(steps) {
    const { flight } = this;
    const before = this.step;
    this.step = Math.min(this.step + steps, flight.last);
    flight.fill(this.step).catch((error) => this.failed(error));
    if (this.step !== before) this.draw();
    if (flight.ended && this.step === flight.last) this.pause();
  }

  jump(steps) {
    this.pause();
    this.step = Math.max(0, Math.min(this.step + steps, this.flight.last));
    this.flight.fill(this.step).catch((error) => this.failed(error));
    this.draw();
  }

  scrub() {
    this.pause();
    this.step = Number(this.slider.value);
    this.flight.fill(this.step).catch((error) => this.failed(error));
    this.draw();
  }

  // --- what others call: the flight has changed, a key was pressed, something was moved ---

  changed() {
    this.slider.max = String(this.flight.last);
    this.step = Math.min(this.step, this.flight.last);
  }

  setTheme() {
    this.picture.setTheme();
    this.senses.setTheme();
    this.draw();
  }

  setSize() {
    this.picture.resize();
    this.draw();
  }

  pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.flight?.header) return;
    if (event.target.closest("input, select, textarea, summary, a")) return;
    if (event.target.closest("button") && event.key === " ") return;
    if (this.steering?.pressed(event)) {
      event.preventDefault();
      return;
    }
    const act = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.jump(-1),
      ArrowRight: () => this.jump(1),
      n: () => this.chooser?.next(),
      f: () => this.chooser?.failure(),
    }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // Put the agent or the source elsewhere, and go on from there.
  async move(places) {
    const playing = this.playing;
    this.pause();
    try {
      await this.flight.move(this.step, places);
      this.error.replaceChildren();
    } catch (error) {
      this.error.replaceChildren(problem(error.message));
    }
    this.draw();
    if (playing) this.resume();
  }

  #watchPointer(signal) {
    const { canvas, picture } = this;
    const grabbed = (event) => {
      if (!this.flight.live || !this.flight.header || this.flight.frames[this.step].end !== null) return null;
      const { agent, sources } = this.flight.frames[this.step];
      const reach = (GRIP * picture.header.width) / canvas.clientWidth; // m
      const [x, y] = picture.place(event);
      const from = (place) => Math.hypot(x - place[0], y - place[1]);
      const far = { agent: from(agent), source: from(sources[0]) };
      const what = far.agent <= far.source ? "agent" : "source";
      return far[what] < reach && !(what === "source" && picture.header.recorded) ? what : null;
    };
    canvas.addEventListener("pointerdown", (event) => {
      const what = grabbed(event);
      if (what === null) return;
      canvas.setPointerCapture(event.pointerId);
      this.dragged = { what, at: picture.place(event), playing: this.playing };
      this.pause();
      event.preventDefault();
    }, { signal });
    // A finger on a marker drags it; elsewhere it scrolls the page.
    const touched = (event) => grabbed(event.touches[0]) && event.preventDefault();
    canvas.addEventListener("touchstart", touched, { signal, passive: false });
    canvas.addEventListener("pointermove", (event) => {
      if (this.dragged === null) {
        canvas.style.cursor = grabbed(event) ? "grab" : "";
        return;
      }
      this.dragged.at = picture.place(event);
      this.draw();
    }, { signal });
    const drop = async (event, moved) => {
      if (this.dragged === null) return;
      const { what, playing } = this.dragged;
      const { width, height } = picture.header;
      const [x, y] = picture.place(event);
      const place = [Math.min(Math.max(x, 0), width), Math.min(Math.max(y, 0), height)];
      this.dragged = null;
      if (moved) await this.move({ [what === "agent" ? "position" : "source"]: place });
      this.draw();
      if (playing) this.resume();
    };
    canvas.addEventListener("pointerup", (event) => drop(event, true), { signal });
    canvas.addEventListener("pointercancel", (event) => drop(event, false), { signal });
  }

  // --- drawing ---

  draw() {
    const { flight, step } = this;
    if (!flight?.header || this.picture.header !== flight.header) return; // not begun yet
    const { frames } = flight;
    let with_plume = step; // a recording has the plume of some steps only
    while (with_plume > 0 && !("field" in frames[with_plume])) with_plume--;
    this.picture.draw(frames, step, frames[with_plume], this);
    this.senses.draw(frames, step);
    this.slider.max = String(flight.last);
    this.slider.value = String(step);
    this.#writeStatus(frames[step]);
  }

  #writeStatus(frame) {
    const { seconds, actions } = this.flight.header;
    const time = (frame.step * seconds).toFixed(1);
    const said = [`Step ${frame.step}`, `${time} s`, `${frame.distance.toFixed(1)} m from the source`];
    if (frame.end !== null) said.push(ENDS[frame.end]);
    else {
      said.push(frame.whiff ? "whiff" : "no whiff");
      said.push(`${this.steering?.on ? "the navigator would go" : "next"}: ${actions[frame.proposed]}`);
    }
    this.status.textContent = said.join(" · ");
    this.slider.setAttribute("aria-valuetext", said.slice(0, 2).join(", "));
  }
}
