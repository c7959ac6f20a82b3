// Which lanes there are, in which order, and how high each row of them is.

const AXIS_HEIGHT = 26;
const LANE_GAP = 9;
const MOST_TRACKS = 3;
const MOST_STRETCH = 1.35;
const MOST_FAULT_ROWS = 4;

// The lanes of the whole run, or of one story: the fewer there are, the sooner they are understood.
function laneList(run, focus) {
  const lanes = [];
  const wanted = (kind, id) => !focus || focus[kind].has(id);
  const leases = run.leases.map((_, id) => id).filter((id) => wanted("leases", id));
  const shown = (item) => !focus || focus.leases.size === 0 || focus.leases.has(item.lease);

  const faults = run.faults.filter((fault) => (
    !focus || fault.clients.some((id) => focus.clients.has(id)) || fault.nodes.some((id) => focus.nodes.has(id))));
  if (faults.length > 0) lanes.push(faultsLane(faults));
  for (const lease of leases) lanes.push(leaseLane(run, lease));
  for (const client of byImportance(run, focus)) lanes.push(clientLane(run, client, shown));
  run.nodes.forEach((name, node) => { if (wanted("nodes", node)) lanes.push(nodeLane(run, node, name)); });

  return lanes;
}

// Gives each lane its place. Few lanes share the height that there is, up to a limit.
function place(lanes, room) {
  const wanted = lanes.reduce((sum, lane) => (
    sum + LANE_GAP + lane.rows.reduce((rows, row) => rows + row.tall + (row.gap ?? 3), 0)), 6);
  const stretch = Math.min(Math.max(room / wanted, 1), MOST_STRETCH);
  let top = 0;
  for (const lane of lanes) {
    lane.top = top;
    let y = 0;
    for (const row of lane.rows) {
      row.top = y;
      row.height = Math.floor(row.tall * stretch);
      y += row.height + (row.gap ?? 3);
    }
    lane.height = y + LANE_GAP;
    top += lane.height;
  }
  return { lanes, height: top + 6 };
}

// In a story the old holder stands above the new one; else clients have the order of their names.
function byImportance(run, focus) {
  const all = run.clients.map((_, id) => id);
  if (!focus) return all;
  const first = focus.order ?? [];
  return all.filter((id) => focus.clients.has(id)).sort((a, b) => {
    const [x, y] = [first.indexOf(a), first.indexOf(b)];
    return (x < 0 ? 1e6 : x) - (y < 0 ? 1e6 : y) || a - b;
  });
}

function faultsLane(faults) {
  const rows = rowsOf(faults.map((fault) => ({ ...fault, fault })).sort((a, b) => a.from - b.from), MOST_FAULT_ROWS);
  return {
    kind: "faults", id: 0, title: "Faults",
    rows: rows.map((items) => ({ name: "fault", tall: 17, items, gap: 2 })),
  };
}

function leaseLane(run, lease) {
  const rows = [{ name: "held", caption: "held by", tall: 24, items: sequence(run.byLease[lease]) }];
  run.guards.forEach((guard, id) => {
    if (guard.lease === lease) rows.push({ name: "mark", guard: id, caption: guard.store + " saw", tall: 17, items: sequence(run.marks[id]) });
  });
  return { kind: "lease", id: lease, title: run.leases[lease], rows };
}

function clientLane(run, client, shown) {
  const tenures = run.tracks[client].filter(shown);
  const rows = [];
  rowsOf(tenures, MOST_TRACKS).forEach((items, nth) => {
    rows.push({ name: "believed", caption: nth ? "" : "believes", tall: 19, gap: 1, items, nth });
    rows.push({ name: "granted", caption: nth ? "" : "granted", tall: 9, gap: 5, items, nth });
  });
  const { items } = run.byClient[client];
  const calls = items.filter((op) => op.lease < 0 || shown(op));
  rows.push({ name: "calls", caption: "calls", tall: 22, client, shown, items: calls.length === items.length ? run.byClient[client] : sequence(calls) });
  return { kind: "client", id: client, title: run.clients[client], rows };
}

function nodeLane(run, node, title) {
  return { kind: "node", id: node, title, rows: [{ name: "role", tall: 20, items: sequence(run.roleOf[node]) }] };
}

// The lanes that a stale write's story needs.
function focusOf(run, write, steps) {
  const focus = { leases: new Set([write.lease]), clients: new Set([write.client]), nodes: new Set(), order: [write.client] };
  const later = run.byLease[write.lease].filter((grant) => grant.token > write.token && grant.token <= write.mark);
  for (const grant of [later[0], later[later.length - 1]]) {
    if (grant) focus.clients.add(grant.client);
  }
  for (const { lane: [kind, id] } of steps) {
    if (kind === "client") focus.clients.add(id);
    if (kind === "node") focus.nodes.add(id);
  }
  const [from, to] = [steps[0]?.at ?? write.start, moment(write)];
  for (const role of run.elections) if (role.from <= to && role.to >= from && focus.nodes.size < 3) focus.nodes.add(role.node);
  return focus;
}

function laneAt(layout, kind, id) {
  return layout.lanes.find((lane) => lane.kind === kind && lane.id === id);
}

// The middle of a row, from the top of the first lane; the lane's own middle if it has no such row.
function rowMiddle(lane, name, guard) {
  const row = lane.rows.find((candidate) => candidate.name === name && (guard === undefined || candidate.guard === undefined || candidate.guard === guard));
  return row ? lane.top + row.top + row.height / 2 : lane.top + (lane.height - LANE_GAP) / 2;
}
