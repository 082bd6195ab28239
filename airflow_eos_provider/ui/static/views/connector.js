// One connector: its tasks with their transactional ids, and where its sources have been read up to.
import { html } from "../vendor/preact.js";
import { count } from "../format.js";
import { ByState, Facts, Failures, Head, NotSeen, Pager, Same, State, Table } from "../parts.js";
import { api, foundRows, useDocument } from "../look.js";
import { FencingState, Placed, taskColumns, Trace } from "./connectors.js";
import { OFFSETS } from "./offsets.js";

const OFFSETS_SHOWN = 100;

export function Connector({ connection, one, parameters }) {
  const found = useDocument(api(["clusters", connection, "connectors"], { connector: one }));
  const tasks = useDocument(api(["clusters", connection, "tasks"], { connector: one, page: parameters.page }));
  const connector = found.answer?.items?.find((item) => item.connector === one);
  const isSource = connector?.type !== "sink";
  const offsets = useDocument(connector && isSource ? api(["clusters", connection, "offsets"], { connector: one, page_size: OFFSETS_SHOWN }) : null);
  const isGone = found.answer?.looked_at && found.answer.is_known && !found.isLoading && !connector;
  return html`<${Head} title=${one} look=${found} />
    <${NotSeen} problems=${found.answer?.problems} />
    ${isGone && html`<p class="empty" role="status">The group has no connector of this name. It may have been deleted; the history shows what was done.</p>`}
    ${connector &&
    html`<${Facts}
        facts=${[
          ["State", html`<${State} value=${connector.state} />`],
          ["Type", connector.type],
          ["Placed on", html`<${Placed} on=${connector.placed_on} lastWord=${connector.last_word} />`],
          ["Tasks", html`<${ByState} counts=${connector.tasks_by_state} />`],
          ["Task count", count(connector.task_count)],
          ["Task count record", count(connector.task_count_record)],
          ["Fencing", html`<${FencingState} pending=${connector.pending_fencing} />`],
        ]}
      />
      <${Trace} text=${connector.trace} />`}
    <h2>Tasks</h2>
    <${Failures} failures=${[...tasks.failures, ...(tasks.answer?.errors ?? [])]} />
    <${Table} caption=${`Tasks of ${one}`} columns=${taskColumns(connection, true)} rows=${foundRows(tasks)} id=${(row) => row.task} isLoading=${tasks.isLoading}
      empty="The connector has no tasks now." />
    ${tasks.answer?.found > tasks.answer?.page_size && html`<${Pager} answer=${tasks.answer} />`}
    ${connector &&
    isSource &&
    html`<h2>Source offsets</h2>
      <${Failures} failures=${[...offsets.failures, ...(offsets.answer?.errors ?? [])]} />
      <${Table} caption=${`Source offsets of ${one}`} columns=${OFFSETS.slice(1)} rows=${foundRows(offsets)} empty="No source offset was committed yet." />
      ${offsets.answer?.found > OFFSETS_SHOWN && html`<p class="quiet">The first ${OFFSETS_SHOWN} of ${count(offsets.answer.found)}; the view “Offsets” has all.</p>`}`}
    <${Same} command=${`eos offsets list ${/^[\w.-]+$/.test(one) ? one : `'${one}'`}`} />`;
}
