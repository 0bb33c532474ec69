// The page: chooses the run and the view to show, and refreshes them.

import { go, href, read } from "./address.js";
import * as api from "./api.js";
import { curvesView } from "./curves.js";
import { announce, h, problem, replace } from "./dom.js";
import { duration, number, when, words } from "./format.js";
import { recipeView, versionsView } from "./records.js";
import { trajectoriesView } from "./trajectories.js";

const POLL_MS = 2000;
const VIEWS = { curves: ["Curves", curvesView], trajectories: ["Trajectories", trajectoriesView],
  recipe: ["Recipe", recipeView], versions: ["Versions", versionsView] };
const PHASES = ["prepare", "warm_up", "cold_start", "rl", "done"];

const main = document.getElementById("main");
let current = null; // {run, view, part, close}
let turn = 0; // counts changes of address, so that a response for an earlier one is dropped

async function show() {
  const address = read();
  const view = address.view in VIEWS ? address.view : "curves";
  if (current?.run === address.run && current?.view === view && current?.part?.revisit) {
    current.part.revisit(address);
    return;
  }
  const mine = ++turn;
  current?.part?.close?.();
  current = { run: address.run, view };
  try {
    if (address.run === null) {
      if (location.pathname !== "/") throw new Error(`there is nothing at ${location.pathname}`);
      await showRuns(mine);
    } else {
      await showRun(mine, address, view);
    }
  } catch (error) {
    if (mine === turn) replace(main, problem(error), h("p", {}, h("a", { href: "/", "data-link": "" }, "All runs")));
  }
}

async function showRuns(mine) {
  document.title = "Runs · kbqa trainer";
  const { runs } = await api.get("/v1/runs");
  if (mine !== turn) return;
  const body = h("tbody");
  const table = h("table", { class: "runs" },
    h("thead", {}, h("tr", {}, ["Run", "State", "Phase", "Recipe", "Data set", "F1", "Begun"].map((name) => h("th", { scope: "col" }, name)))),
    body);
  const rows = (list) => list.slice().reverse().map((run) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: href(run.id), "data-link": "" }, run.id)),
    h("td", {}, state(run.state)),
    h("td", {}, words(run.phase), run.of && run.phase !== "done" ? h("span", { class: "muted" }, ` ${run.step} / ${run.of}`) : null),
    h("td", {}, run.recipe), h("td", {}, run.dataset),
    h("td", {}, number(run.f1.rl ?? run.f1.cold_start ?? run.f1.base)), h("td", {}, when(run.created_at))));
  replace(body, rows(runs));
  replace(main, h("h1", {}, "Runs"), runs.length ? h("div", { class: "scroll" }, table)
    : h("p", { class: "empty" }, "No run yet. Start one with ", h("code", {}, "kbqa train"), " or ", h("code", {}, "make demo"), "."));
  repeat(mine, async () => {
    const list = (await api.get("/v1/runs")).runs;
    if (mine !== turn) return false;
    if (list.length && !runs.length) { show(); return false; }
    replaceUnlessFocused(body, rows(list));
    return true;
  });
}

async function showRun(mine, address, view) {
  const run = address.run;
  document.title = `${run} · kbqa trainer`;
  const [shown, recipe] = await Promise.all([api.get(api.run(run)), api.get(api.run(run, "/recipe"))]);
  if (mine !== turn) return;
  const head = h("section", { class: "head", "aria-label": "How the run goes" });
  const panel = h("section", { id: "panel", role: "tabpanel", "aria-labelledby": `tab-${view}` });
  const onTab = document.activeElement?.getAttribute("role") === "tab";
  replace(main, head, tabs(run, view), panel);
  replace(head, summary(shown));
  if (onTab) document.getElementById(`tab-${view}`).focus();
  const part = await VIEWS[view][1](panel, { run, recipe, address, shown });
  if (mine !== turn) { part?.close?.(); return; }
  current.part = part;
  let last = shown.state;
  repeat(mine, async () => {
    const next = await api.get(api.run(run));
    if (mine !== turn) return false;
    replaceUnlessFocused(head, summary(next));
    if (next.state !== last) announce(`The run is ${next.state}.`);
    last = next.state;
    await part?.refresh?.(next);
    return next.state === "running";
  }, shown.state === "running");
}

// Calls `again` periodically while the tab is visible, until `again` returns false.
function repeat(mine, again, going = true) {
  if (!going) return;
  setTimeout(async () => {
    if (mine !== turn) return;
    let on = true;
    if (!document.hidden) {
      try {
        on = await again();
        main.classList.remove("stale");
      } catch {
        main.classList.add("stale"); // the trainer may be restarting; keep what is shown
      }
    }
    repeat(mine, again, on);
  }, POLL_MS);
}

function replaceUnlessFocused(element, children) {
  if (!element.contains(document.activeElement)) replace(element, children);
}

function tabs(run, view) {
  const names = Object.keys(VIEWS);
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": "Views of the run" }, names.map((name) =>
    h("a", { id: `tab-${name}`, role: "tab", href: href(run, { view: name }), "data-link": "",
      "aria-selected": String(name === view), "aria-controls": "panel", tabindex: name === view ? "0" : "-1" },
    VIEWS[name][0])));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = names[(names.indexOf(view) + step + names.length) % names.length];
    go(href(run, { view: next }));
  });
  return list;
}

function summary(run) {
  const at = PHASES.indexOf(run.phase);
  const groups = Object.entries(run.groups);
  const total = groups.reduce((sum, [, count]) => sum + count, 0);
  return [
    h("div", { class: "title" }, h("h1", {}, run.id), state(run.state)),
    h("p", { class: "muted" }, `${run.recipe} on ${run.dataset}, seed ${run.seed} · started ${when(run.created_at)} · running time ${duration(run.seconds)}`,
      run.device ? ` · trained on ${run.device}` : null, run.restarts ? ` · restarts: ${run.restarts}` : null),
    h("ol", { class: "phases", "aria-label": "Phases" }, PHASES.map((phase, index) =>
      h("li", { class: index < at || run.state === "done" ? "past" : index === at ? "now" : "", "aria-current": index === at ? "step" : null },
        words(phase), index === at && run.of && phase !== "done" ? h("span", { class: "count" }, ` ${run.step} / ${run.of}`) : null))),
    run.of && run.state === "running" ? h("progress", { max: String(run.of), value: String(run.step), "aria-label": "Steps of the phase" }) : null,
    run.error ? h("p", { class: "problem", role: "alert" }, run.error) : null,
    Object.entries(run.alarms ?? {}).map(([name, alarm]) =>
      h("p", { class: "alarm", role: "alert" }, h("b", {}, words(name)), `: ${number(alarm.value)} beyond ${number(alarm.bound)}`)),
    run.ended ? h("p", { class: "muted" }, `Ended early: ${run.ended}`) : null,
    h("dl", { class: "tiles" },
      Object.entries({ base: "F1 of the base", cold_start: "F1 after cold start", rl: "F1 after RL" }).map(([key, name]) =>
        tile(name, key in run.f1 ? number(run.f1[key]) : "–", key in run.f1 ? `${run.split} questions` : "not known yet")),
      tile("Latest reward", number(run.latest?.reward), Number.isFinite(run.latest?.reward) ? `step ${run.latest.step}` : "no step of RL yet"),
      tile("Groups", String(total), groups.map(([name, count]) => `${count} ${words(name)}`).join(", ") || "none settled yet"),
      tile("Policy", run.policy ?? "–", run.best ? `best at step ${run.best.step}` : "newest with a result", "small")),
  ];
}

function tile(name, value, about, size = "") {
  return h("div", { class: `tile ${size}` }, h("dt", {}, name), h("dd", {}, h("strong", {}, value), h("span", {}, about)));
}

function state(name) {
  return h("span", { class: `chip state-${name}` }, name);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-link]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
window.addEventListener("popstate", show);
window.addEventListener("addresschange", show);
show();
