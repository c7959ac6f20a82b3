// The sessions, page by page in the order of their numbers.

const sessionsView = {
  title: "Sessions",
  start(pane, parameters) {
    this.after = parameters.get("after") ?? "";
    this.first = el("a", { href: "#sessions", hidden: true }, "First page");
    this.next = el("a", { href: "#sessions", hidden: true }, "Next page");
    this.rows = table(["Session", "Identity", "Waits for", "TTL", "Time left"]);
    pane.append(el("h2", null, "Sessions"), el("div", { class: "tools" }, this.first, this.next), this.rows.node);
  },
  async refresh() {
    const { sessions, next, at } = await read("sessions", { after: this.after, limit: PAGE });
    this.rows.caption(sessions.length === 0 ? "No session lives." : `${sessions.length} sessions${next || this.after ? " on this page" : ""}, at index ${count(at.index)}`);
    this.first.hidden = this.after === "";
    this.next.hidden = next === undefined;
    this.next.setAttribute("href", `#sessions?after=${next ?? ""}`);
    this.rows.show(
      sessions,
      (session) => session.session,
      (session) => [
        String(session.session),
        el("td", { class: "wide" }, session.identity || "–"),
        session.waits ? `${count(session.waits)} leases` : "–",
        session.pod ? el("td", { class: "wide" }, `Pod ${session.pod}`) : span(session.ttl_ms),
        session.pod ? "as long as its Pod" : leftBar(session.left_ms, session.ttl_ms),
      ],
    );
  },
};
