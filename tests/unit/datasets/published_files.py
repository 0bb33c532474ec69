"""Small files in the true formats of data sets, made up for the tests."""

from __future__ import annotations

import json

_NS = "PREFIX ns: <http://rdf.freebase.com/ns/>\n"
_ENGLISH = "FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))\n"

WEBQSP = {
    "Version": "1.0",
    "FreebaseVersion": "2015-08-09",
    "Questions": [
        {
            "QuestionId": "WebQTest-0",
            "RawQuestion": "what does ada lovelace do?",
            "ProcessedQuestion": "what does ada lovelace do",
            "Parses": [
                {
                    "ParseId": "WebQTest-0.P0",
                    "AnnotatorId": 0,
                    "AnnotatorComment": {"ParseQuality": "Partial", "QuestionQuality": "Good"},
                    "Sparql": "#MANUAL SPARQL",
                    "PotentialTopicEntityMention": "ada",
                    "TopicEntityName": "Ada",
                    "TopicEntityMid": "m.0nobody",
                    "InferentialChain": None,
                    "Constraints": [],
                    "Time": None,
                    "Order": None,
                    "Answers": [],
                },
                {
                    "ParseId": "WebQTest-0.P1",
                    "AnnotatorId": 1,
                    "AnnotatorComment": {"ParseQuality": "Complete", "QuestionQuality": "Good"},
                    "Sparql": f"{_NS}SELECT DISTINCT ?x\nWHERE {{\nFILTER (?x != ns:m.0ada)\n{_ENGLISH}"
                    "ns:m.0ada ns:people.person.employment ?y .\n?y ns:business.tenure.title ?x .\n}",
                    "PotentialTopicEntityMention": "ada lovelace",
                    "TopicEntityName": "Ada Lovelace",
                    "TopicEntityMid": "m.0ada",
                    "InferentialChain": ["people.person.employment", "business.tenure.title"],
                    "Constraints": [],
                    "Time": None,
                    "Order": None,
                    "Answers": [
                        {"AnswerType": "Entity", "AnswerArgument": "m.0prog", "EntityName": "Programmer"},
                        {"AnswerType": "Value", "AnswerArgument": "1815-12-10", "EntityName": None},
                    ],
                },
            ],
        }
    ],
}

CWQ = [
    {
        "ID": "WebQTest-0_abc",
        "compositionality_type": "conjunction",
        "created": "2018-02-13T04:57:17",
        "machine_question": "what does ada do and bob do",
        "question": "What do both Ada and Bob do?",
        "sparql": f"{_NS}SELECT DISTINCT ?x\nWHERE {{\nFILTER (?x != ns:m.0ada)\n{_ENGLISH}"
        "ns:m.0ada ns:people.person.profession ?x .\nns:m.0bob ns:people.person.profession ?x .\n}",
        "webqsp_ID": "WebQTest-0",
        "webqsp_question": "what does ada do",
        "answers": [{"aliases": ["coder"], "answer": "Programmer", "answer_id": "m.0prog"}],
        "composition_answer": "bob",
    }
]

GRAILQA = [
    {
        "qid": 2101215000000,
        "question": "who taught ada?",
        "answer": [{"answer_type": "Entity", "answer_argument": "m.0mary", "entity_name": "Mary"}],
        "function": "none",
        "num_node": 2,
        "num_edge": 1,
        "graph_query": {
            "nodes": [
                {
                    "nid": 0,
                    "node_type": "class",
                    "id": "education.teacher",
                    "class": "education.teacher",
                    "friendly_name": "Teacher",
                    "question_node": 1,
                    "function": "none",
                },
                {
                    "nid": 1,
                    "node_type": "entity",
                    "id": "m.0ada",
                    "class": "people.person",
                    "friendly_name": "Ada",
                    "question_node": 0,
                    "function": "none",
                },
            ],
            "edges": [
                {"start": 0, "end": 1, "relation": "education.teacher.pupils", "friendly_name": "Pupils"}
            ],
        },
        "sparql_query": "PREFIX : <http://rdf.freebase.com/ns/> \nSELECT (?x0 AS ?value) WHERE {\n"
        "SELECT DISTINCT ?x0  WHERE { \n?x0 :type.object.type :education.teacher . \n"
        "VALUES ?x1 { :m.0ada } \n?x0 :education.teacher.pupils ?x1 . \nFILTER ( ?x0 != ?x1  )\n}\n}",
        "domains": ["education"],
        "level": "zero-shot",
        "s_expression": "(AND education.teacher (JOIN education.teacher.pupils m.0ada))",
    }
]

GRAPHQUESTIONS = [
    {
        "qid": 278000100,
        "question": "how many pupils did mary teach?",
        "answer": ["2"],
        "function": "count",
        "commonness": -16.7,
        "num_node": 2,
        "num_edge": 1,
        "graph_query": {
            "nodes": [
                {
                    "nid": 0,
                    "node_type": "class",
                    "id": "people.person",
                    "friendly_name": "Person",
                    "question_node": 1,
                    "function": "count",
                },
                {
                    "nid": 1,
                    "node_type": "entity",
                    "id": "m.0mary",
                    "friendly_name": "Mary",
                    "question_node": 0,
                    "function": "none",
                },
            ],
            "edges": [
                {"start": 1, "end": 0, "relation": "education.teacher.pupils", "friendly_name": "Pupils"}
            ],
        },
        "sparql_query": "PREFIX : <http://rdf.freebase.com/ns/> SELECT COUNT(?x0) WHERE { "
        "?x0 :type.object.type :people.person . :m.0mary :education.teacher.pupils ?x0 . }",
    }
]

# The files of 2020, for Freebase's dump of 2015, are in GrailQA's form. Those of 2016 name entities by keys.
GRAPHQUESTIONS_FB15 = [
    {
        **GRAPHQUESTIONS[0],
        "answer": [{"answer_type": "Value", "answer_argument": "2"}],
        "domains": ["education"],
        "s_expression": "(COUNT (AND people.person (JOIN (R education.teacher.pupils) m.0mary)))",
    }
]

SIMPLEQUESTIONS = (
    "www.freebase.com/m/0ada\twww.freebase.com/people/person/profession\twww.freebase.com/m/0prog\t"
    "what does ada lovelace do\n"
)

QALD = {
    "dataset": {"id": "qald-X"},
    "questions": [
        {
            "id": "7",
            "aggregation": False,
            "question": [
                {"language": "de", "string": "Wer lehrte Ada?"},
                {"language": "en", "string": "Who taught Ada?"},
            ],
            "answers": [
                {
                    "head": {"vars": ["result"]},
                    "results": {
                        "bindings": [
                            {"result": {"type": "uri", "value": "http://www.wikidata.org/entity/Q2"}},
                            {"result": {"type": "literal", "value": "1815", "xml:lang": "en"}},
                        ]
                    },
                }
            ],
            "query": {
                "sparql": "PREFIX wd: <http://www.wikidata.org/entity/> PREFIX wdt: "
                "<http://www.wikidata.org/prop/direct/> SELECT DISTINCT ?result {wd:Q1 wdt:P1066 ?result.}"
            },
        },
        {
            "id": 8,
            "aggregation": True,
            "question": [{"language": "zh", "string": "她?"}],
            "answers": [{"head": {}, "boolean": True}],
            "query": {"sparql": "ASK { wd:Q1 wdt:P21 wd:Q6581072 }"},
        },
    ],
}

LCQUAD = [
    {
        "uid": 19719,
        "NNQT_question": "What is the {teacher} of {Ada} ?",
        "question": "Who {taught} Ada ?",
        "paraphrased_question": "Ada was taught by whom?",
        "subgraph": "simple question right",
        "template": " <S P ?O ; ?O instanceOf Type>",
        "template_id": 1,
        "template_index": 65,
        "sparql_wikidata": " select distinct ?obj where { wd:Q1 wdt:P1066 ?obj . ?obj wdt:P31 wd:Q5 } ",
        "sparql_dbpedia18": "select distinct ?obj where { ?statement … }",
    },
    {
        "uid": 20,
        "NNQT_question": "Is it true that the {weight} of {Ada} is equal to {50} ?",
        "question": None,
        "paraphrased_question": [],
        "template_id": "3",
        "sparql_wikidata": "ASK WHERE { wd:Q1 wdt:P2067 ?obj filter(?obj = 50) } ",
    },
]

TREX = {
    "id": "f2a5d4e8",
    "input": "Ada Lovelace [SEP] student of",
    "output": [
        {"answer": "Mary Somerville", "provenance": [{"wikipedia_id": "1", "title": "Ada"}]},
        {"answer": "Mary", "provenance": []},
        {"provenance": []},
    ],
    "meta": {"sub_surface": ["Ada"], "obj_surface": ["Mary"], "template_questions": []},
}

MULTITQ = [
    {
        "quid": 2008980,
        "question": "On which day did Ada first meet Mary?",
        "answers": ["2005-07-12"],
        "answer_type": "time",
        "time_level": "day",
        "qtype": "first_last",
        "qlabel": "Single",
    }
]
MULTITQ_GRAPH = "Ada_Lovelace\tExpress_intent_to_meet\tGovernment_(France)\t2005-07-12\n"

METAQA = "who taught [Ada B]\tMary|Anne\n"
PATHQUESTION = "who is ada 's mother 's spouse ?\tbyron(byron/)\tada#mother#anne#spouse#byron#<end>#byron\n"


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def text_of(content):
    """What a file holds: JSON, unless it is text already."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
