"""Host memory of the processes that share the training of a model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_PROCESSES = 4


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_followers_hold_their_shard_and_nothing_else(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(_PROCESSES)]
        + ["-m", "tests.unit.training.resident", str(tmp_path / "bytes.json")],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=840,
        # What is freed goes back to the system; otherwise glibc keeps some of what tensors on their way took.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)},
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "bytes.json").read_text())
    shard = measured["whole"] / _PROCESSES
    for before, after, peak in zip(measured["before"], measured["with"], measured["peak"], strict=True):
        assert after - before == pytest.approx(shard, rel=0.1)
        assert peak - before < 1.5 * shard  # tensors are gathered one at a time
