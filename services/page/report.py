"""The report of training runs as one self-contained HTML file, which loads nothing from elsewhere."""

from __future__ import annotations

from kbqa.reports import Report
from services.page.document import document

_STYLES = ("base.css", "trajectories.css", "chart.css", "figures.css", "document.css", "report.css")
_MODULES = ("dom.js", "format.js", "chart.js", "figures.js", "turns.js", "report.js")


def page(report: Report) -> str:
    """The report as HTML."""
    scenes = report.scenes
    parts = {
        "results": ("Results", bool(report.systems)),
        "curves": ("Curves", any(scene.charts for scene in scenes)),
        "differences": ("Differences", any(scene.tellings for scene in scenes)),
        "runs": ("Runs", bool(report.runs)),
        "findings": ("Findings", bool(report.findings)),
    }
    shown = {part: name for part, (name, is_there) in parts.items() if is_there}
    return document(report.title, report.model_dump(mode="json"), _STYLES, _MODULES, shown)
