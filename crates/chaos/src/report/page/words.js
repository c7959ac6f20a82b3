// Everything that is said in words: times, operations, and the story of a refused write.

function seconds(at, digits = 3) {
  return at === FOREVER ? "the end" : (at / 1e6).toFixed(digits) + " s";
}

function lasted(span) {
  if (span === FOREVER) return "until the end";
  if (span < 1e3) return Math.round(span) + " µs";
  if (span < 1e6) return (span / 1e3).toFixed(span < 1e4 ? 1 : 0) + " ms";
  return (span / 1e6).toFixed(span < 1e7 ? 2 : 1) + " s";
}

function count(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function plural(number, one, many = one + "s") {
  return count(number) + " " + (number === 1 ? one : many);
}

// Tokens of a lasting cluster have 16 digits, which no reader can compare at a glance. There a token is
// called by its place among the grants of the run, #17, which grows as tokens do.
const LONG_TOKEN = 1e7;
const places = new Map();

function learnTokens(run) {
  const tokens = [...new Set(run.grants.map((grant) => grant.token))].sort((a, b) => a - b);
  if (!tokens.some((token) => token >= LONG_TOKEN)) return;
  tokens.forEach((token, nth) => places.set(token, nth + 1));
}

function tokenName(token) {
  if (places.has(token)) return "#" + places.get(token);
  const text = String(token);
  return token >= LONG_TOKEN ? "…" + text.slice(-6) : text;
}

function tokenInFull(token) {
  return places.has(token) ? `${token} (#${places.get(token)})` : String(token);
}

const CAUSES = {
  released: "its holder gave it back",
  closed: "its holder closed the session",
  expired: "no keep-alive came for a TTL, so its session ran out",
  revoked: "an operator revoked it",
  evicted: "an operator ended its session",
  transferred: "its holder handed it over",
};

const HOW_BELIEF_ENDED = {
  released: "it gave the lease back",
  transferred: "it handed the lease over",
  closed: "it closed its session",
  window: "its own window ran out",
  told: "the cluster told it",
  refused: "a guard refused it",
  killed: "its process was killed",
};

function opTitle(run, op) {
  if (!op.writes) return op.kind;
  if (op.stale) return op.outcome === "ok" ? "stale " + op.kind + " ADMITTED" : "stale " + op.kind + " refused";
  return op.outcome === "ok" ? op.kind + " admitted" : op.kind + (op.outcome === "unknown" ? ", outcome unknown" : " refused");
}

function opSentence(run, op) {
  const who = run.clients[op.client];
  const lease = op.lease >= 0 ? run.leases[op.lease] : null;
  const with_ = op.token ? ` with token ${tokenName(op.token)}` : "";
  if (op.writes) {
    const store = run.guards[op.guard].store;
    const did = op.kind === "advance" ? "raised the mark of" : "wrote to";
    const head = `${who} ${op.stale || op.outcome !== "ok" ? "tried: it " : ""}${did} ${store}, guarded by ${lease},${with_}.`;
    if (op.outcome === "unknown") return head + " No answer came: it may have taken effect or not.";
    if (op.stale && op.outcome === "ok") return head + ` The store had seen ${tokenName(op.mark)}, and let it pass. This must never happen.`;
    if (op.stale) return head + ` The store had already seen ${tokenName(op.mark)}: refused, nothing was changed.`;
    if (op.outcome === "refused") return head + " Refused.";
    return head + (op.mark && op.mark < op.token ? ` The store had seen ${tokenName(op.mark)} until then: admitted, and from now on it refuses less than ${tokenName(op.token)}.` : " Admitted.");
  }
  const object = lease ? ` ${lease}` : "";
  if (op.outcome === "unknown") return `${who} asked: ${op.kind}${object}${with_}. No answer came: it may have taken effect or not.`;
  if (op.outcome === "refused") return `${who} asked: ${op.kind}${object}${with_}. Refused.`;
  return `${who}: ${op.kind}${object}${with_}. Done.`;
}

function faultOf(run, fault) {
  const whom = [...fault.nodes.map((node) => run.nodes[node]), ...fault.clients.map((client) => run.clients[client])];
  return { whom: whom.join(", "), span: lasted(fault.to - fault.from) };
}

// What happened around a stale write, in order. Each step has a time, a place (a lane, and a row of
// it) and a sentence; the timeline draws the numbers where the panel tells them.
function storyOf(run, write) {
  const old = run.grantOf.get(write.token);
  const lease = write.lease;
  const [who, name] = [run.clients[write.client], run.leases[lease]];
  const mark = run.grantOf.get(write.mark);
  const raised = run.marks[write.guard]?.find((seen) => seen.token >= write.mark);
  const steps = [];
  const add = (at, lane, row, text, extra = {}) => steps.push({ at, lane, row, text, order: steps.length, ...extra });

  if (old) add(old.from, ["client", write.client], "granted", [who, " is granted ", name, " with ", { token: old.token }, "."]);
  const belief = run.beliefOf.get(write.token + "/" + write.client);
  const began = old?.from ?? write.start - 1e6;
  const faults = faultsAround(run, write, began);
  for (const fault of faults) add(fault.from, faultLane(fault, write), "fault", faultText(run, fault));
  const sleep = faults.find((fault) => fault.kind === "pause" && fault.clients.includes(write.client));
  const knew = belief && belief.to <= write.start && !(sleep && sleep.to >= belief.to);
  // A grant that its holder ended is described where it ends.
  if (knew && ["window", "told", "refused"].includes(belief.how)) {
    const why = belief.how === "window" ? "’s own window runs out" : ` stops believing: ${HOW_BELIEF_ENDED[belief.how]}`;
    add(belief.to, ["client", write.client], "believed", [who, why, ". It must not write any more."]);
  }
  if (old && old.to !== FOREVER) {
    add(old.to, ["lease", lease], "held", [who, "’s grant ends: ", CAUSES[old.cause] ?? "nobody saw why", "."]);
  }
  tellSuccessors(run, { write, old, mark, add });
  if (raised && raised.from <= moment(write) && raised.op.token === raised.token && raised.op.outcome === "ok") {
    const by = run.clients[raised.op.client];
    add(raised.from, ["lease", lease], "mark", [by, raised.op.kind === "advance" ? " shows " : " writes with ", { token: raised.token }, ` to ${run.guards[write.guard].store}: from now on it refuses less.`]);
  }
  const wakes = sleep && write.start >= sleep.to;
  const how = wakes ? " wakes. It knows of nothing that happened since, and writes with " : knew ? " does not look whether it may, and writes with " : ", which does not know, writes with ";
  add(write.start, ["client", write.client], "calls", [who, how, { token: write.token }, "."]);
  add(moment(write), ["lease", lease], "mark", verdictText(run, write), { refusal: true });
  return steps.sort((a, b) => a.at - b.at || a.order - b.order);
}

function verdictText(run, write) {
  const compare = [{ token: write.token }, " is less than ", { token: write.mark }];
  if (write.outcome === "ok") return ["The store had seen ", { token: write.mark }, " and let the write pass all the same: ", ...compare, ". A broken promise."];
  return ["The guard compares: ", ...compare, ". Refused, and nothing was changed."];
}

// The grants between the old one and the mark: all of them if they are few.
function tellSuccessors(run, { write, old, mark, add }) {
  const later = run.byLease[write.lease].filter((grant) => grant.token > write.token && grant.token <= write.mark);
  const told = later.length <= 2 ? later : [later[0], later[later.length - 1]];
  told.forEach((grant, nth) => {
    const skipped = later.length > 2 && nth === 1 ? [` after ${plural(later.length - 2, "more grant")}`] : [];
    const same = grant.client === write.client ? ", the same client anew," : "";
    add(grant.from, ["lease", write.lease], "held", [run.clients[grant.client], same, " is granted the lease with ", { token: grant.token }, ...skipped, nth === 0 ? ": tokens only grow." : "."]);
  });
  if (!mark && write.mark && told.length === 0) {
    add(old && old.to !== FOREVER ? old.to : write.start, ["lease", write.lease], "held", ["A later grant had ", { token: write.mark }, "."]);
  }
}

// What went wrong for this client, or with the leader, while it could matter.
function faultsAround(run, write, began) {
  const near = run.faults.filter((fault) => fault.from < write.start && fault.to > began);
  const own = near.filter((fault) => fault.clients.includes(write.client));
  // A leader that goes gives every session one fresh TTL, so it explains a late end: but not more
  // than one, and rather one that began after the grant.
  const end = run.grantOf.get(write.token)?.to ?? write.start;
  const leading = (fault, node) => run.elections.some((role) => (
    role.node === node && role.from <= fault.from + 1e5 && role.to >= fault.from - 1e5));
  const leaders = near.filter((fault) => (
    !own.includes(fault) && fault.from < end && fault.nodes.some((node) => leading(fault, node))));
  const one = leaders.find((fault) => fault.from >= began) ?? leaders[leaders.length - 1];
  return one ? [...own.slice(0, 3), one] : own.slice(0, 3);
}

function faultLane(fault, write) {
  return fault.clients.includes(write.client) ? ["client", write.client] : fault.nodes.length ? ["node", fault.nodes[0]] : ["client", fault.clients[0]];
}

function faultText(run, fault) {
  const { whom, span } = faultOf(run, fault);
  const told = fault.text || `${whom}: ${fault.label}`;
  return [told.replace(/\.$/, ""), fault.to === FOREVER ? ", until the run ends." : `; until ${seconds(fault.to)}, for ${span}.`];
}

function plain(run, parts) {
  return parts.map((part) => (typeof part === "string" ? part : "token " + tokenName(part.token))).join("");
}

// The stale write to begin with: one that got through, or the accident that guards are for, a holder
// that was stopped and is stale; else the first.
function mostTelling(run) {
  const lost = (op) => ["expired", "evicted", "revoked"].includes(run.grantOf.get(op.token)?.cause);
  const slept = (op) => run.faultsOfClient[op.client].items.some((fault) => (
    fault.kind === "pause" && fault.from < op.start && fault.to > (run.grantOf.get(op.token)?.from ?? op.start)));
  const cut = (op) => run.faultsOfClient[op.client].items.some((fault) => (
    fault.from < op.start && fault.to > (run.grantOf.get(op.token)?.from ?? op.start)));
  const tests = [(op) => op.outcome === "ok", (op) => lost(op) && slept(op), (op) => lost(op) && cut(op), lost];
  const found = tests.map((test) => run.stale.findIndex(test)).find((nth) => nth >= 0);
  return found ?? 0;
}
