// What an operator may have the node do. Nothing is done without a question.
import { get, order, path } from "./ask.js";
import { find, make, say } from "./dom.js";
import { policies } from "./words.js";

// orders are what may be done to a thing: each has a title, a text that says what
// follows, the word on the button, and do, which is given what was typed; loses: it
// cannot be taken back.
export const backendOrders = (b) => [
  b.state === "draining"
    ? { name: "Undrain", title: `Undrain ${b.id}?`, text: "It takes streams again.", verb: "Undrain", do: () => order("POST", path("backends", b.id, "undrain")) }
    : { name: "Drain", title: `Drain ${b.id}?`, text: "It gets nothing new. Its streams run to their end, and its sessions move between their turns. All nodes hold to it, until it is undrained, also over restarts.", verb: "Drain", do: () => order("POST", path("backends", b.id, "drain")) },
  b.state === "active" && { name: "Eject", title: `Eject ${b.id}?`, text: "All nodes give it nothing new for a while, as if its streams had failed; then, at each node, one stream tries it and decides. Its streams run to their end. To have it out until you say otherwise, drain it.", verb: "Eject", do: () => order("POST", path("backends", b.id, "eject")) },
  b.state === "ejected" && { name: "Admit", title: `Admit ${b.id}?`, text: `It takes streams again at once, at all nodes, whatever put it out: ${b.reason}.`, verb: "Admit", do: () => order("POST", path("backends", b.id, "admit")) },
  { name: "Weight", title: `Weight of ${b.id}`, text: `It is ${b.weight}. A backend of weight 2 gets twice the streams of one of weight 1. All nodes hold to it, also over restarts.`, verb: "Change", ask: { label: "Weight, 1 to 1000", type: "number", min: 1, max: 1000, value: b.weight, required: true }, do: (text) => order("POST", path("backends", b.id, "weight"), { weight: Number(text) }) },
].filter(Boolean);

export function rebalanceOrder(p) {
  const on = !p.rebalance.enabled;
  return {
    name: on ? "Move sessions" : "Leave sessions", title: on ? `Even out ${p.name}?` : `Leave the sessions of ${p.name} where they are?`,
    text: on ? "Sessions are moved, between their turns, where the backends are unlike in the time of a step." : "No session is moved to even out load, until this is switched on again. Drains and dead backends move theirs all the same.",
    verb: on ? "Switch on" : "Switch off", do: () => order("POST", path("pools", p.name, "rebalance"), { enabled: on }),
  };
}

export const policyOrder = (p) => ({
  name: "Policy", title: `Policy of ${p.name}`, text: `Its backends are chosen by ${p.policy}. Another policy counts for the next stream on; what runs, and sessions that have a backend, stay. All nodes hold to it, also over restarts.`,
  verb: "Change", ask: { label: "Policy", value: p.policy, choices: [...policies.map((name) => [name, name]), ["", "as the configuration says"]] },
  do: (name) => order("POST", path("pools", p.name, "policy"), { policy: name }),
});

// shardOrders are for a shard that cannot help itself: most of its replicas are gone.
// What is lost by making it anew is named, and its number is asked for.
export function shardOrders(s) {
  const gone = s.replicas.filter((r) => r.state === "dead" || r.state === "left"), left = s.replicas.filter((r) => !gone.includes(r));
  if (s.id === 0 || s.leader || 2 * left.length > s.replicas.length) return [];
  const names = (list) => list.map((r) => r.node).join(" and ");
  const hope = `If ${names(gone) || "its nodes"} can be started again with what is on disk, do that instead: nothing is lost then.`;
  const lost = left.length
    ? `What only ${names(gone)} knew is lost for good: the sessions that were bound or moved there last. Nodes that use such sessions tell of them; the others get a backend anew, and lose what their old one remembers. The rest is taken from ${names(left)}.`
    : `No replica of it is left: all its sessions are lost for good. Those that running nodes remember stay where they are; the others get a backend anew, and lose what their old one remembers.`;
  return [{
    name: "Make anew", title: `Make shard ${s.id} anew?`, text: `${lost} ${names(gone)} will be shut out of it. ${hope}`,
    verb: "Make it anew", loses: true, ask: { label: `Type ${s.id}, the number of the shard`, type: "text", inputmode: "numeric", required: true, pattern: String(s.id), title: `the number of the shard: ${s.id}` },
    do: () => order("POST", path("shards", String(s.id), left.length ? "reset" : "empty")),
  }];
}

export const nodeOrders = (s) => s.drain
  ? [{ name: "Undrain", title: `Undrain ${s.node.name}?`, text: "This node takes new streams again.", verb: "Undrain", do: () => order("POST", path("node", "undrain")) }]
  : [{ name: "Drain", title: `Drain ${s.node.name}?`, text: "This node takes no new streams, and those that run go on to their end. It does not stop.", verb: "Drain", do: () => order("POST", path("node", "drain")) }];

let question = null; // whose the box is

// confirm asks, and does: true when it was done. Where there is nothing to do, it
// returns what was typed; null: the answer was no. A later question takes the box: one
// that waits for its answer is a no then, and an order that is on its way goes on, but
// does not touch the box any more.
export function confirm(o) {
  question?.leave();
  const mine = question = {};
  const box = find("#ask"), form = find("form", box), wrong = find(".wrong", box), no = find(".no", box), yes = find(".do", box), field = find(".field", box);
  say(find("h2", box), o.title);
  say(find("p", box), o.text);
  say(yes, o.verb);
  yes.classList.toggle("loses", !!o.loses);
  say(wrong, "");
  yes.disabled = false;
  field.replaceChildren();
  let input = null;
  if (o.ask) {
    input = fieldOf(o.ask);
    field.append(make("label", {}, o.ask.label, input));
  }
  return new Promise((resolve) => {
    const end = (value) => {
      if (question === mine) {
        question = form.onsubmit = box.oncancel = no.onclick = null;
        box.close();
      }
      resolve(value);
    };
    const refuse = () => end(o.do ? false : null);
    mine.leave = () => yes.disabled || refuse();
    box.oncancel = (e) => { e.preventDefault(); refuse(); };
    no.onclick = refuse;
    form.onsubmit = async (e) => {
      e.preventDefault();
      if (!o.do) return end(input.value.trim());
      yes.disabled = true;
      say(wrong, "");
      try {
        await o.do(input?.value);
        end(true);
      } catch (err) {
        if (question !== mine) return resolve(false);
        yes.disabled = false;
        say(wrong, err.message);
      }
    };
    box.showModal();
    (input || yes).focus();
  });
}

// fieldOf is what is typed or chosen in: choices must be kept to, hints need not be.
function fieldOf({ label, choices, hints, value, ...attrs }) {
  if (choices) return make("select", attrs, ...choices.map(([word, text]) => make("option", { value: word, selected: word === value }, text)));
  const input = make("input", { ...attrs, value, list: hints && "hints", autocomplete: "off" });
  find("#hints").replaceChildren(...(hints || []).map((word) => make("option", { value: word })));
  return input;
}

// sessionForm looks a session up, and offers to move it to one of the pool's backends.
export function sessionForm(form, out, backends, refresh) {
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const key = form.elements.key.value, pool = form.elements.pool.value;
    try {
      const s = await get(path("sessions", pool, key));
      const used = s.last_use ? `; its last turn on this node began at ${new Date(s.last_use).toLocaleTimeString()}` : "";
      const state = s.provisional ? ", for the time being: nobody has agreed yet" : s.held ? ", and a change is on its way" : "";
      out.replaceChildren(`It lives at ${s.backend} (epoch ${s.epoch}, shard ${s.shard})${state}${used}. `, make("button", { type: "button", onclick: () => move(pool, key, s, backends(pool)).then((done) => done && form.requestSubmit()).then(refresh) }, "Move it"));
    } catch (err) {
      say(out, err.message);
    }
  });
}

const move = (pool, key, s, backends) => confirm({
  title: "Move the session?", text: `It lives at ${s.backend}, and will live at another backend from its next turn on. No turn is cut.`, verb: "Move",
  ask: { label: "To the backend", type: "text", required: true, hints: backends.filter((id) => id !== s.backend) }, do: (to) => order("POST", path("sessions", pool, key, "move"), { backend: to.trim() }),
});
