// The report of an evaluation: figures with intervals, failures by class, and trajectories. The page contains
// its data; nothing is fetched.

import { announce, h, replace, svg } from "./dom.js";
import { fact, figures, row, shareTicks, track } from "./figures.js";
import { duration, number, percent, words } from "./format.js";
import { turnCard } from "./turns.js";

const data = JSON.parse(document.getElementById("data").textContent);
const SHARES = Object.keys(data.metrics).filter((name) => data.titles[name][2]);
const TILES = ["hits@1", "f1", "em_set", "accuracy", "retrieval", "executability", "llm_calls", "generated_tokens"];
const PAIR = [["hits@1", "a"], ["f1", "b"]]; // shown side by side in breakdowns
const CLASSES = {
  outcome: ["Outcomes", "KnowCoder-A1, figure 4a", "All questions: a gold answer was found directly, found after an error or an empty result, or not found."],
  failure: ["Kinds of failure", "Learning-to-Refine, section 5.4.1", "Questions with a wrong answer: the last query failed, no query was sent, or the queries ran but the answer is wrong."],
  error: ["Causes of errors", "KnowCoder-A1, appendix D", "Questions with F1 below 1: an answer that was never retrieved, a gold answer that was never retrieved, or a wrong set although the gold answer was retrieved. Classes are assigned by rules."],
};
const KINDS = { hops: ["By hops", "Length of the gold path"], operation: ["By operation", "What the question asks for in addition to a path"], level: ["By level of generalisation", "As GrailQA defines it"], part: ["By part", "The data sets of the mixture"] };
const GRAPHS = Object.keys(data.graphs);
const PAGE = 20; // trajectories listed at a time

function value(name, x) {
  return data.titles[name][2] ? x.toFixed(3) : number(x);
}

function range(name, [low, high]) {
  return `${value(name, low)} – ${value(name, high)}`;
}

// The units that the bootstrap draws: questions with the same gold path and topics are one group.
function grouped({ questions, groups }) {
  return groups === questions ? "the questions" : `${groups.toLocaleString("en-GB")} groups of questions with the same gold path and topics`;
}

function lead() {
  const how = data.baseline ? `baseline ${words(data.baseline)}` : `recipe ${data.recipe}`;
  return h("header", {}, h("h1", {}, `${data.policy} on ${data.dataset}`),
    h("p", { class: "lead" }, `${data.questions.toLocaleString("en-GB")} questions of the split `, h("code", {}, data.split), `, over `, GRAPHS.length === 1 ? ["the graph ", h("code", {}, GRAPHS[0])] : `${GRAPHS.length} graphs`, `, played as `, h("code", {}, how),
      data.runs.length ? `, with the merged answers of ${data.runs.length} runs` : "", `. Answered in ${duration(data.seconds)}, ${number(data.questions_per_second)} questions per second. Intervals are 95 % bootstrap intervals over ${grouped(data)}.`,
      data.leaking ? " The split was drawn at random, so training contains paraphrases of its questions." : "",
      data.left_out ? ` ${data.left_out} questions were left out because they do not suit the recipe.` : "", data.unjudged ? ` ${data.unjudged} questions have no verdict from the judge.` : ""));
}

function tiles() {
  return h("dl", { class: "tiles" }, TILES.filter((name) => name in data.metrics).map((name, index) =>
    h("div", { class: `tile ${index === 0 ? "first" : ""}` }, h("dt", {}, data.titles[name][0]),
      h("dd", {}, h("strong", {}, value(name, data.metrics[name])), h("span", {}, range(name, data.intervals[name]))))));
}

function shares() {
  return h("div", { class: "card" }, h("h3", {}, "Every share", h("small", {}, "share of questions; executability: share of queries")), h("dl", { class: "rows" },
    SHARES.map((name) => row(data.titles[name][0], null, track(data.metrics[name], data.intervals[name], "a"), value(name, data.metrics[name]), range(name, data.intervals[name]))),
    row("", null, shareTicks(), "", null)));
}

function breakdown(kind) {
  const parts = Object.entries(data.breakdowns[kind]);
  if (!parts.length) return null;
  const [title, about] = KINDS[kind];
  return h("div", { class: "card" }, h("h3", {}, title, h("small", {}, about)), h("dl", { class: "rows" },
    parts.map(([part, { metrics, intervals, questions }]) => row(kind === "hops" && part !== "unknown" ? `${part} ${part === "1" ? "hop" : "hops"}` : words(part), `${questions.toLocaleString("en-GB")} questions`,
      h("div", { class: "pair" }, PAIR.map(([name, paint]) => track(metrics[name], intervals[name], paint, true))),
      PAIR.map(([name], k) => [k ? " / " : "", h("b", {}, value(name, metrics[name]))]), null)),
    row("", null, shareTicks(), "", null)),
  h("ul", { class: "keys" }, PAIR.map(([name, paint]) => h("li", {}, h("i", { class: `key paint-${paint}` }), data.titles[name][0]))));
}

// One bar with the share of each class; `counts` by class.
function stack(counts, total, label) {
  let at = 0;
  return svg("svg", { class: "stack", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": label },
    Object.entries(counts).map(([name, count]) => {
      const x = at, width = total ? 100 * count / total : 0;
      at += width;
      return count ? svg("rect", { class: `paint-${name}`, x, y: 0, width, height: 10 }) : null;
    }));
}

function said(counts, total) {
  return Object.entries(counts).map(([name, count]) => `${words(name)} ${count} (${percent(total ? count / total : NaN)})`).join(", ");
}

function classes(kind) {
  const counts = data.classes[kind], total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const [title, source, about] = CLASSES[kind];
  return h("div", { class: "card" }, h("h3", {}, title, h("small", {}, source)), h("p", { class: "about" }, about),
    total ? stack(counts, total, said(counts, total)) : h("p", { class: "empty" }, "None."),
    h("ul", { class: "keys" }, Object.entries(counts).map(([name, count]) => h("li", {}, h("button", { type: "button", disabled: !data.examples.some((one) => one[kind] === name), title: "Show trajectories like that", onclick: () => browse(kind, name) },
      h("i", { class: `key paint-${name}` }), `${words(name)} `, h("b", {}, count.toLocaleString("en-GB")), h("span", { class: "muted" }, percent(total ? count / total : NaN)))))));
}

function outcomesByHops() {
  const parts = Object.entries(data.outcomes_by_hops);
  return parts.length < 2 ? null : h("div", { class: "card" }, h("h3", {}, "Outcome by hops"), h("dl", { class: "rows" }, parts.map(([hops, counts]) => {
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    return row(`${hops} ${hops === "1" ? "hop" : "hops"}`, null, stack(counts, total, said(counts, total)), percent((total - counts.incorrect) / total), "hit");
  })), outcomeKeys());
}

function outcomeKeys() {
  return h("ul", { class: "keys" }, Object.keys(data.classes.outcome).map((outcome) => h("li", {}, h("i", { class: `key paint-${outcome}` }), words(outcome))));
}

// Histogram of a metric: questions by outcome in each column.
function columns(name) {
  const { edges, width, counts } = data.columns[name];
  const totals = edges.map((_, k) => Object.values(counts).reduce((sum, column) => sum + column[k], 0)), most = Math.max(...totals);
  const every = Math.ceil(edges.length / 8), step = 100 / edges.length;
  const label = (edge) => width === 1 ? String(edge) : `${edge}–${edge + width - 1}`;
  return h("div", { class: "card" }, h("h3", {}, data.titles[name][0], h("small", {}, `per question, mean ${value(name, data.metrics[name])}`)),
    svg("svg", { class: "columns", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `Questions by ${words(name)}: ${edges.map((edge, k) => `${label(edge)}: ${totals[k]}`).join(", ")}` },
      edges.map((edge, k) => {
        let top = 100;
        return Object.entries(counts).map(([outcome, column]) => {
          const tall = 96 * column[k] / most;
          top -= tall;
          return column[k] ? svg("rect", { class: `paint-${outcome}`, x: k * step + step * 0.1, y: top, width: step * 0.8, height: tall }, svg("title", {}, `${label(edge)}: ${column[k]} ${words(outcome)}`)) : null;
        });
      }), svg("line", { class: "base", x1: 0, x2: 100, y1: 100, y2: 100 })),
    h("div", { class: "column-names", "aria-hidden": "true" }, edges.map((edge, k) => h("span", {}, k % every === 0 ? String(edge) : ""))),
    outcomeKeys());
}

function comparison() {
  const other = data.comparison;
  if (!other) return null;
  const signedValue = (name, x) => (x > 0 ? "+" : x < 0 ? "−" : "") + value(name, Math.abs(x));
  return h("section", { id: "comparison" }, h("h2", {}, `Compared with ${other.name}`),
    h("p", { class: "about" }, `On the ${other.questions.toLocaleString("en-GB")} questions that both answered; intervals are bootstrap intervals over ${grouped(other)}. McNemar's test counts the questions that only one of them answered correctly and treats questions as independent. It is exact for small counts, otherwise chi-squared with continuity correction.`),
    figures(["Metric", "This", "That", "Difference", "95 % interval", "Only this : only that", "p by question"], Object.entries(other.differences).map(([name, { ours, theirs, difference, interval, test }]) => {
      const sure = interval[0] > 0 || interval[1] < 0, shows = data.titles[name][2] && sure ? (difference > 0 ? "better" : "worse") : "";
      return h("tr", {}, h("th", { scope: "row" }, data.titles[name][0]), [value(name, ours), value(name, theirs)].map((text) => h("td", { class: "number" }, text)),
        h("td", { class: `number ${shows}` }, h("b", {}, signedValue(name, difference))), h("td", { class: "number" }, `${signedValue(name, interval[0])} … ${signedValue(name, interval[1])}`),
        h("td", { class: "number" }, test ? `${test.ours} : ${test.theirs}` : ""), h("td", { class: "number" }, test ? (test.p < 0.001 ? "< 0.001" : test.p.toFixed(3)) : ""));
    })));
}

function runs() {
  if (!data.runs.length) return null;
  const names = ["hits@1", "f1", "em_set", "hit_any", "accuracy", "retrieval"].filter((name) => name in data.metrics);
  const line = (title, metrics) => h("tr", {}, h("th", { scope: "row" }, title), names.map((name) => h("td", { class: "number" }, value(name, metrics[name] ?? NaN))));
  return h("section", {}, h("h2", {}, "Run by run"), h("p", { class: "about" }, "The first run is played as in the recipe's evaluation; the others are sampled. The union lists first the answers that most runs gave (KG-R1, section 4.1)."),
    figures(["Run", ...names.map((name) => data.titles[name][0])], [...data.runs.map((run, k) => line(`Run ${k + 1}`, run.metrics)), line("Union", data.metrics)]),
    h("p", { class: "about" }, `Pass@K, the probability that one of K runs has a gold answer: ${Object.entries(data.pass_at).map(([k, share]) => `${share.toFixed(3)} (K = ${k})`).join(", ")}.`));
}

function everything() {
  return h("details", { class: "raw" }, h("summary", {}, "All figures and their meaning"), figures(["Metric", "Value", "95 % interval", ""], Object.keys(data.metrics).map((name) =>
    h("tr", {}, h("th", { scope: "row" }, data.titles[name][0]), h("td", { class: "number" }, value(name, data.metrics[name])), h("td", { class: "number" }, range(name, data.intervals[name])), h("td", { class: "muted" }, data.titles[name][1])))));
}

// ---- trajectories

const FILTERS = [["outcome", "Outcome"], ["failure", "Failure"], ["error", "Error"], ["status", "Ended"], ["hops", "Hops"], ["operation", "Operation"], ["level", "Level"]]
  .filter(([name]) => new Set(data.examples.map((one) => one[name] ?? "")).size > 1);
let wanted = {}, open = null, listed = PAGE, shownRun = 0;
const form = h("form", { class: "controls", role: "search", "aria-label": "Filter trajectories", onsubmit: (event) => event.preventDefault() });
const list = h("div", { class: "groups", role: "region", "aria-label": "Trajectories" });
const detail = h("article", { class: "detail", tabindex: "-1", "aria-label": "Trajectory" });
const count = h("p", { class: "muted", id: "count" });
const browser = h("section", { id: "trajectories" }, h("h2", {}, "Trajectories"),
  h("p", { class: "about" }, data.examples.length < data.questions
    ? `${data.examples.length} of the ${data.questions.toLocaleString("en-GB")} questions, sampled evenly from all outcomes, failures and numbers of hops; their shares here differ from those above.`
    : "All questions of this evaluation."), form, count, h("div", { class: "split" }, list, detail));

function controls() {
  const select = ([name, title]) => h("label", {}, `${title} `, h("select", { name, onchange: filter }, h("option", { value: "" }, "any"),
    [...new Set(data.examples.map((one) => one[name] ?? "").filter(Boolean))].sort().map((option) => h("option", { value: option, selected: option === wanted[name] }, words(option)))));
  replace(form, FILTERS.map(select), h("label", { class: "grow" }, "Text ", h("input", { type: "search", name: "text", value: wanted.text ?? "", placeholder: "of the question, an answer or a turn", oninput: filter })),
    h("button", { type: "button", class: "quiet", onclick: () => { wanted = {}; controls(); show(); } }, "Clear"));
}

function filter() {
  wanted = Object.fromEntries([...FILTERS.map(([name]) => name), "text"].map((name) => [name, form.elements[name].value.trim()]).filter(([, text]) => text));
  listed = PAGE;
  show();
}

function browse(name, option) {
  wanted = { [name]: option };
  controls();
  listed = PAGE;
  show();
  browser.scrollIntoView({ block: "start" });
}

function matches(one) {
  const text = (wanted.text ?? "").toLowerCase();
  return FILTERS.every(([name]) => !wanted[name] || one[name] === wanted[name]) && (!text || searchable(one).includes(text));
}

const searched = new Map();
function searchable(one) {
  if (!searched.has(one)) searched.set(one, [one.id, one.question, ...one.gold, ...one.answers, ...one.runs.flatMap((run) => run.turns.map((turn) => `${turn.text} ${turn.observation}`))].join(" ").toLowerCase());
  return searched.get(one);
}

function show() {
  const found = data.examples.filter(matches);
  replace(count, `${found.length} of ${data.examples.length} shown here`);
  announce(`${found.length} trajectories`);
  replace(list, found.length ? found.slice(0, listed).map(item) : h("p", { class: "empty" }, "No trajectory matches."),
    found.length > listed ? h("button", { type: "button", onclick: () => { listed += PAGE; show(); } }, `${found.length - listed} more`) : null);
  if (!found.includes(open)) choose(null);
}

function item(one) {
  return h("a", { class: "group", href: "#trajectories", "aria-current": one === open ? "true" : null, onclick: (event) => { event.preventDefault(); choose(one, true); } },
    h("span", { class: "question", dir: "auto" }, one.question || one.id),
    h("span", { class: "verdict" }, h("span", { class: `chip outcome-${one.outcome}` }, words(one.outcome)), [one.failure, one.error].filter(Boolean).map((name) => h("span", { class: "chip fault" }, words(name)))),
    h("span", { class: "facts" }, h("span", {}, "F1 ", h("b", {}, number(one.measures.f1))), h("span", {}, `${number(one.measures.turns)} turns`), one.hops ? h("span", {}, `${one.hops} hops`) : null));
}

function choose(one, byHand = false) {
  open = one;
  shownRun = 0;
  for (const [at, link] of [...list.querySelectorAll("a.group")].entries()) link.toggleAttribute("aria-current", data.examples.filter(matches)[at] === one);
  browser.classList.toggle("opened", Boolean(one));
  draw();
  if (!byHand) return;
  detail.focus({ preventScroll: true });
  if (detail.getBoundingClientRect().top < 0 || !list.offsetParent) browser.scrollIntoView({ block: "start" });
}

function draw() {
  if (!open) {
    replace(detail, h("p", { class: "empty" }, "Choose a question to read how it was answered."));
    return;
  }
  const gold = new Set(open.gold.map((name) => name.toLowerCase())), run = open.runs[shownRun];
  const answers = (names) => names.length ? names.map((name) => h("span", { class: `answer ${gold.has(name.toLowerCase()) ? "gold" : "other"}`, dir: "auto" }, name)) : "none";
  replace(detail, h("button", { type: "button", class: "quiet back", onclick: () => choose(null) }, "‹ All trajectories"),
    h("h2", { dir: "auto" }, open.question || open.id),
    h("dl", { class: "facts wide" }, fact("Gold answers", open.gold.map((name) => h("span", { class: "answer", dir: "auto" }, name))), fact(open.runs.length > 1 ? "Answers of all runs" : "Answers", answers(open.answers)),
      fact("Topics", open.topics.map((name) => h("span", { class: "answer", dir: "auto" }, name))), open.path.length ? fact("Gold path", h("code", {}, open.path.join(" → "))) : null,
      fact("Class", [open.outcome, open.failure, open.error].filter(Boolean).map((name, k) => h("span", { class: k ? "chip fault" : `chip outcome-${name}` }, words(name)))),
      open.verdict ? fact("Judge", `${open.verdict.correct ? "right" : "wrong"}: ${open.verdict.why}`) : null),
    h("p", { class: "components" }, Object.entries(open.measures).filter(([, x]) => x !== null).map(([name, x]) => h("span", {}, `${data.titles[name][0]} `, h("b", {}, number(x))))),
    open.runs.length > 1 ? h("div", { class: "run-choice", role: "group", "aria-label": "Run" }, open.runs.map((_, k) => h("button", { type: "button", class: "small", "aria-pressed": String(k === shownRun), onclick: () => { shownRun = k; draw(); } }, `Run ${k + 1}`))) : null,
    h("ol", { class: "turns" }, run.turns.map(turnCard)),
    h("p", { class: "ending" }, h("span", { class: `chip status-${run.status}` }, words(run.status)), run.answers.length ? [" ", answers(run.answers)] : " without an answer"));
}

controls();
replace(document.getElementById("main"), h("div", { class: "report" }, lead(), tiles(),
  h("section", { id: "results" }, h("h2", {}, "Accuracy"), h("div", { class: "cards" }, shares(), h("div", { class: "pile" }, Object.keys(KINDS).map(breakdown), outcomesByHops())), everything()),
  comparison(), runs(),
  h("section", { id: "failures" }, h("h2", {}, "Outcomes of the questions"), h("p", { class: "about" }, "Choose a class to read its trajectories."), h("div", { class: "cards" }, Object.keys(CLASSES).map(classes))),
  h("section", {}, h("h2", {}, "Cost of an answer"), h("div", { class: "cards" }, columns("turns"), columns("generated_tokens"))),
  browser,
  h("footer", { class: "end" }, `Policy version ${data.version}, graph version ${GRAPHS.map((name) => data.graphs[name] ?? "–").join(", ")}, seed ${data.seed}; written on ${data.created_at}.`)));
show();
