// The list of instances: rows change in place; new ones wait behind a chip until the visitor wants them.
import { page, part, root } from "./api.js";
import { morph } from "./morph.js";

const AT_A_TIME = 4000; // characters of ids in one address
export const FINAL = ".completed, .failed, .cancelled"; // what has ended so never changes again

export async function refresh(ids) {
  const table = document.getElementById("instances");
  const rows = new Map([...table.querySelectorAll("tbody tr")].map((row) => [row.dataset.key, row]));
  const wanted = [...rows.keys()].filter((id) => (ids === "all" || ids.has(id)) && !rows.get(id).matches(FINAL));
  for (const some of portions(wanted)) {
    const fresh = await page(`${root}/viewer/rows?${some.join("&")}`);
    for (const from of fresh?.querySelectorAll("tr") ?? []) replace(rows.get(from.dataset.key), from);
  }
  if ("first" in table.dataset && (ids === "all" || [...ids].some((id) => !rows.has(id)))) await askForNewer(table);
}

function* portions(ids) {
  let some = [], length = 0;
  for (const id of ids) {
    const pair = `id=${part(id)}`;
    if (some.length && length + pair.length > AT_A_TIME) {
      yield some;
      [some, length] = [[], 0];
    }
    some.push(pair);
    length += pair.length;
  }
  if (some.length) yield some;
}

export function replace(row, from) {
  if (!row) return;
  const before = row.querySelector(".badge")?.textContent;
  const chosen = row.classList.contains("chosen");
  morph(row, from);
  row.classList.remove("gone");
  row.classList.toggle("chosen", chosen);
  const after = row.querySelector(".badge")?.textContent;
  if (before !== after) {
    row.classList.add("fresh");
    row.addEventListener("animationend", () => row.classList.remove("fresh"), { once: true });
  }
}

async function askForNewer(table) {
  const top = table.querySelector("tbody tr")?.dataset.position ?? "";
  const answer = await fetch(`${root}/viewer/newer?${table.dataset.query}&top=${top}`).catch(() => null);
  if (!answer?.ok) return;
  const { newer } = await answer.json();
  announce(newer ? `${newer >= 50 ? "50+" : newer} new` : "");
}

export function announce(text) {
  const chip = document.querySelector(".chip") ?? makeChip();
  chip.textContent = text;
  chip.hidden = !text;
  chip.onclick = () => location.reload();
}

function makeChip() {
  const place = document.createElement("div");
  place.className = "chip-place";
  const chip = document.createElement("button");
  chip.type = "button";
  chip.className = "chip";
  place.append(chip);
  document.getElementById("main").prepend(place);
  return chip;
}
