// The newest questions asked in this browser; they are stored only in the browser.

import { h } from "./dom.js";
import { when, words } from "./format.js";

const PLACE = "kbqa.history", MOST = 50, MOST_ANSWERS = 5;

export function past() {
  try {
    const entries = JSON.parse(localStorage.getItem(PLACE) ?? "[]");
    return Array.isArray(entries) ? entries.filter((entry) => typeof entry?.question === "string") : [];
  } catch {
    return [];
  }
}

export function remember({ question, kg, topics, document }) {
  const entry = { at: new Date().toISOString(), question, kg, topics, id: document.id, status: document.status,
    answers: document.answers.slice(0, MOST_ANSWERS).map((answer) => answer.label ?? answer.value) };
  const same = (other) => other.question === question && other.kg === kg;
  keep([entry, ...past().filter((other) => !same(other))].slice(0, MOST));
}

export function forget() {
  try {
    localStorage.removeItem(PLACE);
  } catch { /* storage is forbidden: nothing was stored */ }
}

function keep(entries) {
  try {
    localStorage.setItem(PLACE, JSON.stringify(entries));
  } catch {
    if (entries.length > 1) keep(entries.slice(0, entries.length >> 1)); // the storage may be full
  }
}

// choose(entry): called when an entry is clicked.
export function pastList(entries, choose) {
  if (!entries.length) return h("p", { class: "empty" }, "Nothing has been asked in this browser yet.");
  return h("ul", { class: "past" }, entries.map((entry) => h("li", {}, h("button", { type: "button", class: "quiet", onclick: () => choose(entry) },
    h("span", { class: "asked", dir: "auto" }, entry.question),
    h("span", { class: "about" }, `${entry.kg} · ${when(entry.at)} · `, entry.answers?.length ? h("b", { dir: "auto" }, entry.answers.join(", ")) : words(entry.status))))));
}
