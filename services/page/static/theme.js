// Sets the chosen theme before the page is painted, so that it does not flash; then adds the theme button.
"use strict";
{
  const root = document.documentElement;
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch { /* storage is forbidden: use the system's theme */ }
  addEventListener("DOMContentLoaded", () => document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    dispatchEvent(new Event("themechange"));
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch { /* storage is forbidden: the choice is not remembered */ }
  }));
}
