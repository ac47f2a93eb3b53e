// Selecting instances, and acting on those selected or on everything that the filter finds.
import { get, part, post, show, toast } from "./api.js";

const VERBS = {
  retry: { fits: ["failed", "cancelled"], one: (id) => [`/api/instances/${part(id)}/retry`, {}], done: "retried" },
  resume: { fits: ["blocked"], one: (id) => [`/api/instances/${part(id)}/resume`, {}], done: "resumed" },
  cancel: {
    fits: ["queued", "running", "waiting_for_event", "waiting_for_timer", "waiting_for_child", "compensating", "blocked"],
    one: (id, reason) => [`/cancel/${part(id)}`, reason ? { reason } : {}],
    done: "asked to cancel",
  },
};
const SHOWN = 3; // errors that are told
let last = null;
let asked = 0; // questions so far: only the last one is in the dialog, however long an earlier one counts

const table = () => document.querySelector("table#instances");
const boxes = () => [...(table()?.querySelectorAll("tbody input[type=checkbox]") ?? [])];
const picked = () => boxes().filter((box) => box.checked).map((box) => box.closest("tr"));
const instances = (n) => `${n.toLocaleString("en")} ${n === 1 ? "instance" : "instances"}`;

export function begin() {
  document.getElementById("main").addEventListener("click", (event) => {
    const group = event.target.closest("[data-group]");
    if (group) ask(group.dataset.group, null, group);
  });
  const bar = document.getElementById("bulk-bar");
  if (!bar || !table()) return;
  const all = document.getElementById("pick-all");
  table().addEventListener("click", (event) => {
    if (event.target === all) set(boxes(), all.checked);
    else if (event.target.matches("tbody input[type=checkbox]")) pick(event.target, event.shiftKey);
  });
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.bulk) ask(button.dataset.bulk, picked());
    if (button?.dataset.every) ask(button.dataset.every, null);
    if (button?.id === "pick-none") set(boxes(), false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
    if (event.key === "Escape") set(boxes(), false);
    if (event.key === "x") toggle();
  });
  update();
}

function pick(box, isRange) {
  const every = boxes();
  const [at, from] = [every.indexOf(box), every.indexOf(last)];
  last = box;
  set(isRange && from >= 0 ? every.slice(Math.min(at, from), Math.max(at, from) + 1) : [box], box.checked);
}

function toggle() {
  const box = document.querySelector("tr.chosen input[type=checkbox]");
  if (box) set([box], !box.checked);
}

function set(some, on) {
  for (const box of some) box.checked = on;
  update();
}

function update() {
  const [every, rows] = [boxes(), picked()];
  document.getElementById("bulk-bar").hidden = rows.length === 0;
  document.getElementById("picked").textContent = `${rows.length} selected`;
  for (const [verb, { fits }] of Object.entries(VERBS)) {
    const n = rows.filter((row) => fits.some((status) => row.classList.contains(status))).length;
    const button = document.querySelector(`[data-bulk=${verb}]`);
    button.disabled = n === 0;
    button.querySelector("b").textContent = n;
  }
  const all = document.getElementById("pick-all");
  all.checked = every.length > 0 && rows.length === every.length;
  all.indeterminate = rows.length > 0 && rows.length < every.length;
}

// Asks before anything is done, with how many instances it is about. `rows`: those selected; `group`: the button of a kind
// of failure; without both, everything that the filter of the page finds.
async function ask(verb, rows, group = null) {
  const dialog = document.getElementById("bulk");
  const question = ++asked;
  const isShown = () => question === asked;
  const [preview, yes] = [document.getElementById("bulk-preview"), document.getElementById("bulk-yes")];
  const problem = dialog.querySelector(".problem");
  show(problem, "");
  document.getElementById("bulk-title").textContent = `${verb[0].toUpperCase()}${verb.slice(1)} many instances?`;
  document.getElementById("bulk-reason").hidden = verb !== "cancel";
  yes.className = verb === "cancel" ? "danger" : "primary";
  yes.textContent = "Counting…";
  yes.disabled = true;
  preview.textContent = "";
  dialog.returnValue = "";
  dialog.showModal();
  let work;
  try {
    if (group) work = ofGroup(verb, group.dataset.words, (await get(`/viewer/group-ids?${group.dataset.ids}`)).ids);
    else work = rows ? ofRows(verb, rows) : await ofFilter(verb, JSON.parse(table().dataset.filter));
  } catch (error) {
    return isShown() && show(problem, error.message);
  }
  if (!isShown()) return;
  preview.textContent = work.words;
  yes.disabled = work.count === 0;
  yes.textContent = `${verb[0].toUpperCase()}${verb.slice(1)} ${work.count.toLocaleString("en")}`;
  yes.onclick = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    const reason = dialog.querySelector("[name=reason]").value.trim() || null;
    try {
      const { changed, errors } = await work.go(reason, (n) => isShown() && (preview.textContent = `${n.toLocaleString("en")} of ${work.count.toLocaleString("en")}…`));
      if (isShown()) dialog.close();
      toast(`${instances(changed)} ${VERBS[verb].done}${tell(errors)}`);
      if (boxes().length) set(boxes(), false);
    } catch (error) {
      if (isShown()) show(problem, error.message);
      else toast(error.message);
    }
  };
}

function tell(errors) {
  const all = Object.entries(errors);
  if (!all.length) return "";
  const told = all.slice(0, SHOWN).map(([id, text]) => `${id}: ${text}`).join("; ");
  return `. Not ${instances(all.length)}: ${told}${all.length > SHOWN ? "; …" : ""}`;
}

function ofRows(verb, rows) {
  const { fits } = VERBS[verb];
  const ids = rows.filter((row) => fits.some((status) => row.classList.contains(status))).map((row) => row.dataset.key);
  const others = rows.length - ids.length;
  return oneByOne(verb, ids, `${instances(ids.length)} of those selected.${others ? ` The other ${others} can't: only what is ${fits.slice(0, 2).join(" or ")} can.` : ""}`);
}

const ofGroup = (verb, name, ids) => oneByOne(verb, ids, `${instances(ids.length)} of this kind: ${name}.`);

function oneByOne(verb, ids, words) {
  const { one } = VERBS[verb];
  async function go(reason, progress) {
    const errors = {};
    let changed = 0;
    for (const id of ids) {
      try {
        await post(...one(id, reason));
        changed += 1;
      } catch (error) {
        errors[id] = error.message;
      }
      progress(changed);
    }
    return { changed, errors };
  }
  return { count: ids.length, words, go };
}

async function ofFilter(verb, filter) {
  const counted = await every(verb, { ...filter, dry_run: true }, () => {});
  const refused = Object.keys(counted.errors).length;
  const words = `The filter finds ${instances(counted.matched)}; ${counted.changed.toLocaleString("en")} can be changed.${refused ? ` ${refused} can't: ${Object.values(counted.errors)[0]}.` : ""}`;
  // More may match by now. Never change more than the visitor was told.
  const go = (reason, progress) => every(verb, verb === "cancel" ? { ...filter, reason } : filter, progress, counted.changed);
  return { count: counted.changed, words, go };
}

// The API handles a part with each request.
async function every(verb, body, progress, most = Infinity) {
  const sum = { matched: 0, changed: 0, errors: {} };
  let cursor = null;
  do {
    const answer = await post(`/api/instances/${verb}`, { ...body, cursor, limit: most === Infinity ? null : most - sum.changed });
    sum.matched += answer.matched;
    sum.changed += answer.changed;
    Object.assign(sum.errors, answer.errors);
    progress(sum.changed);
    cursor = answer.cursor;
  } while (cursor !== null && sum.changed < most);
  return sum;
}
