"""The client of `ringfence chaos` in Python, disturbed and judged like those in Rust."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys

from conftest import ROOT, binary


def test_under_faults_no_promise_is_broken(tmp_path: pathlib.Path) -> None:
    client = ROOT / "client" / "python" / "examples" / "chaos_client.py"
    report = tmp_path / "report"
    done = subprocess.run(
        [str(binary()), "chaos", "--nodes", "3", "--clients", "4", "--duration", "20s"]
        + ["--faults", "kill,pause", "--no-control", "--report", str(report)]
        + ["--client", shlex.join([sys.executable, str(client)])],
        env=dict(os.environ, PYTHONPATH=str(ROOT / "client" / "python")),
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = done.stdout + done.stderr
    # 2: nothing was broken, but so short a run has not shown all that a whole one shows.
    assert done.returncode in (0, 2), said
    verdict = json.loads((report / "report.json").read_text())
    assert not verdict["violations"], said
    assert not any("has ended" in reason or "stop in time" in reason for reason in verdict["reasons"]), said
    records = [json.loads(line) for line in (report / "history.jsonl").read_text().splitlines()]
    beliefs = [record["belief"] for record in records if "belief" in record]
    own = [belief for belief in beliefs if belief["client"] == 4]
    print(f"\n{len(own)} beliefs of {len(beliefs)}; {said.strip().splitlines()[-1]}")
    assert len(own) > 5, said
