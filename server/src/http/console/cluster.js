// The cluster: its members, how far each has come, their disks, and the node that serves the page.

// As many entries may be on their way to a voter that has caught up.
const CAUGHT_UP_WITHIN = 1000;

const lagOf = (cluster, member) => {
  if (member.matched_index === undefined) return null;
  return Math.max(0, cluster.last_log_index - member.matched_index);
};

// Heartbeats are answered many times a second.
const HEARD_WITHIN_MS = 2000;
const UNHEARD_FROM_MS = 5000;

function diskOf(condition) {
  if (!condition) return "unknown";
  if (condition.no_room) return "NO ROOM: it takes no entries";
  if (condition.last_fsync_us === undefined) return condition.version ? "has room" : "unknown";
  return `has room, fsync ${(condition.last_fsync_us / 1000).toFixed(1)} ms`;
}

function heardOf(condition) {
  if (!condition) return "unknown";
  return condition.age_ms < HEARD_WITHIN_MS ? "now" : `${span(condition.age_ms)} ago`;
}

function judge(cluster) {
  if (!cluster.cluster) return ["unknown", "Forming", "The cluster is not formed yet."];
  if (cluster.silence || !cluster.leader) return silent(cluster);
  const leader = cluster.members.find((member) => member.node === cluster.leader);
  const voters = cluster.members.filter((member) => member.voter);
  const lags = voters.map((member) => lagOf(cluster, member));
  const behind = lags.filter((lag) => lag !== null && lag > CAUGHT_UP_WITHIN).length;
  const led = `${leader?.name ?? `node ${cluster.leader}`} leads term ${cluster.term}`;
  if (cluster.quiet_ms) return ["unknown", "Quiet time", `${led}; nothing is granted for ${span(cluster.quiet_ms)}.`];
  if (cluster.changing) return ["unknown", "Changing", `${led}; a change of the voters is under way.`];
  const isFull = (member) => member.condition?.no_room && member.condition.age_ms < HEARD_WITHIN_MS;
  const full = voters.filter(isFull).map((member) => member.name);
  if (full.length > 0) return ["unknown", "Disk full", `${led}; no room for more log at ${full.join(", ")}.`];
  // A member that the leader has not heard since it leads has no condition.
  const known = voters.some((member) => member.condition);
  const unheard = voters.filter((member) => known && !(member.condition?.age_ms < UNHEARD_FROM_MS)).map((member) => member.name);
  if (unheard.length > 0) return ["unknown", "Degraded", `${led} and does not hear ${unheard.join(", ")}. The others serve as long as they are a majority.`];
  if (behind > 0) return ["unknown", "Lagging", `${led}; ${behind} of ${voters.length} voters lack more than ${count(CAUGHT_UP_WITHIN)} entries.`];
  if (lags.some((lag) => lag === null)) return ["good", "Serving", `${led}; only the leader knows how far the voters are.`];
  return ["good", "Serving", `${led}; ${voters.length === 1 ? "it is the only voter" : `all ${voters.length} voters have caught up`}.`];
}

// No majority stands behind a leader, as far as this node knows.
function silent(cluster) {
  const stands = "No lease is granted or ended until a majority of the voters reach each other.";
  if (!cluster.silence) return ["bad", "No leader", `This node knows no leader now, and had one within the last two seconds. ${stands}`];
  const heard = cluster.silence.ms;
  const ago = heard === undefined || heard === null ? "since it started" : `for ${span(heard)}`;
  const known = cluster.members.find((member) => member.node === cluster.leader)?.name ?? `node ${cluster.leader}`;
  if (!cluster.leader) return ["bad", "No leader", `This node has heard no leader ${ago}. ${stands}`];
  if (cluster.leader === cluster.node) return ["bad", "No majority", `This node leads, and no majority has answered it ${ago}. ${stands}`];
  return ["bad", "No majority", `No majority has confirmed the leader ${known} ${ago}. ${stands}`];
}

const clusterView = {
  title: "Cluster",
  start(pane) {
    this.members = table(["Node", "Role", "Name", "Version", "Entries behind the leader", "Disk", "Heard", "Clients", "Other nodes"], "Members");
    this.facts = el("div");
    this.disk = el("div");
    pane.append(el("h2", null, "Cluster"), this.facts, this.members.node, el("h2", null, "This node"), this.disk);
  },
  async refresh() {
    // The head has read it, or says why not.
    const cluster = page.cluster;
    if (!cluster) return;
    this.facts.replaceChildren(
      facts([
        ["Cluster id", el("code", null, cluster.cluster ?? "–")],
        ["Level", `${cluster.level} of ${cluster.log_version} that this node knows`],
        ["Last token", count(cluster.last_token)],
        ["Cluster time", span(cluster.cluster_time_ms)],
      ]),
    );
    this.members.show(
      cluster.members,
      (member) => member.node,
      (member) => {
        const lag = lagOf(cluster, member);
        const role = member.node === cluster.leader ? (cluster.silence ? "last leader" : "leader") : member.voter ? "voter" : "learner";
        const behind = lag === null ? "unknown" : count(lag);
        const condition = member.condition;
        const name = el("td", { class: "wide" }, member.name);
        return [String(member.node), role, name, condition?.version ?? "unknown", behind, diskOf(condition), heardOf(condition), member.client_address, member.peer_address];
      },
    );
    const own = [
      ["Name", `${cluster.name} (node ${cluster.node}, ${cluster.role})`],
      ["Version", cluster.version],
      ["Applied index", count(cluster.index)],
    ];
    try {
      const all = await figures();
      const figure = (name) => all.get(`ringfence_${name}`);
      const full = figure("wal_no_room") === 1;
      own.push(
        ["Last fsync", span((figure("wal_fsync_last_seconds") ?? 0) * 1000)],
        ["Slowest fsync", span((figure("wal_fsync_max_seconds") ?? 0) * 1000)],
        ["Log", `${count(Math.round((figure("wal_live_bytes") ?? 0) / 1024))} KiB in ${count(figure("wal_segments"))} segments`],
        ["Room on the disk", full ? "NONE: this node takes no entries" : "yes"],
      );
    } catch (why) {
      own.push(["Disk", why.message]);
    }
    this.disk.replaceChildren(facts(own));
  },
};
