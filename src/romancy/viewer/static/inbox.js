// The buttons of the inbox: remove what was refused.
import { post, show, toast } from "./api.js";

export function begin() {
  document.getElementById("inbox")?.addEventListener("click", (event) => {
    const button = event.target.closest("[data-forget]");
    if (button) forget(button, button.closest("tr"));
  });
}

async function forget(button, row) {
  const problem = document.getElementById("inbox-problem");
  show(problem, "");
  button.disabled = true;
  try {
    await post(`/api/inbox/${row.dataset.key}/forget`, {});
    toast("Removed");
    row.remove();
  } catch (error) {
    show(problem, error.message);
    button.disabled = false;
  }
}
