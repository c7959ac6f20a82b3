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

// Tokens of a lasting cluster have 16 digits of which the last few differ: bands show those.
const tokenWords = { digits: 0 };

function learnTokens(run) {
  const tokens = run.grants.map((grant) => grant.token);
  const greatest = Math.max(0, ...tokens.slice(0, 1), ...tokens.slice(-1));
  if (greatest < 1e7) return;
  const span = greatest - Math.min(...tokens.slice(0, 1), ...tokens.slice(-1));
  tokenWords.digits = Math.max(4, String(span).length + 1);
}

function shortToken(token) {
  const text = String(token);
  return tokenWords.digits && text.length > tokenWords.digits ? "…" + text.slice(-tokenWords.digits) : text;
}

const CAUSES = {
  released: "it was released",
  closed: "its holder closed the session",
  expired: "the session expired: no keep-alive had come for its TTL",
  revoked: "an operator revoked it",
  transferred: "it was handed over",
};

const HOW_BELIEF_ENDED = {
  released: "it gave the lease back",
  lost: "it heard of the loss",
  window: "its window ran out, and it knew",
  unaware: "its window ran out, and it did not look",
  closed: "it closed its session",
};

function opTitle(run, op) {
  if (!op.writes) return op.kind;
  if (op.stale) return op.outcome === "ok" ? "stale " + op.kind + " ADMITTED" : "stale " + op.kind + " refused";
  return op.outcome === "ok" ? op.kind + " admitted" : op.kind + (op.outcome === "unknown" ? ", outcome unknown" : " refused");
}

function opSentence(run, op) {
  const who = run.clients[op.client];
  const lease = op.lease >= 0 ? run.leases[op.lease] : null;
  const with_ = op.token ? ` with token ${op.token}` : "";
  if (op.writes) {
    const store = run.guards[op.guard].store;
    const did = op.kind === "advance" ? "raised the mark of" : "wrote to";
    const head = `${who} ${op.stale || op.outcome !== "ok" ? "tried: it " : ""}${did} ${store}, guarded by ${lease},${with_}.`;
    if (op.outcome === "unknown") return head + " No answer came: it may have taken effect or not.";
    if (op.stale && op.outcome === "ok") return head + ` The store had seen ${op.mark}, and let it pass. This must never happen.`;
    if (op.stale) return head + ` The store had already seen ${op.mark}: refused, nothing was changed.`;
    if (op.outcome === "refused") return head + " Refused.";
    return head + (op.mark && op.mark < op.token ? ` The store had seen ${op.mark} until then: admitted, and from now on it refuses less than ${op.token}.` : " Admitted.");
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
  for (const fault of faultsAround(run, write, began)) add(fault.from, faultLane(fault, write), "fault", faultText(run, fault));
  if (belief && belief.to < write.start && belief.how === "lost") {
    add(belief.to, ["client", write.client], "believed", [who, " hears of the loss, and does not care: it plays a process that never looks."]);
  }
  if (old && old.to !== FOREVER) {
    add(old.to, ["lease", lease], "held", [who, "’s grant ends: ", CAUSES[old.cause] ?? (old.cause || "cause unknown"), "."]);
  }
  tellSuccessors(run, { write, old, mark, add });
  if (raised && raised.from <= moment(write) && raised.op.token === raised.token && raised.op.outcome === "ok") {
    const by = run.clients[raised.op.client];
    add(raised.from, ["lease", lease], "mark", [by, raised.op.kind === "advance" ? " shows " : " writes with ", { token: raised.token }, ` to ${run.guards[write.guard].store} before anything else. From now on the store has seen `, { token: raised.token }, "."]);
  }
  const unaware = !belief || belief.how !== "lost";
  add(write.start, ["client", write.client], "calls", [who, unaware ? ", which does not know, writes with " : " writes with ", { token: write.token }, "."]);
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
    const skipped = later.length > 2 && nth === 1 ? [` (after ${plural(later.length - 2, "more grant")})`] : [];
    const same = grant.client === write.client ? ", the same client anew," : "";
    add(grant.from, ["lease", write.lease], "held", [run.clients[grant.client], same, " is granted the lease with ", { token: grant.token }, ...skipped, ". Tokens only grow."]);
  });
  if (!mark && write.mark && told.length === 0) {
    add(old && old.to !== FOREVER ? old.to : write.start, ["lease", write.lease], "held", ["A later grant had ", { token: write.mark }, "."]);
  }
}

// What went wrong for this client, or with the leader, while it could matter.
function faultsAround(run, write, began) {
  const near = run.faults.filter((fault) => fault.from < write.start && fault.to > began);
  const own = near.filter((fault) => fault.clients.includes(write.client));
  const leaders = near.filter((fault) => fault.nodes.some((node) => run.elections.some((role) => (
    role.node === node && role.from <= fault.from + 1e5 && role.to >= fault.from - 1e5))));
  return [...own, ...leaders.filter((fault) => !own.includes(fault))].slice(0, 3);
}

function faultLane(fault, write) {
  return fault.clients.includes(write.client) ? ["client", write.client] : fault.nodes.length ? ["node", fault.nodes[0]] : ["client", fault.clients[0]];
}

function faultText(run, fault) {
  const { whom, span } = faultOf(run, fault);
  const told = fault.text || `${whom}: ${fault.label}`;
  return [told.replace(/\.$/, ""), fault.to === FOREVER ? ", until the run ends." : `; over at ${seconds(fault.to)}, ${span} later.`];
}

function plain(run, parts) {
  return parts.map((part) => (typeof part === "string" ? part : "token " + part.token)).join("");
}
