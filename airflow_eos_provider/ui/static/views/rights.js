// The rights that exactly-once needs: who needs which, whether it is there, and what stops without it.
import { html } from "../vendor/preact.js";
import { count } from "../format.js";
import { Choice, Findings, Head, Pager, Same, Search, State, Table } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";

/** Of each verdict, the word for it. */
const ANSWERS = { fail: "missing", inconclusive: "unknown", pass: "allowed" };

const COLUMNS = [
  { name: "Right", cell: (row) => html`<span>${row.operation} on ${row.resource} <code>${row.name}</code>${row.pattern && !/literal/i.test(row.pattern) && html` <span class="quiet">${row.pattern}</span>`}</span>` },
  { name: "Principal", cell: (row) => (row.principal ? html`<code>${row.principal}</code>` : html`<span class="quiet">unknown</span>`) },
  { name: "For", cell: (row) => html`<span>${row.role}${row.connector && html` <code>${row.connector}</code>`}</span>` },
  { name: "Answer", cell: (row) => html`<${State} value=${ANSWERS[row.verdict]} as=${row.verdict === "pass" ? undefined : row.verdict === "fail" && row.required ? "bad" : "warn"} />${!row.required && html` <span class="quiet">optional</span>`}` },
  { name: "Known by", cell: (row) => html`<span>${row.by}${row.found && html`: <span class="quiet">${row.found}</span>`}</span>` },
  { name: "Why", cell: (row) => html`<span>${row.why}${row.verdict !== "pass" && row.without && html` <span class="remedy">Without: ${row.without}</span>`}</span>` },
];

export function Rights({ connection, parameters }) {
  const { search, page, verdict } = parameters;
  const look = useDocument(api(["clusters", connection, "rights"], { search, page, verdict }), { every: 30_000 });
  const found = look.answer;
  return html`<${Head} title="Rights" look=${look}>
      <${Search} label="Search rights" value=${search} />
    </${Head}>
    ${found?.authorizer === false && html`<p>The brokers have no authorizer: everybody may do everything. The table shows what is needed once they have one.</p>`}
    ${found?.looked_at && html`<p class="row">${found.missing ? html`<${State} as="bad" value=${`${count(found.missing)} missing`} />` : html`<${State} as="good" value="none missing" />`}${found.unknown > 0 && html`<${State} as="warn" value=${`${count(found.unknown)} unknown`} />`}</p>`}
    ${found?.notes?.length > 0 && html`<${Findings} findings=${found.notes} />`}
    <div class="filters">
      <${Choice} label="Answer" name="verdict" value=${verdict} options=${Object.keys(ANSWERS)} words=${ANSWERS} />
      <${Pager} answer=${found} />
    </div>
    <${Table} caption="Rights that exactly-once needs" columns=${COLUMNS} rows=${foundRows(look)} isLoading=${look.isLoading}
      empty=${search || verdict ? "No right matches. Take a filter away." : "No rights are known yet."} />
    <${Same} command="eos acl check" />`;
}
