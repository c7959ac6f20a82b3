// The page: its head, its views by the fragment of the address, and when they look again.

const REFRESH_EVERY = 2000;
// However much happens, the view looks again at most this often.
const REFRESH_AT_MOST = 500;

const VIEWS = { cluster: clusterView, leases: leasesView, lease: leaseView, sessions: sessionsView, ends: endsView };

const page = { cluster: null, view: null, looking: false, again: false, soon: null, last: 0 };

// What is read for the head, and for the view: why it failed the last time, and when it is asked for again.
const reads = { head: { why: null, due: 0 }, view: { why: null, due: 0 } };

// `#leases?prefix=a`, or `#lease=NAME`.
function address() {
  const text = location.hash.slice(1);
  if (text.startsWith("lease=")) return ["lease", new URLSearchParams(text.replaceAll("+", "%2B"))];
  const [name, query] = text.split("?", 2);
  return [name in VIEWS && name !== "lease" ? name : "cluster", new URLSearchParams(query ?? "")];
}

function open() {
  const [name, parameters] = address();
  const pane = byId("pane");
  pane.replaceChildren();
  page.view = VIEWS[name];
  page.view.start(pane, parameters);
  document.title = `${page.view.title} – Ringfence console`;
  for (const tab of document.querySelectorAll("#tabs a")) {
    const isHere = tab.dataset.view === (name === "lease" ? "leases" : name);
    if (isHere) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  document.documentElement.dataset.state = "loading";
  askAgain(reads.view);
}

function notice(text) {
  byId("notice").hidden = !text;
  setText(byId("notice"), text ?? "");
}

function head(cluster) {
  const [kind, verdict, reason] = judge(cluster);
  byId("verdict").className = kind;
  setText(byId("verdict"), verdict);
  setText(byId("title"), `Ringfence, by node ${cluster.name}`);
  setText(byId("reason"), reason);
  const shown = [
    ["voters", count(cluster.members.filter((member) => member.voter).length)],
    ["sessions", count(cluster.sessions)],
    ["lease names", count(cluster.leases)],
  ];
  byId("figures").replaceChildren(...shown.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

// The head of a caller that may not read the cluster, or of a node that does not answer.
function headless(why) {
  const refused = why instanceof Refused && why.status < 500;
  page.cluster = null;
  byId("verdict").className = refused ? "unknown" : "bad";
  setText(byId("verdict"), refused ? "Not shown" : "No answer");
  setText(byId("reason"), refused ? why.message : "What stands below is from before.");
  byId("figures").replaceChildren();
}

// One read. What is refused is left alone for a while, since each try counts as one more refusal; the
// other read goes on meanwhile.
async function attempt(what, reading) {
  if (Date.now() < what.due) return;
  try {
    await reading();
    [what.why, what.due] = [null, 0];
  } catch (why) {
    const refused = why instanceof Refused && why.status < 500;
    [what.why, what.due] = [why, refused ? Date.now() + REFUSED_RETRY_AFTER : 0];
  }
}

// One look at a time: a node that is slow is not asked more often for it.
async function look() {
  if (page.looking) {
    page.again = true;
    return;
  }
  page.looking = true;
  page.last = Date.now();
  const view = page.view;
  await attempt(reads.head, async () => {
    page.cluster = await read("cluster");
    head(page.cluster);
  });
  if (reads.head.why) headless(reads.head.why);
  await attempt(reads.view, () => view.refresh());
  page.looking = false;
  if (view === page.view) settle();
  if (page.again) {
    page.again = false;
    refreshSoon();
  }
}

// What the look has come to.
function settle() {
  const whys = [reads.head.why, reads.view.why].filter((why) => why !== null);
  const isRefusal = (why) => why instanceof Refused;
  // A caller that has shown nothing is refused by a rule.
  const needsToken = (why) => isRefusal(why) && (why.status === 401 || (why.status === 403 && !credential));
  if (whys.some(needsToken)) byId("signing").hidden = false;
  const silent = whys.some((why) => !isRefusal(why));
  notice(silent ? "This node does not answer; the page asks again." : whys[0]?.message);
  // What the caller may not see any more is not shown as if it still were so.
  const why = reads.view.why;
  byId("pane").classList.toggle("refused", isRefusal(why) && why.status < 500);
  document.documentElement.dataset.state = "ready";
}

// Looks at once, also for what was refused.
function askAgain(...what) {
  for (const one of what) one.due = 0;
  look();
}

function refreshSoon() {
  if (page.soon) return;
  const wait = Math.max(0, page.last + REFRESH_AT_MOST - Date.now());
  page.soon = setTimeout(() => {
    page.soon = null;
    look();
  }, wait);
}

function heard(event) {
  remember(event);
  if (page.view.concerns?.(event)) refreshSoon();
}

function live(isLive, text) {
  byId("live").className = isLive ? "good" : "";
  setText(byId("live"), isLive ? text : "not live");
  byId("live").title = text;
}

async function fromNow() {
  const cluster = await read("cluster");
  if (!cluster.cluster) throw new Refused(503, "the cluster is not formed yet");
  return `${cluster.cluster}.${cluster.index}.0`;
}

function wear(theme) {
  document.documentElement.dataset.theme = theme;
}

function listen() {
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  wear(preferred.matches ? "dark" : "light");
  preferred.addEventListener("change", () => wear(preferred.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => wear(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  byId("sign").addEventListener("click", () => {
    byId("signing").hidden = !byId("signing").hidden;
    if (!byId("signing").hidden) byId("token").focus();
  });
  byId("signing").addEventListener("submit", (event) => {
    event.preventDefault();
    useCredential(byId("token").value.trim());
    byId("token").value = "";
    byId("signing").hidden = true;
    askAgain(reads.head, reads.view);
  });
  byId("forget").addEventListener("click", () => {
    useCredential(null);
    // What was read with it goes with it.
    location.reload();
  });
  addEventListener("hashchange", open);
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement?.tagName)) {
      const search = byId("prefix");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });
  setInterval(() => {
    if (!document.hidden) look();
  }, REFRESH_EVERY);
}

listen();
open();
follow(fromNow, heard, live);
