// Before anything is painted: the theme the visitor chose here, if any. Not a module, so that it runs at once.
"use strict";
try {
  const chosen = localStorage.getItem("romancy-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // No storage: the system's theme it is.
}
