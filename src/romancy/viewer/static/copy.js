// Buttons that copy text: of an element (`data-copy="#id"`), or their own (`data-text`).
import { toast } from "./api.js";

export function begin() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-text]");
    if (!button) return;
    const text = button.dataset.text ?? document.querySelector(button.dataset.copy)?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text.replaceAll("{origin}", location.origin));
      toast("Copied");
    } catch {
      toast("The browser does not allow copying here: it needs HTTPS or localhost");
    }
  });
}
