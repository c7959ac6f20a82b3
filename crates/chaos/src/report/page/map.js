// The whole run in one strip: faults, leaders, refused writes and errors, and the frame that the
// timeline shows. Painted once; only the frame moves.

class RunMap {
  constructor(run, canvas, scale) {
    Object.assign(this, { run, canvas, scale, ctx: canvas.getContext("2d") });
    this.ground = document.createElement("canvas");
    let grip = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const at = this.at(event.offsetX);
      const inside = at >= scale.from && at <= scale.to && scale.span < run.length * 0.9;
      grip = inside ? at - scale.from : scale.span / 2;
      if (!inside) scale.centre(at);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (grip === null) return;
      const from = this.at(event.offsetX) - grip;
      scale.show(from, from + scale.span);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { grip = null; });
  }

  at(x) { return ((x - NAMES_WIDTH) / this.inner) * this.run.length; }

  x(at) { return NAMES_WIDTH + (Math.min(at, this.run.length) / this.run.length) * this.inner; }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.inner = this.width - NAMES_WIDTH - 14;
    for (const canvas of [this.canvas, this.ground]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
    }
    this.paintGround(ratio);
    this.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  paintGround(ratio) {
    const { run } = this;
    const { colours } = brush;
    const ctx = this.ground.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.textBaseline = "middle";
    setFont(ctx, 11.5);
    ctx.fillStyle = colours.faint;
    ctx.fillText("whole run", 10, 16);
    setFont(ctx, 10.5);
    ctx.fillText(seconds(run.length, 1), 10, 31);
    ctx.fillStyle = colours.stripe;
    ctx.fillRect(NAMES_WIDTH, 6, this.inner, 34);

    this.calls(ctx, colours);
    ctx.fillStyle = colours.fault;
    for (const fault of run.faults) {
      ctx.globalAlpha = 0.55;
      ctx.fillRect(this.x(fault.from), 8, Math.max(this.x(fault.to) - this.x(fault.from), 1.5), 7);
    }
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.ink;
    let last = -Infinity;
    for (const role of run.elections.slice(1)) {
      const x = this.x(role.from);
      if (x - last < 6) continue;
      last = x;
      star(ctx, x, 20, 4);
    }
    last = -Infinity;
    for (const op of run.stale) {
      const x = this.x(moment(op));
      const broken = op.outcome === "ok";
      if (x - last < 3 && !broken) continue;
      last = x;
      ctx.strokeStyle = colours.alarm;
      ctx.lineWidth = 1.7;
      if (broken) writeMark(ctx, op, x, 33, 4); else cross(ctx, x, 33, 3.2);
    }
    ctx.fillStyle = colours.alarm;
    for (const error of run.errors) {
      if (error.at === null) continue;
      const x = this.x(error.at);
      ctx.beginPath();
      ctx.moveTo(x, 7);
      ctx.lineTo(x + 5, 0);
      ctx.lineTo(x - 5, 0);
      ctx.fill();
      ctx.fillRect(x - 0.75, 6, 1.5, 34);
    }
  }

  // How much was going on, as a low curve behind everything.
  calls(ctx, colours) {
    const columns = Math.max(1, Math.floor(this.inner / 2));
    const counts = new Uint32Array(columns);
    for (const op of this.run.ops) counts[Math.min(columns - 1, Math.floor((op.start / this.run.length) * columns))] += 1;
    const most = counts.reduce((greatest, one) => Math.max(greatest, one), 1);
    ctx.fillStyle = colours.node;
    counts.forEach((one, nth) => {
      const height = (one / most) * 18;
      ctx.fillRect(NAMES_WIDTH + nth * 2, 40 - height, 2, height);
    });
  }

  paint() {
    const { ctx, scale } = this;
    const { colours } = brush;
    ctx.fillStyle = colours.panel;
    ctx.fillRect(0, 0, this.width, this.height);
    ctx.drawImage(this.ground, 0, 0, this.width, this.height);
    const left = this.x(Math.max(0, scale.from));
    const right = Math.max(this.x(scale.to), left + 4);
    ctx.fillStyle = colours.panel;
    ctx.globalAlpha = 0.38;
    ctx.fillRect(NAMES_WIDTH, 5, left - NAMES_WIDTH, 36);
    ctx.fillRect(right, 5, NAMES_WIDTH + this.inner - right, 36);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = colours.accent;
    ctx.lineWidth = 2;
    ctx.strokeRect(left, 5, right - left, 36);
    this.canvas.setAttribute("aria-valuenow", String(Math.round((100 * Math.max(0, scale.from)) / this.run.length)));
    this.canvas.setAttribute("aria-valuetext", `${seconds(Math.max(0, scale.from), 1)} to ${seconds(Math.min(scale.to, this.run.length), 1)}`);
  }
}
