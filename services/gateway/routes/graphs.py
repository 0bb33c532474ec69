"""`GET /v1/kg`: the graphs that can be asked about."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from kbqa.client.models import GraphModel, GraphsModel
from kbqa.kg.tools import ListedGraphTools
from services.gateway.access.control import Caller, caller_of


def graphs_router(tools: ListedGraphTools) -> APIRouter:
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

    return router
