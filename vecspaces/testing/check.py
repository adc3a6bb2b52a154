"""`check_env`: runs probes, compares their recordings, and reports."""

from __future__ import annotations

import inspect
import multiprocessing
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cloudpickle

from vecspaces.checks import check_count, check_seconds
from vecspaces.make import adapt_factory
from vecspaces.testing import probes
from vecspaces.testing.isolation import Played, Probe, run_isolated, start_methods
from vecspaces.testing.recording import ResultDigest, first_difference
from vecspaces.testing.report import SEVERITIES, Finding, Report
from vecspaces.vector.options import AgentLayout, StartMethod

_ADVICE: Mapping[str, Mapping[str, str]] = {
    "error": {
        "construction": "make the factory return an environment each time it is called",
        "died": "find the crash in the environment's native code, or the os._exit",
        "hangs": "bound the wait in the environment; `step_timeout` bounds it from outside",
        "raises": "make reset work at any time, and step for every action of the action space",
        "spaces-differ": "give each environment the same spaces: a batch has one space",
        "pickling": "open files, sockets and locks in the environment, not in its factory: spawn, "
        "forkserver (Python's default from 3.14 on) and Ray send the factory to other processes",
        "start": "do less when the factory's module and the main module are imported: each worker "
        "imports them under spawn and forkserver",
        "start-method": "depend on the seed alone: not on the order of a set, nor on what the "
        "parent process did",
        "agent-missing": "return an observation of each agent that acted or is in agents, and a "
        "reward and flags of each one that acted",
        "agent-unknown": "name all agents that there can be in possible_agents",
        "agent-flag": "take an agent out of agents in the step that sets one of its flags",
        "agent-space": "return the same space each time: it cannot change",
        "reset-form": "return (observation, info) from reset",
        "step-form": "return (observation, reward, terminated, truncated, info) from step",
        "observation": "return what observation_space holds, or widen the space",
        "reward": "return a finite number",
        "flag": "return bools: bool(terminated), bool(truncated)",
        "info": "return a dict with strings as keys and values that can be pickled",
        "info-space": "return what info_space holds, widen it, or leave the key out of the info",
        "action-mask": "give a mask as action_space.sample(mask=) takes it, that allows an action "
        "until the end",
        "nondeterministic": "draw all random numbers from self.np_random, which reset(seed=...) "
        "seeds",
        "global-random": "draw from self.np_random, the environment's generator",
        "seed-ignored": "begin reset with super().reset(seed=seed), and use self.np_random",
        "same-seed": "set all state in reset, so that the episode depends on the seed alone",
        "unseeded-reset": "seed in reset only if seed is not None, and let the generator go on "
        "otherwise",
        "company": "keep all state in the instance: no globals, no class attributes",
        "working-directory": "use absolute paths: the working directory may change",
        "render": "make render return what render_mode requires",
        "render-company": "draw on a surface of the instance, not of the module or class",
        "render-changes-episode": "draw nothing from np_random in render",
        "close": "make close work in every state",
        "leaks-descriptors": "close the files and sockets that reset or step opens, or open them "
        "once",
        "leaks-threads": "end in close, and sooner, the threads that reset or step starts, or "
        "start them once",
        "leaks-processes": "end in close, and sooner, the processes that reset or step starts, or "
        "start them once",
    },
    "warning": {
        "touches-globals": "draw from self.np_random, the environment's generator",
        "changes-directory": "use absolute paths: the neighbours' relative ones break",
        "reused-observation": "return a copy; vecspaces copies observations, but a replay buffer "
        "may not",
        "reused-info": "return a new dict; vecspaces copies it, but others may not",
        "action-written": "copy the action first: action = np.array(action)",
        "info-differs": "keep times and identities out of infos, if runs shall be equal",
        "close-twice": "let a second close do nothing",
        "leaks-memory": "keep nothing of the steps and episodes that are over",
    },
    "note": {
        "render-unavailable": "install what rendering needs, or set MUJOCO_GL=egl",
    },
}
#: For the name of each finding: its severity, and what to do.
CATALOGUE = {
    name: (severity, advice)
    for severity, advices in _ADVICE.items()
    for name, advice in advices.items()
}

# Findings that prevent all later probes.
_FORMS = {"reset-form", "step-form", "action-mask"}
# The processor time of a probe, in seconds; slow environments make fewer steps in it.
_BUDGET = 0.8
_UNAVAILABLE = (
    "DependencyNotInstalled", "ImportError", "ModuleNotFoundError", "display", "DISPLAY", "EGL",
    "OpenGL", "glfw", "GLFW", "osmesa", "X11",
)  # fmt: skip


def check_env(
    make_env: Callable[..., Any],
    *,
    num_steps: int = 300,
    seed: int = 0,
    timeout: float = 30.0,
    agents: AgentLayout | None = None,
) -> Report:
    """Check an environment as training runs it: alone, beside others, and in other processes.

    The environment is built in separate processes and never in the caller's, so that a hang, a
    crash, output and changed globals are reported and have no other effect.

    Args:
        make_env: A factory of environments. If it has a parameter `render_mode`, the modes in
            `metadata["render_modes"]` are rendered, except `"human"`.
        num_steps: The number of steps of the longest runs; slow environments make fewer.
        seed: The seed of episodes and actions.
        timeout: The time in seconds after which a construction, reset or step is reported as
            hanging.
        agents: `"rows"` or `"dict"` for a factory of PettingZoo's parallel environments, which are
            checked as in `make_vec(..., agents=)`.

    Returns:
        The report.

    Raises:
        RuntimeError: The calling script has no `if __name__ == "__main__":`.
        TypeError: `make_env` cannot be called.
        ValueError: A number is out of its range.

    Example:
        >>> import gymnasium
        >>> from vecspaces.testing import check_env
        >>> report = check_env(lambda: gymnasium.make("CartPole-v1"), num_steps=50)
        >>> report.ok
        True
    """
    if not callable(make_env):
        raise TypeError(
            f"make_env must be a function that makes an environment, found {make_env!r}"
        )
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError('call check_env below `if __name__ == "__main__":`')
    check_count("num_steps", num_steps)
    check_count("seed", seed, least=0)
    check_seconds("timeout", timeout)
    if agents is not None:
        make_env = adapt_factory(make_env, agents)
    began = time.monotonic()
    check = _Check(make_env, num_steps=num_steps, seed=seed, timeout=timeout)
    check.run()
    findings = sorted(
        check.findings.values(), key=lambda finding: SEVERITIES.index(finding.severity)
    )
    return Report(tuple(findings), check.num_steps, time.monotonic() - began)


class _Check:
    """One check: its findings so far. The arguments are those of `run_isolated`."""

    def __init__(self, make_env: Callable[..., Any], **settings: Any) -> None:
        self._make_env, self._settings = make_env, settings
        self._fast, self._spawn = start_methods()
        self.findings: dict[str, Finding] = {}
        self.num_steps = 0

    def run(self) -> None:
        """Run all probes that earlier findings do not prevent."""
        try:
            cloudpickle.dumps(self._make_env)
        except Exception as error:  # a __reduce__ may raise anything
            self._find("pickling", f"the factory cannot be pickled: {error}")
            self._spawn = None
        alone = self._run(probes.inspect_alone, 2 * _BUDGET)
        self.num_steps = sum(bool(record.outcome) for record in alone.trace)
        if alone.failure is not None or _FORMS & self.findings.keys():
            return
        self._run(probes.use_up, 2 * _BUDGET)
        trace = alone.trace if self._is_reproducible(alone) else None
        if trace is not None:
            # If steps are slow, few of them must distinguish episodes.
            steps = max(1, min(10, len(trace) // 4))
            self._run(probes.try_seeds, steps, _BUDGET / 2)
        same_in_company = self._keep_company(trace)
        if trace is not None and self._spawn is not None:
            self._compare_processes(trace, self._spawn)
        modes: list[str | None] = [*alone.modes] if _takes_mode(self._make_env) else [None]
        self._render(modes, trace if same_in_company else None)
        if "global-random" in self.findings:  # the more precise finding
            self.findings.pop("touches-globals", None)

    # ------------------------------------------------------------------ running

    def _find(self, name: str, message: str) -> None:
        """Add a finding; the first finding of a name counts."""
        severity, advice = CATALOGUE[name]
        self.findings.setdefault(name, Finding(name, severity, message, advice))

    def _run(self, probe: Probe, *args: Any, keep: bool = True) -> Played:
        """Run a probe; without `keep`, its findings count only if its process was lost."""
        played = run_isolated(probe, self._make_env, *args, context=self._fast, **self._settings)
        if keep or played.lost:
            for name, message in played.findings.items():
                self._find(name, message)
        return played

    # ------------------------------------------------------------------ comparing

    def _is_reproducible(self, alone: Played) -> bool:
        """Compare processes with different global generators, then processes with equal ones."""
        other = self._run(probes.replay, _BUDGET, 1)
        if other.lost:
            return False
        different = first_difference(alone.trace, other.trace, infos=True)
        if different is None:
            return True
        if different.part == "info":
            self._find("info-differs", f"{different} differs between two equal runs")
            return True
        twin = self._run(probes.replay, _BUDGET, 0)
        if twin.lost:
            return False
        again = first_difference(alone.trace, twin.trace)
        if again is None:
            self._find("global-random", f"{different} depends on the global generators")
        elif again.where == "reset 1":
            begun = f"reset(seed={self._settings['seed']})"
            self._find("seed-ignored", f"{begun} begins different episodes in two processes")
        else:
            self._find("nondeterministic", f"{again} differs between two runs of the same seed")
        return False

    def _keep_company(self, trace: list[ResultDigest] | None) -> bool:
        """Compare with a run beside seven others and changing global state; return if equal."""

        def differs(*neighbours: str) -> str | None:
            # Runs alone seed the global generators with 0 and 1.
            played = self._run(probes.replay, 2 * _BUDGET, 7, neighbours, keep=False)
            if played.lost:
                return "its process did not end by itself"
            if "spaces-differ" in played.findings:
                self._find("spaces-differ", played.findings["spaces-differ"])
                return None
            different = first_difference(trace or [], played.trace)
            return played.failure or (different and f"{different} is another one than alone")

        if differs("siblings", "random", "directory") is None:
            return trace is not None
        causes = {
            "working-directory": ("directory", "where the working directory changes"),
            "global-random": ("random", "where others use the global generators"),
            "company": ("siblings", "beside seven others of its kind in the process"),
        }
        known = set(self.findings)
        for name, (neighbours, where) in causes.items():
            if name == "company" and "global-random" in self.findings:
                continue  # the seven others also draw from them
            message = differs(neighbours)
            if message is not None:
                self._find(name, f"{where}, {message}")
        if known == self.findings.keys():
            self._find("company", "beside others that use global state, its episode is another one")
        return False

    def _compare_processes(self, trace: list[ResultDigest], method: StartMethod) -> None:
        """Compare with a run in a process that was not forked from the caller's."""
        options = {"context": method, **self._settings}
        played = run_isolated(probes.replay, self._make_env, _BUDGET, 0, **options)
        if played.failure is not None:
            name = "start" if "start" in played.findings else "start-method"
            self._find(name, f"in a process started by spawn, {played.failure}")
            return
        different = first_difference(trace, played.trace)
        if different is not None:
            message = f"{different} differs between processes started by fork and by spawn"
            self._find("start-method", message)

    # ------------------------------------------------------------------ rendering

    def _render(self, modes: list[str | None], trace: list[ResultDigest] | None) -> None:
        for mode in modes:
            play = partial(self._run, probes.render_frames, mode, _BUDGET / len(modes))
            alone = play(1, keep=False)
            if alone.lost:
                continue
            if alone.failure is not None and any(word in alone.failure for word in _UNAVAILABLE):
                self._find("render-unavailable", alone.failure)
                continue
            for name, message in alone.findings.items():
                self._find(name, message)
            if alone.failure is not None or not alone.frames:
                continue
            different = first_difference(trace or [], alone.trace)
            if different is not None:
                message = f"{different} is another one where render is called"
                self._find("render-changes-episode", message)
                continue
            if trace is None:
                continue
            beside = play(2, keep=False)
            again = play(1, keep=False).frames if _differ(alone.frames, beside.frames) else []
            if beside.failure is not None and not beside.lost:
                self._find("render-company", f"beside another environment, {beside.failure}")
            elif again and not _differ(alone.frames, again):
                message = f"render_mode={mode!r}: frames differ beside another environment"
                self._find("render-company", message)


def _takes_mode(make_env: Callable[..., Any]) -> bool:
    """Return whether a factory lets its caller choose the render mode."""
    try:
        parameters = inspect.signature(make_env).parameters
    except (TypeError, ValueError):  # a callable in C without a signature
        return False
    kinds = {parameter.kind for parameter in parameters.values()}
    return "render_mode" in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def _differ(frames: list[bytes], others: list[bytes]) -> bool:
    return any(frame != other for frame, other in zip(frames, others, strict=False))
