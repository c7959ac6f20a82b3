// Draws the lanes that are in sight, each shape once per pixel at most, and remembers where they are
// for the pointer.

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

  paint({ selected, story, hover }) {
    const { ctx, run } = this;
    const { colours } = brush;
    this.hits = [];
    Object.assign(this, { selected, story, hover });
    ctx.fillStyle = colours.ground;
    ctx.fillRect(0, 0, this.width, this.height);
    ctx.textBaseline = "middle";

    const seen = this.layout.lanes.filter((lane) => (
      this.y(lane.top + lane.height) > AXIS_HEIGHT && this.y(lane.top) < this.height));
    seen.forEach((lane) => this.ground(lane));
    ctx.save();
    ctx.beginPath();
    ctx.rect(NAMES_WIDTH, AXIS_HEIGHT, this.width - NAMES_WIDTH, this.height - AXIS_HEIGHT);
    ctx.clip();
    this.gridLines();
    for (const lane of seen) this.lane(lane);
    this.edges();
    if (story) this.storyMarks(story);
    ctx.restore();
    for (const lane of seen) this.names(lane);
    this.axis();
    return run;
  }

  y(offset) { return AXIS_HEIGHT + 2 + offset - this.scroll; }

  hit(left, right, top, bottom, target) {
    this.hits.push({ left: Math.min(left, right - 3), right: Math.max(right, left + 3), top, bottom, target });
  }

  at(x, y) {
    if (x < NAMES_WIDTH || y < AXIS_HEIGHT) return null;
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
    let captions = 0;
    for (const row of lane.rows) {
      if (!row.caption) continue;
      captions = Math.max(captions, widthOf(ctx, row.caption));
      ctx.fillStyle = colours.soft;
      ctx.fillText(row.caption, NAMES_WIDTH - 9, this.y(lane.top + row.top) + row.height / 2);
    }
    ctx.textAlign = "left";
    setFont(ctx, 12.5, 600);
    ctx.fillStyle = colours.ink;
    const first = lane.rows[0];
    const kind = { lease: "lease", client: "client", node: "node", faults: "" }[lane.kind];
    const middle = this.y(lane.top + (first?.top ?? 0)) + (first ? first.height / 2 : 8);
    // A long name goes over the captions' column; then it stands alone on its line.
    this.ellipsis(lane.title, 10, middle, NAMES_WIDTH - 22 - (first?.caption ? captions : 0));
    setFont(ctx, 10.5);
    ctx.fillStyle = colours.faint;
    if (lane.rows.length > 1 && kind) ctx.fillText(lane.note || kind, 10, middle + 15);
    ctx.restore();
  }

  ellipsis(text, x, y, room) {
    const { ctx } = this;
    let shown = text;
    while (shown.length > 3 && widthOf(ctx, shown + (shown === text ? "" : "…")) > room) shown = shown.slice(0, -1);
    ctx.fillText(shown === text ? text : shown + "…", x, y);
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
    const { ctx, run, scale } = this;
    const { write, steps } = story;
    this.verdictArrow(write);
    const taken = [];
    steps.forEach((step, nth) => {
      const lane = laneAt(this.layout, ...step.lane);
      if (!lane) return;
      let x = scale.x(step.at);
      const y = this.y(step.row === "fault" ? lane.top + 8 : rowMiddle(lane, step.row, write.guard));
      while (taken.some((other) => Math.abs(other.x - x) < 19 && Math.abs(other.y - y) < 16)) x += 19;
      taken.push({ x, y });
      numberBadge(ctx, nth + 1, x, y, step.refusal);
      this.hit(x - 9, x + 9, y - 9, y + 9, { step: nth });
    });
    return run;
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
    const label = `${shortToken(write.token)} < ${shortToken(write.mark)}  ${write.outcome === "ok" ? "admitted!" : "refused"}`;
    setFont(ctx, 12, 700);
    const width = widthOf(ctx, label) + 12;
    const left = x + 14 + width > this.width ? x - width - 14 : x + 14;
    const middle = to + Math.sign(from - to) * 21;
    ctx.fillStyle = brush.colours.alarm;
    box(ctx, left, left + width, middle - 9, 18, 4);
    ctx.fill();
    ctx.fillStyle = brush.colours.panel;
    ctx.fillText(label, left + 6, middle);
  }
}
