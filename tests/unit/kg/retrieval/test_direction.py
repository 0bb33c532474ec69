"""Which of two directions a question asks for."""

from __future__ import annotations

import pytest

from kbqa.kg.retrieval.direction import asked_direction


@pytest.mark.parametrize(
    ("question", "topic", "relation", "inverse"),
    [
        ("who reports to Helen Marsh?", "Helen Marsh", "reports_to", True),
        ("who does Helen Marsh report to?", "Helen Marsh", "reports_to", False),
        ("what depends on auth-lib?", "auth-lib", "depends_on", True),
        ("what does auth-lib depend on?", "auth-lib", "depends_on", False),
        ("which paper cites Smith 2001?", "Smith 2001", "cites", True),
        ("which paper does Smith 2001 cite?", "Smith 2001", "cites", False),
        ("who supplies Nordic Motors?", "Nordic Motors", "supplies", True),
        ("who does Nordic Motors supply?", "Nordic Motors", "supplies", False),
        ("who is the supplier of Nordic Motors?", "Nordic Motors", "supplies", True),
        ("who is the parent of Lena?", "Lena", "parent_of", True),
        ("who is Lena the parent of?", "Lena", "parent_of", False),
        ("Lena's parent?", "Lena", "parent_of", True),
        ("who was Kant influenced by?", "Kant", "influenced_by", False),
        ("who was influenced by Kant?", "Kant", "influenced_by", True),
        ("who influenced Kant?", "Kant", "influenced_by", False),
        ("who did Kant influence?", "Kant", "influenced_by", True),
        ("who owns H?", "H", "owns", True),
        ("what does H own?", "H", "owns", False),
        ("which company is owned by H?", "H", "owns", False),
        ("the owner of H", "H", "owns", True),
        ("the owner of H", "H", "owner", False),
        ("what is H the owner of", "H", "owner", True),
        ("who owns H", "H", "owner", False),
        ("what does H own", "H", "owner", True),
        ("which ticket blocks Ticket 15?", "Ticket 15", "blocks", True),
        ("what is Ticket 12 blocked by?", "Ticket 12", "blocks", True),
        ("what is blocked by Ticket 12?", "Ticket 12", "blocks", False),
        ("what is the capital of France", "France", "capital", False),
        ("what is Paris the capital of", "Paris", "capital", True),
        ("what is the capital of France", "France", "capital of", True),
        ("whose boss is Diego", "Diego", "boss", None),
        ("where is T located", "T", "located in", None),
        ("what is located in T", "T", "located in", True),
        ("who are the parents of T", "T", "parents", None),
        ("the films T directed", "T", "directed", False),
        ("who directed T", "T", "directed", True),
        ("who directed T", "T", "directed_by", False),
        ("films directed by T", "T", "directed_by", True),
        ("what is part of T", "T", "part of", True),
        ("what is T part of", "T", "part of", False),
        ("T was crushed", "T", "crushed", True),
        ("whom did T train", "T", "trained_under", None),
        ("is T crushed by", "T", "crushes", True),
        ("who owns T", "T", "owner_of", True),
        ("what does T own", "T", "owner of", False),
        ("who is the owner of T", "T", "owner of", True),
        ("who parents T", "T", "parent of", True),
        ("who fathered T", "T", "father of", True),
        ("people who have cousin T", "T", "cousin of", None),
        # Both ways are meant.
        ("who is Ann married to", "Ann", "married to", None),
        ("which country borders T", "T", "borders", None),
        ("which station is T connected to", "T", "connects_to", None),
        ("who does T work with", "T", "works with", None),
        # Said of others than the topic, in both ways, or not at all.
        ("who reports to the boss of Ann", "Ann", "reports_to", None),
        ("who owns T and what does T own", "T", "owns", None),
        ("who lives near T", "T", "owns", None),
        ("the supply to T", "T", "supplies", None),
        ("who owns T", "U", "owns", None),
        ("who owns T", "T", "P127", None),
        ("who owns T", "T", "", None),
        ("", "T", "owns", None),
    ],
)
def test_the_order_of_words_says_it(question, topic, relation, inverse):
    assert asked_direction(question, topic, relation) is inverse


@pytest.mark.parametrize(
    ("question", "topic", "relation", "inverse"),
    [
        ("who reports to T", "T", "reports to", True),
        ("who was T influenced by", "T", "influenced by", False),
        # A noun may be about something else, and a participle active or passive.
        ("who wrote in the style of T", "T", "style", None),
        ("who is the owner of T", "T", "owns", None),
        ("who is the parent of T", "T", "parent of", None),
        ("who influenced T", "T", "influenced", None),
        # What belongs to the topic is another node.
        ("films directed by the T director", "T", "directed by", None),
        ("who covers T's beat", "T", "covers", None),
        ("tell me how many pages T has", "T", "pages", None),
        ("which awards T won", "T", "awards", None),
        ("who blocks T and who owns it", "T", "blocks", True),
    ],
)
def test_strictly_only_verbs_count(question, topic, relation, inverse):
    assert asked_direction(question, topic, relation, strictly=True) is inverse
