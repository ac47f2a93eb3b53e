// The list of instances. Rows change in place; new rows are announced by a chip and appear when it is clicked.
import { page, part, root } from "./api.js";
import { morph } from "./morph.js";

const MAX_QUERY = 4000; // characters of ids in one URL
export const FINAL = ".completed"; // these never change again; others that ended can be retried

export async function refresh(ids) {
  const table = document.getElementById("instances");
  const rows = new Map([...table.querySelectorAll("tbody tr")].map((row) => [row.dataset.key, row]));
  const stale = [...rows.keys()].filter((id) => (ids === "all" || ids.has(id)) && !rows.get(id).matches(FINAL));
  for (const batch of batches(stale)) {
    const fresh = await page(`${root}/viewer/rows?${batch.join("&")}`);
    for (const from of fresh?.querySelectorAll("tr") ?? []) replace(rows.get(from.dataset.key), from);
  }
  if ("first" in table.dataset && (ids === "all" || [...ids].some((id) => !rows.has(id)))) await askForNewer(table);
}

function* batches(ids) {
  let batch = [], length = 0;
  for (const id of ids) {
    const pair = `id=${part(id)}`;
    if (batch.length && length + pair.length > MAX_QUERY) {
      yield batch;
      [batch, length] = [[], 0];
    }
    batch.push(pair);
    length += pair.length;
  }
  if (batch.length) yield batch;
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
  const response = await fetch(`${root}/viewer/newer?${table.dataset.query}&top=${top}`).catch(() => null);
  if (!response?.ok) return;
  const { newer } = await response.json();
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
