// Connectors and tasks: states, placement, records of the config topic, transactional ids; searched and paged.
import { html } from "../vendor/preact.js";
import { count, duration } from "../format.js";
import { ByState, Check, Choice, Folded, Head, Names, NotSeen, Pager, Same, Search, State, Table, To } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";

const STATES = ["RUNNING", "FAILED", "PAUSED", "STOPPED", "UNASSIGNED", "RESTARTING"];

/** A trace, folded: its first line says what failed. */
export function Trace({ text }) {
  if (!text) return null;
  return html`<${Folded} title=${text.split("\n")[0].slice(0, 160)}><pre tabindex="0">${text}</pre></${Folded}>`;
}

/** Where the group's assignment has a task; two workers are named, for that is a fault. */
export function Placed({ on, lastWord }) {
  if (on === null || on === undefined) return html`<span class="quiet">unknown</span>`;
  return html`<span><${Names} names=${on} />${lastWord === true && html` <span class="quiet">last word</span>`}</span>`;
}

/** A fencing that is due: without it no task of the connector starts. */
export function FencingState({ pending }) {
  if (pending === true) return html`<${State} as="warn" value="pending" />`;
  return html`<span class="quiet">${pending === false ? "none" : "unknown"}</span>`;
}

export function Connectors({ connection, parameters }) {
  const { search, page, state, type, pending } = parameters;
  const look = useDocument(api(["clusters", connection, "connectors"], { search, page, state, type, pending }));
  const columns = [
    { name: "Connector", cell: (row) => html`<${To} parts=${["clusters", connection, "connectors", row.connector]}>${row.connector}</${To}>` },
    { name: "Type", cell: (row) => row.type ?? html`<span class="quiet">–</span>` },
    { name: "State", cell: (row) => html`<${State} value=${row.state} /><${Trace} text=${row.trace} />` },
    { name: "Placed on", cell: (row) => html`<${Placed} on=${row.placed_on} lastWord=${row.last_word} />` },
    { name: "Tasks", cell: (row) => html`<${ByState} counts=${row.tasks_by_state} />` },
    { name: "Task count record", isNumber: true, cell: (row) => count(row.task_count_record) },
    { name: "Fencing", cell: (row) => html`<${FencingState} pending=${row.pending_fencing} />` },
  ];
  return html`<${Head} title="Connectors" look=${look}>
      <${Search} label="Search connectors" value=${search} />
    </${Head}>
    <div class="filters">
      <${Choice} label="State" name="state" value=${state} options=${STATES} />
      <${Choice} label="Type" name="type" value=${type} options=${["source", "sink"]} />
      <${Check} label="fencing pending" name="pending" value=${pending} />
      <${Pager} answer=${look.answer} />
    </div>
    <${NotSeen} problems=${look.answer?.problems} />
    <${Table} caption="Connectors" columns=${columns} rows=${foundRows(look)} id=${(row) => row.connector} isLoading=${look.isLoading}
      empty=${search || state || type || pending ? "No connector matches. Take a filter away." : "The group has no connectors."} />
    <${Same} command="eos status --json" />`;
}

export const transactionText = (transaction) => (transaction ? html`<${State} value=${transaction.state} />` : html`<span class="quiet">none</span>`);

/** The columns of tasks; those of one connector do not repeat its name. */
export function taskColumns(connection, isOfOne = false) {
  const connector = { name: "Connector", cell: (row) => html`<${To} parts=${["clusters", connection, "connectors", row.connector]}>${row.connector}</${To}>` };
  return [
    ...(isOfOne ? [] : [connector]),
    { name: "Task", isNumber: true, cell: (row) => row.task },
    { name: "State", cell: (row) => html`<${State} value=${row.state} /><${Trace} text=${row.trace} />` },
    { name: "Reported by", cell: (row) => (row.reported_by ? html`<code>${row.reported_by}</code>` : html`<span class="quiet">–</span>`) },
    { name: "Placed on", cell: (row) => html`<${Placed} on=${row.placed_on} lastWord=${row.last_word} />` },
    { name: "Transactional id", cell: (row) => (row.transactional_id ? html`<code>${row.transactional_id}</code>` : html`<span class="quiet">none</span>`) },
    { name: "Epoch", isNumber: true, cell: (row) => count(row.transaction?.producer_epoch) },
    { name: "Transaction", cell: (row) => transactionText(row.transaction) },
    { name: "Timeout", isNumber: true, cell: (row) => duration(row.transaction ? row.transaction.timeout_ms / 1000 : null) },
  ];
}

export function Tasks({ connection, parameters }) {
  const { search, page, state, connector, worker } = parameters;
  const look = useDocument(api(["clusters", connection, "tasks"], { search, page, state, connector, worker }));
  return html`<${Head} title="Tasks" look=${look}>
      <${Search} label="Search tasks" value=${search} />
    </${Head}>
    <div class="filters">
      <${Choice} label="State" name="state" value=${state} options=${STATES} />
      ${connector && html`<span>of <code>${connector}</code></span>`}
      <${Pager} answer=${look.answer} />
    </div>
    <${NotSeen} problems=${look.answer?.problems} />
    <${Table} caption="Tasks" columns=${taskColumns(connection)} rows=${foundRows(look)} id=${(row) => `${row.connector}-${row.task}`} isLoading=${look.isLoading}
      empty=${search || state || connector || worker ? "No task matches. Take a filter away." : "The group has no tasks. A connector without tasks is paused, stopped or has failed: its state shows which."} />
    <${Same} command="eos status --json" />`;
}
