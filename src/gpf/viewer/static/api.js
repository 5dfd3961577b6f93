// Where data comes from: the server of `gpf view`, or what is recorded in this file.

// What `gpf view --record` wrote into the page; null where there is a server.
async function recording() {
  const held = document.getElementById("data");
  if (held === null) return null;
  const bytes = Uint8Array.from(atob(held.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

export async function connect() {
  const recorded = await recording();
  return {
    recorded, // { start: hash of the first page, answers: { path: JSON } } or null

    // The answer to GET path; an error that says what is wrong.
    async get(path) {
      if (recorded !== null) {
        if (path in recorded.answers) return recorded.answers[path];
        throw new Error("This is not in the recording.");
      }
      let response;
      try {
        response = await fetch(path);
      } catch {
        throw new Error("The server does not answer. Is gpf view still running?");
      }
      if (response.status === 401) throw new Error(await response.text());
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.error);
      return answer;
    },

    // A socket: on.message(JSON), on.open() and on.close() are called; null for a recording.
    socket(path, on) {
      if (recorded !== null) return null;
      const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`);
      socket.addEventListener("message", (event) => on.message(JSON.parse(event.data)));
      socket.addEventListener("open", () => on.open?.());
      socket.addEventListener("close", () => on.close?.());
      return socket;
    },
  };
}

// The path of a run on the server: "/api/run" and a name to "/api/run/NAME".
export function runPath(prefix, name) {
  return `${prefix}/${name.split("/").map(encodeURIComponent).join("/")}`;
}
