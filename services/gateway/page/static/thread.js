// The thread of a conversation: what was asked before, how the last question was understood, and its correction.

import { h, replace } from "./dom.js";

// correct(understood): called with the complete question that the user meant; renewed(): when a new thread begins.
export function thread(box, { correct, renewed }) {
  let session = null, kg = "", said = [];

  function draw() {
    const last = said.at(-1);
    box.hidden = !last;
    if (!last) return;
    const differs = last.understood && last.understood !== last.question;
    replace(box,
      said.length > 1 ? h("ol", { "aria-label": "Conversation" }, said.slice(0, -1).map((turn) => h("li", {},
        h("span", { dir: "auto" }, turn.question), " ", h("b", { dir: "auto" }, turn.answers.join(", ") || "no answer")))) : null,
      differs ? h("p", { class: "understood" }, "Understood as: ", h("span", { dir: "auto" }, last.understood), " ",
        h("button", { type: "button", class: "quiet small", onclick: edit }, "Correct")) : null,
      said.length > 1 ? h("button", { type: "button", class: "quiet small", onclick: () => { forget(); renewed(); } }, "New conversation") : null);
  }

  function edit() {
    const text = h("input", { value: said.at(-1).understood, maxlength: "2000", dir: "auto", "aria-label": "The complete question" });
    const form = h("form", { class: "understood", onsubmit: (event) => { event.preventDefault(); if (text.value.trim()) correct(said.at(-1).question, text.value.trim()); } },
      text, h("button", { class: "small" }, "Ask"));
    box.querySelector(".understood").replaceWith(form);
    text.focus();
  }

  function forget() {
    session = null;
    said = [];
    draw();
  }

  return {
    // Fields of a request about a graph; another graph begins another thread.
    fields(graph) {
      if (graph !== kg) forget();
      kg = graph;
      return { session: session ?? "new" };
    },
    took({ question, understood, session: id, answers }, { again }) {
      if (!id) return;
      session = id;
      const turn = { question, understood, answers: answers.slice(0, 3).map((answer) => answer.label ?? answer.value) };
      said = [...(again ? said.slice(0, -1) : said), turn].slice(-8);
      draw();
    },
    forget,
  };
}
