// The buttons of sinks: try again what was given up.
import { post, show, toast } from "./api.js";

export function begin() {
  document.getElementById("sinks")?.addEventListener("click", (event) => {
    const button = event.target.closest("[data-retry]");
    if (button) retry(button, button.closest("tr"));
  });
}

async function retry(button, row) {
  const problem = document.getElementById("sinks-problem");
  show(problem, "");
  button.disabled = true;
  try {
    await post(`/api/sinks/${encodeURIComponent(row.dataset.key)}/retry`, {});
    toast("They are tried again");
    location.reload();
  } catch (error) {
    show(problem, error.message);
    button.disabled = false;
  }
}
