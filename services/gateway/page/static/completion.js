// A text field with a list of completions below it: a combobox of the WAI-ARIA Authoring Practices.

import { h, replace } from "./dom.js";

const PAUSE_MS = 200, SHORTEST = 2; // completions are looked for when the user pauses, from this number of characters on

// find(text): resolves to completions {id, label}; picked(completion): called when the user chooses one.
export function completion(input, list, { find, picked }) {
  let found = [], active = -1, pausing = 0;

  input.addEventListener("input", () => {
    close();
    if (input.value.trim().length >= SHORTEST) pausing = setTimeout(look, PAUSE_MS);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) mark((active + step + found.length + (active < 0 && step < 0 ? 1 : 0)) % found.length);
    else if (event.key === "Enter" && active >= 0) pick(found[active]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation(); // of the form's and the page's own keys
  });

  async function look() {
    const text = input.value.trim();
    try {
      found = await find(text);
    } catch { /* names can be written without help */
      return;
    }
    if (text === input.value.trim() && document.activeElement === input && found.length) open();
  }

  function open() {
    replace(list, found.map((one, place) => h("li", { role: "option", id: `${list.id}-${place}`, "aria-selected": "false",
      // The field keeps the focus.
      onpointerdown: (event) => event.preventDefault(), onclick: () => pick(one) },
      h("span", { dir: "auto" }, one.label), one.id === one.label ? null : h("small", { dir: "auto" }, one.id))));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  }

  function close() {
    clearTimeout(pausing);
    active = -1;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(place) {
    active = place;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
    input.setAttribute("aria-activedescendant", list.children[active].id);
    list.children[active].scrollIntoView({ block: "nearest" });
  }

  function pick(one) {
    input.value = "";
    close();
    picked(one);
  }
}
