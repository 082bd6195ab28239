// The journal as a history: rolls and changes, who, when, why, and what was done.
import { html } from "../vendor/preact.js";
import { Findings, Folded, Head, Names, Pager, Same, Search, State, Table, To, When } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";

function columns(connection) {
  return [
    { name: "When", cell: (row) => html`<${When} at=${row.at} />` },
    { name: "What", cell: (row) => (row.kind === "roll" ? html`<${To} parts=${["clusters", connection, "rolls", row.id]}>${row.about || row.id}</${To}>` : html`<span>${row.kind}${row.about && html` <code>${row.about}</code>`}</span>`) },
    { name: "State", cell: (row) => html`<${State} value=${row.state} as=${row.state === "running" ? "busy" : undefined} />` },
    { name: "Ended", cell: (row) => html`<${When} at=${row.ended_at} />` },
    { name: "Who", cell: (row) => row.actor || html`<span class="quiet">–</span>` },
    { name: "Why", cell: (row) => html`<span>${row.reason}${row.note && html` <span class="quiet">${row.note}</span>`}</span>` },
    { name: "Done", cell: (row) => html`<span><${Names} names=${row.done} limit=${6} />${row.under_way && html` <${State} as="busy" value=${row.under_way} />`}</span>${row.seen?.length > 0 && html`<${Folded} title="what was seen"><${Findings} findings=${row.seen} /></${Folded}>`}` },
  ];
}

export function History({ connection, parameters }) {
  const { search, page } = parameters;
  const look = useDocument(api(["clusters", connection, "history"], { search, page }));
  return html`<${Head} title="History" look=${look}>
      <${Search} label="Search history" value=${search} />
    </${Head}>
    <div class="filters"><${Pager} answer=${look.answer} /></div>
    <${Table} caption="Rolls and changes, the newest first" columns=${columns(connection)} rows=${foundRows(look)} id=${(row) => `${row.kind} ${row.id}`} isLoading=${look.isLoading}
      empty=${search ? "Nothing in the journal matches." : "The journal is empty: this group was never rolled, fenced or changed by eos."} />
    <${Same} command="eos rollout list; eos changes list" />`;
}
