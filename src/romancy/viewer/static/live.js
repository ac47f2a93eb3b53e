// Live updates: a stream says what changed, and the page refreshes what it shows, at most once a second.
import { page, root } from "./api.js";
import { now, setNow, tick } from "./clock.js";
import { morph } from "./morph.js";
import * as list from "./list.js";

const CAP = 10001;
const PAUSE = 1000; // milliseconds between refreshes
const CALM = 5000; // the same on the front page, which reads more
const SILENCE = 12000; // milliseconds; the server sends something at least every five seconds
let lastHeard = 0;
let refreshing = false;
let pending = null; // ids that changed since the last refresh; "all" for everything shown

// Browsers allow few connections per server, so only the visible tab keeps a stream.
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
    if (event.persisted) stream = listen(sign); // restored from the browser's cache
  });
}

function listen(sign) {
  const stream = new EventSource(`${root}/api/stream`);
  stream.onopen = () => changed(null); // catch up on changes since the page was loaded
  stream.onerror = () => say(sign, "off", "not live", "no connection to the server");
  stream.onmessage = (message) => {
    const update = JSON.parse(message.data);
    heard(sign, update.database);
    setNow(update.now);
    count(update.counts);
    changed(update.changed);
  };
  stream.addEventListener("beat", (message) => {
    heard(sign, JSON.parse(message.data).database);
    if (hasLeaseExpired()) changed(null); // a live worker has renewed it; the death of one is not announced
  });
  return stream;
}

// A connection can stay open after the server is gone, so only messages count as a sign of life.
function heard(sign, database) {
  const was = sign.className;
  lastHeard = Date.now();
  if (database) say(sign, "on", "live", "");
  else say(sign, "off", "not live", "the database can't be read");
  if (database && was.endsWith("off")) changed(null);
}

function watch(sign) {
  if (sign.classList.contains("on") && Date.now() - lastHeard > SILENCE) {
    say(sign, "off", "not live", "no message from the server for 12 seconds");
  }
}

function hasLeaseExpired() {
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
  pending = ids === null || pending === "all" ? "all" : new Set([...(pending ?? []), ...ids]);
  if (!refreshing && !document.hidden) catchUp();
}

async function catchUp() {
  refreshing = true;
  while (pending !== null && !document.hidden) {
    const ids = pending;
    pending = null;
    const isFront = document.body.dataset.page === "now";
    if (document.getElementById("instances")) await list.refresh(ids);
    if (isFront || !document.getElementById("instances")) await refresh(ids);
    tick();
    await new Promise((done) => setTimeout(done, isFront ? CALM : PAUSE));
  }
  refreshing = false;
}

// For pages other than the list of instances: fetch the page again and apply what differs.
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

// Lists whose rows keep their place: known rows are updated, removed ones struck out, new ones announced.
function steady(fresh) {
  let added = fresh.querySelectorAll("[data-steady]").length - document.querySelectorAll("[data-steady]").length;
  for (const table of document.querySelectorAll("[data-steady]")) {
    const other = [...fresh.querySelectorAll("[data-steady]")].find((t) => t.dataset.steady === table.dataset.steady);
    const rows = new Map([...(other?.querySelectorAll("tbody tr") ?? [])].map((row) => [row.dataset.key, row]));
    for (const row of table.querySelectorAll("tbody tr")) {
      const from = rows.get(row.dataset.key);
      if (from) list.replace(row, from);
      else row.classList.add("gone");
      rows.delete(row.dataset.key);
    }
    added += rows.size;
  }
  list.announce(added > 0 ? "Show new rows" : "");
}
