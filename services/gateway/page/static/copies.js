// A question as a curl command, an answer's evidence as SPARQL, and copying to the clipboard.

import { h } from "./dom.js";
import { openDialog } from "./dialogs.js";

export function asCurl(request, { key }) {
  const lines = [`curl -s ${quoted(`${location.origin}/v1/answer`)}`, "-H 'Content-Type: application/json'",
    ...(key ? ['-H "Authorization: Bearer $KBQA_API_KEY"'] : []), `-d ${quoted(JSON.stringify(request))}`];
  return lines.join(" \\\n     ");
}

// A query that finds the answer: the evidence's own query, or a chain of triple patterns that begins at the
// topic entity and has variables for the entities on the way.
export function asSparql(answer, topics) {
  const { sparql, triples } = answer.evidence;
  if (sparql) return sparql;
  const [[subject, , object], next = []] = triples;
  const begin = [subject, object].find((id) => id !== answer.id && !next.includes(id)) ?? subject;
  const variables = new Map([[answer.id, "?answer"]]);
  const term = (id, rdf) => {
    if (id !== answer.id && (id === begin || topics.includes(id))) return nameOf(id, rdf);
    if (!variables.has(id)) variables.set(id, `?via${variables.size}`);
    return variables.get(id);
  };
  const patterns = triples.map(([from, relation, to]) => {
    const rdf = isIri(relation);
    return `  ${term(from, rdf)} ${relationOf(relation)} ${term(to, rdf)} .`;
  });
  return `SELECT DISTINCT ?answer WHERE {\n${patterns.join("\n")}\n}`;
}

// If the page may not write to the clipboard, it shows the text, to be copied by hand.
export async function copy(text, what, done) {
  try {
    await navigator.clipboard.writeText(text);
    done(`${what} copied`);
  } catch {
    const area = h("textarea", { readonly: true, rows: "10", "aria-label": what, value: text });
    openDialog(`Copy ${what}`, [h("p", { class: "muted" }, "This browser does not let the page write to the clipboard."), area]);
    area.select();
  }
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// Relations of RDF graphs are IRIs; relations from delimited files are names, which get IRIs of ours.
function isIri(relation) {
  return /^(urn:|[a-z][a-z0-9+.-]*:\/\/)[^\s<>"{}|\\^`]+$/i.test(relation);
}

export function relationOf(relation) {
  return `<${isIri(relation) ? relation : `urn:kbqa:r:${encoded(relation)}`}>`;
}

// An entity of a triple with that relation.
export function termOf(id, relation) {
  return nameOf(id, isIri(relation));
}

function nameOf(id, rdf) {
  if (!rdf) return `<urn:kbqa:e:${encoded(id)}>`;
  return id.startsWith('"') || id.startsWith("_:") ? id : `<${id}>`;
}

// Like Python's quote(…, safe=""): encodes everything except letters, digits and _.-~.
function encoded(name) {
  return encodeURIComponent(name).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
}
