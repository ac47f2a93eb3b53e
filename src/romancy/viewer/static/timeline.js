// Zooms the timeline. Positions are percentages of its width, so zooming only widens the chart.
const MAX_ZOOM = 2 ** 14; // browsers draw nothing beyond that

export function begin() {
  const box = document.getElementById("timeline");
  if (!box) return;
  const chart = box.querySelector("svg.chart");
  let zoom = 1;

  function set(target, at = 0.5) {
    const room = box.clientWidth - box.firstElementChild.offsetWidth;
    const before = zoom;
    zoom = Math.min(MAX_ZOOM, Math.max(1, target));
    const point = (box.scrollLeft + room * at) / before;
    chart.setAttribute("width", zoom === 1 ? "100%" : Math.min(room * zoom, 4_000_000));
    box.scrollLeft = point * zoom - room * at;
  }

  const acts = { in: () => set(zoom * 2), out: () => set(zoom / 2), reset: () => set(1) };
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", acts[button.dataset.zoom]);
  }
  box.addEventListener("keydown", (event) => {
    const act = { "+": "in", "=": "in", "-": "out", 0: "reset" }[event.key];
    if (act && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      acts[act]();
    }
  });
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return; // let the page scroll
    event.preventDefault();
    const left = chart.getBoundingClientRect().left - box.getBoundingClientRect().left + box.scrollLeft;
    const at = (event.clientX - box.getBoundingClientRect().left - left) / Math.max(1, box.clientWidth - left);
    set(zoom * (event.deltaY < 0 ? 1.25 : 0.8), Math.min(1, Math.max(0, at)));
  }, { passive: false });

  box.addEventListener("click", (event) => {
    const entry = document.querySelector(event.target.closest("a")?.getAttribute("href") ?? "#none");
    const details = entry?.querySelector("details");
    if (details) details.open = true;
  });
}
