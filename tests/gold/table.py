"""What the gold agent earns: recipe by data set, how many questions it plays as the formulas say."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

from kbqa.datasets.formats import Answers
from kbqa.datasets.gold import gold_form_of, gold_namer
from kbqa.errors import DatasetError, JudgeUnavailableError
from kbqa.kg.actions import NODE_RELATIONS, GraphTools
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.endpoint.record import Endpoint
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.base import Codec
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.recipes import load_recipe
from kbqa.training.small_policy import train_tokenizer
from kbqa.trajectory import Question, RewardedTrajectory, Status
from tests.gold import formulas
from tests.gold.forms import NoFormError
from tests.gold.graphs import WitnessGraph, cases, curated, load, packed, questions
from tests.gold.playing import Stage
from tests.gold.progress import Facts, Gold, isp_kgr
from tests.gold.scripts import Plan, Slip, Unable, iri_of, plan
from tests.gold.shapes import SHAPED, shaped_cases
from tests.sparql_servers import Virtuoso

RECIPES = (
    "kg-r1",
    "kg-r1-as-released",
    "kbqa-r1",
    "kbqa-r1-as-released",
    "knowcoder-a1",
    "knowcoder-a1-as-released",
    "isp-kgr",
    "isp-kgr-as-released",
    "learning-to-refine",
)
DATASETS = ("grailqa", "cwq", "qald-10", *SHAPED)

_LEARNED = 300  # questions of a data set whose programs the tokenizer learns
_VOCABULARY = 6000
_LANGUAGES = ("en", "de", "zh-cn")  # in which QALD-10 asks for labels

Attach = Callable[[GraphCatalog, str, Path], None]


@dataclass
class Row:
    """What became of the questions of a data set under a recipe.

    Attributes:
        questions: those that the recipe takes.
        left_out: those that it does not take (`questions.max_answers`).
        right: questions answered with an F1 of 1.
        rewarded: those of them that earned what the formula says, rightly answered and with every slip.
        slips: number of plays of rewarded questions with each slip; some programs name no entity.
        listed: question → why it is not among these.
        seconds: of processor time.
    """

    questions: int = 0
    left_out: int = 0
    right: int = 0
    rewarded: int = 0
    slips: Counter[Slip] = field(default_factory=Counter)
    listed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Ground:
    """A data set's witness graphs, loaded."""

    dataset: str
    data: Path
    graphs: Sequence[WitnessGraph]
    tools: GraphTools
    missing: Sequence[str]

    def __post_init__(self) -> None:
        self.cases = {case.id: case for graph in self.graphs for case in graph.cases}
        self._facts: dict[str, Facts] = {}

    def facts(self, kg: str) -> Facts:
        if kg not in self._facts:
            self._facts = {kg: Facts(self.graphs[int(kg.rpartition("-")[2])].lines)}
        return self._facts[kg]


def attach_at(server: Virtuoso, catalog: GraphCatalog, name: str, file: Path) -> None:
    """Attach a graph's file behind a server."""
    iri = f"http://witness.example/{name}"
    server.load(file, iri)
    endpoint = Endpoint(server.url, (iri,), deadline_s=60, query_deadline_s=60, languages=_LANGUAGES)
    catalog.attach(name, endpoint)


@contextmanager
def ground(
    dataset: str, data: Path, directory: Path, sample: int | None = None, attach: Attach | None = None
) -> Iterator[Ground]:
    """The witness graphs of a data set, or of a sample of it, loaded or attached under their names."""
    if dataset in SHAPED:
        found, missing, data = shaped_cases(dataset, data, directory, sample)
    else:
        found, missing = cases(dataset, data, sample)
    graphs = packed(found)
    catalog = GraphCatalog(directory, recheck_s=3600)
    try:
        load(graphs, catalog, dataset, directory, attach)
        tools = LocalGraphTools(catalog, deadline_s=30, longest_s=600)
        yield Ground(dataset, data, graphs, tools, missing)
    finally:
        catalog.close()


def play_all(at: Ground, name: str, codec: Codec) -> Row:
    """The gold agent's play of a recipe over a data set."""
    recipe = load_recipe(name)
    protocol = recipe.protocol.build()
    asked = questions(at.dataset, at.data, at.graphs, gold_form_of(protocol))
    if at.dataset == "lcquad-2":
        asked = curated(asked, at.tools)
    taken = list(filter(recipe.questions.suit, _named(at, asked)))
    stage = Stage(recipe, at.tools, codec)
    row = Row(len(taken) + len(at.missing), len(asked) - len(taken))
    row.listed |= dict.fromkeys(at.missing, "no witness: no facts found")
    began = process_time()
    for question in taken:
        try:
            reason = _reason(at, stage, question, row)
        except JudgeUnavailableError:
            reason = "no reward: the store's query for it fails"
        if reason:
            row.listed[question.id] = reason
    row.seconds = process_time() - began
    return row


def _named(at: Ground, asked: Sequence[Question]) -> Iterator[Question]:
    """The questions with the names that their graph has for their gold answers."""
    by_graph: defaultdict[str, list[Question]] = defaultdict(list)
    for question in asked:
        by_graph[question.kg].append(question)
    for some in by_graph.values():
        try:
            yield from map(gold_namer(some, at.tools, at.dataset), some)
        except DatasetError:
            yield from some  # a store that fails at the answer of the only question of a graph


def _reason(at: Ground, stage: Stage, question: Question, row: Row) -> str:
    """Why a question is not played as the formula says; empty if it is."""
    if not question.answers:
        return "no gold answers"
    try:
        right = _plan(at, stage, question, Slip.NONE)
    except (Unable, NoFormError) as error:
        return str(error)
    played = stage.play(question, right.script)
    if any(turn.status is Status.OUT_OF_TOKENS for turn in played.trajectory.turns):
        return "the answers take more tokens than a turn has"
    if played.trajectory.status is not Status.ANSWERED:
        return f"not answered: {played.trajectory.status}"
    # A variable without values has no relations to look at, which the formula has a reward for.
    executed = (action for action in played.trajectory.actions if action.name != NODE_RELATIONS)
    if (failed := next((action for action in executed if action.code), None)) is not None:
        return f"an action failed: {failed.kind}"
    if not math.isclose(played.components["f1"], 1.0):
        return "the answers differ from the gold ones"
    row.right += 1
    if off := _off(at, stage, question, right, played, Slip.NONE):
        return off
    slips = []
    for slip in (Slip.ANSWER, Slip.PROGRAM):
        try:
            mistaken = _plan(at, stage, question, slip)
        except Unable:
            continue
        if off := _off(at, stage, question, mistaken, stage.play(question, mistaken.script), slip):
            return off
        slips.append(slip)
    row.slips.update(slips)
    row.rewarded += 1
    return ""


def _plan(at: Ground, stage: Stage, question: Question, slip: Slip) -> Plan:
    recipe = stage.recipe
    return plan(recipe.protocol.name, question, at.cases[question.id], recipe.rollout.max_turns, slip)


def _off(
    at: Ground, stage: Stage, question: Question, one: Plan, played: RewardedTrajectory, slip: Slip
) -> str:
    """How a reward differs from the formula's; empty if it does not."""
    expected = _expected(at, stage, question, one, slip)
    earned = sum(played.turn_rewards) + played.outcome
    if math.isclose(earned, expected, abs_tol=1e-9):
        return ""
    return f"reward for {slip}: {earned:.3f} instead of {expected:.3f}"


def _expected(at: Ground, stage: Stage, question: Question, one: Plan, slip: Slip) -> float:
    given, gold = set(one.given), Gold(question.golds, at.cases[question.id].names)
    if slip is Slip.PROGRAM and one.queries:
        given = at.facts(question.kg).answers(one.queries[-1][1], gold)
    name = stage.recipe.name
    f1 = formulas.f_beta(given, question.golds)
    released = name.endswith("as-released")
    if name.startswith("kg-r1"):
        weight = 0.5 if released else 1.0
        return formulas.kg_r1(one, f1, w_f1=weight, w_retrieval=weight)
    if name.startswith("kbqa-r1"):
        return formulas.kbqa_r1(f1)
    if name.startswith("knowcoder"):
        return formulas.knowcoder_a1(formulas.f_beta(given, question.golds, 0.5))
    if name.startswith("learning"):
        return formulas.learning_to_refine(one, f1 == 1)
    topics = [iri_of(topic) for topic in question.topic_entities]
    return isp_kgr(one.queries, topics, gold, f1, at.facts(question.kg), released=released)


HEAD = (
    "| recipe | data set | questions | F1 = 1 | reward | wrong answer | wrong entity | the rest |",
    "|---|---|---|---|---|---|---|---|",
)


def line(recipe: str, dataset: str, row: Row) -> str:
    """A line of the table in Markdown, with the reasons of the questions that are not in it."""
    reasons = Counter(re.sub(r"[-\d.]+ instead of [-\d.]+", "", reason) for reason in row.listed.values())
    rest = [f"{number} {reason}" for reason, number in reasons.most_common()]
    if row.left_out:
        rest.append(f"{row.left_out} more are no questions for this recipe (`questions.max_answers`)")
    numbers = (row.questions, row.right, row.rewarded, row.slips[Slip.ANSWER], row.slips[Slip.PROGRAM])
    return f"| {recipe} | {dataset} | {' | '.join(map(str, numbers))} | {'; '.join(rest)} |"


def codec_of(grounds: Iterable[Ground]) -> TokenizerCodec:
    """A tokenizer about as dense as those of pretrained models: it learns the names and programs."""
    texts: list[str] = []
    for at in grounds:
        texts += [name for graph in at.graphs for case in graph.cases for name in case.names.values()]
        asked = questions(at.dataset, at.data, at.graphs, Answers.LABELS)[:_LEARNED]
        texts += [f"{question.text} {question.sparql} {question.form}" for question in asked]
    tags = [tag for name in RECIPES for tag in load_recipe(name).protocol.build().tags]
    return TokenizerCodec(train_tokenizer(texts, tuple(dict.fromkeys(tags)), _VOCABULARY))
