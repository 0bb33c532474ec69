"""Teachers, what is kept of them, and what is counted; a chat model is a real HTTP server."""

from __future__ import annotations

import json
import random
import re

import pytest

from kbqa.chat import ChatModel
from kbqa.cold_start.collecting import (
    Attempt,
    GoldTeacher,
    NarratedTeacher,
    ReferencedTeacher,
    SamplingTeacher,
    Setting,
    acceptance,
    attempt,
    attempts,
    choose,
)
from kbqa.cold_start.demonstrations import Demonstration, play, play_program, recite
from kbqa.cold_start.files import DemonstrationEntry, read_entries, write_entries
from kbqa.cold_start.leaks import HINT_MARK
from kbqa.cold_start.ledger import AttemptLedger
from kbqa.cold_start.narration import narrate
from kbqa.environment import Budget
from kbqa.errors import DatasetError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.openai import OpenAiPolicy
from kbqa.protocols import InteractiveParsing, KbqaR1, KgR1
from kbqa.protocols.sparql_refinement import SparqlRefinement
from kbqa.rollouts import ChatAgent
from kbqa.trajectory import Question
from tests.chat_server import serve
from tests.iri_graphs import FREEBASE
from tests.unit.cold_start.films import ANSWER, BORN, BOTH, STARRING, THEN_BORN, action, make_tools, turn

BUDGET = Budget(max_turns=6, max_tokens=100_000, max_turn_tokens=300, max_observation_tokens=200)


@pytest.fixture(scope="module")
def server():
    with serve() as chat:
        yield chat


@pytest.fixture
def setting():
    return Setting(KbqaR1("brief"), make_tools(), 6)


@pytest.fixture
def policy(server):
    server.asked.clear()
    policy = OpenAiPolicy(ChatModel("m", server.url, attempts=1))
    yield policy
    policy.close()


def by_policy(demonstration):
    return ["".join(s.text for s in p.segments) for p in demonstration.passages if p.by_policy]


def commands_of(demonstration):
    return [text.partition("</think>")[2] for text in by_policy(demonstration)]


def everything(demonstration):
    return "".join(s.text for p in demonstration.passages for s in p.segments)


def agent(policy, setting):
    return ChatAgent(policy, setting.protocol, setting.tools, BUDGET)


def test_the_gold_form_of_two_branches_is_played_action_by_action(setting):
    made = attempt(BOTH, GoldTeacher(setting), setting)
    [demonstration] = made.kept
    assert commands_of(demonstration) == [
        action("Find_relation [ Heat | starred_actors ]"),
        action("Find_relation [ Ronin | starred_actors ]"),
        action("Merge [ expression1 | expression2 ]"),
        "<answer>expression3</answer>",
    ]
    assert (made.kind, made.rejected, made.f1) == ("intersection", (), (1.0,))


def test_a_gold_query_is_played_progressively_then_compositionally(setting):
    protocol = InteractiveParsing("brief")
    played = play_program(BOTH, protocol, setting.tools, 8)
    commands = commands_of(played.demonstration)
    kinds = [re.match(r"<(\w+)>", command)[1] for command in commands]
    assert kinds == ["node", "sparql", "node", "sparql", "node", "sparql", "answer"]
    assert (commands[0], commands[4]) == ("<node>urn:kbqa:e:Heat</node>", "<node>?x</node>")
    one, other, both = commands[1], commands[3], commands[5]
    assert ("Heat" in one, "Ronin" in one) == (True, False)
    assert ("Heat" in other, "Ronin" in other) == (False, True)
    assert ("Heat" in both, "Ronin" in both) == (True, True)
    assert commands[6] == r"<answer>\boxed{?x}</answer>"
    assert play_program(BOTH, protocol, setting.tools, 6) is None  # seven turns


def test_a_gold_path_states_its_plan_and_is_kept_all_the_same(setting):
    made = attempt(BORN, GoldTeacher(setting), setting)
    assert "<think>starred_actors then born</think>" in everything(made.kept[0])


def test_a_question_without_a_program_cannot_be_taught(setting):
    bare = Question("bare", "who ?", ("x",), ("Heat",), "films")
    assert attempt(bare, GoldTeacher(setting), setting).rejected == ("unplayable",)
    broken = Question("broken", "who ?", ("x",), ("Heat",), "films", form="(JOIN")
    assert attempt(broken, GoldTeacher(setting), setting).rejected == ("unplayable",)


def test_what_a_model_samples_is_kept_if_it_is_right_and_grounded(server, policy, setting):
    good = [turn("Its actors.", STARRING), turn("Their birth.", THEN_BORN), turn("Done.", ANSWER)]
    guess = [turn("I know.", "<answer>1940</answer>")]
    wrong = [turn("Actors first.", STARRING), turn("Done.", "<answer>expression1</answer>")]
    leaky = [turn("1940 comes to mind.", STARRING), *good[1:]]
    script = {0: good, 1: guess, 2: wrong, 3: good, 4: leaky}

    seed = random.Random(f"0/{BORN.id}").getrandbits(31)

    def say(body):
        """Candidates are told apart by their seed, and later on by what they said first."""
        said = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
        if not said:
            return script[body["seed"] - seed][0]
        return next(turns for turns in script.values() if turns[0] == said[0])[len(said)]

    server.script = say
    made = attempt(BORN, SamplingTeacher(agent(policy, setting), 5), setting)
    assert [by_policy(one) for one in made.kept] == [good]
    assert sorted(made.rejected) == ["duplicate", "incorrect", "leaked_answer", "ungrounded"]
    assert sorted(made.f1) == pytest.approx([0.0, 2 / 3, 1.0, 1.0, 1.0])
    # The demonstration begins with the dialect's own prompt, not with the words for a chat model.
    assert everything(made.kept[0]).startswith("Candidate Entities: [ Heat ]")


def obedient(body):
    """Takes the step that it is shown."""
    _, mark, last = body["messages"][-1]["content"].partition(HINT_MARK)
    assert mark
    if "no step is left" in last:
        steps = sum(message["role"] == "assistant" for message in body["messages"])
        return turn("That is all.", f"<answer>expression{steps}</answer>")
    return turn("This comes next.", re.search(r"<action>.*?</action>", last, re.DOTALL)[0])


def test_a_referenced_rollout_sees_one_step_at_a_time_and_keeps_no_hint(server, policy, setting):
    server.script = obedient
    teacher = ReferencedTeacher(setting, SamplingTeacher(agent(policy, setting), 1))
    made = attempt(BOTH, teacher, setting)
    [demonstration] = made.kept
    commands = commands_of(demonstration)
    assert commands[:3] == [
        action("Find_relation [ Heat | starred_actors ]"),
        action("Find_relation [ Ronin | starred_actors ]"),
        action("Merge [ expression1 | expression2 ]"),
    ]
    assert "eference" not in everything(demonstration)
    for number, body in enumerate(server.asked):
        hinted = [message for message in body["messages"] if HINT_MARK in (message["content"] or "")]
        assert hinted == [body["messages"][-1]]
        later = [command for command in commands[number + 1 : 3] if command in str(body["messages"])]
        assert later == []


def test_a_step_that_went_wrong_is_shown_again(server, policy, setting):
    stumbled = []

    def script(body):
        if not stumbled:
            stumbled.append(True)
            return "no command at all"
        return (
            obedient(body) if "no step is left" not in body["messages"][-1]["content"] else turn("", ANSWER)
        )

    server.script = script
    teacher = ReferencedTeacher(setting, SamplingTeacher(agent(policy, setting), 1))
    made = attempt(BORN, teacher, setting)
    assert made.rejected == ("malformed",)  # the format filter drops it, though its answers are right
    assert made.f1 == (1.0,)
    shown = [
        re.search(r"the next step is\n(.*?)\n", body["messages"][-1]["content"]) for body in server.asked
    ]
    assert [found and found[1] for found in shown] == [STARRING, STARRING, THEN_BORN, None]


def test_a_narrator_reads_the_steps_before_and_no_later_one(server, policy, setting):
    server.script = lambda body: "<think>I go on\nfrom there.</think>"
    made = attempt(BOTH, NarratedTeacher(setting, policy), setting)
    [demonstration] = made.kept
    texts = by_policy(demonstration)
    assert all(text.startswith("<think>I go on from there.</think><") for text in texts)
    for number, body in enumerate(server.asked):
        read = body["messages"][1]["content"]
        assert read.count("agent: ") == number
        assert all(text.partition("</think>")[2] not in read for text in texts[number + 1 :])
        assert ("Val K" in read) == (number > 0)


@pytest.mark.parametrize(
    ("protocol", "command", "listed"),
    [
        (InteractiveParsing("full"), "<node>m.07g8r3</node>", "London Tipton(m.07g8r3)"),
        # Its examples list entities, too.
        (SparqlRefinement("full"), "<query>ASK {}</query>", "London Tipton (ns:m.07g8r3)"),
        (KbqaR1("full"), "<action>Count [ expression1 ]</action>", "m.07g8r3"),  # as its policy reads them
        # A dialect of references has no such line.
        (KgR1("brief", entities="references"), "<answer>e0</answer>", "m.07g8r3"),
    ],
)
def test_a_narrator_reads_the_entities_as_the_prompt_lists_them(
    server, policy, tmp_path, protocol, command, listed
):
    file = tmp_path / "freebase.ttl"
    file.write_text(FREEBASE)
    catalog = GraphCatalog(tmp_path)
    catalog.load("freebase", file)
    asked = Question("q", "who plays her, of all entities: ", ("x",), ("m.07g8r3",), "freebase")
    server.script = lambda body: "I look."
    played = play(asked, protocol, LocalGraphTools(catalog), recite([turn("t", command)]), 3)
    assert narrate(played, policy) == [turn("I look.", command)]
    catalog.close()
    [body] = server.asked
    assert body["messages"][1]["content"] == (
        f"Question: {asked.text}\nEntities: {listed}\n\nnext command: {command}"
    )


def test_a_narrator_that_names_the_answer_too_early_is_rejected(server, policy, setting):
    server.script = lambda body: "It is Val K."
    assert attempt(BOTH, NarratedTeacher(setting, policy), setting).rejected == ("leaked_answer",)


def demo(name):
    return Demonstration(Question(name, name, (), (), "g"), (), ())


TRIED = [
    Attempt("q0", "path", (demo("a"), demo("b"), demo("c"), demo("d")), ("incorrect",), (1.0,) * 4 + (0.0,)),
    Attempt("q1", "path", (demo("e"),), ("ungrounded",), (1.0, 1.0)),
    Attempt("q2", "count", (demo("f"),), (), (0.5,)),
    Attempt("q3", "count", (), ("unplayable",)),
]


def names(chosen):
    return sorted(one.question.id for one in chosen)


def test_a_question_has_at_most_three_and_kinds_are_balanced():
    rng = random.Random(1)
    assert names(choose(TRIED, rng)) == ["a", "b", "c", "e", "f"]
    assert names(choose(TRIED, rng, per_question=1)) == ["a", "e", "f"]
    assert names(choose(TRIED, rng, count=2)) == ["a", "b"]
    balanced = names(choose(TRIED, rng, balance=True))
    assert len(balanced) == 2
    assert "f" in balanced
    assert len(choose(TRIED, rng, balance=True, count=4)) == 4


def test_the_acceptance_table_adds_up():
    table = acceptance(TRIED)
    kinds = table.pop("by_kind")
    assert table == {
        "questions": 4,
        "taught": 3,
        "accepted": 6,
        "total": 9,
        "share": pytest.approx(6 / 9),
        "f1": pytest.approx(6.5 / 8),
        "rejected": {"incorrect": 1, "ungrounded": 1, "unplayable": 1},
    }
    assert (kinds["path"]["accepted"], kinds["path"]["total"]) == (5, 7)
    assert kinds["count"] == {"questions": 2, "taught": 1, "accepted": 1, "total": 2, "share": 0.5, "f1": 0.5}
    assert acceptance([])["share"] == 0.0


def test_attempts_come_in_the_order_of_their_questions():
    questions = [Question(f"q{n}", "?", (), (), "g") for n in range(9)]
    made = attempts(questions, lambda question: Attempt(question.id, "path"), parallel=4)
    assert [one.question for one in made] == [question.id for question in questions]


def test_what_was_tried_is_not_tried_again_though_the_last_line_is_torn(tmp_path, setting):
    path = tmp_path / "cold_start" / "a.jsonl"
    ledger = AttemptLedger(path)
    made = attempt(BOTH, GoldTeacher(setting), setting)
    ledger.add(made)
    with path.open("ab") as file:
        file.write(b'{"question": "half')
    again = AttemptLedger(path)
    assert again.done == {"both": made}
    again.add(Attempt("q1", "path"))
    assert list(AttemptLedger(path).done) == ["both", "q1"]


def test_a_file_of_demonstrations_is_read_as_it_was_written(tmp_path, setting):
    [demonstration] = attempt(BOTH, GoldTeacher(setting), setting).kept
    entries = [DemonstrationEntry(demonstration, "kbqa_r1", "gold", "gold program")]
    write_entries(tmp_path / "a.jsonl", entries)
    assert read_entries(tmp_path / "a.jsonl") == entries
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "holds no demonstrations"),
        ("not json", r"a.jsonl:1: the line: .*JSON"),
        (json.dumps({"protocol": "kbqa_r1"}), r"a.jsonl:1: demonstration: .*required"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(DatasetError, match=message):
        read_entries(tmp_path / "a.jsonl")
    with pytest.raises(DatasetError, match="No such file"):
        read_entries(tmp_path / "none.jsonl")
