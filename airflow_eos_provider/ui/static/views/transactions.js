// Transactions: what is open, what hangs, which ids are about to be forgotten, and how far readers are held back.
import { html } from "../vendor/preact.js";
import { compact, count, duration } from "../format.js";
import { Check, Failures, Findings, Folded, Head, Names, Pager, Same, Search, State, Table, To } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";

/** How many records readers of committed data wait for. */
function Lag({ partitions }) {
  if (!partitions?.length) return html`<span class="quiet">none</span>`;
  const waiting = partitions.filter((each) => typeof each.waiting === "number");
  const sum = waiting.reduce((total, each) => total + each.waiting, 0);
  const title = waiting.length ? `${count(sum)} waiting in ${count(partitions.length)}` : `${count(partitions.length)} held`;
  return html`<${Folded} title=${title}><ul>
    ${partitions.map((each) => html`<li key=${`${each.topic}-${each.partition}`}><code>${each.topic}-${each.partition}</code> ${typeof each.waiting === "number" ? `stable ${count(each.stable)}, end ${count(each.end)}, ${count(each.waiting)} waiting` : (each.why ?? "")}</li>`)}
  </ul></${Folded}>`;
}

function columns(connection) {
  return [
    { name: "Transactional id", cell: (row) => html`<code>${row.id}</code>` },
    { name: "Owner", cell: (row) => (row.connector ? html`<${To} parts=${["clusters", connection, "connectors", row.connector]}>${row.connector}</${To}>` : (row.owner ?? html`<span class="quiet">–</span>`)) },
    { name: "State", cell: (row) => html`<${State} value=${row.state} />${row.overdue && html` <${State} as="bad" value="overdue" />`}${row.near_expiry && html` <${State} as="warn" value="near expiry" />`}` },
    { name: "Open for", isNumber: true, cell: (row) => duration(row.open_seconds) },
    { name: "Idle for", isNumber: true, cell: (row) => duration(row.idle_seconds) },
    { name: "Timeout", isNumber: true, cell: (row) => duration(typeof row.timeout_ms === "number" ? row.timeout_ms / 1000 : null) },
    { name: "Producer", isNumber: true, cell: (row) => row.producer_id ?? "–" },
    { name: "Epoch", isNumber: true, cell: (row) => row.producer_epoch ?? "–" },
    { name: "Held partitions", cell: (row) => html`<${Lag} partitions=${row.partitions} />` },
  ];
}

const HANGING = [
  { name: "Partition", cell: (row) => html`<code>${row.topic}-${row.partition}</code>` },
  { name: "Producer", isNumber: true, cell: (row) => row.producer_id },
  { name: "Epoch", isNumber: true, cell: (row) => row.producer_epoch },
  { name: "Since offset", isNumber: true, cell: (row) => count(row.start_offset) },
  { name: "Transactional id", cell: (row) => (row.transactional_id ? html`<code>${row.transactional_id}</code>` : html`<span class="quiet">unknown</span>`) },
  { name: "Waiting", isNumber: true, cell: (row) => (row.ends?.waiting === undefined ? (row.ends?.why ?? "–") : count(row.ends.waiting)) },
  { name: "Readers held back", cell: (row) => html`<${Names} names=${(row.readers ?? []).map((each) => each.group ?? each.group_id ?? compact(each))} limit=${5} />` },
];

export function Transactions({ connection, parameters }) {
  const { search, page, open, all } = parameters;
  const look = useDocument(api(["clusters", connection, "transactions"], { search, page, open, all }));
  const slow = useDocument(api(["clusters", connection, "hanging"]), { every: 60_000 });
  const unknown = Object.entries(slow.answer?.unknown ?? {});
  return html`<${Head} title="Transactions" look=${look}>
      <${Search} label="Search transactions" value=${search} />
    </${Head}>
    <div class="filters">
      <${Check} label="open only" name="open" value=${open} />
      <${Check} label="of the whole Kafka cluster" name="all" value=${all} />
      <${Pager} answer=${look.answer} />
    </div>
    ${look.answer?.findings?.length > 0 && html`<${Findings} findings=${look.answer.findings} />`}
    <${Table} caption="Transactional ids" columns=${columns(connection)} rows=${foundRows(look)} id=${(row) => row.id} isLoading=${look.isLoading}
      empty=${search || open ? "No transactional id matches. Take a filter away." : "The group has no transactional ids: no worker runs exactly-once, or no source task has written yet."} />
    ${typeof look.answer?.expiration_seconds === "number" && html`<p class="quiet">The broker forgets an id that was idle for ${duration(look.answer.expiration_seconds)}.</p>`}
    <h2>Hanging</h2>
    <${Failures} failures=${[...slow.failures, ...(slow.answer?.errors ?? [])]} />
    ${slow.answer?.hidden && html`<p>${slow.answer.hidden}</p>`}
    ${unknown.length > 0 && html`<${Failures} title="Not known" failures=${unknown.map(([place, why]) => ({ found: `${place}: ${why}` }))} />`}
    <${Table} caption="Hanging transactions" columns=${HANGING} rows=${foundRows(slow, "hanging")} empty="No transaction hangs." />
    <${Same} command="eos transactions list; eos transactions list --hanging" />`;
}
