// The topics that the group needs: what each is to be like, and what is not so.
import { html } from "../vendor/preact.js";
import { compact, count } from "../format.js";
import { Failures, Findings, Folded, Head, Names, Same, State, Table } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";

function columns(findings) {
  const wrong = new Set(findings.map((finding) => finding.subject));
  return [
    { name: "Topic", cell: (row) => html`<code>${row.topic}</code>` },
    { name: "Role", cell: (row) => row.role },
    { name: "Checked", cell: (row) => (wrong.has(row.topic) ? html`<${State} as="bad" value=${row.id ? "finding" : "missing"} />` : html`<${State} as="good" value="as it should be" />`) },
    { name: "Partitions", isNumber: true, cell: (row) => count(row.partitions) },
    { name: "Replicas", isNumber: true, cell: (row) => (typeof row.replicas === "number" ? count(row.replicas) : compact(row.replicas)) },
    { name: "Connectors", cell: (row) => html`<${Names} names=${row.connectors} limit=${5} />` },
    { name: "Settings", cell: (row) => html`<${Folded} title="found and wanted"><pre tabindex="0">${JSON.stringify({ found: row.settings, wanted: row.wanted }, null, 1)}</pre></${Folded}>` },
  ];
}

export function Topics({ connection }) {
  const look = useDocument(api(["clusters", connection, "topics"]), { every: 15_000 });
  const { topics, findings = [], not_checked: notChecked, unknown = [] } = look.answer ?? {};
  return html`<${Head} title="Topics" look=${look} />
    ${topics && html`<${Findings} findings=${findings} none="Every topic is as exactly-once needs it." />`}
    <${Failures} title="Not known" failures=${unknown.map((each) => ({ ...each, found: `${each.connector}: ${each.found}` }))} />
    ${notChecked?.length > 0 && html`<p>Not checked: <${Names} names=${notChecked.map(compact)} /></p>`}
    <${Table} caption="Topics of the group" columns=${columns(findings)} rows=${foundRows(look, "topics")} id=${(row) => `${row.topic} ${row.role}`} empty="The group needs no topics yet." />
    <${Same} command="eos topics check" />`;
}
