// Elements, and what keeps them: nothing here is ever made from text that is taken
// for HTML.

// make builds an element: attributes, then children, texts among them.
export function make(name, attrs = {}, ...children) {
  const el = name.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attrs)) {
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (value === true) el.setAttribute(key, "");
    else if (value !== false && value != null) el.setAttribute(key, value);
  }
  el.append(...children.filter((c) => c != null));
  return el;
}

export const find = (selector, within = document) => within.querySelector(selector);

// say sets a text, but only where it is another: what is read out or selected stays.
export function say(el, text) {
  text = String(text ?? "");
  if (el.textContent !== text) el.textContent = text;
}

// table keeps a table's rows by key, so that focus and selection outlive a refresh.
// Columns are {name, cell(item) → text or node, sort}; a cell is redrawn when the
// text that mark gives, or its own, is another.
export function table(el, caption, columns) {
  const body = make("tbody");
  el.replaceChildren(make("caption", {}, caption), make("thead", {}, make("tr", {}, ...columns.map((c) => make("th", { scope: "col", class: c.kind }, c.name)))), body);
  const rows = new Map();
  return function show(list, key, empty = "none") {
    const seen = new Set();
    let at = 0;
    for (const item of list) {
      const id = key(item);
      seen.add(id);
      let row = rows.get(id);
      if (!row) {
        row = make("tr", {}, ...columns.map((c, i) => make(i === 0 ? "th" : "td", { "data-name": c.name, class: c.kind, scope: i === 0 ? "row" : null })));
        row.marks = [];
        rows.set(id, row);
      }
      columns.forEach((c, i) => fillCell(row, i, c, item));
      if (body.children[at] !== row) body.insertBefore(row, body.children[at] || null);
      at++;
    }
    for (const [id, row] of rows) {
      if (!seen.has(id)) {
        row.remove();
        rows.delete(id);
      }
    }
    const none = find("tr.none", body);
    if (list.length) none?.remove();
    else if (!none) body.append(make("tr", { class: "none" }, make("td", { colspan: columns.length }, empty)));
  };
}

function fillCell(row, i, column, item) {
  const mark = column.mark ? column.mark(item) : null;
  if (mark !== null && row.marks[i] === mark) return;
  row.marks[i] = mark;
  const what = column.cell(item);
  if (what instanceof Node) row.children[i].replaceChildren(what);
  else say(row.children[i], what);
}
