// Applies the theme the visitor chose, before anything is painted. Not a module, so that it runs at once.
"use strict";
try {
  const chosen = localStorage.getItem("romancy-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // No storage: use the system's theme.
}
