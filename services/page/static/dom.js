// Creates DOM elements. Strings always become text nodes and are never parsed as markup, because questions,
// thoughts and observations come from models and graphs.

// Characters that are invisible or change the direction of the text around them.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const SVG = "http://www.w3.org/2000/svg";

// h("button", {class: "quiet", onclick: go}, "Go", child, …); null and false children are left out.
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function replace(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

// Announces a message to screen readers.
export function announce(text) {
  document.getElementById("status").textContent = text;
}

export function problem(error) {
  return h("p", { class: "problem", role: "alert" }, error.message);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}

function seen(text) {
  return text.replaceAll("\r\n", "\n").replace(UNSEEN, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "string" ? seen(child) : child));
}
