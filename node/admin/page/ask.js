// Asks the admin API. The token lives as long as this tab, and travels in a header
// alone: no page of another site can have the browser send it.
const place = "starling-token";

export const token = () => sessionStorage.getItem(place) || "";
export const keep = (text) => text ? sessionStorage.setItem(place, text) : sessionStorage.removeItem(place);

// Refused is the node's own no; status 0: it could not be asked.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = (more) => token() ? { ...more, Authorization: "Bearer " + token() } : more;

async function send(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Refused(0, "This node does not answer.");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  throw new Refused(answer.status, said?.error?.message || `The node answered ${answer.status}.`);
}

export const get = async (path) => (await send(path, { headers: headers({}), signal: AbortSignal.timeout(10000) })).json();

// text is an answer as it came.
export const text = async (path) => (await send(path, { headers: headers({}), signal: AbortSignal.timeout(10000) })).text();

export async function order(method, path, body) {
  const options = { method, headers: headers(body ? { "Content-Type": "application/json" } : {}) };
  if (body) options.body = JSON.stringify(body);
  return (await send(path, options)).json();
}

// path puts parts together, each percent-encoded.
export const path = (...parts) => "v1/" + parts.map(encodeURIComponent).join("/");

// follow reads events for ever: take gets each, and state hears whether they come.
// After a break it goes on behind the last one.
export async function follow(take, state, stop) {
  let last = "", rest = 500;
  while (!stop.aborted) {
    try {
      const more = last ? { "Last-Event-ID": last } : {};
      const answer = await send("v1/events?recent=200", { headers: headers(more), signal: stop });
      state(true);
      rest = 500;
      for await (const e of parse(answer.body)) {
        if (e.id) last = e.id;
        take(JSON.parse(e.data));
      }
      state(false, "The node ended the events.");
    } catch (err) {
      if (stop.aborted) return;
      state(false, err.message, err.status);
    }
    await new Promise((done) => setTimeout(done, rest));
    rest = Math.min(rest * 2, 5000);
  }
}

// parse yields the events of a text/event-stream.
async function* parse(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", event = {};
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.data) yield event;
        event = {};
      } else if (!line.startsWith(":")) {
        const at = line.indexOf(": ");
        event[line.slice(0, at)] = line.slice(at + 2);
      }
    }
  }
}
