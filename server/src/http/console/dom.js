// Elements from data. Names, identities and reasons are hostile texts: they become text nodes and
// values of attributes, and never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

const byId = (id) => document.getElementById(id);

// Changes a node only if it has to be changed, so that focus and selection stay.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A table whose rows keep their identity between two looks: `cells` makes the nodes of a row, and a row
// whose texts are the same as before is left alone.
function table(columns, caption) {
  const heads = columns.map((column) => el("th", { scope: "col" }, column));
  const body = el("tbody");
  const title = el("caption", null, caption ?? "");
  const node = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": columns[0] }, el("table", null, title, el("thead", null, el("tr", null, ...heads)), body));
  const rows = new Map();
  return {
    node,
    caption: (text) => setText(title, text),
    show(items, key, cells) {
      const wanted = new Set(items.map(key));
      for (const [name, row] of rows) {
        if (!wanted.has(name)) {
          row.node.remove();
          rows.delete(name);
        }
      }
      let before = null;
      for (const item of items) {
        const name = key(item);
        const made = cells(item).map((cell) => (cell?.nodeName === "TD" ? cell : el("td", null, cell ?? "–")));
        const print = made.map((cell) => cell.outerHTML).join();
        const known = rows.get(name);
        const node = known?.node ?? el("tr");
        if (known?.print !== print) {
          replaceCells(node, made);
          rows.set(name, { node, print });
        }
        const place = before ? before.nextSibling : body.firstChild;
        if (place !== node) body.insertBefore(node, place);
        before = node;
      }
    },
  };
}

// Cell by cell: one that has the focus in it, and is the same, stays.
function replaceCells(row, made) {
  if (row.children.length !== made.length) {
    row.replaceChildren(...made);
    return;
  }
  made.forEach((cell, nth) => {
    const old = row.children[nth];
    if (old.outerHTML !== cell.outerHTML) old.replaceWith(cell);
  });
}

function facts(pairs) {
  const cards = pairs.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value)));
  return el("dl", { class: "cards" }, ...cards);
}
