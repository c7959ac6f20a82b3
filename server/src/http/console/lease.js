// One lease: who holds it, how long the queue is, and its past.

const RECORDS = 100;

const leaseView = {
  title: "Lease",
  start(pane, parameters) {
    this.name = parameters.get("lease") ?? "";
    this.now = el("div");
    this.picture = el("div");
    this.records = table(["Token", "Holder", "From", "To", "Lasted", "End"]);
    pane.append(
      el("p", null, el("a", { href: "#leases" }, "All leases")),
      el("h2", null, this.name),
      this.now,
      el("h2", null, "History"),
      this.picture,
      el("p", { class: "quiet" }, "One colour is one token. A red edge is an end that the holder did not confirm: it may still work, and only a guard stops its writes."),
      this.records.node,
    );
  },
  async refresh() {
    const lease = await readLease(this.name);
    const held = lease.held;
    const pairs = held
      ? [
          ["Holder", held.identity ?? "–"],
          ["Session", String(held.holder)],
          ["Token", tokenChip(held.token)],
          ["Time left", `${span(lease.left_ms)} of ${span(lease.ttl_ms)}`],
          ["Held since", when(held.since_unix_ms)],
          ["Data", held.data ?? held.data_base64 ?? "–"],
        ]
      : [
          ["Holder", "none"],
          ["Last token", lease.floor ? String(lease.floor) : "–"],
          ["Blocked for", lease.blocked_ms ? span(lease.blocked_ms) : "not blocked"],
        ];
    this.now.replaceChildren(facts([...pairs, ["Queue", `${count(lease.waiters)} waiting`]]));
    const { records } = await readHistory(this.name, RECORDS);
    const newest = [...records].sort((a, b) => b.token - a.token);
    const known = new Set(newest.map((record) => record.token));
    // The history is written a little later than the grant.
    if (held && !known.has(held.token)) newest.unshift(held);
    this.picture.replaceChildren(timeline(newest, Date.now()));
    this.records.caption(`The newest ${newest.length} grants, ${RECORDS} at most`);
    this.records.show(
      newest,
      (record) => record.token,
      (record) => {
        const end = record.ended_unix_ms;
        return [
          tokenChip(record.token),
          el("td", { class: "wide" }, record.identity ?? `session ${record.holder}`),
          when(record.since_unix_ms),
          end ? when(end) : "in force",
          end ? span(end - record.since_unix_ms) : "–",
          el("td", { class: "wide" }, record.cause ? ending(record.cause) : "–"),
        ];
      },
    );
  },
  concerns(event) {
    return event.data?.name === this.name;
  },
};
