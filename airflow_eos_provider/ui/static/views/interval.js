// One interval: its slices, with the task that wrote each, and the attempts that were fenced.
import { html } from "../vendor/preact.js";
import { compact, count, dash, duration, utc } from "../format.js";
import { Airflow, Facts, Folded, Head, Pager, Same, State, Table, When } from "../parts.js";
import { api, useDocument } from "../look.js";

const bytes = (value) => (typeof value !== "number" ? dash : value < 10_000 ? `${count(value)} B` : value < 10_000_000 ? `${count(Math.round(value / 1000))} kB` : `${count(Math.round(value / 1_000_000))} MB`);
const ms = (value) => (typeof value === "number" ? value / 1000 : null);

const SLICES = [
  { name: "Slice", isNumber: true, cell: (row) => count(row.slice) },
  { name: "State", cell: (row) => html`<${State} value=${row.state} />` },
  { name: "Task", isNumber: true, cell: (row) => count(row.task) },
  { name: "Attempts", isNumber: true, cell: (row) => count(row.attempts) },
  { name: "Records", isNumber: true, cell: (row) => count(row.records) },
  { name: "Bytes", isNumber: true, cell: (row) => bytes(row.bytes) },
  { name: "Seconds", isNumber: true, cell: (row) => duration(row.seconds) },
  { name: "Stages", cell: (row) => (Object.keys(row.stages ?? {}).length ? Object.entries(row.stages).map(([stage, seconds]) => `${stage} ${duration(seconds)}`).join(", ") : dash) },
  { name: "Committed", cell: (row) => html`<${When} at=${ms(row.committed_at_ms)} />` },
  { name: "Source", cell: (row) => (row.source ? html`<code>${compact(row.source)}</code>` : dash) },
];

const ATTEMPTS = [
  { name: "Generation", isNumber: true, cell: (row) => count(row.generation) },
  { name: "When", cell: (row) => html`<${When} at=${ms(row.at_ms)} />` },
];

export function Interval({ connection, group, run, parameters }) {
  const look = useDocument(api(["clusters", connection, "interval"], { group, run, page: parameters.page, search: parameters.search }));
  const found = look.answer?.run ? look.answer : null;
  const [from, to] = (found?.interval ?? "").split("/");
  return html`<${Head} title=${found ? `${utc(from)} to ${utc(to)}` : run} look=${look} />
    ${!found && !look.failures.length && !look.answer?.errors?.length && html`<p class="quiet" role="status">Looking …</p>`}
    ${found &&
    html`<${Facts}
        facts=${[
          ["State", html`<${State} value=${found.state} as=${found.state === "running" ? "busy" : undefined} />`],
          ["Slices", `${count(found.done)} of ${count(found.slices)} done`],
          ["Records", count(found.records)],
          ["Began", html`<${When} at=${ms(found.began_at_ms)} />`],
          ["Completed", html`<${When} at=${ms(found.completed_at_ms)} />`],
          ["Took", duration(found.seconds)],
          ["Revision", count(found.revision)],
          ["Generation", count(found.generation)],
          ["Digest", found.digest ? html`<code class="hash wide">${compact(found.digest)}</code>` : undefined],
          ["Plan", found.plan ? html`<code class="hash wide">${found.plan}</code>` : undefined],
          ["DAG run", found.dag_run ? html`<${Airflow} link=${found.dag_run.link}>${found.dag_run.run_id}</${Airflow}>` : undefined],
        ]}
      />
      ${found.planned_source && html`<${Folded} title="Source, as it was planned"><pre tabindex="0">${JSON.stringify(found.planned_source, null, 1)}</pre></${Folded}>`}
      <div class="filters"><h2>Slices</h2><${Pager} answer=${found} /></div>
      <${Table} caption="Slices" columns=${SLICES} rows=${found.items} isLoading=${look.isLoading} id=${(row) => row.slice}
        empty=${found.state === "complete" ? "The interval is complete, and its slices are no longer in the ledger: Kafka keeps only the record of the whole." : "No slice is committed yet."} />
      ${found.attempts?.length > 0 && html`<h2>Attempts</h2><${Table} caption="Attempts; each fenced the one before" columns=${ATTEMPTS} rows=${found.attempts} empty="" />`}`}
    <${Same} command=${`eos intervals show ${/^[\w.@:/+-]+$/.test(run) ? run : `'${run}'`}`} />`;
}
