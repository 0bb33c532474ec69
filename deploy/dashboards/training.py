"""Training: whether a run goes on, learns, and is sound."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards.panels import (
    NATS,
    TOKENS,
    TOKENS_PER_S,
    Query,
    by_step,
    chart,
    choice,
    dashboard,
    mark,
    number,
    row,
)
from deploy.dashboards.promql import count, gauge, mean, of_runs, rate, speed

_RL = 'phase="rl"'
_STEP = Query(of_runs(gauge("kbqa_trainer_step", _RL)), "step")
_SERVED = gauge("kbqa_gateway_policy_info")


def _curve(name: str) -> str:
    return gauge("kbqa_trainer_curve", f'curve="{name}"')


def training() -> Dashboard:
    """What an operator asks of a run, in this order."""
    board = dashboard(
        "training",
        "Training",
        "The runs of a trainer: is one running, does it learn, is it numerically sound?",
    )
    for name in ("recipe", "run"):
        runs = f'label_values(kbqa_trainer_run_info{{namespace=~"$namespace"}}, {name})'
        board.with_variable(choice(name, name.capitalize(), runs))
    mark(board, "Checkpoints", f"changes({gauge('kbqa_trainer_checkpoint_step')}[1m]) > 0", "blue")
    mark(board, "Promotions", f"{_SERVED} unless {_SERVED} offset 1m", "green")
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
            Query(of_runs(gauge("kbqa_trainer_step", _RL)), "{{run}}: rl"),
        ),
        number(
            "Newest policy version",
            "Number of the newest version that the latest run has published; workers pull it.",
            Query(of_runs(gauge("kbqa_trainer_policy_version")), "{{run}}: version"),
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
            Query(of_runs(gauge("kbqa_trainer_reward_fall")), "{{run}}: fall"),
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
            Query(of_runs(gauge("kbqa_trainer_reward")), "{{run}}: {{phase}}"),
        ),
        chart(
            "F1",
            "Mean F1 on held-out questions after each evaluation, and on the training questions of each "
            "step.",
            Query(of_runs(f"{gauge('kbqa_trainer_f1')} >= 0"), "{{run}}: {{split}}, after {{phase}}"),
            Query(of_runs(_curve("f1")), "{{run}}: training step"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Spread of rewards",
            "Standard deviation, least and greatest total reward of the step's episodes. If the spread is "
            "near zero, nothing can be learned.",
            Query(of_runs(gauge("kbqa_trainer_reward_spread")), "{{run}}: {{statistic}}"),
        ),
        chart(
            "Parts of the reward",
            "Mean of each named part of the reward. If one part grows while F1 falls, the policy games that "
            "part.",
            Query(of_runs(gauge("kbqa_trainer_reward_component")), "{{run}}: {{component}}"),
        ),
        chart(
            "Reward by turn",
            "Mean reward of each turn, over the episodes that have this turn.",
            Query(of_runs(gauge("kbqa_trainer_turn_reward")), "{{run}}: turn {{turn}}"),
        ),
        chart(
            "Validation",
            "Means of the latest evaluation on validation questions: exact match, Hits@1 and F1.",
            Query(
                of_runs(gauge("kbqa_trainer_evaluation", 'split="validation",measure=~"em|hit|f1"')),
                "{{run}}: {{measure}}",
            ),
            unit="percentunit",
            top=1,
        ),
        chart(
            "F1 by hops",
            "Mean F1 of the latest evaluation by the length of the gold path. A length that stays behind "
            "needs more questions, or a curriculum.",
            Query(of_runs(gauge("kbqa_trainer_f1_by_hops")), "{{run}}: {{split}}, {{hops}} hops"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Stage of the curriculum",
            "Mean stage of the step's requests; nothing without a curriculum.",
            Query(of_runs(gauge("kbqa_trainer_stage")), "{{run}}: stage"),
        ),
        chart(
            "Results of episodes",
            "Shares of the step's episodes: right without any error, right after an error or an empty "
            "result, wrong.",
            Query(of_runs(_curve("direct")), "{{run}}: right at once"),
            Query(of_runs(_curve("recovered")), "{{run}}: right after an error"),
            Query(of_runs(_curve("incorrect")), "{{run}}: wrong"),
            unit="percentunit",
            stacked=True,
            top=1,
        ),
    )
    row(
        board,
        "How do runs compare, step by step?",
        by_step(
            "Reward by step",
            "Mean total reward over the steps of the run $run, so that runs of different speed can be "
            "compared.",
            _STEP,
            Query(of_runs(gauge("kbqa_trainer_reward", _RL)), "reward"),
        ),
        by_step(
            "F1 of validation by step",
            "Mean F1 on the validation questions over the steps of the run $run.",
            _STEP,
            Query(of_runs(gauge("kbqa_trainer_f1", 'phase="rl",split="validation"')), "F1"),
            unit="percentunit",
        ),
    )
    row(
        board,
        "How does it play?",
        chart(
            "Turns",
            "Mean number of turns per episode. A sudden fall to one means that the policy no longer queries "
            "the graph.",
            Query(of_runs(gauge("kbqa_trainer_turns")), "{{run}}: {{phase}}"),
        ),
        chart(
            "Invalid calls",
            "Share of turns without a valid action, by phase of the run.",
            Query(of_runs(gauge("kbqa_trainer_invalid_actions")), "{{run}}: {{phase}}"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Length of an episode",
            "Tokens that the policy wrote per episode: mean, 95th percentile and most. If they grow without "
            "a better reward, the policy is rambling.",
            Query(of_runs(_curve("generated_tokens")), "{{run}}: mean"),
            Query(of_runs(gauge("kbqa_trainer_episode_tokens")), "{{run}}: {{statistic}}"),
            unit=TOKENS,
        ),
        chart(
            "Truncated episodes",
            "Share of the step's episodes that ended at a limit of turns, tokens or time. Raise the limit, "
            "or shorten observations, if it stays high.",
            Query(of_runs(gauge("kbqa_trainer_truncated")), "{{run}}: truncated"),
            unit="percentunit",
            limits=(0.1, 0.3),
        ),
        chart(
            "Success of actions",
            "Share of calls that returned something, by action. An action that begins to fail shows what the "
            "policy writes wrong.",
            Query(of_runs(gauge("kbqa_trainer_action_success")), "{{run}}: {{action}}"),
            unit="percentunit",
            top=1,
        ),
    )
    row(
        board,
        "Is the optimisation sound?",
        chart(
            "Entropy",
            "Mean entropy per token. Near zero, the policy no longer explores; if it explodes, the policy "
            "degenerates.",
            Query(of_runs(gauge("kbqa_trainer_entropy")), "{{run}}: entropy"),
            unit=NATS,
            limits=(0.05, 0.01),
            order="low is bad",
        ),
        chart(
            "Divergence from the reference",
            "Mean KL estimate (K3) from the reference policy; 0 if the recipe has no KL penalty.",
            Query(of_runs(gauge("kbqa_trainer_kl")), "{{run}}: KL"),
            unit=NATS,
        ),
        chart(
            "Clipped tokens",
            "Share of tokens whose importance ratio was clipped. It is near 0 for fresh groups and grows "
            "with staleness; above 20 %, the steps are too large.",
            Query(of_runs(gauge("kbqa_trainer_clip_fraction")), "{{run}}: clipped"),
            Query(of_runs(gauge("kbqa_trainer_clip_low_fraction")), "{{run}}: at the lower bound"),
            Query(of_runs(gauge("kbqa_trainer_clip_high_fraction")), "{{run}}: at the upper bound"),
            unit="percentunit",
            limits=(0.1, 0.2),
        ),
        chart(
            "Engine against trainer",
            "Mean difference of a token's log-probability between the engine that wrote it and the trainer. "
            "It grows with staleness. A jump means that the engine computes with other weights or in "
            "another precision.",
            Query(of_runs(gauge("kbqa_trainer_logprob_gap")), "{{run}}: gap"),
            unit=NATS,
        ),
        chart(
            "Loss",
            "Loss of the step: the clipped surrogate with its KL and entropy terms. Its level says little; a "
            "jump is worth a look.",
            Query(of_runs(gauge("kbqa_trainer_loss")), "{{run}}: loss"),
        ),
        chart(
            "Learning rate",
            "Learning rate of the step, after warm-up and decay.",
            Query(of_runs(gauge("kbqa_trainer_learning_rate")), "{{run}}: rate"),
        ),
        chart(
            "Importance ratio",
            "Mean ratio of a token's probability now and when it was written. It is 1 for fresh groups; far "
            "from 1, the data is too old or the steps are too large.",
            Query(of_runs(gauge("kbqa_trainer_importance_ratio")), "{{run}}: ratio"),
        ),
        chart(
            "Largest importance ratio",
            "Largest ratio of a token's probability now and when it was written, on a logarithmic axis. "
            "Single tokens far from 1 are usual; if it grows from step to step, engine and trainer drift "
            "apart, or the data is too old.",
            Query(of_runs(gauge("kbqa_trainer_importance_ratio_max")), "{{run}}: largest"),
            logarithmic=True,
        ),
        chart(
            "Capped tokens",
            "Share of tokens whose weight is limited by the recipe's `importance_cap`; nothing without a "
            "cap. If it is high, the engine computes other probabilities than the trainer, or the data is "
            "too old.",
            Query(of_runs(gauge("kbqa_trainer_capped_fraction")), "{{run}}: capped"),
            unit="percentunit",
            limits=(0.05, 0.2),
        ),
        chart(
            "Spread of advantages",
            "Standard deviation of the mean advantage of the step's trajectories. At zero, the step teaches "
            "nothing.",
            Query(of_runs(gauge("kbqa_trainer_advantage_spread")), "{{run}}: deviation"),
        ),
        chart(
            "Gradient",
            "Gradient norm before clipping, on a logarithmic axis. If a step was not finite, look at the "
            "steps before it.",
            Query(of_runs(gauge("kbqa_trainer_gradient_norm")), "{{run}}: norm"),
            logarithmic=True,
        ),
        chart(
            "Questions that teach nothing",
            "Share of the step's questions whose group has equal returns (zero variance), or whose step was "
            "skipped because the loss or gradient was not finite.",
            Query(of_runs(gauge("kbqa_trainer_no_spread")), "{{run}}: zero variance"),
            Query(of_runs(gauge("kbqa_trainer_not_finite")), "{{run}}: not finite"),
            unit="percentunit",
            top=1,
        ),
    )
    row(
        board,
        "Is the data fresh?",
        chart(
            "Staleness",
            "Number of versions by which the step's groups were older than the current weights: mean and "
            "most. The recipe's `max_staleness` bounds it.",
            Query(of_runs(gauge("kbqa_trainer_staleness")), "{{run}}: mean"),
            Query(of_runs(gauge("kbqa_trainer_staleness_max")), "{{run}}: most"),
        ),
        chart(
            "Versions",
            "Number of the newest version, and of the version that each worker holds. If a line stays "
            "behind, that worker is stuck.",
            Query(of_runs(gauge("kbqa_trainer_policy_version")), "{{run}}: trainer"),
            Query(f"{gauge('kbqa_rollout_policy_version')} > 0", "worker {{instance}}"),
        ),
        chart(
            "Outcome of groups",
            "Number of the run's requested groups by outcome: trained, or dropped with the reason.",
            Query(of_runs(f"{gauge('kbqa_trainer_groups')} > 0"), "{{run}}: {{outcome}}"),
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
            Query(of_runs(f"{gauge('kbqa_trainer_step_seconds')} >= 0"), "{{run}}: {{part}}"),
            unit="s",
            stacked=True,
        ),
        chart(
            "Use of the GPUs (MFU)",
            "Share of the peak of the trainer's GPUs in bf16 that the model's products take while a step is "
            "trained. Far below 0.3, rows are short (`optimisation.token_budget`), or the processes wait for "
            "each other. Nothing without a GPU whose peak is known.",
            Query(of_runs(f"{gauge('kbqa_trainer_mfu')} >= 0"), "{{run}}: MFU"),
            unit="percentunit",
            limits=(0.2, 0.1),
            order="low is bad",
        ),
        chart(
            "Remaining time",
            "Time until the last planned step at the speed of the last hour. Guards may end the run earlier.",
            Query(
                of_runs(
                    f"({gauge('kbqa_trainer_steps_planned')} - on (namespace, job, instance) "
                    f"{gauge('kbqa_trainer_step', _RL)}) / on (namespace, job, instance) "
                    f"({speed(gauge('kbqa_trainer_step', _RL), '1h')} > 0)"
                ),
                "{{run}}",
            ),
            unit="s",
        ),
        chart(
            "Tokens that were trained on",
            "Tokens per second that the run's rollouts bring to the trainer.",
            Query(
                of_runs(f"clamp_min({speed(gauge('kbqa_trainer_sampled_tokens'), '10m')}, 0)"),
                "{{run}}: sampled",
            ),
            unit=TOKENS_PER_S,
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
            Query(of_runs(gauge("kbqa_trainer_queued_seconds")), "{{run}}: until taken"),
            Query(mean("kbqa_rollout_seconds", where='purpose="train"'), "played"),
            Query(of_runs(gauge("kbqa_trainer_group_age_seconds")), "{{run}}: until trained"),
            unit="s",
        ),
    )
    return board
