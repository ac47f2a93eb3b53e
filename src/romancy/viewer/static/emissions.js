// What an instance emits, live: text as one piece, other values as lines. A repeated activity begins anew.
import { root } from "./api.js";

const MOST = 2000; // parts kept for each topic: a page is not an archive

export function begin() {
  const panel = document.getElementById("emissions");
  if (!panel) return;
  let stream = null;
  let after = 0;
  let isOver = false;

  // Only while the page is seen: a browser has few connections to one server.
  function look() {
    if (document.hidden || isOver) {
      stream?.close();
      stream = null;
    } else if (!stream) stream = listen();
  }

  function listen() {
    const path = `${root}/api/instances/${encodeURIComponent(panel.dataset.instance)}/emitted?after=${after}`;
    const found = new EventSource(path);
    found.onmessage = (message) => take(add, message);
    found.addEventListener("restart", (message) => take(restart, message));
    found.addEventListener("end", () => {
      isOver = true;
      look();
    });
    return found;
  }

  function take(show, message) {
    const item = JSON.parse(message.data);
    after = item.n;
    show(panel, item);
  }

  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", () => {
    stream?.close();
    stream = null;
  });
  addEventListener("pageshow", look);
  look();
}

function boxOf(panel, topic) {
  const known = [...panel.querySelectorAll("[data-topic]")].find((box) => box.dataset.topic === topic);
  if (known) return known;
  const box = panel.querySelector("template").content.firstElementChild.cloneNode(true);
  box.dataset.topic = topic;
  box.querySelector(".topic").textContent = topic;
  panel.append(box);
  return box;
}

function add(panel, item) {
  const box = boxOf(panel, item.topic);
  const values = box.querySelector(".values");
  const isAtEnd = values.scrollTop + values.clientHeight >= values.scrollHeight - 4;
  const part = document.createElement("span");
  part.dataset.of = item.activity_id ?? "";
  part.textContent = typeof item.value === "string" ? item.value : `${JSON.stringify(item.value)}\n`;
  values.append(part);
  while (values.childElementCount > MOST) values.firstElementChild.remove();
  box.querySelector(".count").textContent = String(Number(box.querySelector(".count").textContent) + 1);
  panel.hidden = false;
  if (isAtEnd) values.scrollTop = values.scrollHeight;
}

function restart(panel, item) {
  const box = boxOf(panel, item.topic);
  for (const part of box.querySelectorAll(".values > span")) if (part.dataset.of === item.activity_id) part.remove();
  box.querySelector(".restarts").textContent = `${item.activity_id} began again, run ${item.attempt}`;
}
