// An episode on the page: its frames so far, and where more of them come from.

const AHEAD = 60; // frames that are fetched before they are needed
const AT_ONCE = 30;

// A flight on the server. Calls changed() when there are new frames, lost() when the server is gone.
export class LiveFlight {
  constructor(api, changed, lost) {
    this.header = null;
    this.frames = [];
    this.waiting = new Map();
    this.number = 0;
    this.fetching = false;
    this.changed = changed;
    this.opened = new Promise((resolve, reject) => {
      this.socket = api.socket("/ws/fly", {
        open: resolve,
        message: (answer) => this.#received(answer),
        close: () => {
          const error = new Error("The connection to the server is lost. Start gpf view again and open its address.");
          for (const { reject: refuse } of this.waiting.values()) refuse(error);
          this.waiting.clear();
          reject(error);
          if (!this.closed) lost(error);
        },
      });
    });
    this.opened.catch(() => {}); // ask() reports it
  }

  get live() { return true; }
  get last() { return this.frames.length - 1; }
  get ended() { return this.frames.length > 0 && this.frames[this.last].end !== null; }

  close() {
    this.closed = true;
    this.socket.close();
  }

  async ask(message) {
    await this.opened;
    const id = ++this.number;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.socket.send(JSON.stringify({ ...message, id }));
    });
  }

  #received(answer) {
    const { resolve, reject } = this.waiting.get(answer.id) ?? {};
    this.waiting.delete(answer.id);
    if (resolve === undefined) return;
    if ("error" in answer) reject(new Error(answer.error));
    else resolve(answer);
  }

  // A new episode: of a seed, or with failure the next one after it that is not solved.
  async start(choice, failure = false) {
    const before = this.header;
    this.header = null; // until the new one is there, nothing is asked of the old one
    let answer;
    try {
      answer = await this.ask({ do: failure ? "failure" : "start", ...choice });
    } catch (error) {
      this.header = before;
      throw error;
    }
    this.choice = { ...choice, seed: answer.header.seed };
    this.header = answer.header;
    this.frames = answer.frames;
    this.changed();
  }

  // See to it that there are frames beyond this step.
  async fill(step) {
    if (this.fetching || this.ended || this.header === null || this.last - step > AHEAD) return;
    this.fetching = true;
    const { frames: flown, last } = this;
    try {
      const { frames } = await this.ask({ do: "fly", step: last, count: AT_ONCE });
      if (this.frames === flown && this.last === last) {
        this.frames.push(...frames);
        this.changed();
      }
    } finally {
      this.fetching = false;
    }
  }

  // Go on from a step by an action of the user's; what was flown beyond it is forgotten.
  async act(step, action) {
    const { frames } = await this.ask({ do: "act", step, action });
    this.frames.length = step + 1;
    this.frames.push(...frames);
    this.changed();
  }

  // Put something elsewhere at a step: { position: [x, y] } or { source: [x, y] }, m.
  async move(step, places) {
    const { frames } = await this.ask({ do: "move", step, ...places });
    this.frames.length = step;
    this.frames.push({ ...frames[0], moved: "position" in places });
    this.changed();
  }

  async rival() {
    return (await this.ask({ do: "rival", ...this.choice })).rival;
  }
}

// A flight that was recorded.
export class RecordedFlight {
  constructor({ header, frames, choice }) {
    this.header = header;
    this.frames = frames;
    this.choice = choice;
  }

  get live() { return false; }
  get last() { return this.frames.length - 1; }
  get ended() { return true; }
  async fill() {}
  close() {}
}

// Numbers that were sent in base64, as an array of this type; machines of browsers are little-endian.
export function unpack(text, Type) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return new Type(bytes.buffer);
}
