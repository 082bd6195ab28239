// The clusters: one card per connection.
import { html } from "../vendor/preact.js";
import { count, duration, many } from "../format.js";
import { Age, Airflow, ByState, Facts, Failures, Findings, Folded, Head, Known, Mode, Pager, Same, Search, State, To } from "../parts.js";
import { api, useDocument } from "../look.js";
import { PendingFencings } from "./fencing.js";

/** "1 preparing, 2 enabled" of workers whose modes differ; the mode alone otherwise. */
export function ClusterMode({ card }) {
  const counts = Object.entries(card.modes ?? {}).filter(([, number]) => number > 0);
  const text = counts.length > 1 ? `${card.mode}: ${counts.map(([mode, number]) => `${number} ${mode}`).join(", ")}` : undefined;
  return html`<${Mode} value=${card.mode} text=${text} />`;
}

/** When a slow look was, where what it found is older than it is kept: the rest of its card is newer. */
function Older({ look }) {
  return look && look.age_seconds > look.kept_seconds ? html` <span class="quiet">seen ${duration(look.age_seconds)} ago</span>` : null;
}

/** Hanging transactions: a slow look, so its answer may come later than the rest. */
export function Hanging({ card }) {
  if (card.hanging_transactions === null || card.hanging_transactions === undefined) {
    return html`<span class="quiet">${card.hanging_errors?.length ? "unknown" : "looking …"}</span>`;
  }
  const number = card.hanging_transactions ? html`<${State} as="bad" value=${`${count(card.hanging_transactions)} hanging`} />` : html`<span>none</span>`;
  return html`<span>${number}<${Older} look=${card.hanging_looked_at} /></span>`;
}

export function Drift({ drift, isUnknown = false }) {
  if (!drift) return html`<span class="quiet">${isUnknown ? "unknown" : "looking …"}</span>`;
  const text = { pass: "none", fail: many((drift.findings ?? []).length, "finding"), inconclusive: "unknown" }[drift.verdict];
  return html`<${State} value=${drift.verdict} text=${text ?? drift.verdict} />`;
}

/** The newest roll of a group, as one line with a link. */
export function RollLine({ connection, card }) {
  const { roll } = card;
  if (!roll) return html`<span class="quiet">${card.roll_looked_at ? "never rolled" : card.errors?.length ? "unknown" : "looking …"}</span>`;
  return html`<span class="row"><${State} value=${roll.state} as=${roll.state === "running" ? "busy" : undefined} />
    <${To} parts=${["clusters", connection, "rolls", roll.rollout_id]}>${roll.from} → ${roll.to}, ${roll.workers_done} of ${many(roll.workers_to_roll, "worker")}</${To}></span>`;
}

/** The group, and the state that its coordinator reports. */
export function Group({ seen }) {
  return html`<span class="row"><code>${seen.group_id}</code> ${seen.state ? html`<${State} value=${seen.state} />` : html`<span class="quiet">state unknown</span>`}</span>`;
}

/** How many of something there are that should not be. */
function Counted({ number, text, tone }) {
  return number > 0 && html`<${State} as=${tone} value=${`${count(number)} ${text}`} />`;
}

function Card({ card, look }) {
  const isSeen = Boolean(card.looked_at);
  const workers = card.workers ?? [];
  const dead = workers.filter((worker) => worker.dead).length;
  const silent = workers.filter((worker) => !worker.dead && worker.rest_problem).length;
  return html`<article class="card" aria-labelledby=${`card-${card.connection_id}`}>
    <div class="head">
      <h2 id=${`card-${card.connection_id}`}><${To} parts=${["clusters", card.connection_id]}>${card.connection_id}</${To}></h2>
      <${Age} look=${{ ...look, failures: card.errors ?? [] }} answer=${card} />
    </div>
    <p class="quiet">${card.description || " "}</p>
    <${Failures} failures=${card.errors} />
    ${isSeen &&
    html`<${Facts}
        facts=${[
          ["Mode", html`<${ClusterMode} card=${card} />`],
          ["Group", html`<${Group} seen=${card} />`],
          ["Workers", html`<span class="row">${many(workers.length, "worker")}<${Counted} number=${dead} text="dead" tone="bad" /><${Counted} number=${silent} text="without an answer" tone="warn" /></span>`],
          ["Connectors", html`<${ByState} counts=${card.connectors} />`],
          ["Tasks", html`<${ByState} counts=${card.tasks} />`],
          ["Pending fencings", html`<${PendingFencings} connection=${card.connection_id} names=${card.pending_fencings} />`],
          ["Open transactions", html`<${Known} value=${card.open_transactions} />`],
          ["Hanging", html`<${Hanging} card=${card} />`],
          ["Drift", html`<span><${Drift} drift=${card.drift} isUnknown=${card.drift_errors?.length > 0} /><${Older} look=${card.drift_looked_at} /></span>`],
          ["Newest roll", html`<${RollLine} connection=${card.connection_id} card=${card} />`],
        ]}
      />
      ${card.disagreements?.length > 0 && html`<${Failures} title="Evidence that disagrees" failures=${card.disagreements.map((found) => ({ found }))} />`}
      ${card.findings?.length > 0 && html`<${Folded} title=${many(card.findings.length, "finding")} open=${!card.state}><${Findings} findings=${card.findings} /></${Folded}>`}`}
    <p class="links"><${Airflow} link=${card.link}>Connection in Airflow</${Airflow}></p>
  </article>`;
}

export function Clusters({ parameters }) {
  const look = useDocument(api(["clusters"], { search: parameters.search, page: parameters.page }));
  const cards = look.answer?.items;
  return html`<${Head} title="Clusters" look=${look} isWithoutAge=${true}>
      <${Search} label="Search clusters" value=${parameters.search} />
    </${Head}>
    ${!cards && !look.failures.length && html`<p class="quiet" role="status">Looking …</p>`}
    ${cards?.length === 0 &&
    html`<p class="empty">
      ${parameters.search
        ? `No connection matches “${parameters.search}”.`
        : "There is no connection of type Kafka Connect yet. Add one in Airflow: Admin, Connections, “Add Connection”, type “Kafka Connect”; its form explains each field."}
    </p>`}
    <div class="cards" aria-busy=${look.isLoading ? "true" : "false"}>${cards?.map((card) => html`<${Card} key=${card.connection_id} card=${card} look=${look} />`)}</div>
    ${look.answer && look.answer.found > look.answer.page_size && html`<${Pager} answer=${look.answer} />`}
    <${Same} command="eos status" />`;
}
