// A sample of made questions, one at a time: accept, reject, or edit the wording. Every decision is saved at once.

import { get, post } from "./api.js";
import { announce, h, replace } from "./dom.js";

const MARKS = { accepted: "✓", rejected: "✕", open: "·" };
const SOURCES = { template: "the graph", lexicon: "WordNet", review: "a review" };
const SAYS = { accepted: "accepted", rejected: "rejected", open: "not decided" };

const at = (id) => document.getElementById(id);
let review = null; // as GET /v1/review returns it
let place = 0; // of the question that is shown
let editing = false;
let saving = false; // keys and buttons do nothing until a decision is saved

const shown = () => review.questions[place];
const wordsOf = (question) => question.wording ?? question.text;

async function load() {
  replace(at("notice"));
  try {
    const id = review && shown()?.id;
    review = await get("/v1/review");
    const same = review.questions.findIndex((question) => question.id === id);
    go(same >= 0 ? same : Math.max(0, nextOpen(-1)));
  } catch (error) {
    fail(error);
  }
}

// The place of the next question without a decision, from the one after `from` and around; -1 if there is none.
function nextOpen(from) {
  const { length } = review.questions;
  for (let step = 1; step <= length; step++) {
    const next = (from + step + length) % length;
    if (review.questions[next].verdict === "open") return next;
  }
  return -1;
}

function go(next, { focus = false } = {}) {
  place = next;
  editing = false;
  show();
  if (focus) at("question").querySelector("h2").focus();
}

function show() {
  showProgress();
  at("question").hidden = at("sample").hidden = false;
  replace(at("question"), editing ? editor() : reader());
  replace(at("sample").querySelector("ol"), review.questions.map(entry));
  const current = at("sample").querySelector("[aria-current]");
  const list = current.closest("ol");
  if (current.offsetTop < list.scrollTop || current.offsetTop + current.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = current.offsetTop - list.clientHeight / 2;
}

function showProgress() {
  const { progress, questions, file } = review;
  const decided = questions.filter((question) => question.verdict !== "open").length;
  replace(at("progress"), `${decided} of ${questions.length} shown here are decided. `,
    `${file}: ${progress.questions} questions, ${progress.accepted} accepted (${progress.reworded} with other words), ${progress.rejected} rejected. `,
    decided === questions.length ? h("span", {}, "When you are done: ", h("code", {}, "kbqa questions accept"), " writes the rest.") : null);
}

function entry(question, index) {
  return h("li", {}, h("button", { type: "button", class: `verdict-${question.verdict}`, "aria-current": index === place ? "true" : null, onclick: unlessSaving(() => go(index, { focus: true })) },
    h("span", { class: "mark", "aria-hidden": "true" }, MARKS[question.verdict]), h("span", { dir: "auto" }, wordsOf(question), h("span", { class: "visually-hidden" }, ` (${SAYS[question.verdict]})`))));
}

function head(question) {
  const about = [`${place + 1} of ${review.questions.length}`, question.operation, question.source && `words from ${SOURCES[question.source] ?? question.source.replace("model:", "the model ")}`];
  return h("div", { class: "title" }, h("span", { dir: "auto" }, about.filter(Boolean).join(" · ")),
    h("span", { class: `chip verdict-${question.verdict}` }, SAYS[question.verdict]));
}

function reader() {
  const question = shown();
  return [head(question),
    h("h2", { tabindex: "-1", dir: "auto" }, wordsOf(question)),
    question.wording === null ? null : h("p", {}, h("span", { class: "muted" }, "made as: "), h("del", { dir: "auto" }, question.text)),
    list("Answers", question.answers), question.topics.length ? list("About", question.topics) : null, program(question),
    h("div", { class: "buttons" },
      button("Accept", "A", () => decide("accepted"), "primary"), button("Reject", "R", () => decide("rejected")), button("Edit", "E", edit),
      question.verdict === "open" ? null : button("Take back", "U", () => decide("open")),
      h("span", { class: "end" }, button("Previous", "K", () => step(-1), "quiet"), button("Next", "J", () => step(1), "quiet")))];
}

function editor() {
  const question = shown();
  const field = h("textarea", { id: "wording", rows: "2", maxlength: "1000", dir: "auto", value: wordsOf(question), onkeydown: (event) => {
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      decide("accepted", field.value);
    }
  } });
  return [head(question),
    h("form", { onsubmit: (event) => { event.preventDefault(); decide("accepted", field.value); } },
      h("h2", {}, h("label", { for: "wording" }, "Wording; the answers and the program stay as they are")), field,
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Save and accept", h("kbd", {}, "Enter")), button("Cancel", "Esc", () => go(place, { focus: true })))),
    list("Answers", question.answers), question.topics.length ? list("About", question.topics) : null, program(question)];
}

function list(title, names) {
  return [h("h3", {}, title), names.length ? h("ul", {}, names.map((name) => h("li", { dir: "auto" }, name))) : h("p", { class: "muted" }, "none")];
}

function program({ topics, path, form, sparql }) {
  const steps = path.map(({ relation, inverse }) => [h("span", { class: "relation" }, inverse ? ` ← ${relation} ← ` : ` → ${relation} → `)]);
  return [
    path.length ? [h("h3", {}, "Path"), h("p", { class: "path" }, h("span", { dir: "auto" }, topics.join(", ")), steps.map((one, index) => [one, h("span", {}, index < steps.length - 1 ? "…" : "answers")]))] : null,
    form ? [h("h3", {}, "Logical form"), h("pre", {}, form)] : null,
    sparql ? [h("h3", {}, "SPARQL"), h("pre", {}, sparql)] : null];
}

function button(name, key, onclick, look = null) {
  return h("button", { type: "button", class: look, onclick: unlessSaving(onclick) }, name, h("kbd", { "aria-hidden": "true" }, key));
}

function unlessSaving(act) {
  return () => saving || act();
}

function edit() {
  editing = true;
  show();
  at("wording").focus();
}

function step(by) {
  go((place + by + review.questions.length) % review.questions.length, { focus: true });
}

async function decide(verdict, wording = verdict === "accepted" ? shown().wording : null) {
  if (saving) return;
  saving = true;
  const question = shown();
  try {
    const saved = await (await post("/v1/decisions", { id: question.id, digest: question.digest, verdict, wording })).json();
    Object.assign(question, { verdict: saved.verdict, wording: saved.verdict === "open" ? null : saved.wording });
    review.progress = saved.progress;
    replace(at("notice"));
    const next = verdict === "open" ? place : nextOpen(place);
    go(next >= 0 ? next : place, { focus: true });
    announce(next >= 0 ? SAYS[saved.verdict] : `${SAYS[saved.verdict]}; all questions of the sample are decided`);
  } catch (error) {
    fail(error);
  } finally {
    saving = false;
  }
}

function fail(error) {
  replace(at("notice"), h("div", { class: "problem", role: "alert" }, h("p", {}, error.message),
    error.status === 422 ? null : h("button", { type: "button", onclick: load }, "Load again")));
}

const KEYS = { a: () => decide("accepted"), r: () => decide("rejected"), e: edit, u: () => shown().verdict !== "open" && decide("open"), j: () => step(1), k: () => step(-1), ArrowRight: () => step(1), ArrowLeft: () => step(-1), t: () => at("theme").click() };

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || review === null) return; // a key that is held decides once
  if (editing) {
    if (event.key === "Escape" && !saving) go(place, { focus: true });
    return;
  }
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act && !saving) {
    event.preventDefault();
    act();
  }
});

load();
