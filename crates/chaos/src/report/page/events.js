// Pointer, wheel and keys; then the page begins.

function pointer() {
  const canvas = byId("lanes");
  const tip = byId("tip");
  let drag = null;
  const place = (event) => ({ x: event.offsetX, y: event.offsetY });

  canvas.addEventListener("wheel", (event) => {
    const { x } = place(event);
    if (x < NAMES_WIDTH && !event.ctrlKey) return;
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) scale.pan((sideways / scale.width) * 1.5);
    else scale.zoom(Math.exp(Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY), 120) * 0.0026), scale.at(Math.max(x, NAMES_WIDTH)));
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    tip.hidden = true;
    drag = { ...place(event), from: scale.from, top: byId("scroller").scrollTop, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    state.hover = at.x >= NAMES_WIDTH ? at : null;
    if (drag) {
      if (Math.hypot(at.x - drag.x, at.y - drag.y) > 4) drag.moved = true;
      if (drag.moved) {
        const from = drag.from - (at.x - drag.x) * scale.perPixel();
        scale.show(from, from + scale.span);
        byId("scroller").scrollTop = drag.top - (at.y - drag.y);
        canvas.classList.add("dragging");
      }
    }
    const target = drag?.moved ? null : painter.at(at.x, at.y);
    canvas.classList.toggle("pointing", Boolean(target));
    showTip(tip, target, at);
    repaint();
  });
  const drop = (event) => {
    canvas.classList.remove("dragging");
    const clicked = drag && !drag.moved && event.type === "pointerup";
    drag = null;
    if (clicked) click(painter.at(event.offsetX, event.offsetY));
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", () => {
    state.hover = null;
    tip.hidden = true;
    repaint();
  });
  canvas.addEventListener("dblclick", (event) => scale.zoom(0.4, scale.at(Math.max(event.offsetX, NAMES_WIDTH))));
  byId("scroller").addEventListener("scroll", repaint);
}

function click(target) {
  if (!target) {
    select(null);
    return;
  }
  if (target.step !== undefined) {
    panel.open("story");
    byId("pane-story").querySelectorAll(".steps button")[target.step]?.focus();
    return;
  }
  if (target.lane) {
    if (target.lane.kind === "lease") go.lease(target.lane.id);
    return;
  }
  const nth = target.op?.stale ? run.stale.indexOf(target.op) : -1;
  go.details(target);
  if (nth >= 0) link("refused=" + (nth + 1));
  else if (target.op) link("op=" + target.op.id);
  else if (target.grant) link("token=" + target.grant.token);
}

function showTip(tip, target, at) {
  if (!target) {
    tip.hidden = true;
    return;
  }
  if (target.step !== undefined) {
    tip.textContent = `${target.step + 1}. ${plain(run, state.story.steps[target.step].text)}`;
  } else {
    const { title, text } = describe(run, target);
    tip.textContent = `${title}\n${text}`;
  }
  tip.hidden = false;
  const chart = byId("chart");
  const left = Math.min(at.x + 14, chart.clientWidth - tip.offsetWidth - 8);
  const below = at.y + 18 + tip.offsetHeight < chart.clientHeight;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${below ? at.y + 18 : Math.max(4, at.y - tip.offsetHeight - 12)}px)`;
}

const COMMANDS = {
  "first-refused": () => go.stale(0),
  previous: () => go.next(-1),
  next: () => go.next(state.story ? 1 : 0),
  "first-error": () => go.error(0),
  "lanes-toggle": () => {
    state.all = lanes.length < laneList(run, null).length;
    if (!state.all && !state.story) state.all = true;
    state.filter = null;
    relayout();
  },
  left: () => scale.pan(-0.25),
  right: () => scale.pan(0.25),
  in: () => scale.zoom(0.6),
  out: () => scale.zoom(1 / 0.6),
  fit: () => scale.whole(),
  theme: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
};

const KEYS = {
  r: COMMANDS["first-refused"], n: COMMANDS.next, p: COMMANDS.previous, e: COMMANDS["first-error"],
  a: COMMANDS["lanes-toggle"], "+": COMMANDS.in, "=": COMMANDS.in, "-": COMMANDS.out, "−": COMMANDS.out, 0: COMMANDS.fit,
  ArrowLeft: (event) => scale.pan(event.shiftKey ? -0.9 : -0.12),
  ArrowRight: (event) => scale.pan(event.shiftKey ? 0.9 : 0.12),
  ArrowUp: () => { byId("scroller").scrollTop -= 60; },
  ArrowDown: () => { byId("scroller").scrollTop += 60; },
  Home: () => scale.show(-scale.margin, scale.span - scale.margin),
  End: () => scale.show(run.length + scale.margin - scale.span, run.length + scale.margin),
  "[": () => go.op(-1),
  "]": () => go.op(1),
  s: () => { if (state.story) { state.all = false; state.filter = null; relayout(); go.frame(); panel.open("story"); } },
  "/": () => byId("search").focus(),
  "?": () => panel.open("help"),
  Escape: () => select(null),
};

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
  const inPanel = byId("panel").contains(event.target);
  const scrolls = /^(Arrow|Home|End)/.test(event.key);
  const command = KEYS[event.key];
  if (!command || (inPanel && scrolls)) return;
  event.preventDefault();
  command(event);
}

// The legend is drawn by what draws the lanes, so that it cannot differ.
function legend() {
  const token = run.grants[0]?.token ?? 1;
  const [fill] = tokenColour(run, token);
  const mark = (op) => (ctx) => writeMark(ctx, op, 17, 8, 4.4, fill);
  const entries = [
    ["one colour per token", (ctx) => { ctx.fillStyle = fill; box(ctx, 2, 32, 2, 12); ctx.fill(); }],
    ["granted", (ctx) => { ctx.strokeStyle = fill; ctx.lineWidth = 2; box(ctx, 3, 31, 4, 8, 2); ctx.stroke(); }],
    ["believed, not granted", (ctx) => { ctx.fillStyle = fill; ctx.fillRect(2, 2, 30, 12); ctx.strokeStyle = brush.colours.alarm; ctx.lineWidth = 2; ctx.strokeRect(16, 2, 16, 12); }],
    ["acts on an old token", (ctx) => { ctx.fillStyle = hatch(ctx, fill, "/", 6); ctx.fillRect(2, 2, 30, 12); ctx.strokeStyle = brush.colours.alarm; ctx.lineWidth = 2; ctx.strokeRect(2, 2, 30, 12); }],
    ["write admitted", mark({ outcome: "ok" })],
    ["stale write refused", mark({ stale: true, outcome: "refused" })],
    ["unknown outcome", mark({ outcome: "unknown" })],
    ["stale write ADMITTED", mark({ stale: true, outcome: "ok" })],
    ["fault", (ctx) => { ctx.globalAlpha = 0.3; ctx.fillStyle = brush.colours.fault; ctx.fillRect(2, 1, 30, 14); ctx.globalAlpha = 0.7; ctx.fillStyle = hatch(ctx, brush.colours.fault, "\\", 9); ctx.fillRect(2, 1, 30, 14); }],
    ["leader", (ctx) => { ctx.fillStyle = brush.colours.ink; box(ctx, 2, 32, 2, 12); ctx.fill(); ctx.fillStyle = brush.colours.panel; star(ctx, 17, 8, 5); }],
    ["other calls", (ctx) => { ctx.fillStyle = brush.colours.call; ctx.fillRect(4, 5, 14, 6); ctx.fillRect(22, 5, 8, 6); }],
  ];
  byId("legend").replaceChildren(...entries.map(([name, draw]) => {
    const swatch = h("canvas", { "aria-hidden": "true" });
    const ratio = window.devicePixelRatio || 1;
    swatch.width = 34 * ratio;
    swatch.height = 16 * ratio;
    const ctx = swatch.getContext("2d");
    ctx.scale(ratio, ratio);
    draw(ctx);
    return h("span", {}, swatch, name);
  }));
}

function begin() {
  for (const [id, command] of Object.entries(COMMANDS)) byId(id).addEventListener("click", command);
  for (const id of ["first-refused", "previous", "next"]) byId(id).disabled = run.stale.length === 0;
  byId("first-error").disabled = run.errors.length === 0;
  document.addEventListener("keydown", keys);
  scale.moved = repaint;
  searchBox(run, go);
  pointer();
  legend();
  relayout();
  new ResizeObserver(resize).observe(byId("chart"));
  window.addEventListener("hashchange", follow);
  byId("lanes").setAttribute("aria-label", `Timeline of ${plural(run.leases.length, "lease")}, ${plural(run.clients.length, "client")} and ${plural(run.nodes.length, "node")} over ${seconds(run.length, 1)}. The tab Refused has every refused write as a table.`);
  panel.open("story");
  if (!follow()) {
    const telling = mostTelling(run);
    if (run.errors.length > 0 && run.stale[telling]?.outcome !== "ok") go.error(0);
    else if (run.stale.length > 0) go.stale(telling);
    else panel.open(run.errors.length ? "verdict" : "story");
  }
  const { dataset } = document.documentElement;
  dataset.total = String(laneList(run, null).length);
  dataset.operations = String(run.ops.length);
  dataset.refused = String(run.refused.length);
  dataset.faults ??= "";
  requestAnimationFrame(() => requestAnimationFrame(() => { dataset.state = "ready"; }));
}

begin();
