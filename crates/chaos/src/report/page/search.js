// Finds leases, tokens, clients and nodes by what is typed.

const MOST_FOUND = 12;

function find(run, wanted, go) {
  const text = wanted.trim().toLowerCase();
  if (text === "") return [];
  const found = [];
  const number = /^(?:token\s*)?#?(\d+)$/.exec(text);
  if (number) {
    const digits = number[1];
    const called = run.grants.filter((grant) => String(grant.token) === digits || tokenName(grant.token) === "#" + digits);
    const ends = run.grants.filter((grant) => !called.includes(grant) && String(grant.token).endsWith(digits));
    for (const grant of [...called, ...ends].slice(0, MOST_FOUND)) found.push(foundGrant(run, grant, go));
  }
  run.leases.forEach((name, lease) => {
    if (!name.toLowerCase().includes(text)) return;
    found.push({ title: name, more: `lease, ${plural(run.byLease[lease].length, "grant")}`, open: () => go.lease(lease) });
  });
  for (const [kind, names] of [["client", run.clients], ["node", run.nodes]]) {
    names.forEach((name, id) => {
      if (name.toLowerCase().includes(text)) found.push({ title: name, more: kind, open: () => go.lane(kind, id) });
    });
  }
  return found.slice(0, MOST_FOUND);
}

function foundGrant(run, grant, go) {
  return {
    title: `token ${tokenInFull(grant.token)}`,
    more: `${run.leases[grant.lease]}, held by ${clientName(run, grant.client)}, ${seconds(grant.from)} to ${seconds(grant.to)}`,
    open: () => go.token(grant.token),
  };
}

function searchBox(run, go) {
  const [input, list] = [byId("search"), byId("found")];
  let [found, chosen] = [[], 0];
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const render = () => {
    list.replaceChildren(...found.map((one, nth) => {
      const item = h("li", { role: "option", id: "found-" + nth, "aria-selected": String(nth === chosen) }, one.title, h("small", {}, one.more));
      item.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        pick(nth);
      });
      return item;
    }));
    if (found.length === 0) list.replaceChildren(h("li", { "aria-disabled": "true" }, "Nothing of that name or number."));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    if (found.length) input.setAttribute("aria-activedescendant", "found-" + chosen);
  };
  const pick = (nth) => {
    if (!found[nth]) return;
    close();
    input.value = "";
    byId("lanes").focus({ preventScroll: true });
    found[nth].open();
  };
  input.addEventListener("input", () => {
    [found, chosen] = [find(run, input.value, go), 0];
    if (input.value.trim() === "") close(); else render();
  });
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.min(Math.max(chosen + (event.key === "ArrowDown" ? 1 : -1), 0), Math.max(found.length - 1, 0));
      render();
    } else if (event.key === "Enter") {
      pick(chosen);
    } else if (event.key === "Escape") {
      close();
      byId("lanes").focus();
    }
  });
  input.addEventListener("blur", close);
}
