// A run in progress, over a socket that connects again when it is lost.

import { runPath } from "./api.js";

const FIRST = 1000; // milliseconds until the first attempt to connect again; each further one waits twice as long
const LONGEST = 30_000;

// `query()` says how far the page has read; `on` has
//   message(message): of the server; `reset` and `gone` are the last of a connection,
//   status(text): whether there is a connection, in a sentence.
export function follow(api, name, query, on) {
  let [socket, wait, timer, closed] = [null, FIRST, null, false];

  function connect() {
    let heard = false;
    let over = false;
    socket = api.socket(`${runPath("/ws/run", name)}?${new URLSearchParams(query())}`, {
      open() {
        heard = true;
        wait = FIRST;
        on.status("");
      },
      message(message) {
        over ||= ["reset", "gone"].includes(message.type) || "error" in message;
        on.message(message);
      },
      close() {
        if (closed || over) return;
        const seconds = Math.round(wait / 1000);
        on.status(`The server ${heard ? "has stopped" : "does not answer"}. The next attempt to reach it is in ${seconds} s.`);
        timer = setTimeout(connect, wait);
        wait = Math.min(2 * wait, LONGEST);
        if (!heard) refusal().then((text) => text && !closed && on.status(text));
      },
    });
  }

  connect();
  return () => {
    closed = true;
    clearTimeout(timer);
    socket?.close();
  };
}

// Why the server refuses this page, in its words: another one may have been started, with another token.
async function refusal() {
  try {
    const response = await fetch("/favicon.ico");
    return response.status === 401 ? await response.text() : "";
  } catch {
    return "";
  }
}
