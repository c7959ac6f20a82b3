// The history of a lease as a picture: a lane for each holder, a bar for each grant. A red edge is an
// end that the holder did not confirm; a green one is a grant that is in force.

const LANES_MAX = 12;
const LANE_HEIGHT = 30;
const NAMES_WIDTH = 210;
const PICTURE_WIDTH = 1100;
const AXIS_HEIGHT = 24;

function cut(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function timeline(records, now) {
  const begun = records.filter((record) => record.since_unix_ms);
  if (begun.length === 0) return el("p", { class: "quiet" }, "No grant of this lease is recorded.");
  const holders = [...new Set(begun.map((record) => record.identity ?? `session ${record.holder}`))];
  const lanes = holders.slice(-LANES_MAX);
  const until = (record) => record.ended_unix_ms ?? now;
  const first = Math.min(...begun.map((record) => record.since_unix_ms));
  const last = Math.max(first + 1, ...begun.map(until));
  const width = PICTURE_WIDTH - NAMES_WIDTH - 12;
  const place = (at) => NAMES_WIDTH + ((at - first) / (last - first)) * width;
  const height = lanes.length * LANE_HEIGHT + AXIS_HEIGHT + 6;
  const picture = svg("svg", {
    class: "timeline",
    viewBox: `0 0 ${PICTURE_WIDTH} ${height}`,
    role: "img",
    "aria-label": `${begun.length} grants of ${lanes.length} holders; the table below has the same data`,
  });
  lanes.forEach((holder, nth) => {
    const y = nth * LANE_HEIGHT + LANE_HEIGHT;
    picture.append(
      svg("text", { x: 10, y: y - 10 }, cut(holder, 25), svg("title", null, holder)),
      svg("line", { class: "rule", x1: 0, x2: PICTURE_WIDTH, y1: y, y2: y }),
    );
  });
  for (const record of begun) {
    const lane = lanes.indexOf(record.identity ?? `session ${record.holder}`);
    if (lane >= 0) picture.append(bar(record, place, lane * LANE_HEIGHT, until(record)));
  }
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    const at = first + part * (last - first);
    picture.append(svg("text", { class: "soft", x: place(at), y: height - 8, "text-anchor": anchor }, when(at)));
  }
  return picture;
}

function bar(record, place, y, end) {
  const [x, right] = [place(record.since_unix_ms), place(end)];
  const width = Math.max(3, right - x);
  const [ground, ink] = tokenColour(record.token);
  const box = svg("rect", { x, y: y + 6, width, height: LANE_HEIGHT - 12, rx: 2 });
  box.style.fill = ground;
  const label = svg("text", { x: x + 5, y: y + 19 }, String(record.token));
  label.style.fill = ink;
  const lasted = span(end - record.since_unix_ms);
  const how = record.cause ? ending(record.cause) : "in force";
  const edge = record.cause ? (isDirty(record.cause) ? "dirty" : null) : "open";
  return svg(
    "g",
    null,
    svg("title", null, `token ${record.token}, ${when(record.since_unix_ms)}, ${lasted}; ${how}`),
    box,
    width > 9 * String(record.token).length + 8 ? label : null,
    edge ? svg("line", { class: edge, x1: x + width, x2: x + width, y1: y + 4, y2: y + LANE_HEIGHT - 4 }) : null,
  );
}
