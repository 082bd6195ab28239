"""Checks rights: by trying them if the principal's login is available, otherwise by reading the ACLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_eos_provider.acls.attempts import try_all
from airflow_eos_provider.acls.judge import Authorizer, RightFinding, judge
from airflow_eos_provider.acls.rules import Rule
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class AclReport:
    """What is known of the rights that are needed.

    :param gaps: those notes that say why more rights may be needed, which were not checked.
    """

    has_authorizer: bool
    findings: tuple[RightFinding, ...]
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether every needed right was found to be there or to be missing."""
        return self.has_authorizer and not self.unknown and not self.gaps

    @property
    def lacking(self) -> tuple[RightFinding, ...]:
        """Rights that are missing, without which something fails."""
        return tuple(each for each in self.findings if each.is_lacking)

    @property
    def unknown(self) -> tuple[RightFinding, ...]:
        """Rights that are required, and of which it is not known whether they are there."""
        return tuple(each for each in self.findings if each.verdict is Verdict.INCONCLUSIVE and each.rule.is_required)


def check(
    rules: Sequence[Rule],
    authorizer: Authorizer,
    logins: Mapping[str, KafkaSettings],
    notes: Sequence[str] = (),
    gaps: Sequence[str] = (),
    *,
    only_doubtful: bool = False,
) -> AclReport:
    """Check rights."""
    by_acls = judge(rules, authorizer)
    if not authorizer.is_there:
        return AclReport(has_authorizer=False, findings=tuple(by_acls), notes=tuple(notes), gaps=tuple(gaps))
    wanted = [each.rule for each in by_acls if not only_doubtful or each.verdict is not Verdict.PASS]
    tried, problems = try_all(wanted, logins)
    findings = tuple(tried.get(each.rule, each) for each in by_acls)
    return AclReport(has_authorizer=True, findings=findings, notes=(*notes, *problems), gaps=tuple(gaps))
