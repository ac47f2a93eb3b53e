// The entry point of every page.
import * as actions from "./actions.js";
import * as clock from "./clock.js";
import * as copy from "./copy.js";
import * as emissions from "./emissions.js";
import * as inbox from "./inbox.js";
import * as keys from "./keys.js";
import * as live from "./live.js";
import * as retrying from "./retrying.js";
import * as saved from "./saved.js";
import * as schedules from "./schedules.js";
import * as select from "./select.js";
import * as sinks from "./sinks.js";
import * as timeline from "./timeline.js";

document.getElementById("theme").addEventListener("click", () => {
  const page = document.documentElement;
  const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("romancy-theme", page.dataset.theme);
  } catch {
    // No storage: the choice lasts until the next page.
  }
});

for (const part of [clock, keys, actions, copy, emissions, inbox, retrying, saved, schedules, select, sinks, timeline, live]) part.begin();
