// The page: its head, its views by the fragment of the address, and when they look again.

const REFRESH_EVERY = 2000;
// However much happens, the view looks again at most this often.
const REFRESH_AT_MOST = 500;

const VIEWS = { cluster: clusterView, leases: leasesView, lease: leaseView, sessions: sessionsView, ends: endsView };

const page = { cluster: null, view: null, looking: false, again: false, soon: null, last: 0, isRefused: false };

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
  look();
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

// One look at a time: a node that is slow is not asked more often for it.
async function look() {
  if (page.looking) {
    page.again = true;
    return;
  }
  page.looking = true;
  page.last = Date.now();
  const view = page.view;
  try {
    page.cluster = await read("cluster");
    head(page.cluster);
    await view.refresh();
    page.isRefused = false;
    notice(null);
  } catch (why) {
    // A caller that has shown nothing is refused by a rule.
    const needsToken = why instanceof Refused && (why.status === 401 || (why.status === 403 && !credential));
    if (needsToken) byId("signing").hidden = false;
    page.isRefused = why instanceof Refused && why.status < 500;
    if (!(why instanceof Refused)) {
      byId("verdict").className = "bad";
      setText(byId("verdict"), "No answer");
    }
    notice(why instanceof Refused ? why.message : "This node does not answer; the page asks again.");
  }
  page.looking = false;
  if (view === page.view) document.documentElement.dataset.state = "ready";
  if (page.again) {
    page.again = false;
    refreshSoon();
  }
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
    look();
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
    // What was refused is asked for again when the view or the token changes, or on a reload.
    if (!document.hidden && !page.isRefused) look();
  }, REFRESH_EVERY);
}

listen();
open();
follow(fromNow, heard, live);
