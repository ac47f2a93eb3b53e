// Times that tick, by the server's clock. `offset` is how far it is ahead of this machine's.
let offset = 0;
// The words are those of core/durations.py.
const units = [[60, 1, "s"], [3600, 60, "min"], [172800, 3600, "h"], [63072000, 86400, "d"], [Infinity, 31536000, "y"]];
const finer = { min: [1, "s"], h: [60, "min"], d: [3600, "h"], y: [86400, "d"] };

export function setNow(milliseconds) {
  offset = milliseconds - Date.now();
}

export const now = () => Date.now() + offset;

export function span(seconds) {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  const [, unit, name] = units.find(([limit]) => seconds < limit);
  const words = `${Math.floor(seconds / unit)} ${name}`;
  if (!finer[name]) return words;
  const [small, smallName] = finer[name];
  const remainder = Math.floor((seconds % unit) / small);
  return remainder ? `${words} ${remainder} ${smallName}` : words;
}

const whole = (seconds) => (seconds < 1 ? "0 s" : span(seconds)); // milliseconds would flicker
const words = {
  ago: (s) => (s > -1 ? "now" : `${span(-s)} ago`),
  left: (s) => (s > 0 ? `${whole(s)} left` : `${whole(-s)} overdue`),
  until: (s) => (s > 0 ? `in ${whole(s)}` : "due"),
  elapsed: (s) => whole(-s),
};

export function tick() {
  const present = now();
  for (const element of document.querySelectorAll("time[data-kind]")) {
    const at = Date.parse(element.dateTime);
    if (Number.isNaN(at)) continue;
    const text = words[element.dataset.kind]((at - present) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
  for (const fill of document.querySelectorAll("rect[data-due]")) {
    const since = Date.parse(fill.dataset.since);
    const share = (present - since) / Math.max(1, Date.parse(fill.dataset.due) - since);
    fill.setAttribute("width", Math.min(100, Math.max(0, 100 * share)).toFixed(1));
  }
}

export function begin() {
  tick();
  setInterval(tick, 1000);
}
