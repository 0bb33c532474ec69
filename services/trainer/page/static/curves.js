// The curves of a run: first those of its paper, then those of every run.

import * as api from "./api.js";
import { href, note } from "./address.js";
import { chart, forgetCharts, redrawCharts } from "./chart.js";
import { h, replace } from "./dom.js";
import { words } from "./format.js";

const PAGE = 2000; // records per request
const NEWEST = 5; // steps that count as the last ones in point plots

const line = (title, fields, more = {}) => ({ title, fields, kind: "line", unit: "", about: "", source: "", ...more });
const SECTIONS = [
  ["Learning", [
    line("Reward", ["reward"]), line("F1", ["f1", "validation.f1", "test.f1"]), line("Loss", ["loss"]),
    line("Entropy", ["entropy"], { unit: "nats" }), line("Success rate", ["success"], { about: "questions with a completely correct episode" }),
    line("Questions without spread", ["no_spread"], { about: "all returns of the group are equal" }),
  ]],
  ["Episodes", [
    line("Turns", ["turns"]), line("Generated tokens", ["generated_tokens"]), line("Invalid calls", ["invalid_calls"], { about: "per episode" }),
    line("Answered", ["answered"], { about: "share of episodes" }),
    { ...line("Composition of rollouts", ["direct", "recovered", "incorrect"]), kind: "share" },
    line("Executability", ["executability"], { about: "share of queries that could be executed" }),
    line("Unique final queries", ["unique_queries"], { about: "per question" }),
    line("Branches of a state", ["branches"]), line("Pruned branches", ["pruned"]),
  ]],
  ["Optimiser", [
    line("Gradient norm", ["gradient_norm"]), line("Log-probability gap", ["logprob_gap"], { about: "engine and trainer", unit: "nats" }),
    line("KL to the reference", ["kl"]), line("Clipped tokens", ["clip_fraction"]), line("Staleness", ["staleness"], { about: "versions behind" }),
  ]],
  ["Time", [
    { ...line("A step", ["waited_s", "trained_s", "published_s", "checkpointed_s", "evaluated_s"], { unit: "s" }), kind: "share", whole: false },
    line("A request", ["queued_s", "rolled_out_s", "engine_s", "graph_s"], { unit: "s", about: "in the queue; in the worker, of which waiting for engine and graph" }),
  ]],
];

export async function curvesView(panel, { run, recipe, address }) {
  const records = [];
  let last = 0, phase = address.phase ?? null, smoothing = Number(address.smooth ?? 0.6);

  async function load() {
    for (;;) {
      const page = await api.get(api.run(run, "/metrics"), { since: last, limit: PAGE });
      // A restarted training process resumes at a checkpoint: drop the records after it.
      const resumed = page.records.findLast((record) => record.kind === "resumed");
      if (resumed) {
        const kept = records.filter((r) => r.phase !== resumed.phase || r.step <= resumed.step);
        records.splice(0, records.length, ...kept);
      }
      records.push(...page.records);
      last = page.last;
      if (page.records.length < PAGE) return;
    }
  }
  await load();

  const grid = h("div");
  const controls = h("form", { class: "controls", onsubmit: (event) => event.preventDefault() });
  replace(panel, controls, grid);
  let drawn = "";
  let follows = phase === null; // no phase was chosen: show the newest

  function draw() {
    const phases = [...new Set(records.map((record) => record.phase))];
    if (follows) phase = phases.at(-1) ?? "rl";
    const fields = new Set(records.filter((r) => r.phase === phase).flatMap((r) =>
      Object.keys(r).map((name) => (r.kind === "evaluation" ? `${r.split}.${name}` : name))));
    const known = (figure) => figure.fields.some((name) => fields.has(name));
    const paper = phase === "rl" ? recipe.figures : [];
    const taken = new Set(paper.map((figure) => figure.fields[0]));
    const groups = [[`As ${recipe.paper} plots it`, paper],
      ...SECTIONS.map(([name, figures]) => [name, figures.filter((f) => known(f) && !taken.has(f.fields[0]))])]
      .filter(([, figures]) => figures.length);
    const shape = JSON.stringify([phase, phases, groups.map(([name, figures]) => [name, figures.map((f) => f.title)])]);
    if (shape === drawn) { redrawCharts(); return; }
    drawn = shape;
    forgetCharts();
    replace(controls, controlsOf(phases));
    replace(grid, groups.map(([name, figures]) => h("section", { class: "figures" }, h("h2", {}, name),
      h("div", { class: "grid" }, figures.map((figure) => chart(figure, () => seriesOf(figure)))))),
    groups.length ? null : h("p", { class: "empty" }, "No step of this run is finished yet."));
  }

  function controlsOf(phases) {
    return [
      h("label", {}, "Phase ", h("select", { name: "phase", onchange: (event) => {
        phase = event.target.value;
        follows = false;
        share();
        draw();
      } }, phases.map((name) => h("option", { value: name, selected: name === phase }, words(name))))),
      h("label", {}, "Smoothing ", h("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: String(smoothing), oninput: (event) => {
        smoothing = Number(event.target.value);
        share();
        redrawCharts();
      } })),
    ];
  }

  const share = () => note(href(run, { view: "curves", phase: follows ? null : phase, smooth: smoothing === 0.6 ? null : smoothing }), { instead: true });

  function seriesOf(figure) {
    const steps = records.filter((record) => record.phase === phase && record.kind === "step");
    if (figure.kind === "points") {
      const clouds = steps.filter((record) => record[figure.fields[0]]).map((record) => record[figure.fields[0]]);
      return firstAndLast(clouds, (some) => ({ points: some.flat() }));
    }
    if (figure.kind === "histogram") {
      const all = steps.filter((record) => record[figure.fields[0]]).map((record) => record[figure.fields[0]]);
      return firstAndLast(all, (some) => ({ counts: some.length ? some[0].map((_, k) => some.reduce((sum, one) => sum + one[k], 0)) : [] }));
    }
    return figure.fields.map((field) => {
      const [split, name] = field.includes(".") ? field.split(".") : [null, field];
      const from = split ? records.filter((r) => r.phase === phase && r.kind === "evaluation" && r.split === split) : steps;
      const points = from.filter((r) => Number.isFinite(r[name]) || figure.whole === false).map((r) => [r.step, r[name] ?? 0]);
      return { name: split ?? label(name, figure), points: points.some(([, y]) => y !== 0) || figure.whole !== false ? points : [], smoothing: split ? 0 : smoothing, marks: Boolean(split) };
    });
  }

  draw();
  return {
    refresh: async () => { await load(); draw(); },
    close: forgetCharts,
    revisit: () => {},
  };
}

function label(name, figure) {
  if (figure.fields.some((field) => field.includes("."))) return "training";
  return words(name.replace(/_s$/, "").replace(/^rrcg_/, ""));
}

function firstAndLast(all, make) {
  if (all.length < 2 * NEWEST) return [{ name: `all ${all.length} steps`, ...make(all) }];
  return [{ name: `first ${NEWEST} steps`, ...make(all.slice(0, NEWEST)) }, { name: `last ${NEWEST} steps`, ...make(all.slice(-NEWEST)) }];
}
