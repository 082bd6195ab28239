// One cluster: its workers, and why each is taken to run in its mode.
import { html } from "../vendor/preact.js";
import { count, many } from "../format.js";
import { ByState, Facts, Failures, Findings, Folded, Head, Known, Mode, Names, NotSeen, Same, State, Table, When } from "../parts.js";
import { api, useDocument } from "../look.js";
import { ClusterMode, Drift, Group } from "./clusters.js";
import { PendingFencings } from "./fencing.js";

/** What one kind of evidence says of a mode. */
function Said({ said }) {
  if (!said) return html`<span class="quiet">unknown</span>`;
  const seen = { true: html`<${State} as="good" value="exactly-once" /> `, false: html`<${State} as="none" value="not exactly-once" /> ` }[said.runs_exactly_once];
  return html`<span>${said.mode ? html`<${Mode} value=${said.mode} /> ` : seen}<span class="quiet">${said.detail}</span></span>`;
}

const WORKERS = [
  { name: "Worker", cell: (row) => html`<code>${row.worker}</code>${row.leads && html` <${State} as="none" value="leader" />`}${row.dead && html` <${State} as="bad" value="dead" />`}` },
  { name: "Mode", cell: (row) => html`<${Mode} value=${row.mode} />` },
  { name: "Health", cell: (row) => html`<${State} value=${row.health} />${row.rest_problem && html`<div class="remedy">${row.rest_problem}</div>`}` },
  { name: "Version", cell: (row) => row.version ?? html`<span class="quiet">–</span>` },
  { name: "Since", cell: (row) => html`<${When} at=${row.started_at} />` },
  { name: "Read up to", isNumber: true, cell: (row) => count(row.config_offset) },
  { name: "Tasks", isNumber: true, cell: (row) => count(row.tasks_count ?? row.tasks?.length) },
];

function Evidence({ worker }) {
  return html`<section class="evidence">
    <h3><code>${worker.worker}</code> <${Mode} value=${worker.mode} /></h3>
    <p>${worker.reason}</p>
    <${Facts}
      facts=${[
        ["Its file says", html`<${Said} said=${worker.declared} />`],
        ["Its process runs", html`<${Said} said=${worker.running} />`],
        ["It answers", html`<${Said} said=${worker.observed} />`],
        ["Runs as", worker.runs_as ?? undefined],
        ["Tasks", html`<${Names} names=${worker.tasks} all=${worker.tasks_count} />`],
      ]}
    />
    <${Failures} title="Evidence that disagrees" failures=${(worker.disagreements ?? []).map((found) => ({ found }))} />
  </section>`;
}

export function Cluster({ connection }) {
  const look = useDocument(api(["clusters", connection]));
  const slow = useDocument(api(["clusters", connection, "drift"]), { every: 30_000 });
  const seen = look.answer?.group_id ? look.answer : null;
  const workers = seen?.workers ?? [];
  const problems = seen?.problems ?? [];
  return html`<${Head} title=${connection} look=${look} />
    ${!seen && !look.failures.length && !look.answer?.errors?.length && html`<p class="quiet" role="status">Looking …</p>`}
    ${seen &&
    html`<${Facts}
        facts=${[
          ["Mode", html`<${ClusterMode} card=${seen} />`],
          ["Group", html`<${Group} seen=${seen} />`],
          ["Leader", seen.leader ? html`<code>${seen.leader}</code>` : undefined],
          ["Config topic", seen.config_topic ? html`<span><code>${seen.config_topic}</code>, read up to <${Known} value=${seen.config_offset} /></span>` : html`<${Known} />`],
          ["Connectors", html`<${ByState} counts=${seen.connectors} />`],
          ["Tasks", html`<${ByState} counts=${seen.tasks} />`],
          ["Pending fencings", html`<${PendingFencings} connection=${connection} names=${seen.pending_fencings} />`],
          ["Open transactions", html`<${Known} value=${seen.open_transactions} />`],
        ]}
      />
      <${NotSeen} problems=${problems} />
      <h2>Workers</h2>
      <${Table} caption="Workers of the group" columns=${WORKERS} rows=${workers} id=${(row) => row.worker} empty="No worker was found. A worker shows up here once it has joined the group." />
      ${seen.unknown_members?.length > 0 && html`<p>Unknown members of the group: <${Names} names=${seen.unknown_members.map((each) => (typeof each === "string" ? each : JSON.stringify(each)))} /></p>`}
      <h2>Findings</h2>
      <${Findings} findings=${seen.findings.filter((finding) => !problems.includes(finding.found))} none=${problems.length ? "Nothing else was found." : undefined} />
      <h2>Why each worker has its mode</h2>
      <div class="columns">${workers.map((worker) => html`<${Evidence} key=${worker.worker} worker=${worker} />`)}</div>`}
    <h2>Drift</h2>
    <${Failures} failures=${[...slow.failures, ...(slow.answer?.errors ?? [])]} />
    ${slow.answer?.verdict
      ? html`<p class="row"><${Drift} drift=${slow.answer} /> <span class="quiet">Expected by: ${slow.answer.expected?.source}.</span></p>
          ${slow.answer.findings?.length > 0 && html`<${Findings} findings=${slow.answer.findings} />`}
          ${slow.answer.doubts?.length > 0 && html`<${Folded} title=${many(slow.answer.doubts.length, "doubt")}><${Findings} findings=${slow.answer.doubts} /></${Folded}>`}`
      : html`<p class="quiet">${slow.failures.length || slow.answer?.errors?.length ? "unknown" : "Looking …"}</p>`}
    <${Same} command="eos status" />`;
}
