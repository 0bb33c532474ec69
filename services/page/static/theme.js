// Loaded before the page is painted, so that a chosen theme does not flash; then, the button that chooses.
"use strict";
{
  const root = document.documentElement;
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch { /* storage may be forbidden: the system's theme it is */ }
  addEventListener("DOMContentLoaded", () => document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    dispatchEvent(new Event("themechange"));
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch { /* then it is chosen again next time */ }
  }));
}
