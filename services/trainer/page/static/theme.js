// Loaded before the page is painted, so that a chosen theme does not flash.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage may be forbidden: the system's theme it is */ }
