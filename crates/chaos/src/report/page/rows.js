// How each kind of row is drawn.

Object.assign(Painter.prototype, {
  // Bands of one token after the other: who holds the lease, or what its store has seen.
  holders(row, top, target) {
    const { ctx, run, scale } = this;
    const { colours } = brush;
    const isMark = row.name === "mark";
    setFont(ctx, isMark ? 11 : 12, isMark ? 400 : 600);
    this.visit(row.items, (item) => {
      const left = Math.max(scale.x(item.from), NAMES_WIDTH - 6);
      const right = Math.min(scale.x(item.to), this.width + 6);
      if (right - left < 2.5) {
        ctx.fillStyle = colours.call;
        ctx.fillRect(left, top, 2, row.height);
        this.hit(left, left + 2, top, top + row.height, target(item));
        return left + 2.5;
      }
      const [fill, ink] = tokenColour(run, item.token);
      box(ctx, left, right, top, row.height);
      ctx.fillStyle = fill;
      ctx.globalAlpha = isMark ? 0.35 : 1;
      ctx.fill();
      ctx.globalAlpha = 1;
      if (isMark) {
        ctx.fillStyle = fill;
        ctx.fillRect(left, top, 3, row.height);
      }
      ctx.fillStyle = isMark ? colours.ink : ink;
      const token = tokenName(item.token);
      const begin = this.clear(Math.max(left, NAMES_WIDTH) + (isMark ? 3 : 0), top, row.height);
      const texts = isMark ? [`seen ${token}: refuses less`, `seen ${token}`, token] : [`token ${token} · ${run.clients[item.client]}`, `${token} · ${run.clients[item.client]}`, token];
      fitText(ctx, texts, begin, Math.min(right, this.width), top + row.height / 2 + 0.5);
      this.outline(target(item), left, right, top, row.height);
      this.hit(left, right, top, top + row.height, target(item));
      return undefined;
    });
  },

  // What the client believed; where it believed what was no longer granted, a red edge; where it
  // went on with the token after both, hatched.
  believed(row, top) {
    const { ctx, run, scale } = this;
    const { colours } = brush;
    this.visit(row.items, (item) => {
      const [fill, ink] = tokenColour(run, item.token);
      const { belief } = item;
      // In a story only its own token's ghost is shown; another's would lie on top of it.
      const acts = this.story && this.alone && item.token !== this.story.write.token ? null : item.acts;
      const end = Math.max(belief?.to ?? 0, acts ?? 0);
      if (scale.x(item.to) - scale.x(item.from) < 2.5) {
        ctx.fillStyle = colours.call;
        ctx.fillRect(scale.x(item.from), top + 4, 2, row.height - 8);
        return scale.x(item.from) + 2.5;
      }
      if (!belief && acts === null) return undefined;
      const begin = belief?.from ?? item.from;
      const left = Math.max(scale.x(begin), NAMES_WIDTH - 6);
      const middle = Math.min(Math.max(scale.x(belief?.to ?? begin), left), this.width + 6);
      const right = Math.min(scale.x(end), this.width + 6);
      if (belief) {
        ctx.fillStyle = fill;
        box(ctx, left, middle, top, row.height);
        ctx.fill();
      }
      if (acts !== null && right > middle) {
        ctx.globalAlpha = 0.22;
        ctx.fillStyle = fill;
        ctx.fillRect(middle, top, right - middle, row.height);
        ctx.globalAlpha = 1;
        ctx.fillStyle = hatch(ctx, fill, "/", 6);
        ctx.fillRect(middle, top, right - middle, row.height);
      }
      this.overstayed(item, end, top, row.height);
      setFont(ctx, 11.5, 600);
      ctx.fillStyle = ink;
      const token = tokenName(item.token);
      if (belief) fitText(ctx, [`believes it holds ${token}`, `believes ${token}`, token], this.clear(Math.max(left, NAMES_WIDTH), top, row.height), Math.min(middle, this.width), top + row.height / 2 + 0.5);
      this.outline({ tenure: item }, left, Math.max(middle, right), top, row.height);
      this.hit(left, Math.max(middle, right), top, top + row.height, { tenure: item });
      return undefined;
    });
  },

  overstayed(item, end, top, height) {
    const { ctx, scale } = this;
    const { colours } = brush;
    const lost = item.grant ? item.grant.to : item.from;
    if (lost >= end) return;
    const [left, right] = [Math.max(scale.x(lost), NAMES_WIDTH - 6), Math.min(scale.x(end), this.width + 6)];
    if (right - left < 1.5) return;
    ctx.strokeStyle = colours.alarm;
    ctx.lineWidth = 2;
    ctx.strokeRect(left, top + 1, right - left, height - 2);
    setFont(ctx, 11.5, 600);
    const heard = item.belief && item.belief.to <= lost;
    const texts = heard ? [`still acts on ${tokenName(item.token)}`, "still acts"] : ["believes, but holds nothing", "holds nothing", "stale"];
    const text = texts.find((candidate) => widthOf(ctx, candidate) <= Math.min(right, this.width) - Math.max(left, NAMES_WIDTH) - 12);
    if (!text) return;
    const width = widthOf(ctx, text) + 8;
    const start = this.clear(Math.max(left, NAMES_WIDTH), top, height) + 4;
    ctx.fillStyle = colours.panel;
    box(ctx, start, start + width, top + 2.5, height - 5, 3);
    ctx.fill();
    ctx.fillStyle = colours.alarm;
    ctx.fillText(text, start + 4, top + height / 2 + 0.5);
  },

  granted(row, top) {
    const { ctx, run, scale } = this;
    this.visit(row.items, (item) => {
      const { grant } = item;
      if (!grant) return undefined;
      const left = Math.max(scale.x(grant.from), NAMES_WIDTH - 6);
      const right = Math.min(scale.x(grant.to), this.width + 6);
      if (right - left < 2.5) {
        ctx.fillStyle = brush.colours.call;
        ctx.fillRect(left, top, 2, row.height);
        return left + 2.5;
      }
      const [fill] = tokenColour(run, item.token);
      ctx.strokeStyle = fill;
      ctx.lineWidth = 2;
      box(ctx, left + 1, right - 1, top + 1, row.height - 2, 2);
      ctx.stroke();
      ctx.globalAlpha = 0.18;
      ctx.fillStyle = fill;
      ctx.fill();
      ctx.globalAlpha = 1;
      this.hit(left, right, top, top + row.height, { tenure: item });
      return undefined;
    });
  },

  // Calls as bars, guarded writes as marks above them; refused ones last, so that none hides.
  calls(row, top) {
    const { ctx, run, scale } = this;
    const { colours } = brush;
    const middle = top + row.height / 2;
    const marks = [];
    let occupied = -Infinity;
    let waited = -Infinity;
    this.visit(row.items, (op) => {
      const left = scale.x(op.start);
      const right = op.end === FOREVER ? left + 5 : scale.x(op.end);
      if (op.writes) {
        const x = scale.x(moment(op));
        if (op.stale || x - occupied < 4) return undefined;
        occupied = x;
        marks.push({ op, x });
        return left + 1;
      }
      ctx.fillStyle = op.outcome === "ok" ? colours.call : colours.soft;
      if (op.outcome === "unknown") {
        ctx.strokeStyle = colours.soft;
        ctx.lineWidth = 1;
        ctx.setLineDash([2, 2]);
        ctx.strokeRect(left, middle - 3.5, Math.max(right - left, 4), 7);
        ctx.setLineDash([]);
      } else {
        const waits = op.kind === "acquire" && right - left > 60 ? 3.5 : 0;
        ctx.fillRect(left, middle - 3 - waits, Math.max(right - left, 1.2), 6 + 2 * waits);
        if (waits && left > waited) {
          this.waiting(op, left, right, middle);
          waited = right;
        }
        if (op.outcome === "refused") ctx.fillRect(left, middle - 6, 1.6, 12);
      }
      this.outline({ op }, left, Math.max(right, left + 3), middle - 5, 10);
      this.hit(left, Math.max(right, left + 3), middle - 8, middle + 8, { op });
      return right - left < 1 ? left + 1 : undefined;
    });
    for (const op of run.staleOf[row.client]) {
      const x = scale.x(moment(op));
      if (x > NAMES_WIDTH - 12 && x < this.width + 12 && row.shown(op)) marks.push({ op, x });
    }
    this.writeMarks(marks, middle, run);
  },

  waiting(op, left, right, middle) {
    const { ctx, run } = this;
    setFont(ctx, 10.5);
    ctx.fillStyle = brush.colours.panel;
    fitText(ctx, [`waits for ${run.leases[op.lease]}`, "waits"], Math.max(left, NAMES_WIDTH), Math.min(right, this.width), middle + 0.5);
  },

  writeMarks(marks, middle, run) {
    const { ctx } = this;
    const drawn = { plain: -Infinity, stale: -Infinity };
    marks.sort((a, b) => a.x - b.x || a.op.stale - b.op.stale);
    for (const stale of [false, true]) {
      for (const { op, x } of marks) {
        const chosen = this.selected?.op === op;
        if (op.stale !== stale || x < NAMES_WIDTH - 12 || x > this.width + 12) continue;
        if (!chosen && x - drawn[stale ? "stale" : "plain"] < (stale ? 5 : 4)) continue;
        drawn[stale ? "stale" : "plain"] = x;
        const [fill] = tokenColour(run, op.token);
        writeMark(ctx, op, x, middle, stale ? 5.2 : 4, fill);
        if (chosen) {
          ctx.strokeStyle = brush.colours.accent;
          ctx.lineWidth = 2.5;
          ctx.beginPath();
          ctx.arc(x, middle, 11, 0, 7);
          ctx.stroke();
        }
        this.hit(x - 6, x + 6, middle - 9, middle + 9, { op });
      }
    }
    this.writeLabels(marks.filter(({ op }) => op.stale), middle);
  },

  // The token and the mark that it met, where there is room beside the cross.
  writeLabels(stale, middle) {
    const { ctx } = this;
    setFont(ctx, 11, 600);
    stale.forEach(({ op, x }, nth) => {
      const text = `${tokenName(op.token)}<${tokenName(op.mark)}`;
      const room = (stale[nth + 1]?.x ?? this.width) - x - 20;
      if (widthOf(ctx, text) > room || op === this.story?.write) return;
      ctx.fillStyle = brush.colours.panel;
      box(ctx, x + 9, x + 15 + widthOf(ctx, text), middle - 7.5, 15, 3);
      ctx.fill();
      ctx.fillStyle = brush.colours.alarm;
      ctx.fillText(text, x + 12, middle + 0.5);
    });
  },

  roles(row, top) {
    const { ctx, run, scale } = this;
    const { colours } = brush;
    this.visit(row.items, (item) => {
      const left = Math.max(scale.x(item.from), NAMES_WIDTH - 6);
      const right = Math.min(scale.x(item.to), this.width + 6);
      const middle = top + row.height / 2;
      setFont(ctx, 11, 600);
      if (item.role === "leader") {
        ctx.fillStyle = colours.ink;
        box(ctx, left, right, top, row.height);
        ctx.fill();
        ctx.fillStyle = colours.panel;
        const begin = this.clear(Math.max(left, NAMES_WIDTH), top, row.height);
        if (right - begin > 18) star(ctx, begin + 10, middle, 5.5);
        fitText(ctx, [`leader, term ${item.term}`, "leader", String(item.term)], begin + 14, Math.min(right, this.width), middle + 0.5);
      } else if (item.role === "down") {
        ctx.strokeStyle = colours.alarm;
        ctx.lineWidth = 1;
        ctx.setLineDash([2, 3]);
        ctx.strokeRect(left + 0.5, top + 3.5, Math.max(right - left - 1, 1), row.height - 7);
        ctx.setLineDash([]);
        ctx.fillStyle = colours.alarm;
        const told = run.faultsOfNode[item.node].items.some((fault) => fault.from < item.to && fault.to > item.from);
        if (!told) fitText(ctx, ["down"], Math.max(left, NAMES_WIDTH), right, middle + 0.5);
      } else {
        const quiet = item.role !== "follower";
        ctx.fillStyle = colours.node;
        ctx.fillRect(left, middle - (quiet ? 1 : 3), Math.max(right - left, 1), quiet ? 2 : 6);
        if (quiet) {
          ctx.fillStyle = colours.soft;
          setFont(ctx, 11);
          fitText(ctx, [item.role], Math.max(left, NAMES_WIDTH), right, middle - 7);
        }
      }
      this.hit(left, right, top, top + row.height, { role: item });
      return right - left < 1 ? left + 1 : undefined;
    });
  },

  faultRow(row, top) {
    const { ctx, run, scale } = this;
    const { colours } = brush;
    setFont(ctx, 11, 600);
    this.visit(row.items, (item) => {
      const { fault } = item;
      const left = Math.max(scale.x(fault.from), NAMES_WIDTH - 6);
      const right = Math.min(Math.max(scale.x(fault.to), left + 3), this.width + 6);
      ctx.fillStyle = colours.fault;
      box(ctx, left, right, top, row.height);
      ctx.fill();
      ctx.fillStyle = colours.panel;
      if (right - left > 24) {
        const { whom } = faultOf(run, fault);
        fitText(ctx, [`${fault.label}: ${whom}`, fault.label], Math.max(left, NAMES_WIDTH), Math.min(right, this.width), top + row.height / 2 + 0.5);
      }
      this.outline({ fault }, left, right, top, row.height);
      this.hit(left, right, top, top + row.height, { fault });
      return right - left < 2 ? left + 2 : undefined;
    });
  },

  // A fault runs across every lane that it hits.
  faultBands(lane) {
    const { ctx, scale } = this;
    this.visit(this.faultsOf(lane), (fault) => {
      const left = Math.max(scale.x(fault.from), NAMES_WIDTH - 6);
      const right = Math.min(Math.max(scale.x(fault.to), left + 2), this.width + 6);
      const [top, height] = [this.y(lane.top) - 4, lane.height - 1];
      ctx.globalAlpha = 0.16;
      ctx.fillStyle = brush.colours.fault;
      ctx.fillRect(left, top, right - left, height);
      ctx.globalAlpha = 0.45;
      ctx.fillStyle = hatch(ctx, brush.colours.fault, HATCH_OF[fault.kind] ?? "\\", 9);
      ctx.fillRect(left, top, right - left, height);
      ctx.globalAlpha = 1;
      this.hit(left, right, top, top + height, { fault });
      return right - left < 3 ? left + 3 : undefined;
    });
  },

  faultLabels(lane) {
    if (lane.kind !== "client" && lane.kind !== "node") return;
    const { ctx, scale } = this;
    setFont(ctx, 11, 600);
    const row = lane.rows[lane.rows.length - 1];
    const middle = this.y(lane.top + row.top) + row.height / 2;
    this.visit(this.faultsOf(lane), (fault) => {
      const left = Math.max(scale.x(fault.from), NAMES_WIDTH) + 3;
      const right = Math.min(scale.x(fault.to), this.width);
      const texts = [`${fault.label} for ${lasted(fault.to - fault.from)}`, fault.label];
      const text = texts.find((candidate) => widthOf(ctx, candidate) + 14 <= right - left);
      if (!text) return right - left < 3 ? left + 3 : undefined;
      ctx.fillStyle = brush.colours.fault;
      // On a node's lane the begin is where a leader's band may end: the label keeps away from it.
      const start = lane.kind === "node" ? right - widthOf(ctx, text) - 13 : left;
      box(ctx, start, start + widthOf(ctx, text) + 10, middle - 8, 16, 4);
      ctx.fill();
      ctx.fillStyle = brush.colours.panel;
      ctx.fillText(text, start + 5, middle + 0.5);
      return undefined;
    });
  },

  faultsOf(lane) {
    if (lane.kind === "client") return this.run.faultsOfClient[lane.id];
    if (lane.kind === "node") return this.run.faultsOfNode[lane.id];
    return NO_FAULTS;
  },

  outline(target, left, right, top, height) {
    if (!same(target, this.selected)) return;
    const { ctx } = this;
    ctx.strokeStyle = brush.colours.accent;
    ctx.lineWidth = 2.5;
    ctx.strokeRect(left - 1, top - 1, Math.max(right - left, 3) + 2, height + 2);
  },
});

// What stops a process is upright, what cuts a cable slanted, what takes a disk crossed.
const NO_FAULTS = sequence([]);
const HATCH_OF = { pause: "|", kill: "|", partition: "\\", oneway: "\\", isolate: "\\", slow: "/", disk: "x", membership: "/" };

function same(one, other) {
  if (!one || !other) return false;
  const [[kind, value]] = Object.entries(one);
  return other[kind] === value;
}
