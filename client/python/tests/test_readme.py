"""The quick start runs as it is printed."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from conftest import ROOT, Cluster


def test_the_quick_start_ends_with_a_refused_stale_write(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    text = (ROOT / "client" / "python" / "README.md").read_text()
    script = re.search(r"```python\n(import os\n.*?)```", text, re.S)
    assert script is not None
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT / "client" / "python"),
        RINGFENCE_ENDPOINTS=",".join(cluster.endpoints),
    )
    done = subprocess.run(
        [sys.executable, "-c", script.group(1)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("refused: STALE_TOKEN: "), done.stdout
