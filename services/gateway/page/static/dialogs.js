// Dialogs, one at a time; Escape, the button or a click outside closes them.

import { h } from "./dom.js";

export function openDialog(title, children, { wide = false } = {}) {
  const dialog = h("dialog", { class: wide ? "wide" : null, "aria-label": title },
    h("header", {}, h("h2", {}, title), h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => dialog.close() }, "✕")), children);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const SHORTCUTS = [["/", "write a question"], ["Enter", "ask the question"], ["Shift Enter", "insert a line break"], ["Escape", "cancel the question; or leave a field, so that the keys below work"],
  ["1 … 9", "go to that answer and highlight its evidence"], ["G", "fit the drawing of the graph"], ["L", "show the graph as a drawing or a list"],
  ["H", "history"], ["K", "API key"], ["T", "light or dark theme"], ["?", "this list"]];

export function openShortcuts() {
  openDialog("Keyboard", h("dl", { class: "shortcuts" }, SHORTCUTS.map(([keys, what]) =>
    h("div", {}, h("dt", {}, keys.split(" ").map((key) => (key === "…" ? " … " : h("kbd", {}, key)))), h("dd", {}, what)))));
}
