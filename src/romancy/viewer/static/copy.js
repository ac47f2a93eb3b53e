// Buttons that copy text: of an element (`data-copy="#id"`), or their own (`data-text`).
import { toast } from "./api.js";

export function begin() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-text]");
    if (!button) return;
    // Only the first place of a command is ours. What follows is data, which can contain the same text.
    const command = button.dataset.text?.replace("{origin}", location.origin);
    const text = command ?? document.querySelector(button.dataset.copy)?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow copying here: it needs HTTPS or localhost");
    }
  });
}
