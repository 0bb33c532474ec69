"""Trees: what branches, what is pruned, and what a sample credits."""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.advantages import Advantage, Baseline, has_spread
from kbqa.environment import Budget
from kbqa.errors import PolicyUnavailableError
from kbqa.judges import MatchingJudge
from kbqa.kg.actions import GET_TAIL_ENTITIES, Action, ErrorCode, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.base import Completion, FinishReason
from kbqa.protocols.interactive_parsing import (
    InteractiveParsing,
    write_answer,
    write_node,
    write_sparql,
)
from kbqa.protocols.kg_r1 import KgR1, write_query
from kbqa.rewards import Instruments, IspKgrReward
from kbqa.rollouts import Agent, Branching, tree_rollout
from kbqa.trajectory import Status
from tests.unit.episodes import question
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

CODEC = make_codec()
TOOLS = LocalGraphTools(
    FixedGraphs(
        {
            "world": OxigraphStore.from_triples(
                [("Ada", "parent", "Byron"), ("Ada", "parent", "Annabella"), ("Byron", "born", "1788")]
            )
        }
    )
)
WIDE = {"max_active": 100, "max_nodes": 1000}


def parents_of_ada(variable="?x", relation="parent"):
    return write_sparql(
        "t", f"SELECT {variable} WHERE {{ <urn:kbqa:e:Ada> <urn:kbqa:r:{relation}> {variable} }}"
    )


NODE, PARENTS, EMPTY = write_node("t", "Ada"), parents_of_ada(), parents_of_ada(relation="born")
BROKEN, NONSENSE = write_sparql("t", "SELECT ?x WHERE {"), "nothing to say"
BYRON, ANNABELLA = write_answer("t", ["Byron"]), write_answer("t", ["Annabella"])

# What the policy says, in turn, at each state.
AT_ROOT = (NODE, NODE, PARENTS, NONSENSE)
AFTER_NODE = (PARENTS, parents_of_ada("?y"), EMPTY, BROKEN)
AFTER_PARENTS = (BYRON, write_answer("other words", ["byron"]), ANNABELLA, NONSENSE)


class Script:
    """At each state the next of that state's lines."""

    def __init__(self):
        self.said = defaultdict(int)

    def __call__(self, prompt):
        lines = AFTER_PARENTS if "Annabella" in prompt else AFTER_NODE if "</relation>" in prompt else AT_ROOT
        self.said[prompt] += 1
        return lines[(self.said[prompt] - 1) % 4]


class CountingTools:
    def __init__(self, failing_first=False):
        self.batches, self._failing = [], failing_first

    def execute(self, kg, actions, *, graph=None):
        self.batches.append(list(actions))
        if self._failing:
            self._failing = False
            return [Failure(ErrorCode.SERVER_ERROR, ErrorKind.OVERLOADED, "busy") for _ in actions]
        return TOOLS.execute(kg, actions, graph=graph)


def grow(script=None, tools=TOOLS, max_turns=4, max_tokens=3000, deadline=None, policy=None, **branching):
    policy = policy or ScriptedPolicy(CODEC, script or Script())
    budget = Budget(max_turns, max_tokens, 300, 300)
    agent = Agent(policy, CODEC, InteractiveParsing("brief"), tools, budget)
    shape = Branching(**{"k": 4, **WIDE, **branching})
    return tree_rollout(agent, question(), shape, 1.0, deadline=deadline), policy


def score(tree):
    return IspKgrReward().score_tree("t", question(), tree, Instruments(TOOLS, MatchingJudge()))


def shown(tree):
    return [(step.parent, step.turn.text, step.status) for step in tree.steps]


def test_a_tree_with_pruning_counted_by_hand():
    """Four states with four branches each; at every one a branch that saw the same is pruned."""
    tree, _ = grow()
    assert shown(tree) == [
        (None, NODE, None),
        (None, PARENTS, None),
        (None, NONSENSE, Status.UNPARSABLE),
        (0, PARENTS, None),
        (0, EMPTY, Status.ACTION_ERROR),
        (0, BROKEN, Status.ACTION_ERROR),
        (1, BYRON, Status.ANSWERED),
        (1, ANNABELLA, Status.ANSWERED),
        (1, NONSENSE, Status.UNPARSABLE),
        (3, BYRON, Status.ANSWERED),
        (3, ANNABELLA, Status.ANSWERED),
        (3, NONSENSE, Status.UNPARSABLE),
    ]
    assert tree.sampled == 16
    assert len(tree.steps) / len(tree.states) == 3.0  # effective branches
    assert tree.steps[6].answer_ids == (("Byron",),)


def test_pruning_may_be_the_whole_trees():
    """What was found at the root is not found again after the node; failures and answers stay."""
    tree, _ = grow(pruning="tree")
    assert shown(tree)[3:] == [
        (0, EMPTY, Status.ACTION_ERROR),
        (0, BROKEN, Status.ACTION_ERROR),
        (1, BYRON, Status.ANSWERED),
        (1, ANNABELLA, Status.ANSWERED),
        (1, NONSENSE, Status.UNPARSABLE),
    ]


def test_without_pruning_every_branch_stays():
    tree, _ = grow(pruning="none")
    assert len(tree.steps) == tree.sampled


def test_all_failures_are_kept_and_none_goes_on():
    tree, _ = grow(lambda _: EMPTY)
    assert shown(tree) == [(None, EMPTY, Status.ACTION_ERROR)] * 4


def test_a_well_formed_branch_represents_its_equals():
    untidy = PARENTS.removeprefix("<think>t</think>")
    lines = cycle([untidy, PARENTS, untidy, untidy])
    tree, _ = grow(lambda _: next(lines), max_turns=2)
    assert tree.steps[0].turn.text == PARENTS
    assert [step.parent for step in tree.steps].count(None) == 1


def test_all_states_of_a_level_share_a_call_and_nothing_is_asked_twice():
    tools = CountingTools()
    _, policy = grow(tools=tools)
    assert len(policy.prompts) == 16
    asked = [[action.name for action in batch] for batch in tools.batches]
    # The parents are known from the first level when they are asked for again in the second.
    assert asked == [["node_relations", "execute_sparql"], ["execute_sparql"] * 3]


def test_what_may_pass_is_not_remembered():
    tools = CountingTools(failing_first=True)
    lines = iter([NODE, NODE, NODE, NONSENSE])
    tree, _ = grow(lambda _: next(lines), tools=tools, max_turns=2)
    assert [step.status for step in tree.steps] == [*[Status.ACTION_ERROR] * 3, Status.UNPARSABLE]
    assert len(tools.batches) == 1
    assert len(tools.batches[0]) == 1


def test_the_last_turn_ends_every_branch():
    tree, _ = grow(lambda _: NODE, max_turns=2)
    assert [step.status for step in tree.steps] == [None, *[Status.OUT_OF_TURNS] * 4]


def test_a_path_without_room_for_more_ends():
    tree, _ = grow(max_tokens=len(grow()[0].prompt_ids) + 40)
    assert {step.status for step in tree.steps} <= {Status.OUT_OF_TOKENS, Status.UNPARSABLE}
    assert len(tree.states) == 1


def test_a_prompt_without_room_makes_no_tree():
    tree, policy = grow(max_tokens=3)
    assert (tree.steps, policy.prompts) == ((), [])


def test_at_its_deadline_a_tree_stops_growing(monkeypatch):
    clock = iter([0.0, 2.0])
    monkeypatch.setattr("kbqa.rollouts.tree.monotonic", lambda: next(clock))
    tree, _ = grow(deadline=1.0)
    assert [step.status for step in tree.steps] == [None, None, Status.UNPARSABLE]
    assert tree.unexplored == [0, 1]
    assert tree.timed_out


class Losing(ScriptedPolicy):
    """Of its calls one, counted from 0, ends its first completion, or all, for another reason."""

    def __init__(self, call, reason, *, whole=False):
        super().__init__(CODEC, Script())
        self._call, self._reason, self._whole = call, reason, whole

    def generate(self, prompts, params, **stopping):
        written = super().generate(prompts, params, **stopping)
        self._call -= 1
        if self._call != -1:
            return written
        gone = Completion((), (), self._reason, "", "no answer")
        return [gone if n == 0 or self._whole else c for n, c in enumerate(written)]


def test_a_branch_that_the_engine_loses_is_left_out_and_counted():
    (whole, _), (tree, _) = grow(), grow(policy=Losing(1, FinishReason.LOST))
    assert (whole.lost, tree.lost) == (0, 1)
    assert not tree.timed_out
    assert tree.sampled < whole.sampled
    assert Status.LOST not in {step.status for step in tree.steps}


def test_a_tree_whose_first_branches_are_all_lost_fails():
    with pytest.raises(PolicyUnavailableError, match="no answer"):
        grow(policy=Losing(0, FinishReason.LOST, whole=True))


def test_a_tree_that_its_deadline_cut_says_so():
    assert not grow()[0].timed_out
    late, _ = grow(policy=Losing(1, FinishReason.ABORTED))
    assert late.timed_out
    assert Status.TIMED_OUT not in {step.status for step in late.steps}
    assert max(len(late.path(leaf)) for leaf in late.leaves) == 2


@pytest.mark.parametrize(
    ("caps", "sampled", "unexplored"),
    [
        ({"max_active": 1}, 12, [1]),  # the parents, asked for at the root
        ({"max_nodes": 8}, 8, [1, 3]),  # those after the node, too
        ({"max_nodes": 3}, 0, []),
    ],
)
def test_caps_leave_states_unexplored_and_uncredited(caps, sampled, unexplored):
    tree, _ = grow(**caps)
    assert tree.sampled == sampled
    assert len(tree.steps) <= caps.get("max_nodes", 1000)
    assert tree.unexplored == unexplored
    credited = [index for group in score(tree).groups for index in group.steps]
    assert sorted([*credited, *unexplored]) == list(range(len(tree.steps)))


def test_beyond_the_cap_a_state_goes_on_with_one_branch_so_that_all_siblings_are_compared():
    """At the root two states branch; the second one, beyond the cap, gets one completion a level."""
    tree, _ = grow(max_active=1, beyond="single")
    assert (tree.sampled, tree.unexplored) == (4 + 4 + 1 + 4, [])
    assert len(tree.states[0]) == 3  # the node branches, two of its equals are pruned
    assert len(tree.states[1]) == 1  # the query does not
    [root, *_] = score(tree).groups
    assert root.steps == (0, 1, 2)
    bounded, _ = grow(max_active=1, beyond="single", max_nodes=9)
    assert len(bounded.steps) <= 9


def test_the_error_filter_keeps_one_of_the_failures_that_saw_the_same():
    """Table 2: nothing found and a query that does not parse read alike; what cannot be parsed does not."""
    lines = {0: (EMPTY, BROKEN, NONSENSE, parents_of_ada(relation="loves"))}
    kept = {}
    for filtered in (False, True):
        said = iter(lines[0])
        tree, _ = grow(lambda _, said=said: next(said), max_turns=2, filter_errors=filtered)
        kept[filtered] = [step.turn.text for step in tree.steps]
    assert kept == {False: list(lines[0]), True: [EMPTY, NONSENSE]}


def test_nobody_knows_what_would_have_come_of_a_step_whose_episodes_all_met_a_cap():
    tree, _ = grow(k=1, max_nodes=2)
    assert shown(tree) == [(None, NODE, None), (0, PARENTS, None)]
    assert tree.unexplored == [0, 1]
    rewarded = score(tree)
    assert (rewarded.groups, rewarded.members) == ([], ())
    assert Advantage("state").samples(rewarded) == []


def test_caps_take_from_every_parent_alike():
    """Two parents with two states each, and room for two: the first of either goes on."""
    lines = {0: (NODE, PARENTS), 1: (PARENTS, NODE), 2: (BYRON, ANNABELLA)}
    said = defaultdict(int)

    def script(prompt):
        said[prompt] += 1
        depth = prompt.count("</think>")
        return lines[depth][(said[prompt] - 1) % 2]

    tree, _ = grow(script, k=2, max_active=2)
    grandparents = {tree.steps[step.parent].parent for step in tree.steps if step.status is Status.ANSWERED}
    assert grandparents == {0, 1}


COMMANDS = [NODE, PARENTS, EMPTY, BROKEN, NONSENSE, BYRON, ANNABELLA, write_node("t", "?x"), ""]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 24),
    st.sampled_from(["parent", "tree"]),
)
def test_samples_credit_one_step_each_and_every_path_extends_its_parents(lines, k, active, nodes, pruning):
    said = cycle(lines)
    tree, policy = grow(lambda _: next(said), k=k, max_active=active, max_nodes=nodes, pruning=pruning)
    assert len(tree.steps) <= nodes
    prompts = set(map(tuple, policy.prompts))
    for index, step in enumerate(tree.steps):
        tokens = tree.trajectory(index).token_ids
        prefix = tree.prompt_ids if step.parent is None else tree.trajectory(step.parent).token_ids
        assert tokens[: len(prefix)] == prefix
        assert prefix in prompts
        assert step.turn.start == len(prefix)
        assert CODEC.decode(tokens[step.turn.start : step.turn.end]) == step.turn.text
    rewarded = score(tree)
    credited = [
        tree.steps[index]
        for group in rewarded.groups
        if has_spread([rewarded.rewards[index] for index in group.steps])
        for index in group.steps
        if tree.steps[index].turn.text
    ]
    samples = Advantage("state").samples(rewarded)
    for step, sample in zip(credited, samples, strict=True):
        turn, length = step.turn, len(sample.token_ids)
        assert length == turn.end
        assert sample.mask == tuple(turn.start <= position < turn.end for position in range(length))
        assert sample.token_ids[turn.start :] == step.token_ids[: turn.end - turn.start]
        assert sample.logprobs == (0.0,) * turn.start + turn.logprobs
    unexplored = {id(tree.steps[index]) for index in tree.unexplored}
    assert unexplored.isdisjoint(map(id, credited))


def test_advantages_compare_siblings():
    """At the question: the node earns 0.4 (known, and Byron is reached), the query 1.0, nonsense -0.7.

    After the node: a query that comes nearer 1.0, two that find nothing -0.5 each, so their mean is 0.
    After the query: the right answer 0.4, the wrong one 0.1, nonsense -0.7.
    """
    tree, _ = grow()
    rewarded = score(tree)
    assert rewarded.rewards[:6] == pytest.approx((0.4, 1.0, -0.7, 1.0, -0.5, -0.5))
    assert rewarded.rewards[6:9] == pytest.approx((0.4, 0.1, -0.7))
    samples = Advantage("state", baseline=Baseline("none")).samples(rewarded)
    assert len(samples) == 12
    given = [sample.advantages[-1] for sample in samples]
    assert given[:3] == pytest.approx((0.4 - 0.7 / 3, 1.0 - 0.7 / 3, -0.7 - 0.7 / 3))
    assert given[3:6] == pytest.approx((1.0, -0.5, -0.5))


def test_siblings_without_spread_teach_nothing():
    tree, _ = grow(lambda _: EMPTY)
    rewarded = score(tree)
    assert Advantage("state").samples(rewarded) == []


@pytest.mark.parametrize("kind", ["group", "turn", "turn_and_outcome"])
def test_a_tree_wants_advantages_by_state(kind):
    tree, _ = grow()
    rewarded = score(tree)
    with pytest.raises(ValueError, match=f"advantages of kind {kind} are not for a RewardedTree"):
        Advantage(kind).samples(rewarded)


def ask(text):
    return write_sparql("t", f"ASK {{ {text} }}")


def test_a_yes_is_the_same_as_another_yes_and_not_as_a_no():
    yes = "<urn:kbqa:e:Ada> <urn:kbqa:r:parent> <urn:kbqa:e:Byron>"
    again, no = "<urn:kbqa:e:Byron> <urn:kbqa:r:born> ?when", "<urn:kbqa:e:Byron> <urn:kbqa:r:parent> ?who"
    says = cycle([ask(yes), ask(again), ask(no), NONSENSE])
    tree, _ = grow(lambda _: next(says), max_turns=2, max_nodes=4)
    assert [step.turn.text for step in tree.steps] == [ask(yes), ask(no), NONSENSE]


def test_entities_are_the_same_by_their_ids():
    """In a dialect whose results are entities, not rows."""
    parents = write_query("t", Action(GET_TAIL_ENTITIES, {"entity": "Ada", "relation": "parent"}))
    born = write_query("t", Action(GET_TAIL_ENTITIES, {"entity": "Byron", "relation": "born"}))
    lines = cycle([parents, parents, born])
    agent = Agent(
        ScriptedPolicy(CODEC, lambda _: next(lines)), CODEC, KgR1("brief"), TOOLS, Budget(2, 3000, 300, 300)
    )
    tree = tree_rollout(agent, question(), Branching(k=3, max_active=9, max_nodes=3), 1.0)
    assert [step.turn.actions[0].items for step in tree.steps] == [("Annabella", "Byron"), ("1788",)]
