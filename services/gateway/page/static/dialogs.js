// Dialogs: one at a time, closed by Escape, by their button, or by a click beside them.

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

const SHORTCUTS = [["/", "write a question"], ["Enter", "ask it"], ["Shift Enter", "a new line in it"], ["Escape", "cancel what is asked; or leave a field, for the keys below"],
  ["1 … 9", "go to that answer, and light up its evidence"], ["G", "draw the graph to fit"], ["L", "the graph as drawing or as list"],
  ["H", "history"], ["K", "API key"], ["T", "light or dark"], ["?", "this list"]];

export function openShortcuts() {
  openDialog("Keyboard", h("dl", { class: "shortcuts" }, SHORTCUTS.map(([keys, what]) =>
    h("div", {}, h("dt", {}, keys.split(" ").map((key) => (key === "…" ? " … " : h("kbd", {}, key)))), h("dd", {}, what)))));
}
