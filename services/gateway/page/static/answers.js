// The list of answers, each with its evidence.

import { asSparql, copy } from "./copies.js";
import { h, replace } from "./dom.js";
import { shortRelation } from "./walk.js";

const MOST_ROWS = 8; // rows shown per query

// light(answer): called when an answer is pointed at or focused, with null when that ends.
export function answersView(list, { light, labelOf, announce }) {
  let topics = [];

  function item(answer, candidate = false) {
    const label = answer.label ?? answer.value;
    const { triples, sparql } = answer.evidence;
    const supported = !answer.unsupported && Boolean(sparql || triples?.length);
    const card = h("li", { class: "answer", tabindex: "0", "aria-label": spoken(answer, label, supported, candidate),
      onpointerenter: () => light(answer), onpointerleave: () => light(focused()), onfocusin: () => light(answer), onfocusout: () => light(null) },
    h("div", { class: "head" }, h("strong", { dir: "auto" }, label),
      candidate ? h("span", { class: "chip doubtful" }, "candidate") : null,
      answer.kind === "entity" ? null : h("span", { class: "chip" }, answer.kind),
      supportOf(answer.support),
      supported ? h("button", { type: "button", class: "quiet small", onclick: () => copy(asSparql(answer, topics), "SPARQL", announce) }, "Copy SPARQL")
        : h("span", { class: "chip doubtful" }, "no evidence in the graph")),
    answer.label && answer.value !== answer.label ? h("p", { class: "as" }, "written as ", h("span", { dir: "auto" }, answer.value)) : null,
    triples?.length ? chain(triples) : null,
    sparql ? query(answer.evidence) : null);
    card.answer = answer;
    return card;
  }

  function focused() {
    return document.activeElement?.closest?.("li.answer")?.answer ?? null;
  }

  function chain(triples) {
    return h("ol", { class: "chain", "aria-label": "Evidence" }, triples.map(([subject, relation, object]) => h("li", {},
      h("span", { class: "end", dir: "auto" }, labelOf(subject)), h("span", { class: "relation", title: relation }, shortRelation(relation)), h("span", { class: "end", dir: "auto" }, labelOf(object)))));
  }

  return {
    clear(about = []) {
      topics = about;
      replace(list);
    },
    add(answer) {
      list.append(item(answer));
    },
    all(answers, about, { candidates }) {
      topics = about;
      if (list.children.length === answers.length && answers.every((answer, index) => JSON.stringify(answer) === JSON.stringify(list.children[index].answer))) return;
      replace(list, answers.map((answer) => item(answer, candidates)));
    },
    go(number) {
      list.children[number - 1]?.focus();
    },
  };
}

function query({ sparql, rows, boolean }) {
  const variables = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return h("details", { class: "query" }, h("summary", {}, boolean === undefined || boolean === null ? `Found by a query, in ${rows.length} ${rows.length === 1 ? "row" : "rows"}` : `A query says ${boolean ? "yes" : "no"}`),
    h("pre", { dir: "ltr", tabindex: "0" }, sparql),
    rows.length ? h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, variables.map((name) => h("th", { scope: "col" }, `?${name}`)))),
      h("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, variables.map((name) => h("td", { dir: "auto" }, row[name]?.label ?? row[name]?.value ?? "")))))),
    rows.length > MOST_ROWS ? h("p", { class: "muted" }, `and ${rows.length - MOST_ROWS} more`) : null) : null);
}

function supportOf(support) {
  const [given, runs] = support.split("/");
  return runs === "1" ? null : h("span", { class: "chip", title: "runs that gave this answer" }, `${given} of ${runs} runs`);
}

function spoken(answer, label, supported, candidate) {
  return [label, candidate ? "candidate" : "", answer.kind === "entity" ? "" : answer.kind, supported ? "" : "no evidence in the graph"].filter(Boolean).join(", ");
}
