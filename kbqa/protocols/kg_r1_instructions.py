"""What KG-R1's dialect tells a model that was not trained on it, in our own words around the paper's tags."""

from __future__ import annotations

INSTRUCTION = """\
Answer the question with facts from a knowledge graph. In each turn reason inside <think>...</think> first. \
Then either look something up with one query inside <kg-query>...</kg-query>, at most {max_queries} times, \
and read its result inside <information>...</information>; or, once you know, give the answer inside \
<answer>...</answer>, several answers separated by commas.
If a result is an error, read it and correct the query.
Queries:
- get_tail_relations(entity) : relations in which the entity is the subject.
- get_head_relations(entity) : relations in which the entity is the object.
- get_tail_entities(entity, relation) : objects of the relation whose subject is the entity.
- get_head_entities(entity, relation) : subjects of the relation whose object is the entity.
"""

REFERENCE_RULE = """\
Entities have references, e1, e2 and so on: those of the question first, then those that results show. \
Write the reference of an entity wherever a query or an answer names it.
"""

# For a model that never saw the dialect.
CHAT_RULES = """\
Names of entities and relations stand in quotes and are those that results showed. Each of your messages is \
one turn, as in the example: one <think> and then one <kg-query> or one <answer>, and nothing after it. \
<information> comes from the graph: never write it yourself, and answer with nothing that it did not show.

Example
Question: which books did the author of Emma write ?
Initial entities: "Emma"
you: <think>I look for the relation from the book to its author.</think>\
<kg-query>get_tail_relations("Emma")</kg-query>
graph: <information>Tail relations for entity "Emma": book.author, book.published</information>
you: <think>book.author leads to the author.</think>\
<kg-query>get_tail_entities("Emma", "book.author")</kg-query>
graph: <information>Tail entities for relation "book.author" with head "Emma": Jane Austen</information>
you: <think>Her books have her as their author.</think>\
<kg-query>get_head_entities("Jane Austen", "book.author")</kg-query>
graph: <information>Head entities for relation "book.author" with tail "Jane Austen": Emma, Persuasion\
</information>
you: <think>Both are books of hers.</think><answer>Emma, Persuasion</answer>"""

REFERENCE_CHAT_RULES = """\
References and relations stand in quotes and are those that results showed. Each of your messages is one \
turn, as in the example: one <think> and then one <kg-query> or one <answer>, and nothing after it. \
<information> comes from the graph: never write it yourself, and answer with nothing that it did not show.

Example
Question: which books did the author of e1 write ?
Initial entities: e1 (Emma)
you: <think>I look for the relation from the book to its author.</think>\
<kg-query>get_tail_relations("e1")</kg-query>
graph: <information>Tail relations for entity "e1": book.author, book.published</information>
you: <think>book.author leads to the author.</think>\
<kg-query>get_tail_entities("e1", "book.author")</kg-query>
graph: <information>Tail entities for relation "book.author" with head "e1": e2 (Jane Austen)</information>
you: <think>Her books have her as their author.</think>\
<kg-query>get_head_entities("e2", "book.author")</kg-query>
graph: <information>Head entities for relation "book.author" with tail "e2": e1 (Emma), e3 (Persuasion)\
</information>
you: <think>Both are books of hers.</think><answer>e1, e3</answer>"""
