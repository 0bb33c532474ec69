"""Trains a run to its end, from its beginning or from where it was interrupted."""

from __future__ import annotations

import json

from kbqa.policy_store.durable import write_file
from kbqa.runs.context import Context
from kbqa.runs.journal import DONE
from kbqa.runs.phases import base_version, cold_started_version, prepare
from kbqa.runs.reinforcement import Reinforcement
from kbqa.training.generators import make_deterministic


def train(context: Context) -> None:
    """All phases of a run that are not finished yet.

    Raises:
        KbqaError: the run cannot go on.
        Stopped: it was told to stop.
    """
    if context.journal.phase == DONE:  # the process died before it could say so
        context.rollouts.close()
        return
    # Results of a process that died before the end are void; while they are there, replies count as late.
    context.directory.summary_path.unlink(missing_ok=True)
    if context.recipe.deterministic:
        make_deterministic()
    material = prepare(context)
    base = base_version(context, material)
    start = cold_started_version(context, material, base)
    if context.recipe.schedule.steps:
        Reinforcement(context, material, start).run()
    _summarise(context)


def _summarise(context: Context) -> None:
    journal, record = context.journal, context.record
    versions = journal.results["versions"]
    summary = {
        "f1": journal.results["f1"],
        "f1_by_hops": journal.results["f1_by_hops"],
        **({"f1_by_part": parts} if (parts := journal.results.get("f1_by_part")) else {}),
        **journal.results["judged_by"],
        "seconds": round(journal.seconds, 1),
        "seed": record.seed,
        "dataset": record.dataset,
        "device": journal.results.get("device"),
        "run": record.id,
        "policy": versions.get("rl") or versions["cold_start"],
        "demonstrations": journal.results.get("demonstrations"),
        "best": journal.results.get("best"),
        "ended": journal.results.get("ended"),
    }
    write_file(context.directory.summary_path, json.dumps(summary, indent=1).encode())
    context.rollouts.close()
    journal.finish()
