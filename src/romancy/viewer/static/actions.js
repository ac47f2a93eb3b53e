// What visitors do: all of it through the control API.
import { get, page, part, post, root, show, toast } from "./api.js";
import { make } from "./forms.js";

export function begin() {
  cancelling();
  sending();
  starting();
}

// While an action is under way its button can't be pressed again; what went wrong is said beside it.
async function trying(button, problem, work) {
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

function cancelling() {
  const dialog = document.getElementById("cancel");
  if (!dialog) return;
  const id = dialog.dataset.id;
  const problem = dialog.querySelector(".problem");
  document.getElementById("main").addEventListener("click", (event) => {
    const act = event.target.closest("[data-act]")?.dataset.act;
    if (act === "cancel") dialog.showModal();
    if (act === "resume") resume(id, event.target);
  });
  dialog.querySelector("form").addEventListener("submit", (event) => {
    if (event.submitter?.value !== "cancel") return;
    event.preventDefault();
    trying(event.submitter, problem, async () => {
      const reason = dialog.querySelector("[name=reason]").value.trim();
      await post(`/cancel/${part(id)}`, reason ? { reason } : {});
      dialog.close();
      toast("Cancelling: its code may clean up first");
    });
  });
}

async function resume(id, button) {
  button.disabled = true;
  try {
    await post(`/api/instances/${part(id)}/resume`, {});
    const after = await settled(id);
    toast(after.status === "blocked" ? `Resumed; it is blocked again: ${after.error?.message ?? "no reason is recorded"}` : "Resumed");
  } catch (error) {
    toast(error.message);
  } finally {
    button.disabled = false;
  }
}

const rest = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// How an instance stands once a worker has taken it up again; or after three seconds, if none has.
async function settled(id) {
  let found = await get(`/api/instances/${part(id)}`);
  for (let tries = 0; found.status === "running" && tries < 10; tries += 1) {
    await rest(300);
    found = await get(`/api/instances/${part(id)}`);
  }
  return found;
}

function sending() {
  const form = document.getElementById("send");
  if (!form) return;
  const [problem, done, misfits] = ["problem", "done", "misfits"].map((id) => document.getElementById(id));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show(done, "");
    misfits.hidden = true;
    trying(event.submitter ?? form.querySelector("button"), problem, async () => {
      const sent = cloudEvent(new FormData(form));
      const said = await post("/", sent, "application/cloudevents+json");
      done.className = said.mismatched ? "warn" : "done";
      show(done, receipt(said));
      if (said.mismatched) await explain(misfits, sent, said.mismatched);
    });
  });
}

// Whose model an event did not fit, and why: its own page tells, as soon as the workers have written it down.
async function explain(place, event, count) {
  let found = [];
  for (let tries = 0; found.length < Math.min(count, 3) && tries < 10; tries += 1) {
    if (tries) await rest(300);
    const fresh = await page(`${root}/viewer/event?source=${part(event.source)}&id=${part(event.id)}`);
    found = [...(fresh?.querySelectorAll(".near.misfit") ?? [])];
  }
  place.replaceChildren(...found.map((each) => document.importNode(each, true)));
  if (!found.length) place.textContent = "Why is not recorded; the log of the server says it.";
  place.hidden = false;
}

function cloudEvent(fields) {
  const event = { specversion: "1.0", id: fields.get("id").trim() || newId(), datacontenttype: "application/json" };
  for (const name of ["type", "source"]) {
    event[name] = fields.get(name).trim();
    if (!event[name]) throw new Error(`${name} is needed`);
  }
  if (fields.get("subject").trim()) event.subject = fields.get("subject").trim();
  if (fields.get("to").trim()) event.romancyinstanceid = fields.get("to").trim();
  const text = fields.get("data").trim();
  try {
    event.data = text ? JSON.parse(text) : null;
  } catch (error) {
    throw new Error(`the data is not JSON: ${error.message}`);
  }
  return event;
}

const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

function receipt(said) {
  if (said.delivered === undefined) return "Stored.";
  if (said.differs) return "Not stored: another event has this source and id. Send it with an id of its own.";
  if (said.duplicate) return "It was there already: an event with this source and id was stored before.";
  const parts = [`delivered to ${said.delivered}`];
  if (said.started) parts.push(`started ${said.started}`);
  if (said.mismatched) parts.push(`did not fit the model of ${said.mismatched}`);
  const nobody = !said.delivered && !said.started && !said.mismatched;
  return nobody ? "Stored. Nobody waits for it yet; it is kept for whoever does." : `Stored: ${parts.join(", ")}.`;
}

function starting() {
  const form = document.getElementById("start");
  if (!form) return;
  const fields = JSON.parse(form.dataset.fields).map((each) => ({
    ...each,
    ...make(each.name, each.schema, { required: each.required, value: each.default }),
  }));
  document.getElementById("fields").append(...fields.map((each) => each.element));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trying(event.submitter ?? form.querySelector("button.primary"), document.getElementById("problem"), async () => {
      const body = { ...call(fields), instance_id: document.getElementById("instance-id").value.trim() || null };
      const said = await post(`/api/workflows/${part(form.dataset.workflow)}/start`, body);
      location.assign(`${root}/viewer/instances/${part(said.instance_id)}`);
    });
  });
}

function call(fields) {
  const [args, kwargs] = [[], {}];
  const rest = fields.find((each) => each.kind === "var_positional");
  for (const each of fields) {
    const value = each.read();
    if (value === undefined) continue;
    if (each.kind === "var_positional") args.push(...value);
    else if (each.kind === "var_keyword") Object.assign(kwargs, value);
    else if (each.kind === "positional_only" || (rest && each.kind === "positional_or_keyword")) args.push(value);
    else kwargs[each.name] = value;
  }
  return { args, kwargs };
}
