// The recipe of a run, and the versions that it published.

import * as api from "./api.js";
import { h, replace } from "./dom.js";
import { number, when } from "./format.js";

export async function recipeView(panel, { recipe }) {
  replace(panel, h("h2", {}, "Recipe ", h("code", {}, recipe.name)),
    h("p", { class: "muted" }, "All values that the run was started with."),
    h("div", { class: "recipe" }, sections(recipe.values)));
}

function sections(values) {
  const plain = Object.entries(values).filter(([, value]) => !isSection(value));
  const deep = Object.entries(values).filter(([, value]) => isSection(value));
  return [
    plain.length ? h("section", { class: "card" }, h("h3", {}, "General"), list(plain)) : null,
    deep.map(([name, value]) => h("section", { class: "card" }, h("h3", {}, name), list(Object.entries(value)))),
  ];
}

function list(entries) {
  return h("dl", { class: "values" }, entries.map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, isSection(value) ? list(Object.entries(value)) : plain(value)))));
}

function isSection(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function plain(value) {
  if (value === null) return h("span", { class: "muted" }, "none");
  return h("code", {}, typeof value === "string" ? value : JSON.stringify(value));
}

export async function versionsView(panel, { run }) {
  const refresh = async () => {
    const { versions } = await api.get(api.run(run, "/versions"));
    const names = [...new Set(versions.flatMap((version) => Object.keys(version.metrics)))].sort();
    replace(panel, h("h2", {}, "Versions in the store"),
      h("p", { class: "muted" }, "Older versions are deleted when nothing needs them any more."),
      versions.length ? h("div", { class: "scroll" }, h("table", {},
        h("thead", {}, h("tr", {}, ["Version", "Step", "Kind", ...names, "Published"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, versions.map((version) => h("tr", {},
          h("th", { scope: "row" }, h("code", {}, version.id), version.promoted ? h("span", { class: "chip state-done" }, "answers users") : null),
          h("td", {}, String(version.step)), h("td", {}, version.kind),
          names.map((name) => h("td", {}, number(version.metrics[name]))),
          h("td", {}, when(version.created_at)))))))
        : h("p", { class: "empty" }, "None yet."));
  };
  await refresh();
  return { refresh };
}
