// Actions of the visitor. All go through the control API.
import { get, page, part, post, root, show, toast } from "./api.js";
import { make } from "./forms.js";
import { retryNow } from "./retrying.js";

export function begin() {
  setUpInstance();
  setUpSend();
  setUpStart();
}

// Disables the button during an action, and shows what went wrong next to it.
async function attempt(button, problem, work) {
  show(problem, "");
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    show(problem, error.message);
  } finally {
    button.disabled = false;
  }
}

function setUpInstance() {
  const dialog = document.getElementById("cancel");
  if (!dialog) return;
  const id = dialog.dataset.id;
  const problem = dialog.querySelector(".problem");
  document.getElementById("main").addEventListener("click", (event) => {
    const act = event.target.closest("[data-act]")?.dataset.act;
    if (act === "cancel") dialog.showModal();
    if (act === "resume") resume(id, event.target);
    if (act === "retry-now") hurry(id, event.target.closest("button"));
    if (act === "retry") document.getElementById("retry").showModal();
    if (act === "fork") askAboutFork(event.target.closest("[data-act]").dataset.at);
  });
  setUpRetry(id);
  setUpFork(id);
  dialog.querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value !== "cancel") return;
    event.preventDefault();
    attempt(event.submitter, problem, async () => {
      const reason = dialog.querySelector("[name=reason]").value.trim();
      await post(`/cancel/${part(id)}`, reason ? { reason } : {});
      dialog.close();
      toast("Cancelling; its code can clean up first");
    });
  });
}

function setUpRetry(id) {
  const dialog = document.getElementById("retry");
  dialog.querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value !== "retry") return;
    event.preventDefault();
    attempt(event.submitter, dialog.querySelector(".problem"), async () => {
      const steps = dialog.querySelector("[name=all]").checked ? "failed" : null;
      await post(`/api/instances/${part(id)}/retry`, { steps });
      dialog.close();
      const after = await afterResume(id);
      toast(after.status === "failed" ? `Retried, but it failed again: ${after.error?.message ?? "no reason is recorded"}` : "Retried");
    });
  });
}

// `at`: the number of the entry that the visitor chose in the history.
function askAboutFork(at) {
  const dialog = document.getElementById("fork");
  show(dialog.querySelector(".problem"), "");
  dialog.querySelector("[name=at]").value = at;
  dialog.showModal();
}

function setUpFork(id) {
  const dialog = document.getElementById("fork");
  dialog.querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value !== "fork") return;
    event.preventDefault();
    attempt(event.submitter, dialog.querySelector(".problem"), async () => {
      const [at, newId] = ["at", "new_id"].map((name) => dialog.querySelector(`[name=${name}]`).value.trim());
      const started = await post(`/api/instances/${part(id)}/fork`, { at: Number(at), new_id: newId || null });
      location.assign(`${root}/viewer/instances/${part(started.instance_id)}`);
    });
  });
}

async function hurry(id, button) {
  button.disabled = true;
  try {
    await retryNow(id);
  } catch (error) {
    toast(error.message);
  } finally {
    button.disabled = false;
  }
}

async function resume(id, button) {
  button.disabled = true;
  try {
    await post(`/api/instances/${part(id)}/resume`, {});
    const after = await afterResume(id);
    toast(after.status === "blocked" ? `Resumed, but it is blocked again: ${after.error?.message ?? "no reason is recorded"}` : "Resumed");
  } catch (error) {
    toast(error.message);
  } finally {
    button.disabled = false;
  }
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// The instance after a worker has run it again, or after three seconds if none has.
async function afterResume(id) {
  let found = await get(`/api/instances/${part(id)}`);
  for (let tries = 0; found.status === "running" && tries < 10; tries += 1) {
    await pause(300);
    found = await get(`/api/instances/${part(id)}`);
  }
  return found;
}

function setUpSend() {
  const form = document.getElementById("send");
  if (!form) return;
  const [problem, done, misfits] = ["problem", "done", "misfits"].map((id) => document.getElementById(id));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show(done, "");
    misfits.hidden = true;
    attempt(event.submitter ?? form.querySelector("button"), problem, async () => {
      const sent = cloudEvent(new FormData(form));
      const receipt = await post("/", sent, "application/cloudevents+json");
      done.className = receipt.mismatched ? "warn" : "done";
      show(done, describe(receipt));
      if (receipt.mismatched) await explain(misfits, sent, receipt.mismatched);
    });
  });
}

// Shows which models the event did not fit, and why: its page says so once the workers have recorded it.
async function explain(place, event, count) {
  let found = [];
  for (let tries = 0; found.length < Math.min(count, 3) && tries < 10; tries += 1) {
    if (tries) await pause(300);
    const fresh = await page(`${root}/viewer/event?source=${part(event.source)}&id=${part(event.id)}`);
    found = [...(fresh?.querySelectorAll(".near.misfit") ?? [])];
  }
  place.replaceChildren(...found.map((each) => document.importNode(each, true)));
  if (!found.length) place.textContent = "The reason is not recorded; see the log of the server.";
  place.hidden = false;
}

function cloudEvent(fields) {
  const event = { specversion: "1.0", id: fields.get("id").trim() || newId(), datacontenttype: "application/json" };
  for (const name of ["type", "source"]) {
    event[name] = fields.get(name).trim();
    if (!event[name]) throw new Error(`${name} is required`);
  }
  if (fields.get("subject").trim()) event.subject = fields.get("subject").trim();
  if (fields.get("to").trim()) event.romancyinstanceid = fields.get("to").trim();
  const text = fields.get("data").trim();
  try {
    event.data = text ? JSON.parse(text) : null;
  } catch (error) {
    throw new Error(`data is not valid JSON: ${error.message}`);
  }
  return event;
}

const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

const instances = (n) => `${n} ${n === 1 ? "instance" : "instances"}`;

function describe(receipt) {
  if (receipt.delivered === undefined) return "Stored.";
  if (receipt.differs) return "Not stored: another event has this source and id. Send it with a different id.";
  if (receipt.duplicate) return "Already stored: an event with this source and id was sent before.";
  const parts = [`delivered to ${instances(receipt.delivered)}`];
  if (receipt.started) parts.push(`started ${instances(receipt.started)}`);
  if (receipt.mismatched) parts.push(`did not fit the model of ${instances(receipt.mismatched)}`);
  const isUnmatched = !receipt.delivered && !receipt.started && !receipt.mismatched;
  return isUnmatched ? "Stored; no instance waits for it yet. Later waits can take it." : `Stored: ${parts.join(", ")}.`;
}

function setUpStart() {
  const form = document.getElementById("start");
  if (!form) return;
  const fields = JSON.parse(form.dataset.fields).map((each) => ({
    ...each,
    ...make(each.name, each.schema, { required: each.required, value: each.default }),
  }));
  document.getElementById("fields").append(...fields.map((each) => each.element));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(event.submitter ?? form.querySelector("button.primary"), document.getElementById("problem"), async () => {
      const body = { ...call(fields), instance_id: document.getElementById("instance-id").value.trim() || null };
      const started = await post(`/api/workflows/${part(form.dataset.workflow)}/start`, body);
      location.assign(`${root}/viewer/instances/${part(started.instance_id)}`);
    });
  });
}

function call(fields) {
  const [args, kwargs] = [[], {}];
  const variadic = fields.find((each) => each.kind === "var_positional");
  for (const each of fields) {
    const value = each.read();
    if (value === undefined) continue;
    if (each.kind === "var_positional") args.push(...value);
    else if (each.kind === "var_keyword") Object.assign(kwargs, value);
    else if (each.kind === "positional_only" || (variadic && each.kind === "positional_or_keyword")) args.push(value);
    else kwargs[each.name] = value;
  }
  return { args, kwargs };
}
