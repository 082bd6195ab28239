// Fencing rounds: which are due and why, what a round would do, and what producers hold open.
import { html } from "../vendor/preact.js";
import { count, duration, many, numbered } from "../format.js";
import { Check, Findings, Folded, Head, Pager, Same, Search, State, Table, To } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";
import { FencingState } from "./connectors.js";

/** Of a connector with more ids only those are shown that are held; its tasks have all. */
const IDS_SHOWN = 10;

/** So much of a hash names a plan. */
const HASH_LENGTH = 12;

/** How many rounds are pending, as a way to them. */
export function PendingFencings({ connection, names }) {
  if (!names?.length) return html`<span class=${names ? "" : "quiet"}>${names ? "none" : "unknown"}</span>`;
  return html`<${To} parts=${["clusters", connection, "fencing"]} parameters=${{ pending: true }}>${count(names.length)} pending</${To}>`;
}

/** What a round would do to one connector. */
function Acts({ row }) {
  const isOne = row.running.length === 1;
  const acts = [
    row.fence.length > 0 && `fence ${numbered(row.fence, "id")}`,
    row.running.length > 0 && `${numbered(row.running, "task")} ${isOne ? "runs and would be fenced: it fails and goes" : "run and would be fenced: they fail and go"} back to the last commit`,
    row.restart.length > 0 && `restart ${numbered(row.restart, "task")}`,
    row.awaits_record && "wait for Connect's own round: its task count record",
  ].filter(Boolean);
  return acts.length ? html`<ul>${acts.map((act) => html`<li key=${act}>${act}</li>`)}</ul>` : html`<span class="quiet">nothing</span>`;
}

/** What is open of an id, and for how long. */
function Open({ one, at }) {
  if (typeof one.open_since_ms !== "number") return null;
  const since = `open for ${duration(Math.max(0, at - one.open_since_ms / 1000))} of ${duration(one.timeout_ms / 1000)}`;
  return html` ${one.held && html`<${State} as="bad" value="held" /> `}<span class="quiet">${since}, in ${one.partitions.join(", ") || "no partition yet"}</span>`;
}

function Ids({ ids, at }) {
  if (!ids.length) return html`<span class="quiet">none</span>`;
  const held = ids.filter((one) => one.held);
  const shown = ids.length <= IDS_SHOWN ? ids : held;
  const title = `${many(ids.length, "id")}, ${held.length ? count(held.length) : "none"} held open`;
  if (!shown.length) return html`<span>${title}</span>`;
  return html`<${Folded} title=${title} open=${held.length > 0}><ul>
    ${shown.map(
      (one) => html`<li key=${one.id}><code>${one.id}</code> ${one.state ? html`<${State} value=${one.state} /> <span class="quiet">producer ${one.producer_id}, epoch ${one.producer_epoch}</span>` : html`<span class="quiet">unknown to every broker</span>`}<${Open} one=${one} at=${at} /></li>`,
    )}
  </ul></${Folded}>`;
}

function columns(connection, at) {
  return [
    { name: "Connector", cell: (row) => html`<${To} parts=${["clusters", connection, "connectors", row.connector]}>${row.connector}</${To}>` },
    { name: "Round", cell: (row) => html`<${FencingState} pending=${row.pending_fencing} />` },
    { name: "Target state", cell: (row) => html`<${State} value=${row.target_state} as="none" />` },
    { name: "Tasks", isNumber: true, cell: (row) => count(row.tasks) },
    { name: "Task count record", isNumber: true, cell: (row) => count(row.task_count_record) },
    { name: "Why", cell: (row) => row.why },
    { name: "A round would", cell: (row) => html`<${Acts} row=${row} />` },
    { name: "Transactional ids", cell: (row) => html`<${Ids} ids=${row.ids} at=${at} />` },
  ];
}

/** Whether there is something to do, and the command that does it. */
function Plan({ found }) {
  if (found.unused) return html`<p>${found.unused}</p>`;
  if (found.nothing_to_do) return html`<p><${State} as="good" value="nothing to do" /></p>`;
  return html`<p class="row"><${State} as="warn" value="there is something to fence" /> <span>To do it: <code>eos fencing apply --plan ${found.hash.slice(0, HASH_LENGTH)}</code></span></p>`;
}

function unfinished(hash) {
  return [{ what: "A fencing was begun and not finished.", remedy: `To go on with it: eos fencing apply --plan ${hash.slice(0, HASH_LENGTH)}` }];
}

export function Fencing({ connection, parameters }) {
  const { search, page, pending, connector } = parameters;
  const look = useDocument(api(["clusters", connection, "fencing"], { search, page, pending_fencing: pending, connector }), { every: 15_000 });
  const found = look.answer?.looked_at ? look.answer : null;
  return html`<${Head} title="Fencing rounds" look=${look}>
      <${Search} label="Search fencing rounds" value=${search} />
    </${Head}>
    ${found && html`<${Plan} found=${found} />`}
    ${found?.unfinished && html`<${Findings} findings=${unfinished(found.unfinished)} />`}
    <div class="filters">
      <${Check} label="pending only" name="pending" value=${pending} />
      ${connector && html`<span>of <code>${connector}</code></span>`}
      <${Pager} answer=${look.answer} />
    </div>
    <${Table} caption="Fencing of source connectors" columns=${columns(connection, found?.at)} rows=${foundRows(look)} id=${(row) => row.connector} isLoading=${look.isLoading}
      empty=${search || pending || connector ? "No fencing round matches. Take a filter away." : "No source connector has transactional ids."} />
    <${Same} command="eos fencing list" />`;
}
