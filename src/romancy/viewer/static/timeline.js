// Zooms the timeline. Positions are percentages of its width, so zooming only widens it.
const MAX_ZOOM = 2 ** 10; // browsers draw nothing beyond some millions of pixels

export function begin() {
  const main = document.getElementById("main");
  let zoom = 1;

  function set(target, at = 0.5) {
    const box = document.getElementById("timeline");
    if (!box) return;
    const labels = box.querySelector(".label")?.offsetWidth ?? 0;
    const room = box.clientWidth - labels;
    const before = zoom;
    zoom = Math.min(MAX_ZOOM, Math.max(1, target));
    const point = (box.scrollLeft + room * at) / before;
    box.style.setProperty("--zoom", zoom);
    box.scrollLeft = point * zoom - room * at;
  }

  const acts = { in: () => set(zoom * 2), out: () => set(zoom / 2), reset: () => set(1) };
  main.addEventListener("click", (event) => {
    const button = event.target.closest("[data-zoom]");
    if (button) acts[button.dataset.zoom]();
    openEntry(event.target.closest(".timeline-box a, .history a.n"));
  });
  main.addEventListener("keydown", (event) => {
    if (!event.target.closest(".timeline-box")) return;
    const act = { "+": "in", "=": "in", "-": "out", 0: "reset" }[event.key];
    if (act && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      acts[act]();
    }
  });
  main.addEventListener("wheel", (event) => {
    const box = event.target.closest(".timeline-box");
    if (!box || (!event.ctrlKey && !event.shiftKey)) return; // let the page scroll
    event.preventDefault();
    const left = box.getBoundingClientRect().left + (box.querySelector(".label")?.offsetWidth ?? 0);
    const at = (event.clientX - left) / Math.max(1, box.getBoundingClientRect().right - left);
    set(zoom * (event.deltaY < 0 ? 1.25 : 0.8), Math.min(1, Math.max(0, at)));
  }, { passive: false });
  if (/^#n\d+$/.test(location.hash)) openEntry({ hash: location.hash });
}

// An entry of the history that a link leads to is shown in full.
function openEntry(link) {
  if (!link || !/^#n\d+$/.test(link.hash ?? link.getAttribute("href"))) return;
  const details = document.querySelector(link.hash || link.getAttribute("href"))?.querySelector("details");
  if (details) details.open = true;
}
