// The run as it was recorded: decoded once, indexed for drawing and for telling.
// Times are microseconds since the run began.

const FOREVER = Infinity;

function decode(raw) {
  const run = {
    ...raw,
    grants: raw.grants.map(([lease, token, client, from, to, cause], id) => (
      { id, lease, token, client, from, to: to < 0 ? FOREVER : to, cause })),
    beliefs: raw.beliefs.map(([client, lease, token, from, to, how]) => (
      { client, lease, token, from, to: to < 0 ? FOREVER : to, how })),
    roles: raw.roles.map(([node, from, to, role, term]) => (
      { node, from, to: to < 0 ? FOREVER : to, role, term })),
    faults: raw.faults.map((fault, id) => ({ ...fault, id, to: fault.to < 0 ? FOREVER : fault.to })),
    ops: decodeOps(raw),
  };
  run.grantOf = new Map(run.grants.map((grant) => [grant.token, grant]));
  run.beliefOf = new Map(run.beliefs.map((belief) => [belief.token + "/" + belief.client, belief]));
  run.byClient = run.clients.map((_, client) => sequence(run.ops.filter((op) => op.client === client)));
  run.byLease = run.leases.map((_, lease) => (
    run.grants.filter((grant) => grant.lease === lease).sort((a, b) => a.token - b.token)));
  run.byLease.forEach((grants) => grants.forEach((grant, nth) => { grant.nth = nth; }));
  run.marks = run.guards.map((guard, id) => marksOf(run, guard, id));
  run.stale = run.ops.filter((op) => op.stale).sort((a, b) => moment(a) - moment(b));
  run.refused = run.stale.filter((op) => op.outcome !== "ok");
  run.staleOf = run.clients.map((_, client) => run.stale.filter((op) => op.client === client));
  run.faultsOfClient = run.clients.map((_, client) => sequence(run.faults.filter((fault) => fault.clients.includes(client))));
  run.faultsOfNode = run.nodes.map((_, node) => sequence(run.faults.filter((fault) => fault.nodes.includes(node))));
  run.tracks = run.clients.map((_, client) => tracksOf(run, client));
  run.roleOf = run.nodes.map((_, node) => run.roles.filter((role) => role.node === node));
  run.elections = run.roles.filter((role) => role.role === "leader").sort((a, b) => a.from - b.from);
  return run;
}

// Columns keep a hundred thousand operations small; starts are differences.
function decodeOps(raw) {
  const columns = raw.ops;
  const ops = new Array(columns.start.length);
  let start = 0;
  for (let id = 0; id < ops.length; id += 1) {
    start += columns.start[id];
    const took = columns.took[id];
    const outcome = ["ok", "refused", "unknown"][columns.outcome[id] & 3];
    const guard = columns.guard[id];
    ops[id] = {
      id,
      client: columns.client[id],
      kind: raw.kinds[columns.kind[id]],
      start,
      end: took < 0 ? FOREVER : start + took,
      outcome,
      stale: (columns.outcome[id] & 4) !== 0,
      copyTook: (columns.outcome[id] & 8) !== 0,
      lease: columns.lease[id],
      token: columns.token[id],
      mark: columns.mark[id],
      guard,
      text: raw.texts[columns.text[id]],
      writes: guard >= 0,
    };
  }
  return ops;
}

// When an operation is drawn as a mark: its answer, or its start if none came.
function moment(op) {
  return op.end === FOREVER ? op.start : op.end;
}

// Sorted items with the greatest end so far, so that what overlaps a window is found by halving.
function sequence(items) {
  const sorted = items.slice().sort((a, b) => (a.start ?? a.from) - (b.start ?? b.from));
  const starts = Float64Array.from(sorted, (item) => item.start ?? item.from);
  const reach = new Float64Array(sorted.length);
  let greatest = -Infinity;
  sorted.forEach((item, at) => {
    const end = item.end === FOREVER && item.start !== undefined ? item.start : (item.end ?? item.to);
    greatest = Math.max(greatest, end);
    reach[at] = greatest;
  });
  return { items: sorted, starts, reach };
}

// The first position whose value is at least `wanted`.
function lowerBound(values, wanted, from = 0) {
  let [low, high] = [from, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

// What the store had seen, and from when on: raised by admitted writes, or seen in a refusal.
function marksOf(run, guard, id) {
  const seen = run.ops
    .filter((op) => op.guard === id && op.end !== FOREVER && (op.outcome === "ok" || op.mark > 0))
    .map((op) => ({ at: op.end, token: op.outcome === "ok" && !op.stale ? op.token : op.mark, op }))
    .sort((a, b) => a.at - b.at);
  const marks = [];
  for (const { at, token, op } of seen) {
    const last = marks[marks.length - 1];
    if (last && token <= last.token) continue;
    if (last) last.to = at;
    marks.push({ from: at, to: FOREVER, token, op, lease: guard.lease, guard: id, kind: "mark" });
  }
  return marks;
}

// A client's grants with what it believed of each, and how long it went on with the token after
// both; on as many rows as are open at once.
function tracksOf(run, client) {
  const byToken = new Map();
  const track = (token, lease) => {
    if (!byToken.has(token)) byToken.set(token, { token, lease, client, kind: "tenure", grant: null, belief: null, acts: null });
    return byToken.get(token);
  };
  for (const grant of run.grants) if (grant.client === client) track(grant.token, grant.lease).grant = grant;
  for (const belief of run.beliefs) if (belief.client === client) track(belief.token, belief.lease).belief = belief;
  for (const op of run.ops) {
    const tenure = op.writes && op.client === client && byToken.get(op.token);
    if (tenure && op.start > (tenure.belief?.to ?? -1)) tenure.acts = Math.max(tenure.acts ?? 0, moment(op));
  }
  const tenures = [...byToken.values()];
  for (const tenure of tenures) {
    const { grant, belief } = tenure;
    tenure.from = Math.min(grant?.from ?? FOREVER, belief?.from ?? FOREVER);
    tenure.until = Math.max(grant?.to ?? 0, belief?.to ?? 0, tenure.from);
    tenure.to = Math.max(tenure.until, tenure.acts ?? 0);
  }
  return tenures.sort((a, b) => a.from - b.from);
}

// Items on rows such that none overlaps another of its row before its `until`; at most `limit` rows.
function rowsOf(items, limit) {
  const rows = [];
  for (const item of items) {
    let row = rows.find((candidate) => candidate.to <= item.from);
    if (!row && rows.length < limit) {
      row = { to: 0, items: [] };
      rows.push(row);
    }
    // More than can be shown at once share the last row; the lane says so.
    row ??= rows[rows.length - 1];
    row.to = Math.max(row.to, item.until ?? item.to);
    row.items.push(item);
  }
  return rows.map((row) => sequence(row.items));
}
