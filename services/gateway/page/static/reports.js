// Reports of training runs: the list, and one report with its trajectories.

import { go, href, read } from "./address.js";
import * as api from "./api.js";
import { h, replace, svg } from "./dom.js";
import { duration, number, when, words } from "./format.js";
import { openKey } from "./key.js";
import { trajectoriesView } from "./trajectories.js";

const PHASES = ["base", "cold_start", "rl"];
const BAR = { height: 150, width: 26, gap: 5, room: 44, top: 18, bottom: 22 };

const main = document.getElementById("main");
let current = null; // {run, view, part}
let turn = 0; // counts changes of address, so that a response for an earlier one is dropped

async function show() {
  const address = read();
  const view = address.view === "trajectories" ? "trajectories" : "report";
  if (current?.run === address.run && current.view === view && current.part?.revisit) {
    current.part.revisit(address);
    return;
  }
  const mine = ++turn;
  current = { run: address.run, view };
  try {
    if (address.run === null) await showList(mine);
    else await showReport(mine, address, view);
  } catch (error) {
    if (mine === turn) replace(main, failure(error));
  }
}

function failure(error) {
  const locked = error.status === 401 || error.status === 403;
  return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message), locked
    ? h("button", { type: "button", class: "primary", onclick: () => openKey(show) }, "Enter an API key")
    : h("a", { href: "/reports", "data-link": "" }, "All reports"));
}

async function showList(mine) {
  document.title = "Reports · kbqa";
  const { reports } = await api.get("/v1/reports");
  if (mine !== turn) return;
  replace(main, h("h1", {}, "Reports"), reports.length ? h("div", { class: "scroll", tabindex: "0" }, h("table", { class: "reports" },
    h("thead", {}, h("tr", {}, ["Run", "Data set", "F1 on held-out questions", "Questions", "Took", "Policy", "Written"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, reports.map(row))))
    : h("p", { class: "empty" }, "No report yet: train with ", h("code", {}, "kbqa train"), " or ", h("code", {}, "make demo"), "; what is under this gateway's ", h("code", {}, "KBQA_HOME"), " is shown here."));
}

function row({ id, summary, problem, written_at: at, steps }) {
  return h("tr", {}, h("th", { scope: "row" }, h("a", { href: href(id), "data-link": "" }, id)),
    summary ? [h("td", {}, summary.dataset), h("td", {}, course(summary.f1)), h("td", {}, String(summary.questions)), h("td", {}, duration(summary.seconds)), h("td", {}, h("code", {}, summary.policy))]
      : h("td", { colspan: "5", class: "muted" }, problem ?? `not done; trajectories of ${steps} steps`),
    h("td", {}, when(at)));
}

// base 0.01 → cold start 0.51 → rl 0.64
function course(f1) {
  const known = PHASES.filter((phase) => phase in f1);
  return h("span", { class: "course" }, known.map((phase, index) => [index ? h("span", { class: "muted" }, "→") : null,
    h(index === known.length - 1 ? "b" : "span", { title: words(phase) }, f1[phase].toFixed(3))]));
}

async function showReport(mine, address, view) {
  const report = await api.get(`/v1/reports/${encodeURIComponent(address.run)}`);
  if (mine !== turn) return;
  document.title = `${report.id} · kbqa`;
  const panel = h("section", { id: "panel", "aria-label": view === "report" ? "Report" : "Trajectories" });
  replace(main, h("div", { class: "title" }, h("h1", {}, report.id), h("span", { class: "chip" }, words(report.kind))),
    h("nav", { class: "tabs", "aria-label": "Views of the report" }, [["report", "Report"], ["trajectories", `Trajectories (${report.steps} ${report.steps === 1 ? "step" : "steps"})`]].map(([name, title]) =>
      h("a", { href: href(report.id, { view: name === "report" ? null : name }), "data-link": "", "aria-current": name === view ? "page" : null }, title))), panel);
  if (view === "trajectories") current.part = await trajectoriesView(panel, { run: report.id, address });
  else replace(panel, report.summary ? figures(report.summary) : h("p", { class: "empty" }, report.problem ?? "The run is not done yet; its results appear when it ends."));
}

function figures(summary) {
  const hops = [...new Set(Object.values(summary.f1_by_hops).flatMap(Object.keys))].sort((a, b) => Number(a) - Number(b));
  const phases = PHASES.filter((phase) => phase in summary.f1);
  return [
    h("dl", { class: "tiles" }, phases.map((phase) => tile(`F1 ${{ base: "of the base", cold_start: "after cold start", rl: "after RL" }[phase]}`, number(summary.f1[phase]), `${summary.questions} held-out questions`)),
      tile("Took", duration(summary.seconds), summary.ended ? `ended early: ${summary.ended}` : "to its end"), tile("Data set", summary.dataset, `seed ${summary.seed}`, "small"), tile("Policy", summary.policy, "that came of it", "small")),
    h("figure", { class: "card" }, h("figcaption", {}, h("h2", {}, "F1 by hops of the question")),
      h("div", { class: "scroll", tabindex: "0" }, bars(summary, phases, hops)),
      h("p", { class: "legend", "aria-hidden": "true" }, phases.map((phase) => h("span", {}, h("i", { class: `key phase-${phase}` }), words(phase))))),
  ];
}

function bars(summary, phases, hops) {
  const group = phases.length * (BAR.width + BAR.gap) + BAR.room;
  const width = hops.length * group + 10, base = BAR.height - BAR.bottom, scale = base - BAR.top;
  const says = hops.map((hop) => `${hop} hops: ${phases.map((phase) => `${words(phase)} ${number(summary.f1_by_hops[phase]?.[hop])}`).join(", ")}`).join("; ");
  return svg("svg", { class: "bars", role: "img", "aria-label": says, width, height: BAR.height, viewBox: `0 0 ${width} ${BAR.height}` },
    svg("line", { class: "base", x1: 0, x2: width, y1: base, y2: base }),
    hops.map((hop, index) => [
      svg("text", { x: index * group + (group - BAR.room) / 2 + 10, y: BAR.height - 5, "text-anchor": "middle" }, `${hop} ${hop === "1" ? "hop" : "hops"}`),
      phases.map((phase, k) => {
        const value = summary.f1_by_hops[phase]?.[hop] ?? 0, x = 10 + index * group + k * (BAR.width + BAR.gap), tall = Math.max(1, value * scale);
        return [svg("rect", { class: `phase-${phase}`, x, y: base - tall, width: BAR.width, height: tall, rx: 3 }),
          svg("text", { x: x + BAR.width / 2, y: base - tall - 5, "text-anchor": "middle" }, value.toFixed(2))];
      }),
    ]));
}

function tile(name, value, about, size = "") {
  return h("div", { class: `tile ${size}` }, h("dt", {}, name), h("dd", {}, h("strong", {}, value), h("span", {}, about)));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-link]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
addEventListener("popstate", show);
addEventListener("addresschange", show);
show();
