// Keyboard shortcuts: / searches, j and k move through rows, Enter opens one, g goes to a page, ? shows help.
import { root } from "./api.js";

const places = { n: "/viewer/", i: "/viewer/instances", w: "/viewer/waiting", e: "/viewer/events" };
let going = false;

const rows = () => [...document.querySelectorAll("table.list tbody tr")];
const chosen = () => document.querySelector("tr.chosen");

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(chosen());
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))];
  chosen()?.classList.remove("chosen");
  next.classList.add("chosen");
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

const actions = {
  "/": () => document.getElementById("search")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  "?": () => help(),
};

export function help() {
  const dialog = document.getElementById("help");
  if (!dialog.open) dialog.showModal();
}

export function begin() {
  document.getElementById("help-button").addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, dialog");
    if (event.key === "Escape" && typing) event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && event.target === document.body) chosen()?.querySelector("a")?.click();
    const place = going ? places[event.key] : null;
    going = event.key === "g";
    if (place) location.assign(root + place);
    else if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  });
}
