// How figures and times are said.
export const count = (n) => n == null ? "–" : n >= 10000 ? (n / 1000).toFixed(n >= 100000 ? 0 : 1) + "k" : String(Math.round(n));

export function bytes(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return (unit === "B" || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + unit;
    n /= 1024;
  }
  return n.toFixed(1) + " TiB";
}

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min" + (s < 600 && s % 60 ? ` ${s % 60} s` : "");
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}

export const since = (time) => span((Date.now() - new Date(time)) / 1000);
export const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });
export const millis = (s) => !s ? "–" : s < 0.01 ? (1000 * s).toFixed(1) + " ms" : Math.round(1000 * s) + " ms";
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// reasons are why streams end, as docs/reference has it.
export const reasons = {
  done: "the whole answer was handed to the client",
  client_left: "the client closed before the end",
  client_slow: "the client took, or sent, nothing for too long",
  backend_broke: "the backend ended an answer it had begun",
  backend_timeout: "no connection or no answer in time",
  backend_refused: "no connection could be made",
  idle: "no byte passed for too long",
  deadline: "its total time ran out",
  drained: "cut at the end of a drain's deadline",
  shed: "no room or no backend: refused at once",
  refused: "the request itself was refused",
};

// policies are how a pool's backends may be chosen; the list is closed.
export const policies = ["p2c", "round_robin", "weighted_round_robin", "random", "least_connections", "peak_ewma", "least_response_time", "consistent_hash", "ip_hash"];
