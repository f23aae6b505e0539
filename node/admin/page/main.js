// The dashboard: asks the node, and shows what it says.
import { follow, get, keep, Refused, text, token } from "./ask.js";
import { confirm, sessionForm } from "./orders.js";
import { find, say } from "./dom.js";
import { View } from "./view.js";

const view = new View((order) => confirm(order).then((done) => done && refresh()));
const latest = {}; // the last answers, by name
let asked = false, stop = new AbortController(), live = { on: false, why: "" }, slow = 0;

// Some lists are long and change little: they are asked for every third time.
const often = ["status", "backends", "pools"], seldom = ["members", "shards"];

// wide is asked of all nodes, by way of this one. Who is silent keeps that answer for a
// while, and nothing else waits for it. Where there is none the last one stays, and it is
// said.
let widely = false;
async function wide() {
  if (widely) return;
  widely = true;
  const whole = find("#whose").elements.whole.value === "cluster";
  const [nodes, streams] = await Promise.allSettled([get("v1/status?scope=cluster"), get(whole ? "v1/streams?scope=cluster&limit=50" : "v1/streams?limit=50")]);
  widely = false;
  if (nodes.value) latest.nodes = nodes.value.nodes;
  if (streams.value) latest.streams = streams.value;
  const failed = [nodes, streams].find((a) => a.status === "rejected");
  latest.wide = { why: failed ? failed.reason.message : "", at: failed ? latest.wide?.at : Date.now() };
  if (asked && !view.stale()) view.show(latest, live);
}

let busy = null, again = false;
async function refresh(all = true) {
  if (busy) {
    again = again || all;
    return busy;
  }
  busy = ask(all).finally(() => { busy = null; });
  await busy;
  if (again) {
    again = false;
    await refresh();
  }
}

async function ask(all) {
  const names = all ? [...often, ...seldom] : often;
  if (all) wide();
  try {
    const answers = await Promise.all(names.map((n) => get("v1/" + n)));
    names.forEach((n, i) => { latest[n] = answers[i]; });
    asked = true;
    view.show(latest, live);
  } catch (err) {
    if (err instanceof Refused && err.status === 401) return wantToken();
    view.silent(err.message, asked);
  }
}

// wantToken asks for the token: once where the node wants one, and again when somebody
// asks for that.
let wanting = false, declined = false;
async function wantToken(forget = "") {
  if (wanting || declined && !forget) return;
  wanting = true;
  const had = token();
  const text = await confirm({
    title: had ? "Another token" : "This node wants its token", verb: "Use it", ask: { label: "Token", type: "password", required: !had },
    text: (had && !forget ? "The node did not take the token. " : "") + "It is the one line of the node's admin.token_file. It is kept until this tab is closed, and sent to this node alone." + (had ? " Leave it empty to forget the one you gave." : ""),
  });
  wanting = false;
  if (text === null) {
    if (forget) return;
    declined = true;
    return view.silent("This node wants its token: the button above takes it.", asked);
  }
  declined = false;
  keep(text);
  begin();
}

// begin follows the events anew, and asks for everything.
function begin() {
  stop.abort();
  stop = new AbortController();
  view.forget();
  follow((event) => {
    view.take(event);
    soon();
  }, (on, why = "", status = 0) => {
    live = { on, why: status === 401 ? "a token is needed" : why };
    view.lively(live);
    if (status === 401) wantToken();
  }, stop.signal);
  refresh();
}

// soon refreshes shortly after an event, and once for several.
let timer = 0;
function soon() {
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, 150);
}

// openPlain shows an answer in a tab of its own. A link would come without the token,
// which only a header carries.
async function openPlain(link) {
  const tab = window.open("", "_blank"); // now, while it is the click that opens it
  if (!tab) return view.silent("The browser opens no tab.", asked);
  try {
    const at = URL.createObjectURL(new Blob([await text(link.getAttribute("href"))], { type: "text/plain;charset=utf-8" }));
    tab.location.replace(at);
    setTimeout(() => URL.revokeObjectURL(at), 60000);
  } catch (err) {
    tab.close();
    if (err instanceof Refused && err.status === 401) return wantToken();
    view.silent(err.message, asked);
  }
}

find("footer").addEventListener("click", (e) => {
  const link = e.target.closest("a");
  if (!link || !token()) return;
  e.preventDefault();
  openPlain(link);
});

setInterval(() => {
  slow++;
  if (document.hidden && slow % 10) return;
  refresh(slow % 3 === 0);
}, 1000);

document.addEventListener("visibilitychange", () => document.hidden || refresh());
find("#whose").addEventListener("change", wide);
find("#key").addEventListener("click", () => wantToken("asked"));
const backendsOf = (pool) => latest.backends.backends.filter((b) => b.pool === pool).map((b) => b.id);
sessionForm(find("#find"), find("#found"), backendsOf, () => refresh());
say(find("#live"), "connecting");
begin();
