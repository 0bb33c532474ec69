// The agent's thoughts, actions and observations as they arrive: a list of turns for each run.

import { h, replace } from "./dom.js";
import { words } from "./format.js";
import { shortRelation } from "./walk.js";

const MOST_LINES = 4; // lines shown of an observation until it is opened

export function steps(box) {
  const tabs = box.querySelector(".runs"), list = box.querySelector(".turns");
  let runs = [], shown = 0, followed = true;

  function reset() {
    runs = [];
    shown = 0;
    followed = true;
    draw();
  }

  function run(number) {
    while (runs.length <= number) runs.push({ turns: h("ol", { class: "run" }), status: null, last: null });
    return runs[number];
  }

  function draw() {
    replace(list, runs[shown]?.turns);
    drawTabs();
  }

  function drawTabs() {
    tabs.hidden = runs.length < 2;
    replace(tabs, runs.map(({ status }, number) => h("button", { type: "button", class: "quiet", "aria-pressed": String(number === shown),
      onclick: () => { followed = false; show(number); } }, `Run ${number + 1}`, status ? h("span", { class: "muted" }, ` ${words(status)}`) : null)));
  }

  function show(number) {
    shown = number;
    draw();
    bottom(true);
  }

  // Scrolls to the newest turn, unless the user has scrolled away from it.
  function bottom(whatever = false) {
    if (whatever || list.dataset.atEnd !== "false") list.scrollTop = list.scrollHeight;
  }
  list.addEventListener("scroll", () => { list.dataset.atEnd = String(list.scrollTop + list.clientHeight > list.scrollHeight - 40); });

  const parts = {
    thought({ run: number, turn, thought }) {
      const known = runs.length;
      const one = run(number);
      if (runs.length !== known) drawTabs();
      if (followed && number !== shown && runs[shown]?.status) shown = number;
      one.last = h("li", { class: "turn" }, h("span", { class: "number", "aria-hidden": "true" }, String(turn)),
        h("div", { class: "said" }, h("h3", { class: "visually-hidden" }, `Turn ${turn}`), thought ? h("p", { class: "thought", dir: "auto" }, thought) : null));
      one.turns.append(one.last);
      if (list.firstChild !== runs[shown].turns) draw();
      bottom();
    },
    action({ run: number, action }) {
      run(number).last.lastChild.append(actionLine(action));
      bottom();
    },
    observation({ run: number, observation, status, codes, elapsed_ms: ms }) {
      const one = run(number);
      const lines = one.last.querySelectorAll(".action");
      codes.forEach((code, index) => code && lines[index]?.append(h("span", { class: "code" }, code)));
      if (observation) one.last.lastChild.append(observed(observation));
      if (status !== "ok" && status !== "answered") one.last.lastChild.append(h("span", { class: `chip status-${status}` }, words(status)));
      one.last.append(h("span", { class: "took" }, ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`));
      bottom();
    },
  };

  return {
    reset,
    take: (event) => parts[event.event](event),
    // Shows how the runs ended; for a document without earlier events, shows all turns, too.
    end(document) {
      document.runs.forEach(({ status, trajectory }, number) => {
        const one = run(number);
        one.status = status;
        if (one.last) return;
        for (const { turn, thought, actions, observations, elapsed_ms: ms } of trajectory) {
          parts.thought({ run: number, turn, thought });
          actions.forEach((action) => parts.action({ run: number, action }));
          if (observations.length) parts.observation({ run: number, observation: observations.join("\n"), status: "ok", codes: [], elapsed_ms: ms });
        }
      });
      if (runs[shown]?.status && !["answered"].includes(runs[shown].status)) {
        runs[shown].turns.append(h("li", { class: "ended" }, `The run ended: ${words(runs[shown].status)}.`));
      }
      draw();
      bottom();
    },
  };
}

// Arguments that every turn repeats.
const UNTOLD = ["question", "relations", "topics", "expansions", "operations", "return", "ask",
  "missing", "ahead"];

function actionLine({ action, code, ...given }) {
  const named = Object.entries(given).filter(([name, value]) => value !== null && !UNTOLD.includes(name));
  return h("p", { class: "action" }, h("b", {}, words(action)), named.map(([name, value]) => {
    const text = typeof value === "string" ? value : Array.isArray(value) ? value.map((step) => (step.startsWith("^") ? `^${shortRelation(step.slice(1))}` : shortRelation(step))).join(" / ") : JSON.stringify(value);
    return [" ", h("span", { class: "argument", title: `${name}: ${text}`, dir: "auto" }, name === "relation" ? shortRelation(text) : text)];
  }), code ? h("span", { class: "code" }, code) : null);
}

function observed(text) {
  const long = text.split("\n").length > MOST_LINES || text.length > 320;
  if (!long) return h("pre", { class: "observation", dir: "auto" }, text);
  const box = h("pre", { class: "observation clipped", dir: "auto" }, text);
  const more = h("button", { type: "button", class: "quiet more", "aria-expanded": "false", onclick: () => {
    const clipped = box.classList.toggle("clipped");
    more.textContent = clipped ? "all of it" : "less";
    more.setAttribute("aria-expanded", String(!clipped));
  } }, "all of it");
  return h("div", {}, box, more);
}
