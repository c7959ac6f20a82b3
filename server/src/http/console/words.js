// Numbers and times as people read them.

const GROUPED = new Intl.NumberFormat("en-US");

const count = (number) => (number === undefined || number === null ? "–" : GROUPED.format(number));

function span(milliseconds) {
  if (milliseconds === undefined || milliseconds === null) return "–";
  const seconds = milliseconds / 1000;
  if (seconds < 1) return `${Math.round(milliseconds)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const two = (number) => String(number).padStart(2, "0");

// The wall clock of the browser's time zone; with the day if that is not today.
function when(unix) {
  if (!unix) return "–";
  const at = new Date(unix);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.toDateString() === new Date().toDateString() ? clock : `${day} ${clock}`;
}

const ENDS = {
  RELEASED: "released by its holder",
  CLOSED: "its session was closed",
  EXPIRED: "expired: no keep-alive came in time",
  REVOKED: "revoked",
  EVICTED: "its session was evicted",
  TRANSFERRED: "transferred",
  POD_ENDED: "its Pod ended",
};

// A holder that did not confirm that it had stopped may still work.
const isDirty = (cause) => !["RELEASED", "CLOSED", "TRANSFERRED"].includes(cause?.kind);

function ending(cause) {
  if (!cause) return "–";
  const by = cause.operator ? ` by ${cause.operator}` : "";
  const why = cause.reason ? `: ${cause.reason}` : "";
  const to = cause.to_session ? ` to session ${cause.to_session}` : "";
  return `${ENDS[cause.kind] ?? cause.kind}${by}${to}${why}`;
}

// One colour is one token; neighbours differ in lightness, too. The second colour is the ink on it.
const TOKEN_COLOURS = [
  ["#0072b2", "#ffffff"],
  ["#f0b429", "#1b2129"],
  ["#00876c", "#ffffff"],
  ["#d68fb8", "#1b2129"],
  ["#6ab8ec", "#1b2129"],
  ["#7a5195", "#ffffff"],
];

const tokenColour = (token) => TOKEN_COLOURS[token % TOKEN_COLOURS.length];

function tokenChip(token) {
  const chip = el("span", { class: "chip" }, String(token));
  [chip.style.background, chip.style.color] = tokenColour(token);
  return chip;
}

const leaseLink = (name) => el("a", { href: `#lease=${encodeURIComponent(name)}` }, name);

function leftBar(left, ttl) {
  const share = ttl > 0 ? Math.max(0, Math.min(1, left / ttl)) : 0;
  const bar = el("i");
  bar.style.width = `${Math.round(share * 100)}%`;
  const low = share < 1 / 3 ? " low" : "";
  return el("td", null, el("span", { class: `left${low}`, "aria-hidden": "true" }, bar), span(left));
}
