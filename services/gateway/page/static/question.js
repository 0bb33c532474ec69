// The form of a question: its text, graph, topic entities and options.

import * as api from "./api.js";
import { completion } from "./completion.js";
import { h, replace } from "./dom.js";

const GRAPH_PLACE = "kbqa.graph";

// asked(request): called when the form is submitted; cancelled(): called when the user cancels the question;
// graphChosen(name): called when another graph is chosen, and for the first one.
export function questionForm(form, { asked, cancelled, graphChosen }) {
  const text = form.elements.question, graphs = form.elements.kg, go = form.querySelector("#go");
  const chips = form.querySelector(".topics"), adding = form.elements.topic, options = form.querySelector(".options");
  let topics = []; // {id, label, text, candidates}
  let chosen = false; // whether the user chose the topic entities; otherwise they were found in the question
  let asking = false, graph = "";

  completion(adding, form.querySelector("#names"), {
    find: async (text) => (await api.get(`/v1/kg/${encodeURIComponent(graphs.value)}/names`, { text })).names,
    picked: pick,
  });
  text.addEventListener("input", () => {
    if (!chosen && topics.length) {
      topics = []; // they were found in an earlier text
      drawTopics();
    }
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!asking) form.requestSubmit();
  });
  adding.addEventListener("keydown", (event) => {
    if (event.key === "Backspace" && !adding.value && topics.length) remove(topics.at(-1));
    if (event.key !== "Enter" || !adding.value.trim()) return;
    event.preventDefault();
    addTyped();
  });
  adding.addEventListener("change", addTyped);
  addEventListener("pointerdown", (event) => {
    if (!options.contains(event.target)) options.open = false;
  });
  options.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !options.open) return;
    event.stopPropagation();
    options.open = false;
    options.querySelector("summary").focus();
  });
  graphs.addEventListener("change", () => {
    if (graphs.value === graph) return;
    graph = graphs.value;
    try {
      localStorage.setItem(GRAPH_PLACE, graphs.value);
    } catch { /* storage is forbidden: the choice is not remembered */ }
    topics = [];
    chosen = false;
    drawTopics();
    graphChosen(graph);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (asking) cancelled();
    else asked(request());
  });

  function request() {
    const { n_runs: runs, max_turns: turns, timeout_s: seconds, require_evidence: evidence } = form.elements;
    return {
      question: text.value.trim(), kg: graphs.value,
      ...(chosen && topics.length ? { topic_entities: topics.map((topic) => topic.id) } : {}),
      ...(Number(runs.value) > 1 ? { n_runs: Number(runs.value) } : {}),
      ...(turns.value ? { max_turns: Number(turns.value) } : {}),
      ...(seconds.value ? { timeout_s: Number(seconds.value) } : {}),
      ...(evidence.checked ? { require_evidence: true } : {}),
    };
  }

  function addTyped() {
    const id = adding.value.trim();
    adding.value = "";
    if (id) pick({ id, label: id });
  }

  function pick(topic) {
    if (!topics.some(({ id }) => id === topic.id)) topics.push({ candidates: [], ...topic });
    chosen = true;
    drawTopics();
  }

  function remove(topic) {
    topics = topics.filter((other) => other !== topic);
    chosen = topics.length > 0;
    drawTopics();
    adding.focus();
  }

  function drawTopics() {
    replace(chips, topics.map((topic) => h("li", { class: `topic${chosen ? " chosen" : ""}` },
      topic.candidates.length > 1 ? alternatives(topic) : h("span", { dir: "auto", title: topic.id }, topic.label),
      h("button", { type: "button", class: "quiet", "aria-label": `Without ${topic.label}`, onclick: () => remove(topic) }, "✕"))));
    adding.placeholder = topics.length ? "add another" : "found in the question";
  }

  function alternatives(topic) {
    return h("select", { "aria-label": `What “${topic.text}” stands for`, onchange: (event) => {
      const { id, label } = topic.candidates.find((candidate) => candidate.id === event.target.value);
      Object.assign(topic, { id, label });
      chosen = true;
      drawTopics();
      go.focus();
    } }, topic.candidates.map(({ id, label }) => h("option", { value: id, selected: id === topic.id, title: id }, label === id || isAlone(topic, label) ? label : `${label} (${id})`)));
  }

  return {
    async loadGraphs() {
      const list = (await api.get("/v1/kg")).graphs;
      let wanted = graphs.value;
      try {
        wanted ||= localStorage.getItem(GRAPH_PLACE);
      } catch { /* storage is forbidden: use the first graph */ }
      replace(graphs, list.map(({ name, triples }) => h("option", { value: name, selected: name === wanted },
        triples === null ? name : `${name} (${triples.toLocaleString("en")} triples)`)));
      graph = graphs.value;
      if (graph) graphChosen(graph);
      return list;
    },
    // Shows the topic entities that were found in the question, with other candidates for its names.
    linked({ topic_entities: ids, mentions }, labelOf) {
      if (chosen) return;
      topics = ids.map((id) => {
        const mention = mentions.find(({ candidates }) => candidates.some((one) => one.id === id));
        return { id, label: labelOf(id), text: mention?.text ?? labelOf(id), candidates: mention?.candidates ?? [] };
      });
      drawTopics();
    },
    fill({ question, kg, topics: ids }) {
      text.value = question;
      if ([...graphs.options].some((option) => option.value === kg)) graphs.value = graph = kg;
      topics = (ids ?? []).map((id) => ({ id, label: id, candidates: [] }));
      chosen = topics.length > 0;
      drawTopics();
      text.focus();
    },
    pick,
    request,
    asking(now) {
      asking = now;
      go.textContent = now ? "Cancel" : "Ask";
      go.classList.toggle("primary", !now);
    },
    focus() {
      text.focus();
      text.select();
    },
  };
}

function isAlone(topic, label) {
  return topic.candidates.filter((candidate) => candidate.label === label).length === 1;
}
