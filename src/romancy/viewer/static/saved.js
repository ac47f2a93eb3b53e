// Filters that the visitor saved, in this browser. They are links.
import { root } from "./api.js";

const KEY = "romancy-filters";

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each?.name === "string" && typeof each?.query === "string") : [];
  } catch {
    return []; // no storage, or not ours
  }
}

function write(all) {
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
  } catch {
    // No storage: nothing is saved.
  }
  draw();
}

function draw() {
  const place = document.getElementById("saved-filters");
  if (!place) return;
  const all = read();
  place.hidden = all.length === 0;
  place.replaceChildren(...all.map((each) => chip(each, all)));
}

function chip(each, all) {
  const box = document.createElement("span");
  box.className = "saved";
  const link = document.createElement("a");
  link.href = `${root}/viewer/instances?${each.query}`;
  link.textContent = each.name;
  if (location.search.slice(1) === each.query) link.setAttribute("aria-current", "true");
  const remove = document.createElement("button");
  remove.type = "button";
  remove.textContent = "×";
  remove.setAttribute("aria-label", `Remove the filter ${each.name}`);
  remove.addEventListener("click", () => write(all.filter((other) => other !== each)));
  box.append(link, remove);
  return box;
}

export function begin() {
  draw();
  const [button, dialog] = [document.getElementById("save-filter"), document.getElementById("save")];
  if (!button || !dialog) return;
  button.hidden = false;
  button.addEventListener("click", () => dialog.showModal());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value !== "yes") return;
    const name = dialog.querySelector("[name=name]").value.trim();
    const query = new URLSearchParams(location.search);
    query.delete("cursor");
    write([...read().filter((each) => each.name !== name), { name, query: query.toString() }]);
  });
}
