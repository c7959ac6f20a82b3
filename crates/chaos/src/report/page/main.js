// Puts the page together: what is selected, where one can go, and when to paint.

// Pixels beside a story: for its first number, and for what its arrow says.
const LEFT_ROOM = 30;
const RIGHT_ROOM = 175;

const faultsSeen = [];
window.addEventListener("error", (event) => {
  faultsSeen.push(event.message);
  document.documentElement.dataset.faults = faultsSeen.join("; ");
});

const run = decode(JSON.parse(byId("data").textContent));
learnTokens(run);
const scale = new Scale(run.length);
const painter = new Painter(run, byId("lanes"), scale);
const map = new RunMap(run, byId("map"), scale);
const state = { selected: null, story: null, hover: null, all: false, filter: null };
let lanes = [];
let pending = false;

function repaint() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    painter.scroll = byId("scroller").scrollTop;
    const before = performance.now();
    const told = state.story && laneAt(painter.layout, "lease", state.story.write.lease);
    painter.paint({ ...state, story: told ? state.story : null, alone: !state.all && !state.filter });
    map.paint();
    document.documentElement.dataset.frame = (performance.now() - before).toFixed(2);
  });
}

// The lanes of the story unless all are wanted; or those of one lease, client or node.
function relayout() {
  const focus = state.all ? null : state.filter ?? (state.story ? focusOf(run, state.story.write, state.story.steps) : null);
  lanes = laneList(run, focus);
  const total = laneList(run, null).length;
  const shown = lanes.length;
  byId("lanes-toggle").setAttribute("aria-pressed", String(focus === null));
  byId("lanes-toggle").textContent = shown === total ? "All lanes" : `All lanes (${shown} of ${total})`;
  document.documentElement.dataset.lanes = String(shown);
  byId("scroller").scrollTop = 0;
  byId("tip").hidden = true;
  resize();
}

function resize() {
  const scroller = byId("scroller");
  painter.layout = place(lanes, scroller.clientHeight - AXIS_HEIGHT - 10);
  painter.resize(scroller.clientWidth, scroller.clientHeight);
  // The canvas is as high as the window on the lanes; the spacer alone makes the scroll bar.
  byId("spacer").style.height = AXIS_HEIGHT + painter.layout.height + "px";
  map.resize();
  repaint();
}

let saying = 0;
function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => { byId("said").textContent = text; }, 250);
}

let linking = 0;
function link(hash) {
  clearTimeout(linking);
  linking = setTimeout(() => history.replaceState(null, "", "#" + hash), 120);
}

function select(target) {
  state.selected = target;
  panel.details(target);
  if (target) say(describe(run, target).text);
  repaint();
}

const go = {
  // A stale write by its place in time, and its story.
  stale(nth) {
    const write = run.stale[nth];
    if (!write) return;
    const steps = storyOf(run, write);
    state.story = { nth, write, steps };
    state.filter = null;
    state.selected = { op: write };
    const named = steps.flatMap((step) => step.text).filter((part) => part.token).map((part) => part.token);
    tellApart(run, [write.token, write.mark, ...named]);
    document.documentElement.dataset.story = String(nth + 1);
    panel.story(state.story);
    panel.details(state.selected);
    panel.open("story");
    relayout();
    go.frame();
    link("refused=" + (nth + 1));
    say(plain(run, punchLine(run, write)));
  },

  // The whole story in sight, with room on its right for what the arrow says.
  frame() {
    const { steps, write } = state.story;
    const from = Math.min(...steps.map((step) => step.at), write.start);
    const to = moment(write);
    const span = Math.max(to - from, 20000) / (1 - (LEFT_ROOM + RIGHT_ROOM) / Math.max(scale.width, 2 * (LEFT_ROOM + RIGHT_ROOM)));
    const before = (LEFT_ROOM / scale.width) * span;
    scale.show(from - before, from - before + span);
  },

  step(nth) {
    const step = state.story.steps[nth];
    const narrow = Math.min(scale.span, Math.max(scale.span / 2, 1e5));
    scale.centre(step.at, narrow);
    const lane = laneAt(painter.layout, ...step.lane);
    if (lane) reveal(lane);
    say(plain(run, step.text));
  },

  next(by) {
    const at = state.story ? state.story.nth + by : 0;
    go.stale(Math.min(Math.max(at, 0), run.stale.length - 1));
  },

  error(nth) {
    const error = run.errors[nth];
    if (!error) return;
    link("error=" + (nth + 1));
    const op = run.ops[error.op];
    const stale = op?.stale ? run.stale.indexOf(op) : -1;
    if (stale >= 0) {
      go.stale(stale);
    } else {
      if (run.leases[error.lease] !== undefined) go.lease(error.lease); else showAll();
      if (error.at !== null) scale.centre(error.at, Math.min(scale.span, 4e6));
      if (op) select({ op });
      panel.open("verdict");
    }
    document.documentElement.dataset.error = String(nth + 1);
    say(error.text);
  },

  token(token) {
    const grant = run.grantOf.get(token);
    if (!grant) return;
    if (!laneAt(painter.layout, "lease", grant.lease)) go.lease(grant.lease);
    const span = Math.min(grant.to, run.length) - grant.from;
    scale.show(grant.from - span * 0.4 - 5e4, grant.from + span * 1.4 + 5e4);
    select({ grant });
    panel.open("details");
    link("token=" + token);
  },

  lease(lease) {
    const clients = new Set(run.byLease[lease].map((grant) => grant.client));
    state.filter = { leases: new Set([lease]), clients, nodes: new Set() };
    state.all = false;
    relayout();
    scale.whole();
    say(`The lanes of ${run.leases[lease]}`);
  },

  lane(kind, id) {
    if (!laneAt(painter.layout, kind, id)) showAll();
    const lane = laneAt(painter.layout, kind, id);
    if (lane) reveal(lane);
    repaint();
  },

  details(target) {
    select(target);
    panel.open("details");
  },

  // The operation before or after the selected one, in time, of the lanes in sight.
  op(by) {
    const clients = new Set(painter.layout.lanes.filter((lane) => lane.kind === "client").map((lane) => lane.id));
    const at = state.selected?.op ? state.selected.op.id : run.ops.findIndex((op) => op.start >= scale.from) - by;
    for (let id = at + by; id >= 0 && id < run.ops.length; id += by) {
      const op = run.ops[id];
      if (!clients.has(op.client)) continue;
      go.details({ op });
      if (moment(op) < scale.from || moment(op) > scale.to) scale.centre(moment(op));
      link("op=" + id);
      return;
    }
  },
};

function showAll() {
  state.all = true;
  relayout();
}

function reveal(lane) {
  const scroller = byId("scroller");
  const visible = scroller.clientHeight - AXIS_HEIGHT;
  if (lane.top < scroller.scrollTop || lane.top + lane.height > scroller.scrollTop + visible) scroller.scrollTop = lane.top;
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  readColours();
  legend();
  resize();
}

// `#refused=2`, `#error=1`, `#token=8`, `#op=17`, `#from=3&to=9`, and `lanes=all`, `theme=dark`.
function follow() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d+$/.test(wanted.get(name) ?? "") ? Number(wanted.get(name)) : null);
  if (wanted.has("theme")) theme(wanted.get("theme") === "dark" ? "dark" : "light");
  if (wanted.get("lanes") === "all") showAll();
  if (number("refused")) go.stale(Math.min(number("refused"), run.stale.length) - 1);
  else if (number("error")) go.error(Math.min(number("error"), run.errors.length) - 1);
  else if (number("token") !== null) go.token(number("token"));
  else if (run.ops[number("op")]) {
    const op = run.ops[number("op")];
    if (!laneAt(painter.layout, "client", op.client)) showAll();
    scale.centre(moment(op), Math.min(scale.span, 2e6));
    go.details({ op });
  } else if (!wanted.has("from")) return false;
  if (wanted.has("from") && wanted.has("to")) scale.show(Number(wanted.get("from")) * 1e6, Number(wanted.get("to")) * 1e6);
  return true;
}

const panel = (() => {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  readColours();
  return new Panel(run, go);
})();
