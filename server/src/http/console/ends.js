// Ends of grants as they come, and what this node has refused. The page keeps the newest ends that it
// has heard since it was opened.

const ENDS_MAX = 200;

const recent = [];

function remember(event) {
  if (event.kind !== "ended") return;
  recent.unshift(event.data);
  recent.length = Math.min(recent.length, ENDS_MAX);
}

const REFUSALS = [
  ["ringfence_denied_total", "without the right"],
  ["ringfence_unproven_total", "a credential that did not hold"],
  ["ringfence_limited_total", "a limit of the caller"],
];

const endsView = {
  title: "Ends and refusals",
  start(pane) {
    this.ends = table(["At", "Lease", "Token", "Holder", "End"]);
    this.refusals = table(["Refused for", "Labels", "Since the start of this node"]);
    this.why = el("p", { class: "quiet" });
    pane.append(
      el("h2", null, "Ends of grants"),
      this.ends.node,
      el("h2", null, "Refusals by this node"),
      this.why,
      this.refusals.node,
    );
  },
  async refresh() {
    this.ends.caption(recent.length === 0 ? "None since the page was opened. The history of a lease has those before." : `The newest ${recent.length} since the page was opened, ${ENDS_MAX} at most`);
    this.ends.show(
      recent,
      (end) => end.token,
      (end) => [when(end.at_unix_ms), el("td", { class: "wide" }, leaseLink(end.name)), tokenChip(end.token), el("td", { class: "wide" }, end.identity ?? "–"), el("td", { class: "wide" }, ending(end.cause))],
    );
    try {
      const all = await figures();
      const counted = [...all].flatMap(([name, number]) => {
        const kind = REFUSALS.find(([family]) => name.startsWith(family));
        return kind && number > 0 ? [{ name, why: kind[1], labels: name.slice(kind[0].length), number }] : [];
      });
      setText(this.why, counted.length === 0 ? "This node has refused no caller." : "The log and the audit log of the node name who was refused.");
      this.refusals.show(counted, (one) => one.name, (one) => [one.why, el("td", { class: "wide" }, el("code", null, one.labels)), count(one.number)]);
    } catch (why) {
      setText(this.why, why.message);
    }
  },
  concerns: (event) => event.kind === "ended",
};
