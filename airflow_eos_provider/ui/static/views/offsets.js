// Source offsets: the combined view of the connectors' own topics and the group's, with what REST hides.
import { html } from "../vendor/preact.js";
import { compact, dash } from "../format.js";
import { Check, Failures, Folded, Head, Pager, Same, Search, State, Table, When } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";

/** How an offset was written, where the word alone does not say it. */
const OUTCOMES = { plain: "without a transaction" };

export const OFFSETS = [
  { name: "Connector", cell: (row) => row.connector },
  { name: "Partition", cell: (row) => html`<code>${compact(row.partition)}</code>` },
  { name: "Offset", cell: (row) => (row.removes ? html`<span class="quiet">removed</span>` : html`<code>${compact(row.offset)}</code>`) },
  { name: "Topic", cell: (row) => html`<code>${row.topic}</code> <span class="quiet">${row.own ? "own" : "the group's"}</span>` },
  { name: "Committed", cell: (row) => html`<${When} at=${typeof row.timestamp_ms === "number" ? row.timestamp_ms / 1000 : null} />` },
  {
    name: "Note",
    cell: (row) =>
      row.hidden?.length
        ? html`<${Folded} title="hidden from REST"><ul>${row.hidden.map((why) => html`<li key=${why}>${why}</li>`)}</ul></${Folded}>`
        : row.leftover
          ? html`<${State} as="warn" value="leftover" />`
          : OUTCOMES[row.outcome] ?? row.outcome ?? (row.committed === false ? html`<${State} as="warn" value="not committed" />` : dash),
  },
];

export function Offsets({ connection, parameters }) {
  const { search, page, connector, leftovers } = parameters;
  const look = useDocument(api(["clusters", connection, "offsets"], { search, page, connector, leftovers }));
  return html`<${Head} title="Source offsets" look=${look}>
      <${Search} label="Search offsets" value=${search} />
    </${Head}>
    <div class="filters">
      <${Check} label="leftovers" name="leftovers" value=${leftovers} />
      ${connector && html`<span>of <code>${connector}</code></span>`}
      <${Pager} answer=${look.answer} />
    </div>
    <${Failures} title="Not read" failures=${(look.answer?.not_read ?? []).map((each) => ({ ...each, found: `${each.connector}: ${each.found}` }))} />
    <${Table} caption="Source offsets" columns=${OFFSETS} rows=${foundRows(look)} isLoading=${look.isLoading}
      empty=${search || connector || leftovers ? "No offset matches. Take a filter away." : "No source connector has committed an offset yet."} />
    <${Same} command="eos offsets list" />`;
}
