// Which span of the run is shown, and how it moves.

const NAMES_WIDTH = 184;
const NARROWEST_US = 2000;

class Scale {
  constructor(length) {
    this.length = length;
    this.margin = length * 0.01;
    this.from = -this.margin;
    this.to = length + this.margin;
    this.left = NAMES_WIDTH;
    this.width = 1;
    this.moved = () => {};
  }

  get span() { return this.to - this.from; }

  x(at) {
    if (at === FOREVER) return this.left + this.width + 1e4;
    return this.left + ((at - this.from) / this.span) * this.width;
  }

  at(x) { return this.from + ((x - this.left) / this.width) * this.span; }

  perPixel() { return this.span / this.width; }

  show(from, to) {
    const whole = this.length + 2 * this.margin;
    const span = Math.min(Math.max(to - from, NARROWEST_US), whole);
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - span / 2, -this.margin), this.length + this.margin - span);
    this.from = start;
    this.to = start + span;
    this.moved();
  }

  whole() { this.show(-this.margin, this.length + this.margin); }

  pan(part) { this.show(this.from + part * this.span, this.to + part * this.span); }

  zoom(factor, around = (this.from + this.to) / 2) {
    const span = Math.min(Math.max(this.span * factor, NARROWEST_US), this.length + 2 * this.margin);
    const part = (around - this.from) / this.span;
    this.show(around - part * span, around + (1 - part) * span);
  }

  centre(at, span = this.span) { this.show(at - span / 2, at + span / 2); }

  // Round times at a distance that leaves room for their labels.
  ticks() {
    const wanted = this.perPixel() * 92;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((nth) => nth * power).find((size) => size >= wanted);
    const digits = Math.max(0, 6 - Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    for (let at = Math.ceil(Math.max(0, this.from) / step) * step; at <= Math.min(this.to, this.length); at += step) ticks.push(at);
    return { ticks, digits: Math.min(digits, 6) };
  }
}
