"""A paper that nobody here has heard of is installed beside kbqa, and trains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRAIN = """
import json, sys
from contextlib import closing
from pathlib import Path
from kbqa.curves import figures_of, paper_of
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.training import train

recipe = load_recipe(sys.argv[1])
limits = SplitLimits(validation=10, test=10)
directory = Runs(Path(sys.argv[3]) / "runs").create(recipe, "world", limits, seed=1)
with closing(GraphCatalog(Path(sys.argv[2]))) as catalog:
    with open_run(directory, LocalGraphTools(catalog)) as context:
        train(context)
steps = [record for record in directory.records() if record["kind"] == "step" and record["phase"] == "rl"]
keys = ("reward", "invalid_actions", "skipped", "frugality")
print(json.dumps({
    "steps": [{key: step[key] for key in keys} for step in steps],
    "paper": paper_of("frugal"),
    "figures": [figure.title for figure in figures_of("frugal")],
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A directory in which the paper's distribution is installed, as it was built."""
    work = tmp_path_factory.mktemp("sixth")
    source, site = work / "source", work / "site"
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("test_*", "__pycache__", "__init__.py"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True)
    return site


def test_a_sixth_paper_trains_without_a_line_in_the_tree(site, graph_home, tmp_path) -> None:
    paths = (str(site), os.environ.get("PYTHONPATH", ""))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
    }
    recipe = HERE / "hop-by-hop-small.yaml"
    command = [sys.executable, "-P", "-c", TRAIN, str(recipe), str(graph_home), str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    steps = said["steps"]
    assert len(steps) == 6
    assert [step["skipped"] for step in steps].count(False) >= 3
    assert min(step["frugality"] for step in steps) < -1
    assert min(step["invalid_actions"] for step in steps) < 1, "it has moved through the graph"
    assert (said["paper"], said["figures"]) == ("Hop by Hop", ["Training reward"])
