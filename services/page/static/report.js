// The report of training runs: results with intervals, curves, comparisons, questions that tell the
// difference, findings. The page contains its data; nothing is fetched.

import { h, replace, svg } from "./dom.js";
import { duration, number, when, words } from "./format.js";
import { chart, redrawCharts } from "./chart.js";
import { fact, figures, row, shareTicks, track } from "./figures.js";
import { turnCard } from "./turns.js";

const data = JSON.parse(document.getElementById("data").textContent);
const PHASES = { base: "before training", cold_start: "after cold start", rl: "after RL", evaluated: "evaluated" };
const VERDICTS = { "same sign": "good", helps: "good", opposite: "bad", harms: "bad", equivalent: "even", "cannot show": "open", undecided: "open", "not run yet": "open" };
const MOST_VALUES = 80; // values by which recipes differ

const share = (x) => x.toFixed(3);
const between = (low, high) => `${share(low)} – ${share(high)}`;
const points = (x) => `${x > 0 ? "+" : x < 0 ? "−" : "±"}${share(Math.abs(x))}`;
const span = (low, high) => `${points(low)} … ${points(high)}`;
const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en-GB")} ${n === 1 ? one : many}`;
const several = data.scenes.length > 1;
const heading = (scene) => (several ? h("h3", { class: "scene" }, "Data set ", h("code", {}, scene.dataset)) : null);
const system = (index) => data.systems[index];
const hue = (index) => `c${index % 5}`;
const cell = (...text) => h("td", { class: "number" }, text);

function lead() {
  const sets = data.scenes.map((scene) => scene.dataset);
  const what = [data.runs.length ? `${count(data.runs.length, "run")} of ${count(data.systems.length, "system")} on ${sets.length > 1 ? `${sets.length} data sets` : `the data set ${sets[0]}`}` : null,
    data.findings.length ? count(data.findings.reduce((sum, one) => sum + one.findings.length, 0), "finding") : null].filter(Boolean).join(" and ");
  return h("header", {}, h("h1", {}, data.title), h("p", { class: "lead" }, `${what}; written on ${when(data.created_at)} by kbqa ${data.kbqa}.`),
    several ? h("p", { class: "alarm" }, "The runs are on different data sets. Figures of different data sets are shown apart and are not compared.") : null,
    Object.entries(data.left_out).map(([name, why]) => h("p", { class: "problem" }, h("b", {}, name), ` is left out: ${why}`)));
}

// ---- results

function unitOf({ runs, score }) {
  const scored = runs.filter((at) => resultOf(data.runs[at])), seeds = new Set(scored.map((at) => data.runs[at].seed)).size;
  if (!score) return count(runs.length, "run");
  if (scored.length > 1) return `${count(scored.length, "run")} of ${count(seeds, "seed")}, ${seeds > 1 ? "interval over seeds" : "no interval"}`;
  if (score.low === null) return "1 run, no interval on record";
  return score.clusters === score.questions ? `1 run, interval over ${count(score.questions, "question")}` : `1 run, interval over ${count(score.clusters, "cluster")} of ${count(score.questions, "question")}`;
}

function resultOf(run) {
  return run.state === "done" || run.state === "evaluated" ? run.phases.at(-1) : null;
}

function results(scene) {
  const known = scene.systems.filter((at) => system(at).score);
  const splits = [...new Set(data.runs.filter((run) => known.includes(run.system) && run.split).map((run) => run.split))];
  return [heading(scene), known.length ? h("div", { class: "card" }, h("h3", {}, `F1 on the ${splits.join(" and ") || "test"} questions`, h("small", {}, "mean; 95 % interval")), h("dl", { class: "rows" }, known.map((at) => {
    const one = system(at), { mean, low, high } = one.score;
    return row(one.name, unitOf(one), track(mean, low === null ? [mean, mean] : [low, high], `${hue(at)}`), share(mean), low === null ? null : between(low, high));
  }), row("", null, shareTicks(), "", null))) : h("p", { class: "empty" }, "No run is done yet."),
  runTable(scene), values(scene)];
}

function runTable(scene) {
  const runs = scene.systems.flatMap((at) => system(at).runs.map((index) => data.runs[index]));
  const phases = Object.keys(PHASES).filter((phase) => runs.some((run) => run.phases.some((one) => one.phase === phase)));
  return figures(["Run", ["Recipe"], "Seed", ...phases.map((phase) => `F1 ${PHASES[phase]}`), "Gained by training", ["State"], "Took", ["Began"]], runs.map((run) => {
    const of = (phase) => run.phases.find((one) => one.phase === phase)?.score;
    return h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#run-${data.runs.indexOf(run)}` }, run.name)), h("td", { class: "long" }, h("i", { class: `key ${hue(run.system)}` }), system(run.system).name), cell(String(run.seed)),
      phases.map((phase) => { const score = of(phase); return cell(score ? [share(score.mean), score.low === null ? null : h("small", {}, between(score.low, score.high))] : "–"); }),
      cell(run.gained ? [points(run.gained.mean), h("small", {}, span(run.gained.low, run.gained.high))] : "–"),
      h("td", {}, h("span", { class: `chip state-${run.state}` }, run.state)), cell(duration(run.seconds ?? NaN)), h("td", {}, when(run.created_at)));
  }));
}

// The values of the recipes that differ between the systems of a data set.
function values(scene) {
  const recipes = scene.systems.filter((at) => Object.keys(system(at).values).length);
  const names = [...new Set(recipes.flatMap((at) => Object.keys(system(at).values)))];
  if (!names.length) return null;
  const plain = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));
  return h("details", { class: "raw" }, h("summary", {}, `Values in which the recipes differ (${names.length})`),
    figures(["Value", ...recipes.map((at) => [system(at).name])], names.slice(0, MOST_VALUES).map((name) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), recipes.map((at) => h("td", {}, h("code", {}, plain(system(at).values[name]))))))),
    names.length > MOST_VALUES ? h("p", { class: "about" }, `${names.length - MOST_VALUES} more are left out.`) : null);
}

// A difference with its interval on a scale from -reach to reach; `zone` is what would not matter.
function swing({ mean, low, high }, reach, zone = null) {
  const x = (value) => 50 + 50 * Math.max(-1, Math.min(1, value / reach));
  const sure = low !== null && (low > 0 || high < 0) ? (mean > 0 ? "up" : "down") : "unsure";
  return svg("svg", { class: `swing ${sure}`, viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "floor", x: 0, y: 0, width: 100, height: 10 }), zone ? svg("rect", { class: "zone", x: x(-zone), y: 0, width: x(zone) - x(-zone), height: 10 }) : null,
    svg("line", { class: "zero", x1: 50, x2: 50, y1: 0, y2: 10 }),
    low === null ? null : [svg("line", { class: "whisker", x1: x(low), x2: x(high), y1: 5, y2: 5 }), [low, high].map((at) => svg("line", { class: "whisker", x1: x(at), x2: x(at), y1: 3, y2: 7 }))],
    svg("line", { class: "mean", x1: x(mean), x2: x(mean), y1: 1, y2: 9 }));
}

function reachOf(effects) {
  return Math.max(0.02, ...effects.flatMap(({ mean, low, high }) => [mean, low ?? 0, high ?? 0].map(Math.abs)));
}

// Where most intervals fit; one that is far larger ends at the edge of the scale.
function commonReach(effects) {
  const ends = effects.map((one) => reachOf([one])).sort((a, b) => a - b);
  return Math.max(0.02, Math.min(ends.at(-1) ?? 0, 2 * (ends[Math.floor(ends.length / 2)] ?? 0)));
}

function swingTicks(reach) {
  return h("div", { class: "ticks", "aria-hidden": "true" }, [-reach, 0, reach].map((at) => h("span", {}, points(at).replace("±", ""))));
}

function comparisons(scene) {
  if (!scene.comparisons.length) return null;
  const reference = system(scene.reference).name, reach = reachOf(scene.comparisons);
  return h("div", { class: "compared" }, h("h3", {}, `Compared with ${reference}`),
    h("p", { class: "about" }, "Difference in F1 over the questions that both were asked. Of one pair of runs, the interval is a bootstrap interval over clusters of questions that ask for the same; of several pairs, it is Student's over the pairs. McNemar's test counts the questions that only one of the two answers exactly, and treats questions as independent."),
    h("div", { class: "card" }, h("dl", { class: "rows" }, scene.comparisons.map((one) => row(system(one.ours).name, count(one.pairs.length, "pair"), swing(one, reach), points(one.mean), span(one.low, one.high))), row("", null, swingTicks(reach), "", null))),
    figures(["This", ["That"], "Questions", "F1 this", "F1 that", "Difference", "95 % interval", "Only this : only that", "p by question"], scene.comparisons.flatMap((one) => one.pairs.map(({ ours, theirs, difference: d }) =>
      h("tr", {}, h("th", { scope: "row" }, data.runs[ours].name), h("td", {}, data.runs[theirs].name), cell(d.clusters === d.questions ? d.questions.toLocaleString("en-GB") : [d.questions.toLocaleString("en-GB"), h("small", {}, count(d.clusters, "cluster"))]),
        cell(share(d.ours)), cell(share(d.theirs)), h("td", { class: `number ${d.low > 0 ? "better" : d.high < 0 ? "worse" : ""}` }, h("b", {}, points(d.mean))), cell(span(d.low, d.high)), cell(`${d.won} : ${d.lost}`), cell(d.p < 0.001 ? "< 0.001" : d.p.toFixed(3)))))));
}

function missing() {
  return data.runs.some((run) => resultOf(run)?.score.low === null) ? h("p", { class: "about" }, "A result without an interval is of a run that has no answers on record: earlier versions of kbqa did not keep them. ",
    h("code", {}, "kbqa eval RUN DATASET --json FILE"), " asks the questions again; ", h("code", {}, "kbqa report … --evaluation FILE"), " adds the answers.") : null;
}

// ---- curves

let across = "steps", smoothing = 0.6;
const drawn = []; // figures of charts, which depend on what they are drawn over

function curves(scene) {
  if (!scene.charts.length) return null;
  return [heading(scene), h("div", { class: "grid" }, scene.charts.map((one) => {
    const figure = { title: one.title, about: one.about, unit: one.unit, kind: "line", across: "step" };
    drawn.push(figure);
    return chart(figure, () => one[across].map((line) => ({ name: system(line.system).name, colour: line.system, points: line.points, band: line.band, members: line.members, smoothing: one.smoothed ? smoothing : 0, marks: !one.smoothed && line.points.length <= 30 && across === "steps" })));
  }))];
}

function curveControls() {
  const choose = (name) => {
    across = name;
    for (const figure of drawn) figure.across = name === "steps" ? "step" : "seconds";
    redrawCharts();
  };
  return h("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
    h("fieldset", { class: "choice" }, h("legend", { class: "visually-hidden" }, "Drawn over"), [["steps", "over steps"], ["seconds", "over time"]].map(([name, title]) =>
      h("label", {}, h("input", { type: "radio", name: "across", value: name, checked: name === across, onchange: () => choose(name) }), ` ${title}`))),
    h("label", {}, "Smoothing of training curves ", h("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: String(smoothing), oninput: (event) => { smoothing = Number(event.target.value); redrawCharts(); } })));
}

// ---- questions that tell the difference

function tellings(scene) {
  return scene.tellings.length ? [heading(scene), scene.tellings.map((one) => h("div", { class: "telling" }, h("h3", {}, one.title),
    h("p", { class: "about" }, `Only ${inWords(one.ours)} answers ${count(one.won, "question")} exactly, only ${inWords(one.theirs)} ${one.lost.toLocaleString("en-GB")}. ${one.questions.length < one.won + one.lost ? `${one.questions.length} of them, as different as possible:` : ""}`),
    one.questions.map((question) => telling(question, one))))] : null;
}

function inWords(name) {
  return PHASES[name] ? `the policy ${PHASES[name]}` : name;
}

// The turns are drawn when they are opened: a report can have thousands.
function telling(question, { ours, theirs }) {
  const won = question.ours.f1 > question.theirs.f1, body = h("div", { class: "versus" });
  return h("details", { class: "card", ontoggle: (event) => { if (event.target === event.currentTarget && event.target.open && !body.childElementCount) replace(body, side(ours, question.ours, question.gold), side(theirs, question.theirs, question.gold)); } },
    h("summary", {}, h("span", { class: "question", dir: "auto" }, question.question), h("span", { class: "chip right" }, PHASES[won ? ours : theirs] ?? (won ? ours : theirs))),
    h("p", { class: "gold" }, "Gold answers ", question.gold.map((name) => h("span", { class: "answer", dir: "auto" }, name))), body);
}

function side(name, one, golds) {
  const gold = new Set(golds.map((answer) => answer.toLowerCase()));
  return h("section", {}, h("h4", {}, inWords(name), h("span", { class: "credit" }, "F1 ", h("b", {}, number(one.f1)))),
    h("p", {}, h("span", { class: `chip status-${one.status}` }, words(one.status)), " ", one.answers.length ? one.answers.map((answer) => h("span", { class: `answer ${gold.has(answer.toLowerCase()) ? "gold" : "other"}`, dir: "auto" }, answer)) : "no answer"),
    one.turns === null ? h("p", { class: "muted" }, "The turns are not on record.") : h("ol", { class: "turns" }, one.turns.map(turnCard)));
}

// ---- runs

function runs() {
  return data.runs.map((run, index) => h("article", { class: "card run", id: `run-${index}` }, h("div", { class: "title" }, h("h3", {}, run.name), h("span", { class: `chip state-${run.state}` }, run.state)),
    run.problems.map((text) => h("p", { class: "problem" }, text)), run.notes.map((text) => h("p", { class: "alarm" }, text)),
    h("dl", { class: "facts wide" }, fact("Recipe", system(run.system).name), system(run.system).paper ? fact("Reward of", system(run.system).paper) : null, fact("Data set", `${system(run.system).dataset}${run.split ? `, split ${run.split}` : ""}`), fact("Seed", String(run.seed)),
      fact("Began", when(run.created_at)), fact("Took", duration(run.seconds ?? NaN)), run.device ? fact("Trained on", run.device) : null, run.policy ? fact("Policy", h("code", {}, run.policy)) : null,
      run.of && !resultOf(run) ? fact("Progress", `${words(run.phase)}, step ${run.step} of ${run.of}`) : null),
    hops(run)));
}

function hops(run) {
  const known = [...new Set(run.phases.flatMap((phase) => Object.keys(phase.by_hops)))].sort((a, b) => Number(a) - Number(b));
  return known.length ? figures(["F1", "All", ...known.map((hop) => (hop === "1" ? "1 hop" : `${hop} hops`))], run.phases.map((phase) => h("tr", {}, h("th", { scope: "row" }, PHASES[phase.phase] ?? phase.phase), cell(h("b", {}, share(phase.score.mean))), known.map((hop) => cell(hop in phase.by_hops ? share(phase.by_hops[hop]) : "–"))))) : null;
}

// ---- findings

function findings(file, at) {
  const counts = Object.keys(VERDICTS).map((verdict) => [verdict, file.findings.filter((one) => one.verdict === verdict).length]).filter(([, n]) => n);
  const reach = commonReach(file.findings.map((one) => one.effect).filter(Boolean));
  const id = (one) => `finding-${at}-${file.findings.indexOf(one)}`;
  return [h("h3", { class: "scene" }, file.title), file.about ? h("p", { class: "about" }, file.about) : null,
    h("p", { class: "verdicts" }, counts.map(([verdict, n]) => h("span", { class: `chip verdict-${VERDICTS[verdict]}` }, `${n} ${verdict}`))),
    h("div", { class: "card" }, h("dl", { class: "rows" }, file.findings.map((one) => row(h("a", { href: `#${id(one)}` }, one.claim), one.paper || null, one.effect ? swing(one.effect, reach, one.smallest) : h("span", { class: "muted" }, "–"), verdict(one), one.effect ? effect(one.effect) : null)), row("", null, swingTicks(reach), "", null)),
      h("p", { class: "legend" }, "Difference in F1, with − without, and its interval (95 %, unless it says otherwise); what is beyond the scale ends at its edge. Shaded: too small to matter.")),
    file.findings.map((one) => finding(one, id(one)))];
}

function verdict(one) {
  return h("span", { class: `chip verdict-${VERDICTS[one.verdict]}` }, one.verdict);
}

function effect({ mean, low, high, confidence }) {
  return low === null ? points(mean) : `${points(mean)} (${span(low, high)}${confidence === 0.95 ? "" : `, at ${Number((100 * confidence).toFixed(1))} %`})`;
}

function finding(one, id) {
  const differences = one.trials.map((trial) => ({ mean: trial.has - trial.lacks, low: null, high: null }));
  const reach = reachOf([...differences, ...(one.effect ? [one.effect] : [])]);
  return h("article", { class: "card finding", id }, h("div", { class: "title" }, h("h3", {}, one.claim), verdict(one)),
    h("dl", { class: "facts wide" }, one.paper || one.reports ? fact("The paper reports", [one.paper, one.paper && one.reports ? ": " : "", one.reports]) : null, fact("With", h("code", {}, one.has)), fact("Without", h("code", {}, one.lacks)), fact("Measured", `${one.measured}${one.questions ? `, ${count(one.questions, "question")} a seed` : ""}`),
      one.effect ? fact("Effect", effect(one.effect)) : null, one.smallest ? fact("Smallest effect that matters", `±${share(one.smallest)}`) : null),
    one.trials.length ? figures(["Seed", "With", "Without", "Difference", [""]], [...one.trials.map((trial, k) => h("tr", {}, h("th", { scope: "row" }, String(trial.seed)), cell(share(trial.has)), cell(share(trial.lacks)), cell(points(differences[k].mean)), h("td", { class: "drawn" }, swing(differences[k], reach, one.smallest)))),
      one.effect ? h("tr", { class: "on" }, h("th", { scope: "row" }, "mean"), cell(share(mean(one.trials, "has"))), cell(share(mean(one.trials, "lacks"))), cell(points(one.effect.mean)), h("td", { class: "drawn" }, swing(one.effect, reach, one.smallest))) : null]) : null,
    one.learned ? h("p", {}, h("b", {}, "Learned: "), one.learned) : null, one.notes.map((text) => h("p", { class: "muted" }, text)));
}

function mean(trials, name) {
  return trials.reduce((sum, trial) => sum + trial[name], 0) / trials.length;
}

function part(id, title, about, ...children) {
  const shown = children.flat(Infinity).filter(Boolean);
  return shown.length ? h("section", { id }, h("h2", {}, title), about ? h("p", { class: "about" }, about) : null, shown) : null;
}

const charts = data.scenes.map(curves);
replace(document.getElementById("main"), h("div", { class: "report" }, lead(),
  part("results", "Results", null, data.scenes.map((scene) => [results(scene), comparisons(scene)]), missing()),
  part("curves", "Curves", "Several runs of a system are drawn as their mean, with its 95 % interval (Student's, over the runs that are done); each run is drawn faintly. Time is that of the whole run, with everything before reinforcement learning.", charts.some(Boolean) ? [curveControls(), charts] : null),
  part("differences", "Questions that tell the difference", "Questions that only one of two policies answers exactly. Open one to read how both went on.", data.scenes.map(tellings)),
  part("runs", "Runs", null, data.runs.length ? runs() : null),
  part("findings", "Findings", "Claims that were tested by training with something and without it, under several seeds.", data.findings.map(findings))));
