// Buttons that begin the next attempt of an activity at once.
import { part, post, show, toast } from "./api.js";

export function begin() {
  document.getElementById("retrying")?.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-retry-now]");
    if (!button) return;
    button.disabled = true;
    const problem = document.getElementById("retrying-problem");
    show(problem, "");
    try {
      await retryNow(button.closest("tr").dataset.id);
    } catch (error) {
      show(problem, error.message);
      button.disabled = false;
    }
  });
}

export async function retryNow(id) {
  await post(`/api/instances/${part(id)}/retry-now`, {});
  toast("The next attempt begins");
}
