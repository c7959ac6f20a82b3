// The leases: a page of the present state, by prefix. However many there are, one page is read and shown.

const PAGE = 100;

const leasesView = {
  title: "Leases",
  start(pane, parameters) {
    this.prefix = parameters.get("prefix") ?? "";
    this.after = parameters.get("after") ?? "";
    const input = el("input", { id: "prefix", type: "search", value: this.prefix, placeholder: "orders/", autocomplete: "off", spellcheck: "false", maxlength: 255 });
    input.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.look(input.value), 250);
    });
    this.first = el("a", { href: "#leases", hidden: true }, "First page");
    this.next = el("a", { href: "#leases", hidden: true }, "Next page");
    this.rows = table(["Lease", "Holder", "Token", "Waiters", "Time left", "Held since"]);
    pane.append(
      el("h2", null, "Leases"),
      el("div", { class: "tools" }, el("label", { for: "prefix" }, "Names that begin with (/)"), input, this.first, this.next),
      this.rows.node,
    );
  },
  // A new prefix is a new first page; the address keeps it, and the input its focus.
  look(prefix) {
    [this.prefix, this.after] = [prefix, ""];
    history.replaceState(null, "", `#${this.address("")}`);
    // Another prefix may be allowed where this one was not.
    reads.view.due = 0;
    refreshSoon();
  },
  address(after) {
    const query = new URLSearchParams();
    if (this.prefix) query.set("prefix", this.prefix);
    if (after) query.set("after", after);
    const text = query.toString();
    return text ? `leases?${text}` : "leases";
  },
  async refresh() {
    const [prefix, after] = [this.prefix, this.after];
    const { leases, next, at } = await read("leases", { prefix, after, limit: PAGE });
    if (prefix !== this.prefix || after !== this.after) return;
    this.rows.caption(leases.length === 0 ? "No lease has such a name." : `${leases.length} leases${next || after ? " on this page" : ""}, at index ${count(at.index)}`);
    this.first.hidden = after === "";
    this.first.setAttribute("href", `#${this.address("")}`);
    this.next.hidden = next === undefined;
    this.next.setAttribute("href", `#${this.address(next ?? "")}`);
    this.rows.show(leases, (lease) => lease.name, cells);
  },
  concerns: (event) => event.kind === "granted" || event.kind === "ended",
};

function cells(lease) {
  const held = lease.held;
  const name = el("td", { class: "wide" }, leaseLink(lease.name));
  const waiters = count(lease.waiters);
  if (!held) {
    const blocked = lease.blocked_ms ? `blocked for ${span(lease.blocked_ms)}` : "free";
    return [name, el("span", { class: "quiet" }, blocked), lease.floor ? String(lease.floor) : "–", waiters, "–", "–"];
  }
  const holder = el("td", { class: "wide" }, held.identity ?? `session ${held.holder}`);
  return [name, holder, tokenChip(held.token), waiters, leftBar(lease.left_ms, lease.ttl_ms), when(held.since_unix_ms)];
}
