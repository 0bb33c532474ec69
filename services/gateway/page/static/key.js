// The API key; only this tab remembers it, and only until it is closed.

import { authenticate } from "./api.js";
import { openDialog } from "./dialogs.js";
import { h } from "./dom.js";

const PLACE = "kbqa.key";
let memory = ""; // used if storage is forbidden

export function currentKey() {
  try {
    return sessionStorage.getItem(PLACE) ?? memory;
  } catch {
    return memory;
  }
}

export function keepKey(key) {
  memory = key;
  try {
    if (key) sessionStorage.setItem(PLACE, key);
    else sessionStorage.removeItem(PLACE);
  } catch { /* storage is forbidden: the key lasts until the page is left */ }
}

// changed(): called when the key has been changed or removed.
export function openKey(changed) {
  const field = h("input", { type: "password", id: "api-key", autocomplete: "off", spellcheck: "false", value: currentKey() });
  const dialog = openDialog("API key", h("form", { method: "dialog", class: "stack" },
    h("p", { class: "muted" }, "The key is sent with every request from this tab, and forgotten when you close the tab. Ask the operator of this gateway for one."),
    h("label", { for: "api-key" }, "Key"), field,
    h("div", { class: "buttons" },
      h("button", { class: "primary", value: "keep" }, "Use this key"),
      currentKey() ? h("button", { value: "forget" }, "Remove the key") : null)));
  dialog.addEventListener("close", () => {
    if (!["keep", "forget"].includes(dialog.returnValue)) return;
    keepKey(dialog.returnValue === "keep" ? field.value.trim() : "");
    changed();
  });
  field.focus();
}

authenticate(() => (currentKey() ? { Authorization: `Bearer ${currentKey()}` } : {}));
