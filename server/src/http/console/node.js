// What the page asks of its node. The token lives in this variable alone: no storage, no address.

const CALLS = "v1/";
const HEADER = "ringfence-console";
// How long a read may take, and how long the stream may say nothing: a node says something every second.
const READ_LIMIT = 10000;
const SILENCE_LIMIT = 8000;
const RETRY_AFTER = 1500;
// A refusal stands until rights or the token change; each further try counts as one more refusal.
const REFUSED_RETRY_AFTER = 30000;

let credential = null;
let changed = () => {};

function useCredential(text) {
  credential = text || null;
  changed();
}

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more) {
  const all = { [HEADER]: "1", ...more };
  if (credential) all.authorization = `Bearer ${credential}`;
  return all;
}

async function ask(address, options) {
  const answer = await fetch(address, {
    credentials: "same-origin",
    cache: "no-store",
    redirect: "error",
    referrerPolicy: "no-referrer",
    ...options,
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  let message = text.trim();
  try {
    message = JSON.parse(text).detail ?? message;
  } catch {
    // A text of one line is its own message.
  }
  throw new Refused(answer.status, message || `HTTP status ${answer.status}`);
}

async function read(call, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== "" && value !== undefined && value !== null) query.set(name, value);
  }
  // The node reads a plus as a plus.
  const text = query.toString().replaceAll("+", "%20");
  const signal = AbortSignal.timeout(READ_LIMIT);
  const answer = await ask(CALLS + call + (text ? `?${text}` : ""), { headers: headers(), signal });
  return answer.json();
}

const readLease = (name) => read(`leases/${name.split("/").map(encodeURIComponent).join("/")}`);
const readHistory = (name, limit) => read(`history/${name.split("/").map(encodeURIComponent).join("/")}`, { limit });

// The figures of Prometheus' text form: a map from name and labels to a number.
async function figures() {
  const answer = await ask("../metrics", { headers: headers(), signal: AbortSignal.timeout(READ_LIMIT) });
  const found = new Map();
  for (const line of (await answer.text()).split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && !line.startsWith("#")) found.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return found;
}

// Follows all grants and ends from now on, for as long as the page lives. `from` gives the position to
// begin behind; a stream that would begin with the whole present state is left, and begun again from now.
async function follow(from, heard, live) {
  let last = null;
  for (;;) {
    const stop = new AbortController();
    let pause = RETRY_AFTER;
    let silence = setTimeout(() => stop.abort(), SILENCE_LIMIT);
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), SILENCE_LIMIT);
    };
    try {
      last ??= await from();
      const answer = await ask(`${CALLS}watch`, { headers: headers({ "last-event-id": last }), signal: stop.signal });
      live(true, "live");
      for await (const event of events(answer.body, alive)) {
        if (event.kind === "compacted" || event.kind === "refused") {
          last = null;
          break;
        }
        if (event.id) last = event.id;
        heard(event);
      }
    } catch (why) {
      if (why instanceof Refused) {
        last = null;
        pause = why.status < 500 ? REFUSED_RETRY_AFTER : RETRY_AFTER;
      }
      live(false, why instanceof Refused ? why.message : "not live: the node does not answer");
    } finally {
      clearTimeout(silence);
      stop.abort();
    }
    await new Promise((over) => {
      changed = over;
      setTimeout(over, pause);
    });
  }
}

async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = { kind: "", id: null, data: null };
      for (const line of part.split("\n")) {
        const at = line.indexOf(": ");
        const field = line.slice(0, at);
        if (field === "event") event.kind = line.slice(at + 2);
        if (field === "id") event.id = line.slice(at + 2);
        if (field === "data") event.data = JSON.parse(line.slice(at + 2));
      }
      if (event.kind) yield event;
    }
  }
}
