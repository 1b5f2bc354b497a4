#!/usr/bin/env python3
"""The same work in SimSo, in Ciw and in divvy's simulator; prints the ratios of CPU time as a Markdown table.

    python3 -m venv target/simulators
    target/simulators/bin/pip install simso ciw
    cargo build --release -p xtask
    target/simulators/bin/python scripts/peers/simulators.py > docs/results/simulators.md

A simulator that is not installed is named with its error, and the others run. Each runs three times; the least CPU time
counts. Building the model is not timed, in none of them.
"""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
XTASK = ROOT / "target" / "release" / "xtask"
RUNS = 3
# M/M/1 at a load of 0.7, and eight periodic tasks that need 0.1 s each second, under round robin with turns of 4 ms.
QUEUE_SECONDS = 30_000
TASKS, TASK_SECONDS = 8, 30
# Below, divvy would be done within the resolution of the clock.
DIVVY_TIMES = 20


def divvy(scenario):
    """Least CPU seconds, and the answer, of a scenario in divvy."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=ROOT / "target") as file:
        json.dump(scenario, file)
        file.flush()
        runs = [
            json.loads(subprocess.run([XTASK, "time-scenario", file.name], check=True, capture_output=True).stdout)
            for _ in range(RUNS)
        ]
    return min(run["cpu_seconds"] for run in runs), runs[0]


def ciw_queue(seconds):
    """Least CPU seconds, jobs and their mean response time of M/M/1 FCFS in Ciw."""
    import ciw

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=0.7)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[1],
    )
    best, answer = float("inf"), None
    for seed in range(RUNS):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        start = time.process_time()
        simulation.simulate_until_max_time(seconds)
        best = min(best, time.process_time() - start)
        records = simulation.get_all_records()
        times = [r.exit_date - r.arrival_date for r in records]
        answer = (len(times), sum(times) / len(times))
    return best, *answer


def simso_tasks(seconds):
    """Least CPU seconds, jobs and their mean response time of the periodic tasks in SimSo."""
    from simso.configuration import Configuration
    from simso.core import Model

    best, answer = float("inf"), None
    for _ in range(RUNS):
        configuration = Configuration()
        configuration.duration = seconds * 1000 * configuration.cycles_per_ms
        for nr in range(TASKS):
            configuration.add_task(
                name=f"T{nr}", identifier=nr + 1, period=1000, activation_date=0, wcet=100, deadline=1000
            )
        configuration.add_processor(name="CPU 1", identifier=1)
        configuration.scheduler_info.filename = str(pathlib.Path(__file__).with_name("simso_rr.py"))
        configuration.check_all()
        model = Model(configuration)
        start = time.process_time()
        model.run_model()
        best = min(best, time.process_time() - start)
        times = [job.response_time for task in model.results.tasks.values() for job in task.jobs if job.response_time]
        answer = (len(times), sum(times) / len(times) / configuration.cycles_per_ms / 1000)
    return best, *answer


def row(what, name, package, run, length, scenario):
    """One line of the table. `scenario(n)` is n times as long as what the other simulator runs."""
    try:
        version = importlib.metadata.version(package)
        theirs, jobs, mean = run(length)
    except Exception as error:  # An absent or broken peer is a result, not the end.
        return f"| {what} | {name} | - | - | - | - | could not run: {error!r} |"
    ours, report = divvy(scenario(DIVVY_TIMES))
    each, ours_each = theirs / jobs, ours / report["jobs"]
    return (
        f"| {what} | {name} {version} | {jobs} jobs, {each * 1e6:.1f} | {report['jobs']} jobs, {ours_each * 1e6:.3f} "
        f"| {mean:.3f} | {report['mean_response']:.3f} | **{each / ours_each:.0f}** |"
    )


def main():
    def queue(times):
        source = {"between": {"exponential": {"mean": "1428571429ns"}}, "size": {"exponential": {"mean": "1s"}}}
        return {"policy": "fcfs", "arrivals": [source], "run": {"until": f"{QUEUE_SECONDS * times}s"}}

    def tasks(times):
        source = {"between": {"const": "1s"}, "size": {"const": "100ms"}}
        return {
            "policy": "rr",
            "quantum": "4ms",
            "arrivals": [source] * TASKS,
            "run": {"until": f"{TASK_SECONDS * times}s"},
        }

    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    rows = [
        row("M/M/1 FCFS, load 0.7", "Ciw", "ciw", ciw_queue, QUEUE_SECONDS, queue),
        row("8 periodic tasks, round robin of 4 ms", "SimSo", "simso", simso_tasks, TASK_SECONDS, tasks),
    ]
    print("# divvy's simulator beside others\n")
    print(
        f"The same work in other simulators from PyPI and in divvy's, by `scripts/peers/simulators.py`: CPU time for each job\n"
        f"that was answered, the least of {RUNS} runs, on one core of {os.cpu_count()} CPUs with Python {sys.version.split()[0]}; load average "
        f"{load}. Ours runs\n{DIVVY_TIMES} times as long, so that there is something to time. The mean response times say that the work is the same;\n"
        "SimSo's round robin turns with the clock and ours with the jobs, which makes the last quantum differ. SimSo keeps a\n"
        "log of all events, which cannot be turned off.\n"
    )
    print("| work | peer | peer: jobs, us each | divvy: jobs, us each | peer: mean response, s | divvy: mean response, s | peer / divvy |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
