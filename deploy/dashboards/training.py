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
        "training",
        "Training",
        "The latest run of a trainer: is it running, does it learn, is it numerically sound?",
    )
    row(
        board,
        "Is it running?",
        number(
            "Run is active",
            "1 while the trainer trains a run; 0 while it waits for a run or after the last one has ended.",
            Query(f"max({gauge('kbqa_trainer_run_active')})", "active"),
        ),
        number(
            "Steps of reinforcement",
            "Finished optimiser steps of reinforcement learning in the latest run.",
            Query(gauge("kbqa_trainer_step", _RL), "rl"),
        ),
        number(
            "Newest policy version",
            "Number of the newest version that the latest run has published; workers pull it.",
            Query(gauge("kbqa_trainer_policy_version"), "version"),
        ),
        number(
            "Restarts of training",
            "How often the training process died and was restarted in the selected time range.",
            Query(count("kbqa_trainer_restarts_total"), "restarts"),
            limits=(1, 3),
            decimals=0,
        ),
        number(
            "Alarms of the recipe",
            "Number of bounds under the recipe's `guards` that are broken now.",
            Query(f"sum({gauge('kbqa_trainer_alarm')})", "on"),
            limits=(1, 1),
        ),
        number(
            "Fall of the reward",
            "How far the mean reward of the latest 20 steps is below the best 20 steps in a row. Half is a "
            "collapse.",
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
            "Mean total reward (turn rewards and outcome) of the latest step's episodes. The recipe "
            "determines its scale.",
            Query(gauge("kbqa_trainer_reward"), "{{phase}}"),
        ),
        chart(
            "F1",
            "Mean F1 on held-out questions after each evaluation, and on the training questions of each "
            "step.",
            Query(f"{gauge('kbqa_trainer_f1')} >= 0", "{{split}}, after {{phase}}"),
            Query(_curve("f1"), "training step"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Results of episodes",
            "Shares of the step's episodes: right without any error, right after an error or an empty "
            "result, wrong.",
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
            "Mean number of turns per episode. A sudden fall to one means that the policy no longer queries "
            "the graph.",
            Query(gauge("kbqa_trainer_turns"), "{{phase}}"),
        ),
        chart(
            "Invalid calls",
            "Share of turns without a valid action, by phase of the run.",
            Query(gauge("kbqa_trainer_invalid_actions"), "{{phase}}"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Length of an episode",
            "Mean number of tokens that the policy wrote per episode. If it grows without a better reward, "
            "the policy is rambling.",
            Query(_curve("generated_tokens"), "written"),
            unit=TOKENS,
        ),
    )
    row(
        board,
        "Is the optimisation sound?",
        chart(
            "Entropy",
            "Mean entropy per token. Near zero, the policy no longer explores; if it explodes, the policy "
            "degenerates.",
            Query(gauge("kbqa_trainer_entropy"), "entropy"),
            unit=NATS,
        ),
        chart(
            "Divergence from the reference",
            "Mean KL estimate (K3) from the reference policy; 0 if the recipe has no KL penalty.",
            Query(gauge("kbqa_trainer_kl"), "KL"),
            unit=NATS,
        ),
        chart(
            "Clipped tokens",
            "Share of tokens whose importance ratio was clipped. It is near 0 for fresh groups and grows "
            "with staleness; above 20 %, the steps are too large.",
            Query(gauge("kbqa_trainer_clip_fraction"), "clipped"),
            unit="percentunit",
        ),
        chart(
            "Engine against trainer",
            "Mean difference of a token's log-probability between the engine that wrote it and the trainer. "
            "It grows with staleness. A jump means that the engine computes with other weights or in "
            "another precision.",
            Query(gauge("kbqa_trainer_logprob_gap"), "gap"),
            unit=NATS,
        ),
        chart(
            "Gradient",
            "Gradient norm before clipping, on a logarithmic axis. If a step was not finite, look at the "
            "steps before it.",
            Query(gauge("kbqa_trainer_gradient_norm"), "norm"),
            logarithmic=True,
        ),
        chart(
            "Questions that teach nothing",
            "Share of the step's questions whose group has equal returns (zero variance), or whose step was "
            "skipped because the loss or gradient was not finite.",
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
            "Mean number of versions by which the step's groups were older than the current weights.",
            Query(gauge("kbqa_trainer_staleness"), "versions behind"),
        ),
        chart(
            "Versions",
            "Number of the newest version, and of the version that each worker holds. If a line stays "
            "behind, that worker is stuck.",
            Query(gauge("kbqa_trainer_policy_version"), "trainer"),
            Query(f"{gauge('kbqa_rollout_policy_version')} > 0", "worker {{instance}}"),
        ),
        chart(
            "Outcome of groups",
            "Number of the run's requested groups by outcome: trained, or dropped with the reason.",
            Query(f"{gauge('kbqa_trainer_groups')} > 0", "{{outcome}}"),
            stacked=True,
        ),
    )
    row(
        board,
        "Where does the time go?",
        chart(
            "Time of a step",
            "Seconds of the latest step by part. If most of it is `waited`, add rollout workers. If most of "
            "it is `trained`, the trainer is the bottleneck.",
            Query(f"{gauge('kbqa_trainer_step_seconds')} >= 0", "{{part}}"),
            unit="s",
            stacked=True,
        ),
        chart(
            "Written tokens",
            "Tokens per second in finished groups, of all workers together.",
            Query(rate("kbqa_rollout_generated_tokens_total"), "all workers"),
            unit=TOKENS_PER_S,
        ),
        chart(
            "Life of a group",
            "Mean seconds until a worker takes the request, until it is played, and from its arrival until "
            "it is trained on.",
            Query(gauge("kbqa_trainer_queued_seconds"), "until taken"),
            Query(mean("kbqa_rollout_seconds", where='purpose="train"'), "played"),
            Query(gauge("kbqa_trainer_group_age_seconds"), "until trained"),
            unit="s",
        ),
    )
    return board
