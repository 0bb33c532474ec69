// Trajectories of a run: the filtered groups, one group with its episodes, and one path through it.

import * as api from "./api.js";
import { href, note } from "./address.js";
import { announce, h, problem, replace } from "./dom.js";
import { forest, pathTo } from "./forest.js";
import { number, percent, signed, words } from "./format.js";
import { actionCard } from "./turns.js";

const FILTERS = ["step", "status", "outcome", "question"];
const TYPING_MS = 300;

export async function trajectoriesView(panel, { run, address }) {
  let filters = pick(address), open = { step: address.at ?? null, group: address.group ?? null, turn: turnOf(address) };
  let steps = (await api.get(api.run(run, "/steps"))).steps;
  let asked = 0; // counts requested lists, so that only the newest is shown
  const form = h("form", { class: "controls", role: "search", "aria-label": "Filter groups", onsubmit: (event) => event.preventDefault() });
  const list = h("div", { class: "groups", "aria-label": "Groups", role: "region" });
  const detail = h("article", { class: "detail", tabindex: "-1", "aria-label": "Group" });
  if (!steps.length) {
    replace(panel, h("p", { class: "empty" }, "No step of reinforcement learning is finished yet, or rollouts are not kept (",
      h("code", {}, "KBQA_TRAINER_TRACES"), ")."));
  } else begin();

  function begin() {
    replace(panel, form, h("div", { class: "split" }, list, detail));
    replace(form, controls());
    load();
    showGroup();
  }

  function controls() {
    const names = (key) => [...new Set(steps.flatMap((step) => Object.keys(step[key])))].sort();
    const select = (name, title, options, tell = words) => h("label", {}, `${title} `, h("select", { name, onchange: filter },
      h("option", { value: "" }, "any"), options.map((value) => h("option", { value: String(value), selected: String(value) === filters[name] }, tell(value)))));
    let typing;
    return [
      select("step", "Step", steps.map((step) => step.step).reverse(), String),
      h("span", { class: "pair" },
        h("button", { type: "button", class: "quiet", "aria-label": "Earlier step", onclick: () => move(-1) }, "‹"),
        h("button", { type: "button", class: "quiet", "aria-label": "Later step", onclick: () => move(1) }, "›")),
      select("status", "An episode", names("statuses")),
      select("outcome", "The group", names("outcomes")),
      h("label", { class: "grow" }, "Question ", h("input", { type: "search", name: "question", value: filters.question ?? "", maxlength: "200", placeholder: "words of it, or its id",
        oninput: () => { clearTimeout(typing); typing = setTimeout(filter, TYPING_MS); } })),
      h("button", { type: "button", class: "quiet", onclick: clear }, "Clear"),
    ];
  }

  function filter() {
    filters = Object.fromEntries(FILTERS.map((name) => [name, form.elements[name].value.trim()]));
    share(true);
    load();
  }

  function clear() {
    filters = {};
    replace(form, controls());
    share(true);
    load();
  }

  function move(by) {
    const all = steps.map((step) => step.step);
    const at = filters.step ? all.indexOf(Number(filters.step)) : all.length;
    const to = all[Math.min(all.length - 1, Math.max(0, at + by))];
    filters = { ...filters, step: String(to) };
    form.elements.step.value = filters.step;
    share(true);
    load();
  }

  async function load(cursor = null) {
    const mine = ++asked;
    try {
      const page = await api.get(api.run(run, "/groups"), { ...filters, cursor, limit: 40 });
      if (mine !== asked) return;
      list.querySelector(".more")?.remove();
      const items = page.groups.map(item);
      const more = page.next ? h("button", { type: "button", class: "more", onclick: () => load(page.next) }, "More groups") : null;
      if (cursor) list.append(...items, ...(more ? [more] : []));
      else replace(list, items.length ? items : h("p", { class: "empty" }, "No group matches."), more);
      if (!cursor) announce(items.length ? `${items.length}${page.next ? " or more" : ""} groups` : "No group matches.");
      mark();
    } catch (error) {
      if (mine === asked) replace(list, problem(error));
    }
  }

  function item(group) {
    return h("a", { class: "group", href: href(run, { view: "trajectories", ...filters, at: group.step, group: group.id }), "data-group": `${group.step}/${group.id}`,
      onclick: (event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
        event.preventDefault();
        event.stopPropagation();
        open = { step: String(group.step), group: group.id, turn: null };
        share();
        showGroup({ focus: true });
      } },
    h("span", { class: "question", dir: "auto" }, group.question || group.question_id),
    h("span", { class: "facts" },
      h("span", {}, `step ${group.step}`), h("span", { class: `chip outcome-${group.outcome}` }, words(group.outcome)),
      h("span", {}, "reward ", h("b", {}, number(group.reward))), h("span", {}, "F1 ", h("b", {}, number(group.f1)), group.best_f1 > group.f1 ? ` (best ${number(group.best_f1)})` : "")),
    statusBar(group));
  }

  function statusBar(group) {
    const parts = Object.entries(group.statuses).sort();
    const says = parts.map(([name, count]) => `${count} ${words(name)}`).join(", ");
    return h("span", { class: "bar", role: "img", "aria-label": says, title: says },
      parts.map(([name, count]) => h("span", { class: `part-${name} share-${Math.max(1, Math.round(20 * count / group.episodes))}` })));
  }

  function mark() {
    for (const link of list.querySelectorAll("a.group")) {
      const on = link.dataset.group === `${open.step}/${open.group}`;
      link.toggleAttribute("aria-current", on);
    }
  }

  async function showGroup({ focus = false } = {}) {
    mark();
    panel.classList.toggle("opened", Boolean(open.group));
    if (!open.group) {
      replace(detail, h("p", { class: "empty" }, "Choose a group to read its episodes."));
      return;
    }
    const { step, group: id } = open;
    try {
      const group = await api.get(api.run(run, `/groups/${encodeURIComponent(step)}/${encodeURIComponent(id)}`));
      if (open.step !== step || open.group !== id) return;
      if (open.turn === null || !group.turns[open.turn]) open.turn = best(group);
      draw(group);
      if (focus) {
        detail.focus({ preventScroll: true });
        if (detail.getBoundingClientRect().top < 0 || !list.offsetParent) panel.scrollIntoView({ block: "start" });
      }
    } catch (error) {
      replace(detail, back(), problem(error));
    }
  }

  function draw(group) {
    const choose = (turn) => {
      open.turn = turn;
      share(true);
      draw(group);
      detail.querySelector(`[data-turn="${turn}"]`)?.focus({ preventScroll: true });
    };
    const { summary } = group;
    const path = pathTo(group.turns, open.turn);
    const leaf = group.episodes.find((episode) => episode.last !== null && pathTo(group.turns, episode.last).includes(open.turn));
    const scrolled = detail.querySelector(".forest-box")?.scrollLeft ?? 0, top = detail.querySelector(".forest-box")?.scrollTop ?? 0;
    replace(detail, back(),
      h("h2", { dir: "auto" }, summary.question || summary.question_id),
      h("dl", { class: "facts wide" },
        fact("Gold answers", group.gold.length ? group.gold.map((answer) => h("span", { class: "answer", dir: "auto" }, answer)) : "none"),
        fact("Topics", group.topics.map((topic) => h("span", { class: "answer", dir: "auto" }, topic))),
        fact("Group", [h("span", { class: `chip outcome-${summary.outcome}` }, words(summary.outcome)), ` ${summary.id}, step ${summary.step}, graph ${group.kg}`]),
        fact("Rollouts", group.sampled === null ? `${summary.episodes} episodes, ${summary.turns} turns`
          : `a tree: ${summary.turns} of ${group.sampled} branches kept (${percent(1 - summary.turns / (group.sampled || 1))} pruned), ${summary.episodes} ends`)),
      forest(group, open.turn, choose),
      legend(),
      group.turns.length ? episodes(group, leaf, choose) : h("p", { class: "empty" }, "No turn was taken."),
      leaf ? ending(leaf) : null,
      h("ol", { class: "turns" }, path.map((index, k) => turnCard(group.turns[index], k, index === open.turn))),
      h("details", { class: "raw" }, h("summary", {}, "Prompt of the policy"), h("pre", { dir: "auto" }, group.prompt)));
    const box = detail.querySelector(".forest-box");
    if (!box) return;
    box.scrollTo(scrolled, top);
    const node = box.querySelector(".chosen"), inside = box.getBoundingClientRect(), at = node?.getBoundingClientRect();
    if (at && (at.bottom > inside.bottom || at.top < inside.top)) box.scrollTop += at.top - inside.top - inside.height / 2;
    if (at && (at.right > inside.right || at.left < inside.left)) box.scrollLeft += at.left - inside.left - inside.width / 2;
  }

  function back() {
    return h("button", { type: "button", class: "quiet back", onclick: () => {
      open = { step: null, group: null, turn: null };
      share();
      showGroup();
    } }, "‹ All groups");
  }

  function share(instead = false) {
    note(href(run, { view: "trajectories", ...filters, at: open.step, group: open.group, turn: open.turn }), { instead });
  }

  return {
    refresh: async () => {
      const fresh = (await api.get(api.run(run, "/steps"))).steps;
      if (fresh.length === steps.length && fresh.at(-1)?.step === steps.at(-1)?.step) return;
      const empty = !steps.length;
      steps = fresh;
      if (empty) begin();
      else if (!form.contains(document.activeElement)) {
        replace(form, controls());
        // Do not reload the list while the user reads further down in it.
        if (!filters.step && list.scrollTop === 0 && !list.contains(document.activeElement)) load();
      }
    },
    revisit: (next) => {
      const before = JSON.stringify(filters);
      filters = pick(next);
      open = { step: next.at ?? null, group: next.group ?? null, turn: turnOf(next) };
      if (!steps.length) return;
      if (JSON.stringify(filters) !== before) {
        replace(form, controls());
        load();
      }
      showGroup();
    },
  };
}

function pick(address) {
  return Object.fromEntries(FILTERS.filter((name) => address[name]).map((name) => [name, address[name]]));
}

function turnOf(address) {
  return /^\d{1,6}$/.test(address.turn ?? "") ? Number(address.turn) : null;
}

// The last turn of the episode with the highest reward, which is shown first.
function best(group) {
  const ended = group.episodes.filter((episode) => episode.last !== null);
  return ended.length ? ended.reduce((top, one) => (one.reward > top.reward ? one : top)).last : null;
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function legend() {
  return h("p", { class: "legend", "aria-hidden": "true" },
    h("span", {}, h("i", { class: "swatch plus" }), "better than its siblings"), h("span", {}, h("i", { class: "swatch minus" }), "worse"),
    h("span", {}, h("i", { class: "swatch none" }), "taught nothing"), h("span", {}, "✓ answered"), h("span", {}, "✕ failed"));
}

function episodes(group, leaf, choose) {
  return h("details", { class: "raw" }, h("summary", {}, `All ${group.episodes.length} episodes`),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["", "Ended", "Reward", "F1", "Answers"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, group.episodes.map((episode, i) => h("tr", { class: episode === leaf ? "on" : null },
        h("th", { scope: "row" }, episode.last === null ? `#${i + 1}` : h("button", { type: "button", class: "quiet", onclick: () => choose(episode.last) }, `#${i + 1}`)),
        h("td", {}, words(episode.status ?? "cut off")), h("td", {}, number(episode.reward)), h("td", {}, number(episode.components.f1)),
        h("td", { dir: "auto" }, episode.answers.join(", "))))))));
}

function ending(episode) {
  return h("p", { class: "ending" }, h("span", { class: `chip status-${episode.status}` }, words(episode.status ?? "cut off")),
    " with reward ", h("b", {}, number(episode.reward)), episode.outcome ? ` (outcome ${number(episode.outcome)})` : "",
    episode.answers.length ? [": ", episode.answers.map((answer) => h("span", { class: "answer", dir: "auto" }, answer))] : null,
    h("span", { class: "components" }, Object.entries(episode.components).map(([name, value]) => h("span", {}, `${words(name)} `, h("b", {}, number(value))))));
}

function turnCard(turn, k, chosen) {
  return h("li", { class: `turn${chosen ? " chosen" : ""}`, "data-card": String(k) },
    h("header", {}, h("h3", {}, `Turn ${k + 1}`), h("span", { class: `chip status-${turn.status}` }, words(turn.status)),
      turn.well_formed ? null : h("span", { class: "chip" }, "not well-formed"),
      h("span", { class: "credit" }, "reward ", h("b", {}, number(turn.reward))),
      h("span", { class: `credit ${turn.advantage === null ? "" : turn.advantage >= 0 ? "plus" : "minus"}` }, "advantage ", h("b", {}, turn.advantage === null ? "none" : signed(turn.advantage)))),
    turn.thought ? h("p", { class: "thought", dir: "auto" }, turn.thought) : null,
    turn.actions.map(actionCard),
    turn.status === "answered" || !turn.actions.length ? h("pre", { class: "said", dir: "auto" }, turn.text) : null,
    turn.observation ? h("details", { class: "observation", open: turn.observation.length < 1200 }, h("summary", {}, "Observation"), h("pre", { dir: "auto" }, turn.observation)) : null,
    h("footer", {}, `${turn.tokens} tokens`, turn.logprob === null ? "" : `, mean log-probability ${number(turn.logprob)}`, `, ${turn.version}`, `, ${number(turn.elapsed_ms)} ms`,
      turn.actions.length && turn.text ? h("details", {}, h("summary", {}, "Original text"), h("pre", { dir: "auto" }, turn.text)) : null));
}
