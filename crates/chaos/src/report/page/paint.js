// Draws the lanes that are in sight, each shape once per pixel at most, and remembers where they are
// for the pointer.

// Pixels that a label should have before a number of the story stands on it.
const LABEL_NEEDS = 64;

class Painter {
  constructor(run, canvas, scale) {
    Object.assign(this, { run, canvas, scale, ctx: canvas.getContext("2d"), hits: [], layout: null });
    this.width = this.height = this.scroll = 0;
  }

  resize(width, height) {
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this, { width, height });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = height + "px";
    this.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.scale.width = width - NAMES_WIDTH - 8;
    brush.hatches.clear();
  }

  paint({ selected, story, hover, alone }) {
    const { ctx } = this;
    const { colours } = brush;
    this.hits = [];
    Object.assign(this, { selected, story, hover, alone });
    ctx.fillStyle = colours.ground;
    ctx.fillRect(0, 0, this.width, this.height);
    ctx.textBaseline = "middle";

    const seen = this.layout.lanes.filter((lane) => (
      this.y(lane.top + lane.height) > AXIS_HEIGHT && this.y(lane.top) < this.height));
    seen.forEach((lane) => this.ground(lane));
    this.badges = story ? this.placeBadges(story) : [];
    ctx.save();
    ctx.beginPath();
    ctx.rect(NAMES_WIDTH, AXIS_HEIGHT, this.width - NAMES_WIDTH, this.height - AXIS_HEIGHT);
    ctx.clip();
    this.gridLines();
    for (const lane of seen) this.lane(lane);
    this.edges();
    this.errors();
    if (story) this.storyMarks(story);
    ctx.restore();
    for (const lane of seen) this.names(lane);
    this.axis();
  }

  y(offset) { return AXIS_HEIGHT + 2 + offset - this.scroll; }

  hit(left, right, top, bottom, target) {
    this.hits.push({ left: Math.min(left, right - 3), right: Math.max(right, left + 3), top, bottom, target });
  }

  at(x, y) {
    if (y < AXIS_HEIGHT) return null;
    if (x < NAMES_WIDTH) {
      const lane = this.layout.lanes.find(({ top, height }) => y >= this.y(top) - 4 && y < this.y(top + height) - 4);
      return lane && lane.kind !== "faults" ? { lane } : null;
    }
    for (let nth = this.hits.length - 1; nth >= 0; nth -= 1) {
      const hit = this.hits[nth];
      if (x >= hit.left && x <= hit.right && y >= hit.top && y <= hit.bottom) return hit.target;
    }
    return null;
  }

  // Visits what overlaps the window. A visitor that answers with a place is not asked again before
  // it: so at most one item per pixel is drawn, however many there are.
  visit({ items, starts, reach }, visitor) {
    const { scale } = this;
    let at = lowerBound(reach, scale.from);
    while (at < items.length && starts[at] <= scale.to) {
      const next = visitor(items[at], at);
      at = next === undefined ? at + 1 : Math.max(at + 1, lowerBound(starts, scale.at(next), at));
    }
  }

  ground(lane) {
    const { ctx } = this;
    const top = this.y(lane.top);
    ctx.fillStyle = brush.colours[lane.kind === "lease" ? "panel" : "ground"];
    ctx.fillRect(0, top - 4, this.width, lane.height - 1);
    ctx.fillStyle = brush.colours.line;
    ctx.fillRect(0, top + lane.height - 5, this.width, 1);
  }

  gridLines() {
    const { ctx, scale } = this;
    ctx.fillStyle = brush.colours.line;
    ctx.globalAlpha = 0.55;
    for (const at of scale.ticks().ticks) ctx.fillRect(Math.round(scale.x(at)), AXIS_HEIGHT, 1, this.height);
    ctx.globalAlpha = 1;
  }

  lane(lane) {
    this.faultBands(lane);
    for (const row of lane.rows) {
      const top = this.y(lane.top + row.top);
      if (row.name === "held") this.holders(row, top, (item) => ({ grant: item }));
      else if (row.name === "mark") this.holders(row, top, (item) => ({ mark: item }));
      else if (row.name === "believed") this.believed(row, top);
      else if (row.name === "granted") this.granted(row, top);
      else if (row.name === "calls") this.calls(row, top);
      else if (row.name === "role") this.roles(row, top);
      else if (row.name === "fault") this.faultRow(row, top);
    }
    this.faultLabels(lane);
  }

  names(lane) {
    const { ctx } = this;
    const { colours } = brush;
    const top = this.y(lane.top);
    ctx.fillStyle = colours[lane.kind === "lease" ? "panel" : "ground"];
    ctx.fillRect(0, top - 4, NAMES_WIDTH, lane.height - 1);
    ctx.fillStyle = colours.line;
    ctx.fillRect(NAMES_WIDTH - 1, top - 4, 1, lane.height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, top - 4, NAMES_WIDTH - 4, lane.height - 1);
    ctx.clip();
    setFont(ctx, 11);
    ctx.textAlign = "right";
    const beside = lane.rows[0]?.caption ? widthOf(ctx, lane.rows[0].caption) : 0;
    for (const row of lane.rows) {
      if (!row.caption) continue;
      ctx.fillStyle = colours.soft;
      ctx.fillText(row.caption, NAMES_WIDTH - 9, this.y(lane.top + row.top) + row.height / 2);
    }
    ctx.textAlign = "left";
    setFont(ctx, 12.5, 600);
    ctx.fillStyle = colours.ink;
    const first = lane.rows[0];
    const kind = { lease: "lease", client: "client", node: "node", faults: "" }[lane.kind];
    const middle = this.y(lane.top + (first?.top ?? 0)) + (first ? first.height / 2 : 8);
    this.ellipsis(lane.title, 10, middle, NAMES_WIDTH - 24 - beside);
    setFont(ctx, 10.5);
    ctx.fillStyle = colours.faint;
    if (lane.rows.length > 1 && kind) ctx.fillText(lane.note || kind, 10, middle + 15);
    ctx.restore();
  }

  // A name that is too long loses its middle: names differ at their ends.
  ellipsis(text, x, y, room) {
    const { ctx } = this;
    let shown = text;
    for (let left = text.length - 1; left > 2 && widthOf(ctx, shown) > room; left -= 1) {
      shown = text.slice(0, Math.ceil(left / 2)) + "…" + text.slice(text.length - Math.floor(left / 2));
    }
    ctx.fillText(shown, x, y);
  }

  axis() {
    const { ctx, scale } = this;
    const { colours } = brush;
    ctx.fillStyle = colours.panel;
    ctx.fillRect(0, 0, this.width, AXIS_HEIGHT);
    ctx.fillStyle = colours.line;
    ctx.fillRect(0, AXIS_HEIGHT - 1, this.width, 1);
    const { ticks, digits } = scale.ticks();
    setFont(ctx, 11.5);
    ctx.fillStyle = colours.soft;
    ctx.textAlign = "center";
    for (const at of ticks) {
      const x = scale.x(at);
      if (x < NAMES_WIDTH + 14 || x > this.width - 20) continue;
      ctx.fillText(seconds(at, digits), x, AXIS_HEIGHT / 2);
    }
    ctx.textAlign = "left";
    if (this.hover) {
      const x = Math.max(NAMES_WIDTH, this.hover.x);
      const text = seconds(scale.at(x), Math.min(6, digits + 2));
      setFont(ctx, 11.5, 600);
      const width = widthOf(ctx, text) + 10;
      const left = Math.min(Math.max(x - width / 2, NAMES_WIDTH), this.width - width);
      ctx.fillStyle = colours.ink;
      ctx.fillRect(left, 3, width, AXIS_HEIGHT - 7);
      ctx.fillStyle = colours.panel;
      ctx.fillText(text, left + 5, AXIS_HEIGHT / 2);
      ctx.globalAlpha = 0.35;
      ctx.fillStyle = colours.ink;
      ctx.fillRect(x, AXIS_HEIGHT, 1, this.height);
      ctx.globalAlpha = 1;
    }
    setFont(ctx, 11.5);
    ctx.fillStyle = colours.faint;
    ctx.fillText("time in the run", 10, AXIS_HEIGHT / 2);
  }

  // A broken rule is a line through all lanes, with its name at the top of it.
  errors() {
    const { ctx, run, scale } = this;
    const { colours } = brush;
    let last = -Infinity;
    run.errors.forEach((error, nth) => {
      const x = error.at === null ? -1 : scale.x(error.at);
      if (x < NAMES_WIDTH || x > this.width || x - last < 3) return;
      ctx.fillStyle = colours.alarm;
      ctx.fillRect(x - 0.75, AXIS_HEIGHT, 1.5, this.height);
      setFont(ctx, 10.5, 700);
      const width = widthOf(ctx, error.rule) + 8;
      if (x - last > width) {
        ctx.fillRect(x, AXIS_HEIGHT, width, 15);
        ctx.fillStyle = colours.panel;
        ctx.fillText(error.rule, x + 4, AXIS_HEIGHT + 8);
      }
      this.hit(x - 3, x + width, AXIS_HEIGHT, AXIS_HEIGHT + 15, { error: nth });
      this.hit(x - 3, x + 3, AXIS_HEIGHT, this.height, { error: nth });
      last = x;
    });
  }

  // Where the run ends, there is nothing: neither good nor bad.
  edges() {
    const { ctx, scale } = this;
    ctx.fillStyle = brush.colours.stripe;
    const [begin, end] = [scale.x(0), scale.x(scale.length)];
    if (begin > NAMES_WIDTH) ctx.fillRect(NAMES_WIDTH, AXIS_HEIGHT, begin - NAMES_WIDTH, this.height);
    if (end < this.width) ctx.fillRect(end, AXIS_HEIGHT, this.width - end, this.height);
  }

  // The numbers of the story, at the time and in the lane of which each step speaks.
  storyMarks(story) {
    const { ctx } = this;
    const { write, steps } = story;
    this.verdictArrow(write);
    for (const { x, y, nth } of this.badges) {
      numberBadge(ctx, nth + 1, x, y, steps[nth].refusal);
      this.hit(x - 9, x + 9, y - 9, y + 9, { step: nth });
    }
  }

  placeBadges({ write, steps }) {
    const placed = [];
    steps.forEach((step, nth) => {
      const lane = laneAt(this.layout, ...step.lane);
      if (!lane) return;
      // The number of a write stands beside its mark, not on it.
      let x = this.scale.x(step.at) - (step.row === "calls" ? 19 : 0);
      const y = this.y(step.row === "fault" && lane.kind === "client" ? lane.top + 8 : rowMiddle(lane, step.row, write.guard));
      while (placed.some((other) => Math.abs(other.x - x) < 19 && Math.abs(other.y - y) < 16)) x += 19;
      placed.push({ x, y, nth });
    });
    return placed;
  }

  // Where a label may begin so that no number of the story stands on it.
  clear(left, top, height) {
    let begin = left;
    for (const { x, y } of [...this.badges].sort((a, b) => a.x - b.x)) {
      if (y > top - 6 && y < top + height + 6 && x + 10 > begin && x - 12 < begin + LABEL_NEEDS) begin = x + 10;
    }
    return begin;
  }

  // From the write to what the store had seen: the reason, as an arrow.
  verdictArrow(write) {
    const { ctx, scale } = this;
    const [client, lease] = [laneAt(this.layout, "client", write.client), laneAt(this.layout, "lease", write.lease)];
    if (!client || !lease) return;
    const x = Math.round(scale.x(moment(write))) + 0.5;
    const from = this.y(rowMiddle(client, "calls"));
    const to = this.y(rowMiddle(lease, "mark", write.guard));
    ctx.strokeStyle = brush.colours.alarm;
    ctx.lineWidth = 2;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(x, from - Math.sign(from - to) * 9);
    ctx.lineTo(x, to);
    ctx.stroke();
    ctx.setLineDash([]);
    const label = `${tokenName(write.token)} < ${tokenName(write.mark)}  ${write.outcome === "ok" ? "admitted!" : "refused"}`;
    setFont(ctx, 12, 700);
    const width = widthOf(ctx, label) + 12;
    const beside = x + 14 + width <= this.width;
    const left = beside ? x + 14 : x - width - 14;
    // On the left are the bands that the story is about; there it stands just above the write.
    const middle = beside ? to + Math.sign(from - to) * 21 : from - Math.sign(from - to) * 23;
    ctx.fillStyle = brush.colours.alarm;
    box(ctx, left, left + width, middle - 9, 18, 4);
    ctx.fill();
    ctx.fillStyle = brush.colours.panel;
    ctx.fillText(label, left + 6, middle);
  }
}
