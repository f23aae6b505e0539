// What an operator may have the node do. Nothing is done without a question.
import { get, order, path } from "./ask.js";
import { find, make, say } from "./dom.js";

// orders are what may be done to a thing: each has a title, a text that says what
// follows, the word on the button, and do, which is given what was typed.
export const backendOrders = (b) => [
  b.state === "draining"
    ? { name: "Undrain", title: `Undrain ${b.id}?`, text: "It takes streams again.", verb: "Undrain", do: () => order("POST", path("backends", b.id, "undrain")) }
    : { name: "Drain", title: `Drain ${b.id}?`, text: "It gets nothing new. Its streams run to their end, and its sessions move between their turns. All nodes hold to it, until it is undrained, also over restarts.", verb: "Drain", do: () => order("POST", path("backends", b.id, "drain")) },
  b.state === "ejected" && { name: "Admit", title: `Admit ${b.id}?`, text: `It takes streams again at once, whatever put it out: ${b.reason}.`, verb: "Admit", do: () => order("POST", path("backends", b.id, "admit")) },
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

export const nodeOrders = (s) => s.drain
  ? [{ name: "Undrain", title: `Undrain ${s.node.name}?`, text: "This node takes new streams again.", verb: "Undrain", do: () => order("POST", path("node", "undrain")) }]
  : [{ name: "Drain", title: `Drain ${s.node.name}?`, text: "This node takes no new streams, and those that run go on to their end. It does not stop.", verb: "Drain", do: () => order("POST", path("node", "drain")) }];

// confirm asks, and does: true when it was done. Where there is nothing to do, it
// returns what was typed; null: the answer was no.
export function confirm(o) {
  const box = find("#ask"), form = find("form", box), wrong = find(".wrong", box), no = find(".no", box), yes = find(".do", box), field = find(".field", box);
  say(find("h2", box), o.title);
  say(find("p", box), o.text);
  say(yes, o.verb);
  say(wrong, "");
  field.replaceChildren();
  let input = null;
  if (o.ask) {
    const { label, ...attrs } = o.ask;
    input = make("input", { ...attrs, autocomplete: "off" });
    field.append(make("label", {}, label, input));
  }
  return new Promise((resolve) => {
    const end = (value) => {
      form.onsubmit = box.oncancel = no.onclick = null;
      yes.disabled = false;
      if (box.open) box.close();
      resolve(value);
    };
    const refuse = () => end(o.do ? false : null);
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
        yes.disabled = false;
        say(wrong, err.message);
      }
    };
    box.showModal();
    (input || yes).focus();
  });
}

// sessionForm looks a session up, and offers to move it.
export function sessionForm(form, out, refresh) {
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const key = form.elements.key.value, pool = form.elements.pool.value;
    try {
      const s = await get(path("sessions", pool, key));
      const used = s.last_use ? `; its last turn on this node began at ${new Date(s.last_use).toLocaleTimeString()}` : "";
      const state = s.provisional ? ", for the time being: nobody has agreed yet" : s.held ? ", and a change is on its way" : "";
      out.replaceChildren(`It lives at ${s.backend} (epoch ${s.epoch}, shard ${s.shard})${state}${used}. `, make("button", { type: "button", onclick: () => move(pool, key, s).then((done) => done && form.requestSubmit()).then(refresh) }, "Move it"));
    } catch (err) {
      say(out, err.message);
    }
  });
}

const move = (pool, key, s) => confirm({
  title: "Move the session?", text: `It lives at ${s.backend}, and will live at another backend from its next turn on. No turn is cut.`, verb: "Move",
  ask: { label: "To the backend", type: "text", required: true }, do: (to) => order("POST", path("sessions", pool, key, "move"), { backend: to.trim() }),
});
