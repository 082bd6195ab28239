"""Whether the workers and connectors have the additional rights that a roll's target mode needs."""

from __future__ import annotations

from airflow_eos_provider.acls.check import AclReport
from airflow_eos_provider.acls.forms import kafka_acls_lines
from airflow_eos_provider.acls.judge import Source
from airflow_eos_provider.data_text import counted
from airflow_eos_provider.rollout.check import Check, failed, passed

NAME = "rights"

#: So many rights are named that are missing or not known; 'eos acl check' has all.
_SHOWN = 4


def rights(report: AclReport | None) -> Check:
    """Nothing that the roll begins with is refused by the brokers.

    What is not known is said, and stops no roll: ACLs are readable by few, and workers may be super users.

    :param report: of the rights that the target asks for in addition; None where it asks for none.
    """
    if report is None:
        return passed(NAME, "this roll needs no further ones")
    if not report.has_authorizer:
        return passed(NAME, "the brokers have no authorizer")
    if report.lacking:
        said = "; ".join(f"{each.rule} ({each.rule.part}; {each.found})" for each in report.lacking[:_SHOWN])
        more = f"; and {len(report.lacking) - _SHOWN} more" if len(report.lacking) > _SHOWN else ""
        lines = kafka_acls_lines([each.rule.acl for each in report.lacking if not each.denials])
        denied = ["remove the ACLs that deny it"] if any(each.denials for each in report.lacking) else []
        return failed(NAME, f"missing: {said}{more}", "; ".join([*denied, *lines, "or 'eos acl grant'"]))
    if report.unknown or not report.findings:
        reasons = [each.found for each in report.unknown] or list(report.notes) or ["nothing could be asked"]
        said = "; ".join(dict.fromkeys(reasons[:_SHOWN]))
        return passed(NAME, f"eos cannot tell whether they exist: {said}. 'eos acl check' tries them")
    needed = [each for each in report.findings if each.rule.is_required]
    tested = sum(each.source is Source.ATTEMPT for each in needed)
    return passed(
        NAME,
        f"this roll needs {counted(len(needed), 'further right')}; none is missing "
        f"({tested} tested as the principal, the others checked in the ACLs)",
    )
