// The buttons of the schedules: pause, resume, start now.
import { page, part, post, show, toast } from "./api.js";

const DONE = { pause: "Paused", resume: "It goes on", trigger: "Started" };

export function begin() {
  document.getElementById("schedules")?.addEventListener("click", (event) => {
    const button = event.target.closest("[data-schedule]");
    if (button) act(button, button.dataset.schedule, button.closest("tr").dataset.key);
  });
}

async function act(button, verb, name) {
  const problem = document.getElementById("schedule-problem");
  show(problem, "");
  button.disabled = true;
  try {
    await post(`/api/schedules/${part(name)}/${verb}`, {});
    toast(DONE[verb]);
    const fresh = await page(location.href);
    const rows = fresh?.querySelector("#schedules tbody");
    if (rows) document.querySelector("#schedules tbody").replaceWith(rows);
  } catch (error) {
    show(problem, error.message);
  } finally {
    button.disabled = false;
  }
}
