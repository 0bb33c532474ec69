"""`GET /v1/kg`: the graphs that can be asked about, the names in them, and examples of questions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import StringConstraints

from kbqa.client.models import ExamplesModel, GraphModel, GraphsModel, NameModel, NamesModel
from kbqa.datasets.examples import is_answered, read_examples
from kbqa.errors import DatasetError, GraphNotFoundError, GraphUnavailableError
from kbqa.kg.actions import COMPLETE_NAME, EXECUTE_LOGICAL_FORM, Action, Failure
from kbqa.kg.tools import ListedGraphTools
from kbqa.trajectory import Question
from services.gateway.access.control import Caller, caller_of

logger = logging.getLogger(__name__)


def graphs_router(tools: ListedGraphTools, home: Path) -> APIRouter:
    """Routes about graphs.

    Args:
        home: under which examples of questions are kept (`kbqa.datasets.examples`).
    """
    router = APIRouter(tags=["graphs"])

    @router.get("/v1/kg", summary="List the loaded graphs", response_model=GraphsModel)
    def graphs(caller: Annotated[Caller, Depends(caller_of)]) -> GraphsModel:
        """Only graphs that the key may ask about."""
        return GraphsModel(
            graphs=[
                GraphModel(name=g.name, version=g.version, triples=g.triples, entities=g.entities)
                for g in tools.graphs()
                if caller.may_ask(g.name)
            ]
        )

    @router.get("/v1/kg/{kg}/names", summary="Complete a name", response_model=NamesModel)
    def names(
        kg: str,
        text: Annotated[
            str,
            StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
            Query(description="The beginning of a name, or of a word in it."),
        ],
        caller: Annotated[Caller, Depends(caller_of)],
        limit: Annotated[int, Query(ge=1, le=50, description="Maximum number of entities.")] = 10,
    ) -> NamesModel:
        """Entities to choose topics from, as the user types. None for a graph at an endpoint."""
        caller.require(kg)
        (found,) = tools.execute(kg, [Action(COMPLETE_NAME, {"text": text, "limit": limit})])
        if isinstance(found, Failure):
            raise GraphUnavailableError(f'names of the graph "{kg}" cannot be completed: {found.message}')
        return NamesModel(names=[NameModel(id=item.id, label=item.label) for item in found.items])

    @router.get("/v1/kg/{kg}/examples", summary="Example questions", response_model=ExamplesModel)
    def examples(kg: str, caller: Annotated[Caller, Depends(caller_of)]) -> ExamplesModel:
        """Those that `kbqa questions examples` made, as far as the graph still has answers to them."""
        caller.require(kg)
        if kg not in {graph.name for graph in tools.graphs()}:
            raise GraphNotFoundError(kg)
        questions = _examples(home, kg)
        forms = [Action(EXECUTE_LOGICAL_FORM, {"expression": one.form, "return": True}) for one in questions]
        found = tools.execute(kg, forms) if forms else []
        return ExamplesModel(
            questions=[
                question.text
                for question, result in zip(questions, found, strict=True)
                if not isinstance(result, Failure)
                and is_answered(question, [item.label for item in result.items])
            ]
        )

    return router


def _examples(home: Path, kg: str) -> Sequence[Question]:
    """Those that were made; none if they cannot be read, because nobody who asks can do anything about it."""
    try:
        return read_examples(home, kg)
    except (DatasetError, OSError) as error:
        logger.warning(
            "examples cannot be read: make them again (kbqa questions examples)",
            extra={"kg": kg, "reason": str(error)},
        )
        return ()
