// Colours, patterns and the few shapes that everything is drawn with.

// Distinct also to those who see red and green alike; neighbours differ in lightness as well. Red
// stays free for what is refused. The second is the ink on it.
const TOKEN_COLOURS = [
  ["#0072b2", "#ffffff"],
  ["#f0b429", "#1b2129"],
  ["#00876c", "#ffffff"],
  ["#d68fb8", "#1b2129"],
  ["#6ab8ec", "#1b2129"],
  ["#7a5195", "#ffffff"],
];

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';

const brush = { colours: {}, hatches: new Map(), widths: new Map() };

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "panel", "ink", "soft", "faint", "line", "stripe", "accent", "alarm", "alarm-soft", "good", "call", "fault", "node"]) {
    brush.colours[name] = style.getPropertyValue("--" + name).trim();
  }
  brush.hatches.clear();
}

function colourNumber(run, token) {
  const grant = run.grantOf.get(token);
  // A token whose grant was not seen has a colour all the same.
  return (grant ? grant.nth + grant.lease : token) % TOKEN_COLOURS.length;
}

function tokenColour(run, token) {
  return TOKEN_COLOURS[run.tints?.get(token) ?? colourNumber(run, token)];
}

// There are more tokens than colours. Those of a story look different from each other all the same,
// and if it can be from their neighbours in the lane as well; the first keep what they have.
function tellApart(run, tokens) {
  run.tints = new Map();
  const taken = new Set();
  for (const token of new Set(tokens)) {
    const own = colourNumber(run, token);
    const grant = run.grantOf.get(token);
    const beside = grant ? [-1, 1].map((by) => run.byLease[grant.lease][grant.nth + by]) : [];
    const near = new Set(beside.filter(Boolean).map((grant) => colourNumber(run, grant.token)));
    const free = TOKEN_COLOURS.map((_, nth) => (own + nth) % TOKEN_COLOURS.length).filter((nth) => !taken.has(nth));
    const colour = free.find((nth) => nth === own || !near.has(nth)) ?? free[0] ?? own;
    taken.add(colour);
    if (colour !== own) run.tints.set(token, colour);
  }
}

// Lines across a transparent ground: "/", "\\", "|" or "x".
function hatch(ctx, colour, kind, gap = 7) {
  const key = colour + kind + gap;
  if (!brush.hatches.has(key)) {
    const ratio = window.devicePixelRatio || 1;
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(gap * ratio);
    const pen = tile.getContext("2d");
    const size = tile.width;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.2 * ratio;
    pen.beginPath();
    if (kind === "|") { pen.moveTo(size / 2, 0); pen.lineTo(size / 2, size); }
    for (const shift of [-size, 0, size]) {
      if (kind === "/" || kind === "x") { pen.moveTo(shift, size); pen.lineTo(shift + size, 0); }
      if (kind === "\\" || kind === "x") { pen.moveTo(shift, 0); pen.lineTo(shift + size, size); }
    }
    pen.stroke();
    const pattern = ctx.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    brush.hatches.set(key, pattern);
  }
  return brush.hatches.get(key);
}

function setFont(ctx, size, weight = 400) {
  brush.font = `${weight} ${size}px ${FONT}`;
  ctx.font = brush.font;
}

function widthOf(ctx, text) {
  const key = brush.font + text;
  let width = brush.widths.get(key);
  if (width === undefined) {
    if (brush.widths.size > 20000) brush.widths.clear();
    width = ctx.measureText(text).width;
    brush.widths.set(key, width);
  }
  return width;
}

// The longest of `texts` that fits between two places; none if none does.
function fitText(ctx, texts, left, right, y) {
  const room = right - left - 8;
  // No letter of these sizes is narrower than 3 pixels on average: most need no measuring.
  const text = texts.find((candidate) => candidate.length * 3 <= room && widthOf(ctx, candidate) <= room);
  if (text) ctx.fillText(text, left + 4, y);
  return Boolean(text);
}

// A band between two places, cut to the window so that its label stays in sight.
function box(ctx, left, right, top, height, radius = 3) {
  ctx.beginPath();
  ctx.roundRect(left, top, Math.max(right - left, 1.5), height, Math.min(radius, (right - left) / 2, height / 2));
}

function cross(ctx, x, y, size) {
  ctx.beginPath();
  ctx.moveTo(x - size, y - size);
  ctx.lineTo(x + size, y + size);
  ctx.moveTo(x + size, y - size);
  ctx.lineTo(x - size, y + size);
  ctx.stroke();
}

// A guarded write: admitted is filled, refused is crossed, unknown is hollow and dashed, and a stale
// one that was admitted is a red diamond that no reader can miss.
function writeMark(ctx, op, x, y, size, fill) {
  const { colours } = brush;
  ctx.lineWidth = 1.5;
  if (op.stale && op.outcome === "ok") {
    ctx.fillStyle = colours.alarm;
    ctx.strokeStyle = colours.panel;
    ctx.beginPath();
    ctx.moveTo(x, y - size * 1.7);
    ctx.lineTo(x + size * 1.7, y);
    ctx.lineTo(x, y + size * 1.7);
    ctx.lineTo(x - size * 1.7, y);
    ctx.closePath();
    ctx.fill();
    ctx.stroke();
    return;
  }
  ctx.beginPath();
  ctx.arc(x, y, op.stale ? size * 1.35 : size, 0, 7);
  if (op.stale) {
    ctx.fillStyle = colours.panel;
    ctx.strokeStyle = colours.alarm;
    ctx.lineWidth = 2;
    ctx.fill();
    ctx.stroke();
    cross(ctx, x, y, size * 0.72);
  } else if (op.outcome === "ok") {
    ctx.fillStyle = fill;
    ctx.strokeStyle = colours.panel;
    ctx.lineWidth = 1;
    ctx.fill();
    ctx.stroke();
  } else {
    ctx.fillStyle = colours.panel;
    ctx.strokeStyle = colours.soft;
    if (op.outcome === "unknown") ctx.setLineDash([2.5, 2]);
    ctx.fill();
    ctx.stroke();
    ctx.setLineDash([]);
    if (op.outcome === "refused") cross(ctx, x, y, size * 0.5);
  }
}

function star(ctx, x, y, size) {
  ctx.beginPath();
  for (let nth = 0; nth < 10; nth += 1) {
    const radius = nth % 2 ? size * 0.45 : size;
    const angle = (nth * Math.PI) / 5 - Math.PI / 2;
    ctx.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
  }
  ctx.closePath();
  ctx.fill();
}

function numberBadge(ctx, number, x, y, alarm) {
  const { colours } = brush;
  ctx.beginPath();
  ctx.arc(x, y, 9, 0, 7);
  ctx.fillStyle = alarm ? colours.alarm : colours.ink;
  ctx.strokeStyle = colours.panel;
  ctx.lineWidth = 2;
  ctx.stroke();
  ctx.fill();
  setFont(ctx, 11, 700);
  ctx.fillStyle = colours.panel;
  ctx.textAlign = "center";
  ctx.fillText(String(number), x, y + 0.5);
  ctx.textAlign = "left";
}
