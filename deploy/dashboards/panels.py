"""The few kinds of panels that the dashboards are made of, all alike in what they share.

    board = dashboard("training", "Training", "What a run learns, and how soundly.")
    row(board, "Does it learn?", chart("Reward", "Mean …", Query(gauge("kbqa_trainer_reward"), "{{phase}}")))

Units are Grafana's: https://grafana.com/docs/grafana/latest/panels-visualizations/configure-standard-options
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries, xychart
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)
from grafana_foundation_sdk.models.xychart import SeriesMapping

Panel = timeseries.Panel | stat.Panel | xychart.Panel
Order = Literal["high is bad", "low is bad"]

_SOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")
_COLUMNS, _CHART_HEIGHT, _NUMBER_HEIGHT = 24, 8, 4


NATS = "suffix: nats"
TOKENS = "suffix: tokens"
TOKENS_PER_S = "suffix: tokens/s"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        legend: of its series, with `{{label}}` for the value of a label.
    """

    expr: str
    legend: str


def dashboard(name: str, title: str, description: str) -> boards.Dashboard:
    """An empty dashboard; its file and its address are called `name`."""
    namespaces = "label_values(kbqa_http_requests_total, namespace)"
    return (
        boards.Dashboard(f"kbqa / {title}")
        .uid(f"kbqa-{name}")
        .description(description)
        .tags(["kbqa"])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .refresh("30s")
        .time("now-3h", "now")
        .link(
            boards.DashboardLink("kbqa")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["kbqa"])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(boards.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(choice("namespace", "Namespace", namespaces))
    )


def choice(name: str, label: str, query: str) -> boards.QueryVariable:
    """Some of what a query finds, or all of it: a variable to match a label with."""
    return (
        boards.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        # Without Kubernetes there is no namespace, and this matches its absence, too.
        .all_value(".*")
        .multi(True)
    )


def mark(board: boards.Dashboard, name: str, expr: str, colour: str) -> None:
    """Mark on every panel the times at which an expression has a value."""
    board.annotation(
        boards.AnnotationQuery().name(name).datasource(_SOURCE).enable(True).icon_color(colour).expr(expr)
    )


def row(board: boards.Dashboard, question: str, *panels: Panel) -> None:
    """Add what answers a question of the operator, side by side."""
    board.with_row(boards.Row(question))
    for panel in panels:
        board.with_panel(panel)


def chart(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    width: int = 8,
    stacked: bool = False,
    top: float | None = None,
    logarithmic: bool = False,
    limits: tuple[float, float] | None = None,
    order: Order = "high is bad",
) -> timeseries.Panel:
    """Lines over time, from zero up unless values are negative.

    Args:
        width: of the 24 columns.
        stacked: the lines are parts of a whole.
        top: where the axis ends at least.
        logarithmic: for values over several orders of magnitude.
        limits: where lines are drawn: worth a look, bad.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(_SOURCE)
        .unit(unit)
        .span(width)
        .height(_CHART_HEIGHT)
        .axis_soft_min(0)
        .line_width(2 if not stacked else 1)
        .fill_opacity(0 if not stacked else 50)
        .show_points(shapes.VisibilityMode.AUTO)
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI))
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
        )
    )
    if limits is not None:
        panel.thresholds(_thresholds(limits, order))
        panel.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        )
    if stacked:
        panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    if top is not None:
        panel.axis_soft_max(top)
    if logarithmic:
        panel.scale_distribution(common.ScaleDistributionConfig().type(shapes.ScaleDistribution.LOG).log(10))
    for query, letter in zip(queries, _letters(), strict=False):
        panel.with_target(_target(query, letter))
    return panel


def by_step(title: str, description: str, step: Query, value: Query, *, unit: str = "short") -> xychart.Panel:
    """A value over the steps of a run, one panel for each chosen run.

    Args:
        step: the x axis; both queries have one time series for each run.
    """
    panel = (
        xychart.Panel()
        .title(title)
        .description(description)
        .datasource(_SOURCE)
        .unit(unit)
        .span(_COLUMNS)  # as wide as Grafana makes what it repeats
        .height(_CHART_HEIGHT)
        .mapping(SeriesMapping.AUTO)
        .repeat("run")
        .max_per_row(3)
        .axis_soft_min(0)
        .point_size(xychart.XychartFieldConfigPointSize().fixed(3))
        # Both series at the same times; without the time, the steps are the first numbers.
        .with_transformation(DataTransformerConfig(id_val="joinByField", options={"byField": "Time"}))
        .with_transformation(
            DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})
        )
    )
    for query, letter in zip((step, value), _letters(), strict=False):
        panel.with_target(_target(query, letter))
    return panel


def number(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    width: int = 4,
    limits: tuple[float, float] | None = None,
    order: Order = "high is bad",
    decimals: int | None = None,
) -> stat.Panel:
    """The latest value, coloured by two limits: worth a look, bad."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(_SOURCE)
        .unit(unit)
        .span(width)
        .height(_NUMBER_HEIGHT)
        .graph_mode(shapes.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("none yet")
        .thresholds(_thresholds(limits, order))
    )
    if decimals is not None:
        panel.decimals(decimals)
    for query, letter in zip(queries, _letters(), strict=False):
        panel.with_target(_target(query, letter))
    return panel


def _thresholds(limits: tuple[float, float] | None, order: Order) -> boards.ThresholdsConfig:
    if limits is None:
        steps: list[tuple[float | None, str]] = [(None, "text")]
    elif order == "high is bad":
        steps = [(None, "green"), (limits[0], "orange"), (limits[1], "red")]
    else:
        steps = [(None, "red"), (limits[1], "orange"), (limits[0], "green")]
    made = [Threshold(value=value, color=colour) for value, colour in steps]
    return boards.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(made)


def _target(query: Query, letter: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter)


def _letters() -> list[str]:
    return [chr(ord("A") + index) for index in range(26)]
