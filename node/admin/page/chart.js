// Lines over the last minutes, with a mark where something happened. The picture is
// a minute wide at first, and grows to five.
import { make, say } from "./dom.js";

const longest = 300000, shortest = 60000; // milliseconds
const most = 8; // lines; colours that can be told apart
const edge = { left: 38, right: 8, top: 8, bottom: 18 };

// History keeps samples of named figures, the newest last.
export class History {
  times = [];
  figures = new Map(); // by name: one number or null for each time

  add(now, values) {
    this.times.push(now);
    for (const [name, value] of Object.entries(values)) {
      if (!this.figures.has(name)) this.figures.set(name, new Array(this.times.length - 1).fill(null));
      this.figures.get(name).push(value);
    }
    for (const list of this.figures.values()) if (list.length < this.times.length) list.push(null);
    const old = this.times.findIndex((t) => t >= now - longest - 2000);
    if (old <= 0) return;
    this.times.splice(0, old);
    for (const [name, list] of this.figures) {
      list.splice(0, old);
      if (list.every((v) => v === null)) this.figures.delete(name);
    }
  }
}

// chart draws a history into a figure; say what a value is called with format.
// Names keep their colours for as long as the page lives.
export function chart(figure, history, format) {
  const svg = make("svg:svg", { role: "img", "aria-label": figure.querySelector("figcaption").textContent });
  const legend = make("ul", { class: "legend" });
  figure.append(svg, legend);
  const colours = new Map();
  let pointed = null, drawn = [];
  svg.addEventListener("pointermove", (e) => { pointed = e.offsetX; draw(); });
  svg.addEventListener("pointerleave", () => { pointed = null; draw(); });

  function draw(marks = drawn) {
    drawn = marks;
    const width = svg.clientWidth, height = svg.clientHeight;
    if (!width) return;
    const names = chosen(history);
    const now = history.times.at(-1) ?? Date.now();
    const top = ceiling(Math.max(0, ...names.flatMap((n) => history.figures.get(n).filter((v) => v !== null))));
    const span = Math.min(longest, Math.max(shortest, now - (history.times[0] ?? now)));
    const x = (t) => edge.left + (1 - (now - t) / span) * (width - edge.left - edge.right);
    const y = (v) => height - edge.bottom - v / top * (height - edge.top - edge.bottom);
    const at = pointed === null ? history.times.length - 1 : nearest(history.times, x, pointed);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren(...grid(width, height, top, y, x, now, span, format), ...marked(marks, x, height, now),
      ...names.map((n) => make("svg:path", { class: "line " + colour(n), d: path(history, n, x, y) })));
    if (pointed !== null && at >= 0) svg.append(make("svg:line", { class: "point", x1: x(history.times[at]), x2: x(history.times[at]), y1: edge.top, y2: height - edge.bottom }));
    tell(names, at, now);
  }

  const colour = (name) => {
    if (!colours.has(name)) colours.set(name, "c" + (colours.size % most + 1));
    return colours.get(name);
  };

  function tell(names, at, now) {
    const items = names.map((n) => [colour(n), n, format(history.figures.get(n)[at])]);
    const more = history.figures.size - names.length;
    if (more > 0) items.push(["", `and ${more} more`, ""]);
    if (pointed !== null && at >= 0) items.push(["", "before", Math.round((now - history.times[at]) / 1000) + " s"]);
    while (legend.children.length > items.length) legend.lastChild.remove();
    items.forEach(([key, name, value], i) => {
      const li = legend.children[i] || legend.appendChild(make("li", {}, make("i"), make("span"), make("b")));
      if (li.className !== key) li.className = key;
      say(li.children[1], name);
      say(li.children[2], value);
    });
  }

  new ResizeObserver(() => draw()).observe(svg);
  return draw;
}

// chosen are the names with most at the end, in their own order.
function chosen(history) {
  const names = [...history.figures.keys()];
  if (names.length <= most) return names.sort(natural);
  const size = (n) => history.figures.get(n).at(-1) ?? -1;
  return names.sort((a, b) => size(b) - size(a)).slice(0, most).sort(natural);
}

export const natural = (a, b) => a.localeCompare(b, undefined, { numeric: true });

// ceiling is a round number that v is below of.
function ceiling(v) {
  if (!(v > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 4, 5, 10].map((m) => m * unit).find((m) => m >= v);
}

function nearest(times, x, at) {
  let best = -1;
  times.forEach((t, i) => { if (best < 0 || Math.abs(x(t) - at) < Math.abs(x(times[best]) - at)) best = i; });
  return best;
}

function grid(width, height, top, y, x, now, span, format) {
  const out = [];
  for (const part of [0, 0.5, 1]) {
    out.push(make("svg:line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(part * top), y2: y(part * top) }),
      make("svg:text", { x: edge.left - 5, y: y(part * top) + 3, "text-anchor": "end" }, format(part * top, true)));
  }
  const step = span > 120000 ? 60 : span > 60000 ? 30 : 15; // seconds
  for (let ago = step; ago * 1000 <= 0.95 * span; ago += step) {
    out.push(make("svg:text", { x: x(now - ago * 1000), y: height - 4, "text-anchor": "middle" }, step === 60 ? `−${ago / 60} min` : `−${ago} s`));
  }
  return out;
}

// marked are the events within the picture, each with its text for who points at it.
// Of several that would stand in one place, the first that is bad stays.
function marked(marks, x, height, now) {
  const at = new Map();
  for (const m of marks) {
    const place = Math.round(x(m.time) / 4);
    if (m.time <= now && x(m.time) >= edge.left && (!at.has(place) || m.tone === "bad" && at.get(place).tone !== "bad")) at.set(place, m);
  }
  return [...at.values()].map((m) =>
    make("svg:line", { class: "mark " + m.tone, x1: x(m.time), x2: x(m.time), y1: edge.top, y2: height - edge.bottom }, make("svg:title", {}, m.text)));
}

function path(history, name, x, y) {
  let d = "", pen = false;
  history.figures.get(name).forEach((v, i) => {
    if (v === null || x(history.times[i]) < edge.left) {
      pen = false;
      return;
    }
    d += `${pen ? "L" : "M"}${x(history.times[i]).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = true;
  });
  return d;
}
