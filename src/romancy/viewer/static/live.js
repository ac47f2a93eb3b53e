// What changes on the server changes here: one stream, and pages that look again at what they show, at most once a second.
import { page, root } from "./api.js";
import { now, setNow, tick } from "./clock.js";
import { morph } from "./morph.js";
import * as list from "./list.js";

const CAP = 10001;
const REST = 1000; // milliseconds between looks
const SILENCE = 12000; // milliseconds; a server that lives is heard every five seconds
let lastHeard = 0;
let looking = false;
let waiting = null; // ids that changed since the last look; "all" for whatever is shown

// A browser has few connections to spare for one server: only the tab that is looked at keeps a stream.
export function begin() {
  const sign = document.getElementById("live");
  if (!sign) return;
  let stream = listen(sign);
  setInterval(() => watch(sign), 1000);
  document.addEventListener("visibilitychange", () => {
    stream?.close();
    stream = document.hidden ? null : listen(sign);
  });
  addEventListener("pagehide", () => stream?.close());
  addEventListener("pageshow", (event) => {
    if (event.persisted) stream = listen(sign); // back from the browser's own cache
  });
}

function listen(sign) {
  const stream = new EventSource(`${root}/api/stream`);
  stream.onopen = () => changed(null); // something may have happened between the page and the stream
  stream.onerror = () => say(sign, "off", "not live", "there is no connection to the server");
  stream.onmessage = (message) => {
    const said = JSON.parse(message.data);
    heard(sign, said.database);
    setNow(said.now);
    count(said.counts);
    changed(said.changed);
  };
  stream.addEventListener("beat", (message) => {
    heard(sign, JSON.parse(message.data).database);
    if (leaseIsOver()) changed(null); // a worker that lives has another by now; that it died nobody announces
  });
  return stream;
}

// A connection may stay open though nobody is at the other end: only what is heard counts.
function heard(sign, database) {
  const was = sign.className;
  lastHeard = Date.now();
  if (database) say(sign, "on", "live", "");
  else say(sign, "off", "not live", "the database can't be read");
  if (database && was.endsWith("off")) changed(null);
}

function watch(sign) {
  if (sign.classList.contains("on") && Date.now() - lastHeard > SILENCE) {
    say(sign, "off", "not live", "the server gives no sign of life");
  }
}

function leaseIsOver() {
  const lease = document.querySelector("[data-lease]")?.dataset.lease;
  return lease && Date.parse(lease) < now();
}

function say(sign, state, text, why) {
  sign.className = `live ${state}`;
  sign.title = why;
  sign.lastElementChild.textContent = text;
}

function count(counts) {
  for (const element of document.querySelectorAll("[data-count]")) {
    const n = counts[element.dataset.count];
    element.textContent = n >= CAP ? `${(CAP - 1).toLocaleString("en")}+` : n.toLocaleString("en");
    element.closest("a")?.classList.toggle("none", n === 0);
  }
}

function changed(ids) {
  waiting = ids === null || waiting === "all" ? "all" : new Set([...(waiting ?? []), ...ids]);
  if (!looking && !document.hidden) look();
}

async function look() {
  looking = true;
  while (waiting !== null && !document.hidden) {
    const ids = waiting;
    waiting = null;
    await (document.getElementById("instances") ? list.refresh(ids) : refresh(ids));
    tick();
    await new Promise((done) => setTimeout(done, REST));
  }
  looking = false;
}

// Pages other than the list of instances: ask for the page again, and take over what is different.
async function refresh(ids) {
  const one = document.body.dataset.page === "instance";
  if (one && ids !== "all" && !ids.has(shown())) return;
  if (one && document.querySelector(".head .badge")?.matches(list.FINAL)) return;
  if (!document.querySelector("[data-live-part], [data-steady]")) return;
  const fresh = await page(location.href);
  if (!fresh) return;
  for (const to of document.querySelectorAll("[data-live-part]")) {
    const from = fresh.querySelector(`[data-live-part="${to.dataset.livePart}"]`);
    if (from) morph(to, from);
  }
  if (one && !document.getElementById("timeline") && fresh.getElementById("timeline")) {
    morph(document.getElementById("main"), fresh.getElementById("main"));
  }
  steady(fresh);
}

const shown = () => document.getElementById("cancel").dataset.id;

// Lists whose rows stay where they are: known rows change, gone ones are struck out, new ones are announced.
function steady(fresh) {
  let news = fresh.querySelectorAll("[data-steady]").length - document.querySelectorAll("[data-steady]").length;
  for (const table of document.querySelectorAll("[data-steady]")) {
    const other = [...fresh.querySelectorAll("[data-steady]")].find((t) => t.dataset.steady === table.dataset.steady);
    const rows = new Map([...(other?.querySelectorAll("tbody tr") ?? [])].map((row) => [row.dataset.key, row]));
    for (const row of table.querySelectorAll("tbody tr")) {
      const from = rows.get(row.dataset.key);
      if (from) list.replace(row, from);
      else row.classList.add("gone");
      rows.delete(row.dataset.key);
    }
    news += rows.size;
  }
  list.announce(news > 0 ? "Show what is new" : "");
}
