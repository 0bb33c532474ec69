"""Small graphs with the IRIs of Freebase, Wikidata and DBpedia, as their dumps have them."""

from __future__ import annotations

_PREFIXES = """
@prefix ns: <http://rdf.freebase.com/ns/> . @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix wd: <http://www.wikidata.org/entity/> . @prefix wdt: <http://www.wikidata.org/prop/direct/> .
@prefix p: <http://www.wikidata.org/prop/> . @prefix ps: <http://www.wikidata.org/prop/statement/> .
@prefix pq: <http://www.wikidata.org/prop/qualifier/> .
@prefix wds: <http://www.wikidata.org/entity/statement/> .
@prefix wikibase: <http://wikiba.se/ontology#> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix dbr: <http://dbpedia.org/resource/> . @prefix dbo: <http://dbpedia.org/ontology/> .
@prefix schema: <http://schema.org/> . @prefix foaf: <http://xmlns.com/foaf/0.1/> .
"""

# London Tipton, played by Brenda Song, is a character of a television series; Obama's family.
FREEBASE = f"""{_PREFIXES}
ns:m.07g8r3 ns:type.object.name "London Tipton"@en , "London Tipton"@de ;
    ns:type.object.type ns:tv.tv_character ;
    ns:tv.tv_character.appeared_in_tv_program ns:m.0cvt1 .
ns:m.0cvt1 ns:type.object.type ns:tv.regular_tv_appearance ; ns:tv.regular_tv_appearance.actor ns:m.03qmbj ;
    ns:tv.regular_tv_appearance.series ns:m.05z43v ; ns:tv.regular_tv_appearance.from "2005"^^xsd:gYear .
ns:m.03qmbj ns:type.object.name "Brenda Song"@en ; ns:type.object.type ns:people.person , ns:film.actor ;
    ns:people.person.place_of_birth ns:m.0r04p ; ns:people.person.date_of_birth "1988-03-27"^^xsd:date ;
    ns:film.actor.film ns:m.0cvt2 .
ns:m.0cvt2 ns:film.performance.film ns:m.0wendy ; ns:film.performance.actor ns:m.03qmbj .
ns:m.0wendy ns:type.object.name "Wendy Wu"@en ; ns:type.object.type ns:film.film ;
    ns:film.film.initial_release_date "2006-06-16"^^xsd:date .
ns:m.05z43v ns:type.object.name "The Suite Life"@en ; ns:type.object.type ns:tv.tv_program .
ns:m.0r04p ns:type.object.name "Carmichael"@en ; ns:type.object.type ns:location.location .
ns:m.02mjmr ns:type.object.name "Barack Obama"@en ; ns:type.object.type ns:people.person ;
    ns:people.person.children ns:m.0malia , ns:m.0sasha ; ns:people.person.place_of_birth ns:m.02hrh0_ ;
    ns:fictional_universe.fictional_character.children ns:m.0sasha .
ns:m.0malia ns:type.object.name "Malia Obama"@en ; ns:type.object.type ns:people.person ;
    ns:people.person.date_of_birth "1998-07-04"^^xsd:date ; ns:people.person.parents ns:m.02mjmr .
ns:m.0sasha ns:type.object.name "Sasha Obama"@en ; ns:type.object.type ns:people.person ;
    ns:people.person.date_of_birth "2001-06-10"^^xsd:date ; ns:people.person.parents ns:m.02mjmr .
ns:m.02hrh0_ ns:type.object.name "Honolulu"@en ; ns:type.object.type ns:location.location .
ns:people.person ns:type.object.name "Person"@en ; ns:type.object.type ns:type.type .
ns:film.film ns:type.object.name "Film"@en ; ns:type.object.type ns:type.type .
ns:people.person.children ns:type.object.name "Children"@en .
<http://rdf.freebase.com/key/wikipedia.en> ns:type.object.name "a key"@en .
"""

# The Mona Lisa and its painter; a statement with a qualifier; labels in several languages.
WIKIDATA = f"""{_PREFIXES}
wd:Q12418 rdfs:label "Mona Lisa"@en , "Joconde"@fr , "Mona Lisa"@mul ;
    wdt:P31 wd:Q3305213 ; wdt:P170 wd:Q762 .
wd:Q762 rdfs:label "Leonardo da Vinci"@mul , "Léonard de Vinci"@fr ; wdt:P31 wd:Q5 ; wdt:P19 wd:Q154184 ;
    wdt:P40 wd:Q1 ; p:P26 wds:Q762-ABC ; schema:description "painter"@en .
wds:Q762-ABC ps:P26 wd:Q2 ; pq:P580 "1500-01-01T00:00:00Z"^^xsd:dateTime ; a wikibase:Statement .
wd:Q154184 rdfs:label "Vinci" ; wdt:P17 wd:Q38 .
wd:Q38 rdfs:label "Italien"@de , "Italy"@en-gb , "Italie"@fr ; wdt:P31 wd:Q6256 .
wd:Q6256 rdfs:label "country"@en . wd:Q5 rdfs:label "human"@en . wd:Q3305213 rdfs:label "painting"@en .
wd:Q1 skos:prefLabel "a child"@en . wd:Q2 schema:name "a spouse"@en .
wd:P40 rdfs:label "child"@en , "Kind"@de ; wikibase:directClaim wdt:P40 . wd:P26 rdfs:label "spouse"@en .
wd:P170 rdfs:label "creator"@en . wd:P17 rdfs:label "country"@en . wd:P580 rdfs:label "start time"@en .
wd:P19 rdfs:label "place of birth"@en .
"""

DBPEDIA = f"""{_PREFIXES}
dbr:Berlin rdfs:label "Berlin"@en ; dbo:country dbr:Germany ; dbo:leader <http://dbpedia.org/resource/A_(b)> .
dbr:Germany foaf:name "Germany"@en .
"""
