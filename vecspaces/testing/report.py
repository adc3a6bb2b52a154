"""The report of `check_env`: findings with severity and advice."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vecspaces.errors import FailedCheckError

SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """A fault of an environment, or a note about it.

    Attributes:
        name: The kind of the finding, such as `"reused-observation"`; `docs/checking.md` lists
            them.
        severity: `"error"`: results are wrong, or the environment cannot run in a vector env;
            `"warning"`: results may be wrong in other libraries or with other settings; `"note"`:
            no change is needed.
        message: The fault, and where it is.
        advice: What to do.
    """

    name: str
    severity: str
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.severity} {self.name}: {self.message}: {self.advice}"


@dataclass(frozen=True)
class Report:
    """The result of `check_env`.

    Attributes:
        findings: The findings, worst first.
        num_steps: The steps of the longest run, which are fewer for slow environments.
        seconds: The duration of the check.

    Example:
        >>> finding = Finding("render-unavailable", "note", "no display", "set MUJOCO_GL=egl")
        >>> report = Report((finding,), 300, 2.5)
        >>> report.ok, str(report.findings[0])
        (True, 'note render-unavailable: no display: set MUJOCO_GL=egl')
    """

    findings: tuple[Finding, ...]
    num_steps: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether there is no finding of severity `"error"`."""
        return all(finding.severity != "error" for finding in self.findings)

    def raise_for_findings(self, severity: str = "error") -> None:
        """Raise if there are findings of this or a worse severity.

        Args:
            severity: `"error"`, `"warning"` or `"note"`.

        Raises:
            FailedCheckError: There are such findings, which the message lists.
            ValueError: There is no such severity.
        """
        if severity not in SEVERITIES:
            raise ValueError(f"severity: expected one of {SEVERITIES}, found {severity!r}")
        worst = SEVERITIES[: SEVERITIES.index(severity) + 1]
        chosen = [finding for finding in self.findings if finding.severity in worst]
        if chosen:
            listed = "".join(f"\n- {finding}" for finding in chosen)
            raise FailedCheckError(f"the environment has {len(chosen)} finding(s):{listed}")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {"ok": self.ok, **asdict(self), "findings": [*map(asdict, self.findings)]}
