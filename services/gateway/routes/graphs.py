"""`GET /v1/kg`: what can be asked about."""

from __future__ import annotations

from fastapi import APIRouter

from services.gateway.schemas import GraphModel, GraphsModel
from services.gateway.versions import ListedTools


def graphs_router(tools: ListedTools) -> APIRouter:
    router = APIRouter(tags=["graphs"])

    @router.get("/v1/kg", summary="The graphs that are loaded", response_model=GraphsModel)
    def graphs() -> GraphsModel:
        return GraphsModel(
            graphs=[
                GraphModel(name=g.name, version=g.version, triples=g.triples, entities=g.entities)
                for g in tools.graphs()
            ]
        )

    return router
