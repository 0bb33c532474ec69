// The turns of an episode.

import { h } from "./dom.js";
import { words } from "./format.js";

export function turnCard(turn, k) {
  return h("li", { class: "turn" }, h("header", {}, h("h3", {}, `Turn ${k + 1}`), h("span", { class: `chip status-${turn.status}` }, words(turn.status)), turn.well_formed ? null : h("span", { class: "chip" }, "not well-formed"), h("span", { class: "credit" }, `${turn.tokens} tokens`)),
    turn.thought ? h("p", { class: "thought", dir: "auto" }, turn.thought) : null, turn.actions.map(actionCard),
    turn.actions.length ? h("details", {}, h("summary", {}, "Original text"), h("pre", { dir: "auto" }, turn.text)) : h("pre", { class: "said", dir: "auto" }, turn.text),
    turn.observation ? h("details", { class: "observation", open: turn.observation.length < 1200 }, h("summary", {}, "Observation"), h("pre", { dir: "auto" }, turn.observation)) : null);
}

export function actionCard(action) {
  return h("div", { class: `action${action.code ? " error" : ""}` },
    h("code", { dir: "auto" }, h("b", {}, action.name), "(", Object.entries(action.arguments).map(([name, text], k) => [k ? ", " : "", h("span", { class: "argument" }, `${name}=`), text]), ")"),
    h("span", { class: "found" }, action.code ? `${action.code}${action.kind ? ` (${words(action.kind)})` : ""}` : action.found ? [`${action.found} found: `, h("span", { dir: "auto" }, action.labels.slice(0, 6).join(", "), action.found > 6 ? " …" : "")] : "nothing found"));
}
