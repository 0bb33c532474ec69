"""Reports of training runs: what their records say together, ready to be drawn as one page.

`build` reads runs, evaluations and findings; `services.page.report` draws the result.
"""

from kbqa.reports.building import build
from kbqa.reports.findings import Finding, Findings, read_findings
from kbqa.reports.views import Report

__all__ = ["Finding", "Findings", "Report", "build", "read_findings"]
