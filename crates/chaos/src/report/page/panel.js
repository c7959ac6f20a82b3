// The panel beside the lanes: the story, details in words, the table of refused writes, the verdict.

const ROWS_PER_PAGE = 200;

// An element. Text is set as text, never as markup: names come from the history's author.
function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const byId = (id) => document.getElementById(id);

// What the short names stand for, where tokens are long.
function longTokens({ token, mark }) {
  if (!places.has(token)) return null;
  const names = [token, mark].filter((one) => places.has(one)).map((one) => `${tokenName(one)} is token ${one}`);
  return h("p", { class: "quiet" }, `#1, #2 and so on are the grants of this run in their order, which is that of the tokens: ${names.join(", ")}.`);
}

class Panel {
  constructor(run, go) {
    Object.assign(this, { run, go, page: 0 });
    this.tabs = [...document.querySelectorAll("[role=tab]")];
    this.tabs.forEach((tab, nth) => {
      tab.addEventListener("click", () => this.open(tab.id.slice(4)));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const other = this.tabs[(nth + step + this.tabs.length) % this.tabs.length];
        this.open(other.id.slice(4));
        other.focus();
      });
    });
    this.head();
    this.verdict();
    this.leftOut();
    this.table();
    this.details(null);
    this.story(null);
  }

  open(name) {
    for (const tab of this.tabs) {
      const chosen = tab.id === "tab-" + name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    this.shown = name;
  }

  fill(name, ...children) {
    const pane = byId("pane-" + name);
    pane.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
    pane.scrollTop = 0;
  }

  chip(token) {
    const [fill, ink] = tokenColour(this.run, token);
    return h("span", { class: "chip", style: `background:${fill};color:${ink}` }, "token " + tokenName(token));
  }

  told(parts) {
    const nodes = [];
    let keep = null;
    for (const part of parts) {
      const mark = typeof part === "string" && keep ? /^[.,:]/.exec(part)?.[0] ?? "" : "";
      // A full stop stays with its token, whatever the width of the line.
      if (keep) nodes.push(h("span", { class: "kept" }, keep, mark));
      keep = null;
      if (typeof part === "string") nodes.push(part.slice(mark.length));
      else keep = this.chip(part.token);
    }
    if (keep) nodes.push(keep);
    return nodes;
  }

  head() {
    const { run } = this;
    const verdict = byId("verdict");
    verdict.className = run.verdict;
    verdict.textContent = { valid: "✓ VALID", invalid: "✗ INVALID", unknown: "? UNKNOWN" }[run.verdict];
    byId("title").textContent = run.title;
    byId("title").title = run.title;
    const [first] = run.errors;
    const good = run.verdict === "valid" ? "No promise was broken. " : "";
    byId("reason").textContent = first ? `${first.rule}: ${first.text}` : good + run.reasons.join(" · ");
    byId("reason").title = run.reasons.join("\n");
    const { figures } = run;
    const cells = [
      ["operations\nchecked", figures.operations],
      ["stale writes\nattempted", figures.attempted],
      ["stale writes\nrefused", figures.refused],
      ["stale writes\nADMITTED", figures.admitted, figures.admitted > 0 ? "bad" : ""],
    ];
    if (figures.control) cells.push(["admitted by a copy\nwithout a guard", figures.control.admitted, "control"]);
    byId("figures").replaceChildren(...cells.map(([name, value, kind]) => (
      h("div", { class: kind || undefined }, h("dd", {}, value === null ? "–" : count(value)), h("dt", {}, name)))));
  }

  verdict() {
    const { run } = this;
    const broken = run.errors.map((error, nth) => h("li", {},
      h("button", { onclick: () => this.go.error(nth) }, error.at === null ? error.rule : `${error.rule} at ${seconds(error.at)}`), " ", error.text));
    this.fill("verdict",
      h("h2", {}, { valid: "Valid: no promise was broken", invalid: "Invalid: a promise was broken", unknown: "Unknown: the run cannot say" }[run.verdict]),
      h("ul", { class: "plain" }, run.reasons.map((reason) => h("li", {}, reason))),
      broken.length ? h("h2", {}, plural(broken.length, "broken rule")) : null,
      broken.length ? h("ul", { class: "plain" }, broken) : null,
      this.control(),
      run.facts.length ? h("h2", {}, "The run") : null,
      h("dl", { class: "facts" }, run.facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      run.command ? [h("h2", {}, "Once more"), h("p", {}, h("code", {}, run.command))] : null);
  }

  control() {
    const { control, admitted } = this.run.figures;
    if (!control) return null;
    return [h("h2", {}, "Without a guard"), h("p", {}, `The same writes went to a copy of the store without a guard: it took ${plural(control.admitted, "stale write")} of ${count(control.attempted)}. The guarded store took ${admitted === 0 ? "none" : count(admitted)}.`)];
  }

  leftOut() {
    const { left_out: lines } = this.run;
    if (lines.length === 0) return;
    byId("left-out").replaceChildren(h("h2", {}, "Left out of this page"), h("ul", { class: "plain" }, lines.map((line) => h("li", {}, line))));
    byId("notice").textContent = "Left out of this page: " + lines.join(" ");
    byId("notice").hidden = false;
  }

  table() {
    const { run } = this;
    const rows = run.stale;
    const admitted = rows.length - run.refused.length;
    this.tabs[2].textContent = admitted ? `Stale ${count(rows.length)}` : `Refused ${count(rows.length)}`;
    if (rows.length === 0) {
      this.fill("refused", h("p", {}, "No stale write was tried in this run, so it says nothing about guards."));
      return;
    }
    const from = this.page * ROWS_PER_PAGE;
    const some = rows.slice(from, from + ROWS_PER_PAGE);
    const flip = (by) => () => { this.page += by; this.table(); };
    const pages = rows.length <= ROWS_PER_PAGE ? null : h("div", { class: "walk" },
      h("span", {}, `${count(from + 1)} to ${count(from + some.length)} of ${count(rows.length)}`),
      h("button", { onclick: flip(-1), disabled: from === 0 }, "‹ before"),
      h("button", { onclick: flip(1), disabled: from + some.length >= rows.length }, "after ›"));
    const line = (op, nth) => h("tr", { "aria-current": op === this.current ? "true" : undefined, "data-op": op.id },
      h("td", {}, h("button", { onclick: () => this.go.stale(from + nth), "aria-label": `Story of the write at ${seconds(moment(op))}` }, seconds(moment(op)))),
      h("td", {}, clientName(run, op.client)),
      h("td", { class: "name" }, run.leases[op.lease].split("/").flatMap((part, nth) => (nth ? ["/", h("wbr"), part] : [part]))),
      h("td", { title: tokenInFull(op.token) }, tokenName(op.token)),
      h("td", { title: tokenInFull(op.mark) }, tokenName(op.mark)),
      h("td", {}, op.outcome === "ok" ? "ADMITTED" : "refused"));
    this.fill("refused", pages, h("table", { class: "list" },
      h("caption", {}, "Writes with a token below the store’s mark. The time opens the story."),
      h("thead", {}, h("tr", {}, ["time", "by", "lease", "token", "mark", "outcome"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, some.map(line))));
  }

  story(story) {
    const { run, go } = this;
    this.current = story?.write;
    for (const row of document.querySelectorAll("#pane-refused tr[data-op]")) {
      if (row.dataset.op === String(story?.write.id)) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
    }
    if (!story) {
      const why = run.stale.length ? h("p", {}, h("button", { onclick: () => go.stale(0) }, "Tell the first one")) : null;
      this.fill("story", h("p", {}, run.stale.length ? `${plural(run.stale.length, "stale write")} in this run.` : "No stale write was tried in this run: there is nothing to tell. Click anything for its details."), why);
      return;
    }
    const { write, steps, nth } = story;
    const broken = write.outcome === "ok";
    this.fill("story",
      h("div", { class: "walk" },
        h("span", {}, `${broken ? "stale write" : "refused write"} ${count(nth + 1)} of ${count(run.stale.length)}`),
        h("button", { onclick: () => go.stale(nth - 1), disabled: nth === 0, "aria-label": "Story before" }, "‹"),
        h("button", { onclick: () => go.stale(nth + 1), disabled: nth + 1 >= run.stale.length, "aria-label": "Story after" }, "›")),
      h("h2", {}, broken ? "A stale write got through" : "Why was this write refused?"),
      h("p", { class: broken ? "punch" : "punch held" }, this.told(punchLine(run, write))),
      h("ol", { class: "steps" }, steps.map((step, at) => h("li", { class: step.refusal ? "refusal" : undefined },
        h("span", { class: "number", "aria-hidden": "true" }, String(at + 1)),
        h("button", { onclick: () => go.step(at) }, h("time", {}, seconds(step.at)), this.told(step.text))))),
      write.copyTook ? h("p", { class: "quiet" }, "A copy of the store without a guard was offered the same write at that time, and took it: there the work of the later holder is overwritten.") : null,
      longTokens(write),
      h("p", {}, h("button", { onclick: () => go.details({ op: write }) }, "Details of the write")));
  }

  details(target) {
    const { run, go } = this;
    if (!target) {
      this.fill("details", h("p", { class: "quiet" }, "Click a band, a mark or a fault in the timeline to read here what it is. With the keyboard: [ and ] go from operation to operation."));
      return;
    }
    const { title, text, facts, token, write } = describe(run, target);
    const links = [];
    if (write) links.push(h("button", { onclick: () => go.stale(run.stale.indexOf(write)) }, "Tell its story"));
    if (token && run.grantOf.has(token)) links.push(h("button", { onclick: () => go.token(token) }, `Go to token ${tokenName(token)}`));
    this.fill("details",
      h("h2", {}, title),
      h("p", {}, text),
      h("dl", { class: "facts" }, facts.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      links.length ? h("p", {}, links.flatMap((link) => [link, " "])) : null);
  }
}
