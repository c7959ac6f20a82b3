// What anything in the timeline is, in words: for the panel, the tip and the screen reader.

function clientName(run, client) {
  return run.clients[client] ?? "an unknown client";
}

function punchLine(run, write) {
  const who = clientName(run, write.client);
  const { store } = run.guards[write.guard];
  const owner = run.grantOf.get(write.mark);
  const other = owner && owner.client !== write.client ? ` of ${clientName(run, owner.client)}` : "";
  if (write.outcome === "ok") return [`${who} wrote to ${store} with `, { token: write.token }, ", although the store had already seen ", { token: write.mark }, `${other}. It was let in.`];
  return [`${who} wrote with an old `, { token: write.token }, `, but ${store} had already seen `, { token: write.mark }, `${other}.`];
}

function describe(run, target) {
  const [[kind, item]] = Object.entries(target);
  return DESCRIBE[kind](run, item);
}

const DESCRIBE = {
  lane(run, { kind, id, title }) {
    const text = {
      lease: () => `A lease: ${plural(run.byLease[id].length, "grant")} in this run. A click shows only the lanes of those who held it.`,
      client: () => `A client: ${plural(run.tracks[id].length, "grant")}, ${plural(run.staleOf[id].length, "stale write")}.`,
      node: () => "A node of the cluster.",
    }[kind]();
    return { title, text, facts: [] };
  },

  error(run, nth) {
    const error = run.errors[nth];
    return {
      title: `${error.rule} is broken`,
      text: error.text,
      facts: [["seen at", error.at === null ? null : seconds(error.at, 6)], ["lease", run.leases[error.lease]]],
    };
  },

  op(run, op) {
    const lease = op.lease >= 0 ? run.leases[op.lease] : null;
    return {
      title: opTitle(run, op),
      text: opSentence(run, op),
      token: op.token || null,
      write: op.stale ? op : null,
      facts: [
        ["client", clientName(run, op.client)],
        ["lease", lease],
        ["token", op.token ? tokenInFull(op.token) : null],
        ["store’s mark", op.writes && op.mark ? tokenInFull(op.mark) : null],
        ["began", seconds(op.start, 6)],
        ["answered", op.end === FOREVER ? "never" : `${seconds(op.end, 6)}, after ${lasted(op.end - op.start)}`],
        ["outcome", op.stale ? (op.outcome === "ok" ? "ADMITTED though stale" : "refused as stale") : op.outcome],
        ["more", op.text],
        ["operation", String(op.id)],
      ],
    };
  },

  grant(run, grant) {
    const who = clientName(run, grant.client);
    const lease = run.leases[grant.lease];
    const next = run.byLease[grant.lease][grant.nth + 1];
    const end = grant.to === FOREVER ? "It is in force when the run ends." : `It ended at ${seconds(grant.to)}: ${CAUSES[grant.cause] ?? "nobody saw why"}.`;
    return {
      title: `Token ${tokenName(grant.token)}`,
      text: `${who} holds ${lease} with token ${tokenName(grant.token)} from ${seconds(grant.from)} on. ${end}${next ? ` Next: token ${tokenName(next.token)}, to ${clientName(run, next.client)}.` : ""}`,
      facts: [
        ["lease", lease], ["token", tokenInFull(grant.token)], ["holder", who],
        ["from", seconds(grant.from, 6)], ["to", seconds(grant.to, 6)], ["for", lasted(grant.to - grant.from)],
      ],
    };
  },

  mark(run, mark) {
    const { store } = run.guards[mark.guard];
    const by = mark.op.outcome === "ok" ? `${clientName(run, mark.op.client)} raised it with its ${mark.op.kind}` : "A refusal told it";
    return {
      title: `${store} has seen ${tokenName(mark.token)}`,
      text: `The mark of ${store} for ${run.leases[mark.lease]}: every write with a token below ${tokenName(mark.token)} is refused from here on. ${by}.`,
      token: mark.token,
      facts: [["token", tokenInFull(mark.token)], ["from", seconds(mark.from, 6)], ["to", mark.to === FOREVER ? "the end" : `${seconds(mark.to, 6)}, when a greater one came`]],
    };
  },

  tenure(run, tenure) {
    const { belief, grant, acts } = tenure;
    const who = clientName(run, tenure.client);
    const grantText = grant ? `It was granted from ${seconds(grant.from)} to ${seconds(grant.to)}.` : "No grant of it was seen.";
    const beliefText = belief ? ` ${who} believed in it from ${seconds(belief.from)} to ${seconds(belief.to)}, when ${HOW_BELIEF_ENDED[belief.how] ?? "the recording ended"}.` : ` ${who} never knew of it.`;
    const over = grant && belief ? belief.to - grant.to : 0;
    const verdict = over > 0 ? ` That is ${lasted(over)} longer than it was true.` : "";
    const actsText = acts !== null ? ` It went on with the token until ${seconds(acts)}: only the guard stands against that.` : "";
    return {
      title: `${who} and token ${tokenName(tenure.token)}`,
      text: grantText + beliefText + verdict + actsText,
      token: tenure.token,
      facts: [
        ["lease", run.leases[tenure.lease]],
        ["token", tokenInFull(tenure.token)],
        ["granted", grant ? `${seconds(grant.from)} to ${seconds(grant.to)}` : "never seen"],
        ["believed", belief ? `${seconds(belief.from)} to ${seconds(belief.to)}` : "never"],
        ["went on until", acts === null ? null : seconds(acts)],
      ],
    };
  },

  role(run, role) {
    return {
      title: `${run.nodes[role.node]}: ${role.role}`,
      text: `${run.nodes[role.node]} is ${role.role === "down" ? "down" : "seen as " + role.role}${role.term ? ` in term ${role.term}` : ""} from ${seconds(role.from)} to ${seconds(role.to)}.`,
      facts: [["term", role.term ? String(role.term) : null], ["for", lasted(Math.min(role.to, run.length) - role.from)]],
    };
  },

  fault(run, fault) {
    const { whom, span } = faultOf(run, fault);
    return {
      title: `${fault.label}: ${whom}`,
      text: fault.text || `${whom}: ${fault.label}.`,
      facts: [
        ["kind", fault.kind], ["hits", whom], ["from", seconds(fault.from, 6)], ["to", seconds(fault.to, 6)], ["for", span],
        ["effect", fault.effect],
      ],
    };
  },
};
