"""Training: whether a run goes on, learns, and is sound."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards.panels import NATS, TOKENS, TOKENS_PER_S, Query, chart, dashboard, number, row
from deploy.dashboards.promql import count, gauge, mean, rate

_RL = 'phase="rl"'


def _curve(name: str) -> str:
    return gauge("kbqa_trainer_curve", f'curve="{name}"')


def training() -> Dashboard:
    """What an operator asks of a run, in this order."""
    board = dashboard(
        "training", "Training", "The latest run of a trainer: does it go on, does it learn, is it sound?"
    )
    row(
        board,
        "Does it go on?",
        number(
            "Run is active",
            "1 while the trainer trains a run; 0 when it waits for one, or the last one has ended.",
            Query(f"max({gauge('kbqa_trainer_run_active')})", "active"),
        ),
        number(
            "Steps of reinforcement",
            "Finished optimiser batches of the latest run's reinforcement learning.",
            Query(gauge("kbqa_trainer_step", _RL), "rl"),
        ),
        number(
            "Newest policy version",
            "Number of the version that the latest run published last; workers pull it.",
            Query(gauge("kbqa_trainer_policy_version"), "version"),
        ),
        number(
            "Restarts of training",
            "Times in the time shown that the training process died and was started again.",
            Query(count("kbqa_trainer_restarts_total"), "restarts"),
            limits=(1, 3),
            decimals=0,
        ),
        number(
            "Alarms of the recipe",
            "Bounds under `guards` of the recipe that are broken now.",
            Query(f"sum({gauge('kbqa_trainer_alarm')})", "on"),
            limits=(1, 1),
        ),
        number(
            "Fall of the reward",
            "How far the mean reward of the latest 20 steps lies below the best 20. Half is a collapse.",
            Query(gauge("kbqa_trainer_reward_fall"), "fall"),
            unit="percentunit",
            limits=(0.25, 0.5),
        ),
    )
    row(
        board,
        "Does it learn?",
        chart(
            "Reward",
            "Mean outcome reward of the latest step's episodes; its scale is the recipe's.",
            Query(gauge("kbqa_trainer_reward"), "{{phase}}"),
        ),
        chart(
            "F1",
            "Mean F1 on questions that are not trained on, after each evaluation; and of the training step.",
            Query(f"{gauge('kbqa_trainer_f1')} >= 0", "{{split}}, after {{phase}}"),
            Query(_curve("f1"), "training step"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "What episodes come to",
            "Shares of the step's episodes: right at once, right after an error or an empty result, wrong.",
            Query(_curve("direct"), "right at once"),
            Query(_curve("recovered"), "right after an error"),
            Query(_curve("incorrect"), "wrong"),
            unit="percentunit",
            stacked=True,
            top=1,
        ),
    )
    row(
        board,
        "How does it play?",
        chart(
            "Turns",
            "Mean turns of an episode. A sudden fall to one is a policy that no longer asks the graph.",
            Query(gauge("kbqa_trainer_turns"), "{{phase}}"),
        ),
        chart(
            "Invalid calls",
            "Share of turns without a valid action, by the phase of the run.",
            Query(gauge("kbqa_trainer_invalid_actions"), "{{phase}}"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Length of an episode",
            "Tokens that the policy wrote in an episode. Growth without a better reward is rambling.",
            Query(_curve("generated_tokens"), "written"),
            unit=TOKENS,
        ),
    )
    row(
        board,
        "Is the optimisation sound?",
        chart(
            "Entropy",
            "Mean entropy of the policy's tokens. Near zero it explores nothing any more; an explosion is a "
            "policy that falls apart.",
            Query(gauge("kbqa_trainer_entropy"), "entropy"),
            unit=NATS,
        ),
        chart(
            "Divergence from the reference",
            "Mean KL estimate (K3) from the reference policy; 0 where the recipe has no such penalty.",
            Query(gauge("kbqa_trainer_kl"), "KL"),
            unit=NATS,
        ),
        chart(
            "Clipped tokens",
            "Share of tokens whose ratio was clipped. Near 0 on fresh groups, more with staleness; above 20 "
            "% steps are too large.",
            Query(gauge("kbqa_trainer_clip_fraction"), "clipped"),
            unit="percentunit",
        ),
        chart(
            "Engine against trainer",
            "Mean difference of a token's log-probability between the engine that wrote it and the trainer. "
            "It grows with staleness; a jump is an engine that computes something else.",
            Query(gauge("kbqa_trainer_logprob_gap"), "gap"),
            unit=NATS,
        ),
        chart(
            "Gradient",
            "Norm before clipping, on a logarithmic axis. Watch it before a step that is not finite.",
            Query(gauge("kbqa_trainer_gradient_norm"), "norm"),
            logarithmic=True,
        ),
        chart(
            "Questions that teach nothing",
            "Share of the step's questions: all returns of the group are equal (zero variance), or the step "
            "was skipped, since loss or gradient was not finite.",
            Query(gauge("kbqa_trainer_no_spread"), "zero variance"),
            Query(gauge("kbqa_trainer_not_finite"), "not finite"),
            unit="percentunit",
            top=1,
        ),
    )
    row(
        board,
        "Is the data fresh?",
        chart(
            "Staleness",
            "Mean number of versions that the step's groups were behind the weights that they trained.",
            Query(gauge("kbqa_trainer_staleness"), "versions behind"),
        ),
        chart(
            "Versions",
            "Number of the newest version, and of the one that each worker holds. Lines that part are a "
            "worker that is stuck.",
            Query(gauge("kbqa_trainer_policy_version"), "trainer"),
            Query(f"{gauge('kbqa_rollout_policy_version')} > 0", "worker {{instance}}"),
        ),
        chart(
            "What became of groups",
            "Groups of the run that were asked for: trained, or dropped for a reason.",
            Query(f"{gauge('kbqa_trainer_groups')} > 0", "{{outcome}}"),
            stacked=True,
        ),
    )
    row(
        board,
        "Where does the time go?",
        chart(
            "Time of a step",
            "Seconds of the latest step by part. Mostly waited: add rollout workers. Mostly trained: the "
            "trainer is the bottleneck.",
            Query(f"{gauge('kbqa_trainer_step_seconds')} >= 0", "{{part}}"),
            unit="s",
            stacked=True,
        ),
        chart(
            "Written tokens",
            "Tokens that all workers' policies write a second, of finished groups.",
            Query(rate("kbqa_rollout_generated_tokens_total"), "all workers"),
            unit=TOKENS_PER_S,
        ),
        chart(
            "Way of a group",
            "Mean seconds from the request to a worker, in play, and from arrival to training.",
            Query(gauge("kbqa_trainer_queued_seconds"), "until taken"),
            Query(mean("kbqa_rollout_seconds", where='purpose="train"'), "played"),
            Query(gauge("kbqa_trainer_group_age_seconds"), "until trained"),
            unit="s",
        ),
    )
    return board
