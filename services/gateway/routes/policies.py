"""`GET /v1/policies`: the published policies, and the one that answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from kbqa.client.models import PoliciesModel, PolicyModel, ServingPolicy
from kbqa.errors import NoPolicyError
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.serving.policies import PolicySource
from services.gateway.access.control import Caller, caller_of


def policies_router(source: PolicySource, store: PolicyStore) -> APIRouter:
    router = APIRouter(tags=["policies"])

    @router.get("/v1/policies", summary="List the published policies and the one that answers")
    def policies(
        caller: Annotated[Caller, Depends(caller_of)],
        kg: Annotated[
            str | None, Query(description="Graph whose policy is `serving` (default: the first choice).")
        ] = None,
    ) -> PoliciesModel:
        if kg is not None:
            caller.require(kg)
        promoted = _promoted(store)
        versions = [
            version for run in store.runs() for version in store.versions(run) if _may_see(caller, version)
        ]
        return PoliciesModel(
            serving=_serving(source, kg),
            policies=[_model(version, version == promoted) for version in versions],
        )

    return router


def _may_see(caller: Caller, version: PolicyVersion) -> bool:
    """Whether a caller may ask about a graph of a version; a version without graphs is for all."""
    graphs = version.manifest.graphs
    return caller.graphs is None or not graphs or any(map(caller.may_ask_part_of, graphs))


def _serving(source: PolicySource, kg: str | None) -> ServingPolicy | None:
    try:
        lease = source.lease(kg)
    except NoPolicyError:
        return None
    served, fallback = lease.served, lease.fallback
    lease.release()
    return ServingPolicy(policy=served.run, version=served.version, recipe=served.recipe, fallback=fallback)


def _promoted(store: PolicyStore) -> PolicyVersion | None:
    try:
        return store.promoted()
    except NoPolicyError:
        return None


def _model(version: PolicyVersion, promoted: bool) -> PolicyModel:
    manifest = version.manifest
    return PolicyModel(
        version=version.id,
        run=version.run,
        recipe=manifest.recipe,
        kind=manifest.kind,
        base_model=manifest.base_model,
        step=manifest.step,
        metrics=manifest.metrics,
        created_at=manifest.created_at,
        promoted=promoted,
    )
