// A question or an answer's evidence as something that can be pasted elsewhere.

import { h } from "./dom.js";
import { openDialog } from "./dialogs.js";

export function asCurl(request, { key }) {
  const lines = [`curl -s ${quoted(`${location.origin}/v1/answer`)}`, "-H 'Content-Type: application/json'",
    ...(key ? ['-H "Authorization: Bearer $KBQA_API_KEY"'] : []), `-d ${quoted(JSON.stringify(request))}`];
  return lines.join(" \\\n     ");
}

// The query that gives the answer: its own, or the chain of triples from where it begins, what was found
// on the way left open.
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
    return `  ${term(from, rdf)} <${rdf ? relation : `urn:kbqa:r:${encoded(relation)}`}> ${term(to, rdf)} .`;
  });
  return `SELECT DISTINCT ?answer WHERE {\n${patterns.join("\n")}\n}`;
}

// Where the clipboard may not be written to, the text is shown to be copied by hand.
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

// Relations of RDF graphs are IRIs; those of delimited files names, which have IRIs of ours.
function isIri(relation) {
  return /^(urn:|[a-z][a-z0-9+.-]*:\/\/)[^\s<>"{}|\\^`]+$/i.test(relation);
}

function nameOf(id, rdf) {
  if (!rdf) return `<urn:kbqa:e:${encoded(id)}>`;
  return id.startsWith('"') || id.startsWith("_:") ? id : `<${id}>`;
}

// As Python's quote(…, safe=""): only letters, digits and _.-~ stay as they are.
function encoded(name) {
  return encodeURIComponent(name).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
}
