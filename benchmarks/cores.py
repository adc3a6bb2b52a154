"""How speed grows with the number of workers, against both limits: `python -m benchmarks.cores`.

Prepared for a machine with 16 cores, where it takes less than four minutes: `vecspaces bench` for a
cheap environment, a simulator, images and Dicts, and one table of all. HalfCheetah needs
`gymnasium[mujoco]`. An environment that is not installed is left out, with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import make_table, show
from vecspaces.cores import count_usable_cores

ENVS = {
    "CartPole": "CartPole-v1",
    "HalfCheetah": "HalfCheetah-v5",
    "image": "benchmarks.environments:image",
    "Dict": "benchmarks.environments:Robot",
}


def bench(name: str, num_envs: int, seconds: float, folder: Path) -> dict[str, Any] | str:
    """Return what `vecspaces bench` measured, or why it did not."""
    file = folder / "bench.json"
    command = [sys.executable, "-m", "vecspaces", "bench", name, "--json", str(file)]
    command += ["--num-envs", str(num_envs), "--seconds", str(seconds)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=20 * seconds + 60)
    if run.returncode:
        return run.stderr.strip().splitlines()[-1]
    measured: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return measured


def find_rows(results: dict[str, Any], setting: str) -> list[dict[str, Any]]:
    """Return what was measured of a setting for each environment, {} if it was not tried."""
    by_name = [{row["name"]: row for row in measured["results"]} for measured in results.values()]
    return [rows.get(setting, {}) for rows in by_name]


def cell(row: dict[str, Any]) -> str:
    """Return steps per second and their spread, which short measurements do not have."""
    speed, spread = row.get("steps_per_second"), row.get("spread")
    text = "" if speed is None else f"{speed:,.0f}"
    return text if spread is None else f"{text} ± {spread:.0%}"


def main(
    num_envs: int = 64,
    seconds: Annotated[float, typer.Option(help="For each environment.")] = 45.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all results.")] = None,
) -> None:
    """Print the steps per second of every setting, each with its spread."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, name in ENVS.items():
            measured = bench(name, num_envs, seconds, Path(folder))
            if isinstance(measured, str):
                typer.echo(f"{title}: left out: {measured}", err=True)
            else:
                results[title] = measured
    settings = dict.fromkeys(
        row["name"] for measured in results.values() for row in measured["results"]
    )
    table = make_table(f"steps per second, {count_usable_cores()} usable cores", "", *results)
    for setting in settings:
        cells = [cell(row) for row in find_rows(results, setting)]
        table.add_row(setting, *cells)
    show(table)
    if json_file is not None:
        json_file.write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
