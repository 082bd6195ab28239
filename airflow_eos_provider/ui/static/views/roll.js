// A roll: a timeline with a lane a worker, the plan, who approved it, the journal; live while it runs.
import { html, useMemo } from "../vendor/preact.js";
import { cut, Picture, times } from "../chart.js";
import { between, clock, count, dash, duration } from "../format.js";
import { Airflow, Facts, Failures, Findings, Folded, Head, Names, Same, State, Table, When } from "../parts.js";
import { api, useDocument } from "../look.js";

const LIVE_MS = 2_000;
const AT_REST_MS = 15_000;
const LANE_HEIGHT = 56;
const [TOP, AXIS_HEIGHT] = [10, 46];

/** What a span of a lane is, as a colour and in words. */
const SPANS = {
  announced: { tone: "none", words: "announced, may still run" },
  restarting: { tone: "amber", words: "restarting" },
  down: { tone: "text", words: "stopped, not started yet" },
  gate: { tone: "busy", words: "waits for its gate" },
  restoring: { tone: "bad", words: "being restored" },
};

/** "1 of 3 workers": how far a roll is. */
const done = (roll) => (roll.lanes ?? []).filter((lane) => statusOf(roll, lane.worker) === "passed").length;

function statusOf(roll, worker) {
  return roll.workers?.find((each) => each.worker === worker)?.status ?? null;
}

/** Lanes in the order in which workers had their turn; those that wait for theirs last. */
function inTurn(lanes) {
  const first = (lane) => lane.moments?.[0]?.at ?? Infinity;
  return [...lanes].sort((one, other) => (first(one) < first(other) ? -1 : first(one) > first(other) ? 1 : 0));
}

/** From when task downtime counts. */
function restartedFrom(lane) {
  return lane.spans?.findLast((span) => span.what === "restarting")?.from ?? null;
}

/** Those whose time is known. */
const known = (moments) => (moments ?? []).filter((each) => typeof each.at === "number");

/** From when to when the timeline goes: all that happened, and a little room; until now while the roll runs. */
function extent(roll, now) {
  const acts = (roll.lanes ?? []).flatMap((lane) => [
    ...(lane.spans ?? []).flatMap((span) => [span.from, span.to ?? now]),
    ...known(lane.moments).map((each) => each.at),
    ...(restartedFrom(lane) === null ? [] : [restartedFrom(lane) + Math.max(lane.predicted?.worst_seconds ?? 0, lane.measured_downtime_seconds ?? 0)]),
  ]);
  const all = [...acts, roll.started_at, roll.ended_at ?? (roll.live ? now : null)].filter((time) => typeof time === "number");
  if (!all.length) return null;
  const [from, to] = [Math.min(...all), Math.max(...all)];
  const room = Math.max(1, (to - from) * 0.02);
  return { from: from - room, to: to + room };
}

/** One worker's lane, from its middle: `x` gives the place of a time. */
function Lane({ lane, middle, x, now }) {
  const width = (from, to) => Math.max(2, x(to) - x(from));
  const from = restartedFrom(lane);
  const { predicted, measured_downtime_seconds: measured } = lane;
  return html`${(lane.spans ?? []).map((span) => {
      const [tone, to, isDown] = [SPANS[span.what]?.tone ?? "none", span.to ?? now, span.what === "down"];
      return html`<rect key=${`${span.what} ${span.from}`} class=${tone} x=${x(span.from)} y=${middle - (isDown ? 10 : 16)} width=${width(span.from, to)} height=${isDown ? 4 : 16} rx="2"><title>${`${SPANS[span.what]?.words ?? span.what}: ${duration(to - span.from)}`}</title></rect>`;
    })}
    ${predicted && from !== null && html`<rect class="predicted" x=${x(from)} y=${middle + 4} width=${width(from, from + predicted.worst_seconds)} height="6" rx="2"><title>${`predicted downtime of its tasks: ${between(predicted.best_seconds, predicted.worst_seconds)}`}</title></rect>`}
    ${typeof measured === "number" && from !== null && html`<rect class="text" x=${x(from)} y=${middle + 13} width=${width(from, from + measured)} height="6" rx="2"><title>${`measured downtime of its tasks: ${duration(measured)}`}</title></rect>`}
    ${known(lane.moments).map((each, index) => html`<path key=${`m${index}`} class="text" d=${`M${x(each.at)} ${middle - 21}l4 4l-4 4l-4-4z`}><title>${`${clock(each.at)} ${each.what}${each.note ? `: ${each.note}` : ""}`}</title></path>`)}
    ${known(lane.conditions).map((each, index) => html`<circle key=${`c${index}`} class="condition" cx=${x(each.at)} cy=${middle - 8} r="3"><title>${`${clock(each.at)} ${each.text}`}</title></circle>`)}`;
}

function Legend() {
  return html`<ul class="legend" aria-hidden="true">
    ${Object.keys(SPANS).map((what) => html`<li key=${what}><span class=${`swatch ${SPANS[what].tone}`}></span>${SPANS[what].words}</li>`)}
    <li><span class="swatch moment"></span>announced, stopped, started, restarted, passed</li>
    <li><span class="swatch condition"></span>conditions of the gate hold</li>
    <li><span class="swatch predicted"></span>downtime, predicted</li>
    <li><span class="swatch measured"></span>downtime, measured</li>
  </ul>`;
}

function Timeline({ roll }) {
  const now = roll.live ? (roll.looked_at?.at ?? Date.now() / 1000) : (roll.ended_at ?? roll.looked_at?.at ?? Date.now() / 1000);
  const range = extent(roll, now);
  if (!roll.lanes?.length || !range) return html`<p class="quiet">No worker was acted on yet.</p>`;
  const height = AXIS_HEIGHT + roll.lanes.length * LANE_HEIGHT;
  const bottom = height - AXIS_HEIGHT + TOP;
  const draw = (width) => {
    const left = Math.min(240, Math.max(90, width * 0.2));
    const x = (at) => left + ((at - range.from) / (range.to - range.from)) * (width - left - 20);
    return html`<line x1=${left} x2=${left} y1=${TOP} y2=${bottom} />
      ${times(range.from, range.to, (width - left - 20) / 80).map((at) => html`<text key=${at} class="middle" x=${x(at)} y=${bottom + 22}>${clock(at)}</text>`)}
      ${roll.lanes.map((lane, index) => {
        const middle = TOP + LANE_HEIGHT * (index + 0.5);
        return html`<g key=${lane.worker}><text class="end name" x=${left - 8} y=${middle + 4}>${cut(lane.worker, left - 14)}<title>${lane.worker}</title></text><${Lane} lane=${lane} middle=${middle} x=${x} now=${now} /></g>`;
      })}`;
  };
  const label = `Timeline of ${roll.lanes.length} workers, ${done(roll)} of them passed; the table below has the same.`;
  return html`<${Picture} draw=${draw} label=${label} height=${height} /><${Legend} />`;
}

/** Between the announced restart and the passed gate. */
const UNDER_WAY = new Set(["intent", "restarted"]);

const LANES = [
  { name: "Worker", cell: ({ lane }) => html`<code>${lane.worker}</code>` },
  { name: "Status", cell: ({ worker }) => html`<${State} value=${worker?.status ?? "waiting"} as=${UNDER_WAY.has(worker?.status) ? "busy" : undefined} />` },
  {
    name: "Moments",
    cell: ({ lane }) =>
      lane.moments?.length
        ? html`<ol class="moments">
            ${lane.moments.map((each, index) => html`<li key=${index}>${typeof each.at === "number" ? html`<time>${clock(each.at)}</time>` : html`<span class="quiet">unknown</span>`} ${each.what}</li>`)}
          </ol>`
        : html`<span class="quiet">none yet</span>`,
  },
  { name: "Restarted in", isNumber: true, cell: ({ lane }) => duration(lane.restart_seconds) },
  { name: "Gate", isNumber: true, cell: ({ lane }) => duration(lane.gate_seconds) },
  { name: "Downtime predicted", isNumber: true, cell: ({ lane }) => (lane.predicted ? between(lane.predicted.best_seconds, lane.predicted.worst_seconds) : dash) },
  { name: "Downtime measured", isNumber: true, cell: ({ lane }) => duration(lane.measured_downtime_seconds) },
  { name: "Tasks", cell: ({ worker }) => html`<${Names} names=${worker?.tasks} limit=${6} />` },
  {
    name: "Gate's conditions",
    cell: ({ lane }) =>
      lane.conditions?.length
        ? html`<${Folded} title=${count(lane.conditions.length)}><ul class="conditions">
            ${lane.conditions.map((each, index) => html`<li key=${index}>${each.holds ? html`<${State} as="good" value="holds" />` : html`<${State} as="bad" value="failed" />`} ${typeof each.at === "number" && html`<time>${clock(each.at)}</time>`} ${each.text}</li>`)}
          </ul></${Folded}>`
        : html`<span class="quiet">none yet</span>`,
  },
];

const JOURNAL = [
  { name: "When", cell: (row) => html`<${When} at=${row.at} />` },
  { name: "Worker", cell: (row) => (row.worker ? html`<code>${row.worker}</code>` : html`<span class="quiet">the roll</span>`) },
  { name: "What", cell: (row) => html`<${State} value=${row.what} as=${row.kind === "lease" ? "none" : undefined} />` },
  { name: "Who", cell: (row) => row.who || html`<span class="quiet">–</span>` },
  { name: "Why", cell: (row) => html`<span>${[row.why, row.note].filter(Boolean).join(" – ")}</span>${row.evidence?.length > 0 && html`<${Folded} title="evidence"><${Findings} findings=${row.evidence} /></${Folded}>`}` },
];

const APPROVALS = [
  { name: "When", cell: (row) => html`<${When} at=${row.at} />` },
  { name: "By", cell: (row) => row.by || html`<span class="quiet">nobody yet</span>` },
  { name: "Answer", cell: (row) => (row.chosen ?? []).join(", ") || dash },
  { name: "Asked in", cell: (row) => html`<${Airflow} link=${row.link}>${row.dag_id} / ${row.run_id} / ${row.task_id}</${Airflow}>` },
];

export function Roll({ connection, one }) {
  const look = useDocument(api(["clusters", connection, "rolls", one ?? "newest"]), { every: (answer) => (answer.live ? LIVE_MS : AT_REST_MS) });
  const roll = useMemo(() => (look.answer?.rollout_id ? { ...look.answer, lanes: inTurn(look.answer.lanes ?? []) } : null), [look.answer]);
  const lanes = (roll?.lanes ?? []).map((lane) => ({ lane, worker: roll.workers?.find((each) => each.worker === lane.worker) }));
  return html`<${Head} title=${roll ? `Roll ${roll.from} → ${roll.to}` : "Roll"} look=${look} />
    ${!roll && !look.failures.length && !look.answer?.errors?.length && html`<p class="quiet" role="status">Looking …</p>`}
    ${roll &&
    html`<${Facts}
        facts=${[
          ["State", html`<${State} value=${roll.state} as=${roll.state === "running" ? "busy" : undefined} />`],
          ["Workers", `${done(roll)} of ${count(lanes.length)} passed`],
          ["Started", html`<${When} at=${roll.started_at} />`],
          ["Ended", html`<${When} at=${roll.ended_at} />`],
          ["Who", roll.actor || dash],
          ["Why", roll.reason || dash],
          ["Note", roll.note || undefined],
          ["Carried out by", roll.carried_out_by || undefined],
          ["Asked for", roll.request ? JSON.stringify(roll.request) : undefined],
          ["Plan", html`<code class="hash wide">${roll.plan}</code>`],
          ["Roll", html`<code>${roll.rollout_id}</code>`],
        ]}
      />
      <${Failures} title="Not all of how it went is known" failures=${roll.past_errors} />
      <h2>Timeline</h2>
      <${Timeline} roll=${roll} />
      <${Table} caption="Workers of the roll" columns=${LANES} rows=${lanes} id=${({ lane }) => lane.worker} empty="The plan has no workers to roll." />
      <h2>Approvals</h2>
      <${Table} caption="Who approved the plan" columns=${APPROVALS} rows=${roll.approvals ?? []} empty="No approval was asked for in Airflow: the roll was started from the command line, or a DAG without an approval." />
      <h2>Plan</h2>
      ${roll.plan_markdown ? html`<${Folded} title="The plan as it was approved"><pre class="plan" tabindex="0">${roll.plan_markdown}</pre></${Folded}>` : html`<p class="quiet">The journal has no plan of this roll.</p>`}
      <h2>Journal</h2>
      <${Table} caption="Journal of the roll, the oldest first" columns=${JOURNAL} rows=${roll.journal ?? []} empty="Nothing was written yet." />`}
    <${Same} command=${roll ? `eos rollout show ${roll.rollout_id}` : "eos rollout show"} />`;
}
