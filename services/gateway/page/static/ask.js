// The page: asks a question and shows the events of its answer as they arrive.

import * as api from "./api.js";
import { answersView } from "./answers.js";
import { asCurl, copy } from "./copies.js";
import { openDialog, openShortcuts } from "./dialogs.js";
import { announce, h, replace, svg } from "./dom.js";
import { events } from "./events.js";
import { number, words } from "./format.js";
import { graph } from "./graph.js";
import { currentKey, openKey } from "./key.js";
import { forget, past, pastList, remember } from "./past.js";
import { questionForm } from "./question.js";
import { steps } from "./steps.js";
import { asConstruct, asCsv, download } from "./exports.js";
import { thread } from "./thread.js";
import { shortRelation } from "./walk.js";

const TICK_MS = 100, RECENT = 6;
const READER = "reader"; // the policy that comes with kbqa
const SAYS = {
  no_answer: "The agent found no answer.",
  no_topic_entity: "The question names nothing in this graph. Write the name as the graph spells it, or add a topic entity.",
  partial: "The time limit was reached. What was found until then is shown below.",
};

const at = (id) => document.getElementById(id);
const main = at("main"), notice = at("notice"), progress = at("progress"), facts = at("facts"), chosen = at("chosen");
const walked = graph(at("graph"), { choose });
const turns = steps(at("steps"));
const answers = answersView(at("answers"), { light: walked.light, labelOf: walked.label, announce: told });
const form = questionForm(at("ask"), { asked: ask, cancelled: () => current?.abort(), graphChosen: showExamples });
const talk = thread(at("thread"), {
  correct: (question, understood) => ask({ ...form.request(), question }, { understood }),
  renewed: () => { clear(); replace(progress); told("A new conversation begins."); form.focus(); },
});
let current = null; // AbortController of the current question

async function ask(request, { afresh = false, understood = null } = {}) {
  if (!request.question) {
    form.focus();
    return;
  }
  current?.abort();
  const mine = current = new AbortController();
  const clock = begin();
  try {
    const response = await api.post("/v1/answer", { ...request, ...talk.fields(request.kg), ...(understood ? { understood } : {}), stream: true }, { signal: mine.signal,
      headers: { Accept: "text/event-stream", ...(afresh ? { "Cache-Control": "no-cache" } : {}) } });
    for await (const event of events(response)) {
      mine.signal.throwIfAborted();
      if (event.event === "error") throw new api.Problem(event.problem.status, event.problem.detail);
      if (event.event === "done") {
        talk.took(event.document, { again: understood !== null || afresh });
        show(request, event.document);
        remember({ question: request.question, kg: request.kg, topics: request.topic_entities ?? null, document: event.document });
      } else take(event);
    }
  } catch (error) {
    if (error.status === 404) talk.forget(); // the session may have expired: the next question begins another
    if (mine === current) failed(error, request);
  } finally {
    clock();
    if (mine === current) {
      current = null;
      form.asking(false);
    }
  }
}

function clear() {
  replace(notice);
  replace(facts);
  answers.clear();
  turns.reset();
  walked.reset();
  choose(null);
}

// Clears the page and starts the clock; returns a function that stops the clock.
function begin() {
  clear();
  form.asking(true);
  main.className = "asking";
  say("Looking for the entities in the question …");
  const started = performance.now();
  const clock = at("clock");
  const ticking = setInterval(() => { clock.textContent = `${((performance.now() - started) / 1000).toFixed(1)} s`; }, TICK_MS);
  clock.textContent = "";
  return () => clearInterval(ticking);
}

function take(event) {
  switch (event.event) {
    case "linked": {
      const labels = labelsOf(event.linking);
      walked.begin(event.linking.topic_entities.map((id) => ({ id, label: labels.get(id) ?? id })));
      form.linked(event.linking, (id) => labels.get(id) ?? id);
      answers.clear(event.linking.topic_entities);
      if (event.fallback) warn(`${event.policy === READER ? "The reader that comes with kbqa" : event.policy} answers this question, because ${event.fallback}`);
      say(event.linking.topic_entities.length ? `The question is about ${event.linking.topic_entities.map((id) => labels.get(id) ?? id).join(", ")}.` : "The question names nothing in the graph.");
      break;
    }
    case "answer":
      walked.answer(event.answer);
      answers.add(event.answer);
      break;
    case "thought":
      turns.take(event);
      say(`Turn ${event.turn}: thinking …`);
      break;
    case "action":
      turns.take(event);
      say(`Turn ${event.turn}: ${words(event.action.action)} ${event.action.relation ? shortRelation(event.action.relation) : ""}`);
      break;
    case "observation":
      walked.add(event.triples, event.labels);
      turns.take(event);
  }
}

function labelsOf({ mentions }) {
  return new Map(mentions.flatMap(({ candidates }) => candidates.map(({ id, label }) => [id, label])));
}

function show(request, document) {
  main.className = "done";
  const topics = document.linking?.topic_entities ?? [];
  document.answers.forEach(walked.answer);
  answers.all(document.answers.length ? document.answers : document.candidates, topics, { candidates: document.candidates.length > 0 });
  const labels = document.answers.map((answer) => answer.label ?? answer.value);
  if (document.reason) warn(`No answer: ${document.reason}. What comes nearest is shown below.`);
  else if (document.status in SAYS) warn(SAYS[document.status]);
  replace(progress, h("span", { class: `chip status-${document.status}` }, words(document.status)));
  announce(labels.length ? `${labels.length === 1 ? "The answer is" : `${labels.length} answers:`} ${labels.join(", ")}` : SAYS[document.status] ?? words(document.status));
  at("clock").textContent = `${(document.usage.elapsed_ms / 1000).toFixed(1)} s`;
  replace(facts, factsOf(request, document));
  turns.end(document);
}

function factsOf(request, document) {
  const { usage, confidence, presence, policy, policy_version: version } = document;
  const costs = document.cached ? ["answered before"] : [`${usage.llm_calls} model ${usage.llm_calls === 1 ? "call" : "calls"}`,
    `${number(usage.generated_tokens)} tokens written`, `${usage.kg_calls} graph ${usage.kg_calls === 1 ? "call" : "calls"}`];
  const sure = confidence === undefined ? [] : [`how sure: ${confidence}`];
  if (document.candidates.length && presence !== undefined) sure.push(`how likely the graph has the fact: ${presence}`);
  return [
    h("p", { class: "usage" }, [...sure, ...costs, `policy ${policy === version ? policy : `${policy}/${version}`}`].join(" · ")),
    policy === READER ? h("p", { class: "muted" }, `The reader ${document.answers.length ? "answered" : "was asked"}, which was not trained on this graph.`) : null,
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "quiet small", onclick: () => copy(asCurl(request, { key: currentKey() }), "curl command", told) }, "Copy as curl"),
      h("button", { type: "button", class: "quiet small", onclick: () => copy(JSON.stringify(document, null, 1), "JSON", told) }, "Copy JSON"),
      h("button", { type: "button", class: "quiet small", title: "Opens this answer with its evidence, while the gateway keeps it, for whoever has the key that asked", onclick: () => copy(linkTo(document), "link", told) }, "Copy link"),
      document.cached ? h("button", { type: "button", class: "quiet small", title: "The same policy has already answered this question from the same graph.", onclick: () => ask(request, { afresh: true }) }, "Ask afresh") : null,
      thumbs(document)),
  ];
}

function thumbs(document) {
  const send = (verdict, answers = null) => async ({ target }) => {
    try {
      await api.post("/v1/feedback", { answer_id: document.id, verdict, ...(answers ? { answers } : {}) });
      replace(box, h("span", { class: "muted" }, "Thank you."));
      told("Thank you, your verdict has been saved.");
    } catch (error) {
      target.blur();
      warn(error.message);
    }
  };
  const box = h("span", { class: "thumbs", role: "group", "aria-label": "Is the answer right?" },
    h("button", { type: "button", class: "quiet small", "aria-label": "Right", title: "Right", onclick: send("right") }, thumb()),
    h("button", { type: "button", class: "quiet small down", "aria-label": "Wrong", title: "Wrong", onclick: correct }, thumb()));
  // The second click says what is right, if the user knows it.
  function correct() {
    const right = h("input", { maxlength: "1000", dir: "auto", "aria-label": "The right answer, if you know it", placeholder: "the right answer, if you know it" });
    replace(box, h("form", { class: "correction", onsubmit: (event) => {
      event.preventDefault();
      send("wrong", right.value.trim() ? [right.value.trim()] : null)({ target: right });
    } }, right, h("button", { class: "small" }, "Send")));
    right.focus();
  }
  return box;
}

// The page's address with the answer and, for when it is no longer kept, its question.
function linkTo({ id, kg, understood, question }) {
  return `${location.origin}/?${new URLSearchParams({ answer: id, kg, question: understood ?? question })}`;
}

function save(kind) {
  const triples = walked.triples();
  if (!triples.length) {
    told("Nothing has been walked yet.");
    return;
  }
  if (kind === "svg") download("walk.svg", "image/svg+xml", walked.svg());
  else if (kind === "csv") download("walk.csv", "text/csv", asCsv(triples, walked.label));
  else download("walk.rq", "application/sparql-query", asConstruct(triples));
  told(`The walk has been saved as ${kind.toUpperCase()}.`);
}

function thumb() {
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: "M7 11v9H4v-9zM7 11l4-8c1.7 0 2.5 1.2 2.2 2.8L12.6 9h6a2 2 0 0 1 2 2.4l-1.3 6.9a2 2 0 0 1-2 1.7H7" }));
}

function failed(error, request) {
  main.className = main.className === "asking" ? "failed" : main.className;
  if (error.name === "AbortError") {
    replace(progress, h("span", { class: "chip" }, "cancelled"));
    announce("Cancelled.");
    return;
  }
  replace(progress, h("span", { class: "chip status-failed" }, "failed"));
  explain(error, () => ask(request));
}

// Shows an error with the gateway's message and a button for what the user can do.
function explain(error, again) {
  const titles = { 0: "The gateway cannot be reached", 401: "This gateway requires an API key", 403: "This key does not give access", 404: "Not found",
    409: "This gateway serves another policy", 422: "The question cannot be processed", 429: "Too many requests", 503: "Not ready" };
  const button = h("button", { type: "button", onclick: again }, "Try again");
  const actions = error.status === 401 || error.status === 403 ? [h("button", { type: "button", class: "primary", onclick: () => openKey(newKey) }, "Enter an API key")]
    : error.status === 422 || error.status === 409 ? [] : [button];
  replace(notice, h("div", { class: "problem", role: "alert" }, h("h2", {}, titles[error.status] ?? "Something went wrong"), h("p", {}, error.message), h("div", { class: "buttons" }, actions)));
  if (error.retryAfter) countDown(button, error.retryAfter);
  if (error.status === 404) loadGraphs();
}

function countDown(button, seconds) {
  button.disabled = seconds > 0;
  button.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
  if (seconds > 0 && button.isConnected) setTimeout(() => countDown(button, seconds - 1), 1000);
}

function warn(text) {
  notice.append(h("p", { class: "alarm" }, text));
}

function say(text) {
  replace(progress, text);
  announce(text);
}

// Shows a short message that disappears by itself.
function told(text) {
  announce(text);
  const toast = h("p", { class: "toast" }, text);
  document.body.append(toast);
  setTimeout(() => toast.remove(), 2500);
}

function choose(entity) {
  replace(chosen, entity
    ? [h("b", { dir: "auto" }, entity.label), entity.id === entity.label ? null : h("code", { dir: "auto" }, entity.id),
      h("button", { type: "button", class: "quiet small", onclick: () => { form.pick(entity); form.focus(); } }, "Ask about it"),
      h("button", { type: "button", class: "quiet small", onclick: () => copy(entity.id, "id", told) }, "Copy id")]
    : h("span", { class: "muted" }, "Select an entity to ask about it."));
}

// Shows an earlier question, with its answer if the gateway still has it.
async function revisit(entry) {
  current?.abort();
  form.asking(false);
  form.fill(entry);
  const mine = current = new AbortController();
  try {
    const document = await api.get(`/v1/answers/${encodeURIComponent(entry.id)}`);
    if (mine !== current) return;
    clear();
    const { linking, question, kg } = document;
    walked.begin((linking?.topic_entities ?? []).map((id) => ({ id, label: labelsOf(linking).get(id) ?? id })));
    show({ question, kg, ...(entry.topics ? { topic_entities: entry.topics } : {}) }, document);
  } catch {
    told("Press Enter to ask again.");
  } finally {
    if (mine === current) current = null;
  }
}

function openPast() {
  const dialog = openDialog("History", [
    pastList(past(), (entry) => { dialog.close(); revisit(entry); }),
    past().length ? h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => { forget(); dialog.close(); showRecent(); told("The history has been cleared."); } }, "Clear the history")) : null,
    h("p", { class: "muted" }, "The history is stored in this browser only.")]);
}

function showRecent() {
  const entries = past().slice(0, RECENT);
  at("recent").hidden = !entries.length;
  replace(at("recent").querySelector(".list"), pastList(entries, revisit));
}

// Shows questions to which the graph has answers; without any, nothing.
async function showExamples(kg) {
  const box = at("examples");
  box.hidden = true;
  const { questions } = await api.get(`/v1/kg/${encodeURIComponent(kg)}/examples`).catch(() => ({ questions: [] }));
  if (kg !== form.request().kg) return; // another graph was chosen meanwhile
  box.hidden = !questions.length;
  replace(box.querySelector(".list"), h("ul", { class: "past" }, questions.map((question) => h("li", {},
    h("button", { type: "button", class: "quiet", onclick: () => { form.fill({ question, kg }); ask(form.request()); } },
      h("span", { class: "asked", dir: "auto" }, question))))));
}

async function loadGraphs() {
  try {
    const graphs = await form.loadGraphs();
    if (!graphs.length) explain(new api.Problem(503, "No graph is loaded yet: load one with kbqa kg load NAME FILE, then try again."), retryGraphs);
  } catch (error) {
    explain(error, retryGraphs);
  }
}

function retryGraphs() {
  replace(notice);
  loadGraphs();
}

function newKey() {
  replace(notice);
  told(currentKey() ? "The key is now in use." : "The key has been removed.");
  loadGraphs();
}

function flip() {
  const listed = at("graph").classList.toggle("listed");
  at("as-list").setAttribute("aria-pressed", String(listed));
}

const KEYS = { "/": () => form.focus(), "?": openShortcuts, g: () => walked.fit(), l: flip, h: openPast, k: () => openKey(newKey), t: () => at("theme").click() };

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (current) current.abort();
    else event.target.blur?.(); // makes letters shortcuts again
    return;
  }
  if (event.target.closest?.("input, textarea, select")) return;
  const act = KEYS[event.key] ?? (/^[1-9]$/.test(event.key) ? () => answers.go(Number(event.key)) : null);
  if (!act) return;
  event.preventDefault();
  act();
});
at("open-history").addEventListener("click", openPast);
at("open-key").addEventListener("click", () => openKey(newKey));
at("open-shortcuts").addEventListener("click", openShortcuts);
at("as-list").addEventListener("click", flip);
at("fit").addEventListener("click", () => walked.fit());
at("closer").addEventListener("click", () => walked.zoom(1.25));
at("farther").addEventListener("click", () => walked.zoom(0.8));
for (const button of document.querySelectorAll("[data-export]")) button.addEventListener("click", () => { at("exports").open = false; save(button.dataset.export); });
choose(null);
showRecent();
loadGraphs().then(() => {
  const shared = Object.fromEntries(new URLSearchParams(location.search));
  if (shared.answer && shared.question) revisit({ id: shared.answer, question: shared.question.slice(0, 2000), kg: shared.kg ?? "", topics: null });
});
