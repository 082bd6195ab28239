"""The requested rights in one cluster, and the plans that grant and revoke them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_eos_provider.acls.cluster_facts import Facts, Principals, Seen, facts_of
from airflow_eos_provider.acls.judge import Authorizer, judge
from airflow_eos_provider.acls.read_rights import look, read_authorizer
from airflow_eos_provider.acls.rules import ConnectorFacts, IntervalFacts, Role, Rule, also_reached, interval_rules
from airflow_eos_provider.acls.tool_rules import Needs, ToolFacts, tool_rules
from airflow_eos_provider.changes.declared import VERBS
from airflow_eos_provider.changes.rights.rights_plan import (
    AclPlan,
    acls_of_connector,
    plan_grant,
    plan_revoke,
    require_acls,
)
from airflow_eos_provider.changes.rights.rights_request import RightsRequest
from airflow_eos_provider.connect.connect_session import ConnectSession
from airflow_eos_provider.connect.mode import MODE_PROPERTY, Mode
from airflow_eos_provider.errors import ConfigurationError, EosError, RefusedError
from airflow_eos_provider.finding import Verdict
from airflow_eos_provider.interval.group_pipelines import pipelines_on_record
from airflow_eos_provider.kafka.acl_values import Acl, Operation, Pattern, Resource, require_principal
from airflow_eos_provider.kafka.settings.kafka_settings import KafkaSettings

#: In a rule, some name that is not known: an ACL on any name may give the right.
_ANY_NAME = ("", Pattern.PREFIXED)

#: What an interval run does with the topics of its records.
_OF_A_TARGET = (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS, Operation.CREATE)


@dataclass(frozen=True, slots=True)
class AskedRights:
    """A cluster, with the rights that are needed in it."""

    session: ConnectSession
    seen: Seen
    facts: Facts
    request: RightsRequest
    principals: Principals
    pipelines: tuple[IntervalFacts, ...]  #: also of their interval runs
    connectors: tuple[str, ...]  #: only of the clients of these; empty: of everything
    rules: list[Rule]

    @property
    def gaps(self) -> list[str]:
        """Why more rights may be needed than those in :attr:`rules`."""
        names = {"", *(self.connectors or (each.name for each in self.seen.connectors))}
        return [text for connector, text in self.facts.gaps if connector in names]

    def grant(self) -> AclPlan:
        """What is to be created so that these rights are there."""
        kafka = self.session.kafka
        return plan_grant(self.rules, read_authorizer(kafka), kafka.cluster_id())

    def revocation(self, connectors: Sequence[str] = (), *, even_if_needed: bool = False) -> AclPlan:
        """What is to be deleted.

        :param connectors: only of these; of one that is gone, the ACLs on the ids of its tasks.
        """
        authorizer = read_authorizer(self.session.kafka)
        acls = self._unwanted(connectors, require_acls(authorizer))
        needed = [] if even_if_needed else self._needed_now()
        if not even_if_needed:
            needed += [*self._needed_by_pipelines(), *self._needed_by_verbs(authorizer)]
        return plan_revoke(acls, needed, authorizer, self.session.kafka.cluster_id())

    def also_reached(self, made: AclPlan) -> Mapping[Rule, Sequence[str]]:
        """By rule of a plan the ids of other connectors that its prefix reaches as well."""
        return also_reached([rule for rule in self.rules if rule.acl in made.acls], self.facts.ids)

    def _needed_now(self) -> list[Rule]:
        """What the workers and the connectors that there are need, in the highest mode that a worker's file says.

        A file that cannot be read may say the highest of all.
        """
        if not self.seen.are_connectors_known:
            raise RefusedError(
                f"eos cannot tell which connectors there are: {'; '.join(self.seen.problems)}.",
                expected=f"a readable config topic ({self.seen.config_topic}), so that connectors keep the rights "
                "that they need",
                remedy="Fix that first, or revoke without this check: --even-if-needed.",
            )
        modes = [Mode.parse(file.get(MODE_PROPERTY, Mode.DISABLED)) for file in self.seen.files]
        if self.seen.is_file_missing or not modes:
            modes.append(Mode.ENABLED)
        highest = max(modes, key=list(Mode).index)
        facts = facts_of(self.seen, highest, self.principals)
        rules = facts.rules()
        for each in facts.connectors:
            if not each.topics and Role.PRODUCER not in facts.elsewhere.get(each.name, ()):
                rules.append(Rule(each.producer, Role.PRODUCER, Operation.WRITE, Resource.TOPIC, *_ANY_NAME))
        return rules

    def _needed_by_pipelines(self) -> list[Rule]:
        """What the other pipelines need whose group and principal those have that are asked about."""
        asked = {(each.group_id, each.name) for each in self.pipelines}
        rules: list[Rule] = []
        for group_id, principal in sorted({(each.group_id, each.principal) for each in self.pipelines}):
            try:
                found = pipelines_on_record(self.session.kafka.settings, group_id)
            except EosError as error:
                raise RefusedError(
                    f"eos cannot tell which pipelines group {group_id} has: {error.found}",
                    expected="a readable control topic, so that pipelines keep the rights that they share",
                    remedy="Fix that first, or revoke without this check: --even-if-needed.",
                ) from error
            for each in found:
                if (each.group_id, each.name) not in asked:
                    rules += interval_rules(replace(each, principal=principal))
                    rules += [
                        Rule(principal, Role.INTERVAL, operation, Resource.TOPIC, *_ANY_NAME)
                        for operation in _OF_A_TARGET
                        if each.writes_elsewhere
                    ]
        return rules

    def _needed_by_verbs(self, authorizer: Authorizer) -> list[Rule]:
        """What ``eos`` needs for the verbs that are not asked about, of those that the ACLs allow it as a whole."""
        if not self.request.verbs:
            return []
        tool = _tool(self.seen, self.facts, self.session.kafka.settings)
        by_acls = replace(authorizer, super_users=frozenset(), allows_without_acl=False)
        rules: list[Rule] = []
        for verb in VERBS.keys() - set(self.request.verbs):
            its = tool_rules(tool, {verb: VERBS[verb]})
            required = [rule for rule in its if rule.is_required]
            if all(finding.verdict is Verdict.PASS for finding in judge(required, by_acls)):
                rules += its
        return rules

    def _unwanted(self, connectors: Sequence[str], there: Sequence[Acl]) -> list[Acl]:
        """The ACLs of the rules that were asked for, and those of connectors that are gone."""
        if not connectors:
            return [rule.acl for rule in self.rules]
        known = {each.name for each in self.facts.connectors}
        here = [name for name in connectors if name in known]
        rules = self.facts.of_connectors(here).rules(prefixed=self.request.prefixed) if here else []
        found = [rule.acl for rule in rules]
        principals = self.principals
        given = {each for each in (principals.producer, principals.admin) if each}
        for name in set(connectors) - known:
            gone = ConnectorFacts(self.seen.group_id, name, 0, self.seen.offsets_topic)
            found += acls_of_connector(gone, there, given)
        return found


def asked_rights(session: ConnectSession, request: RightsRequest, connectors: Sequence[str] = ()) -> AskedRights:
    """Look at a cluster for the rights that are asked about. Changes nothing."""
    given = (request.worker, request.producer, request.consumer, request.admin)
    principals = Principals(*(name or None for name in given))
    pipelines = interval_facts(request.pipelines, request.interval_principal)
    seen = look(session)
    facts = facts_of(seen, request.mode, principals, for_tasks_max=request.for_tasks_max)
    chosen = facts.of_connectors(connectors) if connectors else facts
    rules = replace(chosen, pipelines=pipelines).rules(prefixed=request.prefixed)
    if request.verbs:
        rules += tool_rules(_tool(seen, facts, session.kafka.settings), _known(request.verbs))
    return AskedRights(session, seen, facts, request, principals, pipelines, tuple(connectors), rules)


def interval_facts(pipelines: Iterable[str], principal: str) -> tuple[IntervalFacts, ...]:
    """Pipelines as they are named in one text each.

    :param pipelines: each as ``GROUP/NAME`` or ``GROUP/NAME:TOPIC,…``.
    """
    require_principal(principal, "The principal of the interval runs")
    return tuple(_pipeline(text, principal) for text in pipelines)


def _pipeline(text: str, principal: str) -> IntervalFacts:
    names, _, topics = text.partition(":")
    group, slash, name = names.partition("/")
    if not (group and slash and name):
        raise ConfigurationError(f"--pipeline {text} names no pipeline.", expected="GROUP/NAME, or GROUP/NAME:TOPIC,…")
    return IntervalFacts(group, name, tuple(each for each in topics.split(",") if each), principal=principal)


def _tool(seen: Seen, facts: Facts, settings: KafkaSettings) -> ToolFacts:
    if settings.principal is None:
        raise ConfigurationError(
            "The cluster description does not say who eos logs in as: a certificate or a ticket does.",
            remedy="Leave --verb out; docs/reference/acls.md has the rights of each verb.",
        )
    offsets = {seen.offsets_topic, *(each.offsets_topic for each in facts.connectors)}
    topics = {seen.config_topic, seen.status_topic, *offsets}
    prefixes = {each.id_prefix for each in facts.connectors}
    own = offsets - {seen.offsets_topic}
    return ToolFacts(seen.group_id, settings.principal, seen.config_topic, topics, offsets, prefixes, own)


def _known(verbs: Sequence[str]) -> dict[str, Needs]:
    if unknown := sorted(set(verbs) - VERBS.keys()):
        raise ConfigurationError(f"There is no verb {', '.join(unknown)}.", expected=f"one of {', '.join(VERBS)}")
    return {verb: VERBS[verb] for verb in verbs}
