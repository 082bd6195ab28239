// Intervals: the pipelines, and one pipeline's calendar with records and durations.
import { html, useMemo, useRef } from "../vendor/preact.js";
import { Bars } from "../chart.js";
import { count, dash, duration, many, utc } from "../format.js";
import { hash, replaceParameters } from "../route.js";
import { Airflow, Facts, Folded, Head, Names, Pager, Same, Search, State, Table, To } from "../parts.js";
import { api, useDocument } from "../look.js";

/** The states of an interval: as a tone, as a sign in the calendar, and in words. */
const STATES = {
  complete: { tone: "good", sign: "", words: "complete" },
  running: { tone: "busy", sign: "◔", words: "running" },
  failed: { tone: "bad", sign: "✕", words: "failed" },
  missing: { tone: "warn", sign: "?", words: "missing" },
  revised: { tone: "revised", sign: "↻", words: "revised" },
  never_due: { tone: "none", sign: "·", words: "never due" },
};
const words = (state) => STATES[state]?.words ?? state;

/** How cells are put into rows: months of days, days of hours, or thirty in a row. */
const ROWS = {
  day: { name: (cell) => cell.start.slice(0, 7), column: (cell) => Number(cell.start.slice(8, 10)), label: (cell) => cell.start.slice(8, 10), columns: 31, perPage: 12 },
  hour: { name: (cell) => cell.start.slice(0, 10), column: (cell) => Number(cell.start.slice(11, 13)) + 1, label: (cell) => cell.start.slice(11, 13), columns: 24, perPage: 31 },
  other: { name: (cell, index) => `from ${count(Math.floor(index / 30) * 30 + 1)}`, column: (cell, index) => (index % 30) + 1, label: (cell, index) => String((index % 30) + 1), columns: 30, perPage: 24 },
};
const MANY_CELLS = 2_000;

const PIPELINES = [
  { name: "Pipeline", cell: (row) => html`<${To} parts=${["intervals", row.connection_id, row.group_id, row.pipeline]}>${row.pipeline}</${To}>` },
  { name: "Connection", cell: (row) => html`<code>${row.connection_id}</code> <span class="quiet">group ${row.group_id}</span>` },
  { name: "Complete", isNumber: true, cell: (row) => count(row.complete) },
  { name: "Running", isNumber: true, cell: (row) => count(row.running) },
  { name: "Revised", isNumber: true, cell: (row) => count(row.revised) },
  { name: "Records", isNumber: true, cell: (row) => count(row.records) },
  { name: "First", cell: (row) => (row.first ? utc(row.first) : dash) },
  { name: "Last", cell: (row) => (row.last ? utc(row.last) : dash) },
];

export function Pipelines({ parameters }) {
  const look = useDocument(api(["pipelines"], { search: parameters.search, page: parameters.page }));
  const waiting = look.answer?.still_looking;
  return html`<${Head} title="Intervals" look=${look} isWithoutAge=${true}>
      <${Search} label="Search pipelines" value=${parameters.search} />
    </${Head}>
    <div class="filters"><${Pager} answer=${look.answer} />${Array.isArray(waiting) && waiting.length > 0 && html`<span class="quiet" role="status">still looking: ${waiting.join(", ")}</span>`}</div>
    <${Table} caption="Pipelines" columns=${PIPELINES} rows=${waiting?.length && !look.answer.items.length ? undefined : look.answer?.items} id=${(row) => `${row.connection_id} ${row.group_id} ${row.pipeline}`} isLoading=${look.isLoading}
      empty=${parameters.search ? "No pipeline matches." : "No interval was written yet. A DAG with the interval operator writes the first; the provider's documents begin with one."} />
    <${Same} command="eos intervals list" />`;
}

function rowsOf(cells, unit) {
  const shape = ROWS[unit] ?? ROWS.other;
  const rows = new Map();
  cells.forEach((cell, index) => {
    const name = shape.name(cell, index);
    if (!rows.has(name)) rows.set(name, { name, cells: [] });
    rows.get(name).cells.push({ ...cell, column: shape.column(cell, index), label: shape.label(cell, index) });
  });
  return { shape, rows: [...rows.values()] };
}

function said(cell) {
  const slices = cell.state === "running" && cell.slices ? `, ${count(cell.done)} of ${many(cell.slices, "slice")} done` : "";
  const records = typeof cell.records === "number" ? `, ${many(cell.records, "record")}` : "";
  const revision = cell.revisions > 1 ? `, revision ${cell.revision}` : "";
  const part = cell.part_of ? ", as a part of a wider interval" : "";
  return `${utc(cell.start)} to ${utc(cell.end)}: ${words(cell.state)}${part}${slices}${records}${revision}`;
}

/** One stop for the Tab key; within, the arrow keys go from interval to interval. */
function walk(event) {
  const links = [...event.currentTarget.querySelectorAll("a")];
  const here = links.indexOf(document.activeElement);
  if (here < 0) return;
  const box = document.activeElement.getBoundingClientRect();
  const below = (sign) => {
    const candidates = links.filter((link) => sign * (link.getBoundingClientRect().top - box.top) > 4);
    const distance = (link) => {
      const its = link.getBoundingClientRect();
      return Math.abs(its.top - box.top) * 1000 + Math.abs(its.left - box.left);
    };
    return candidates.sort((a, b) => distance(a) - distance(b))[0];
  };
  const steps = {
    ArrowRight: () => links[here + 1],
    ArrowLeft: () => links[here - 1],
    ArrowDown: () => below(1),
    ArrowUp: () => below(-1),
    Home: () => links[0],
    End: () => links.at(-1),
  };
  const next = steps[event.key]?.();
  if (!next) return;
  event.preventDefault();
  document.activeElement.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function Grid({ rows, shape, to }) {
  const grid = useRef(null);
  let isFirst = true;
  const stop = () => {
    const index = isFirst ? 0 : -1;
    isFirst = false;
    return index;
  };
  return html`<div class="calendar" ref=${grid} onKeyDown=${walk} role="group" aria-label="Calendar; the arrow keys go from interval to interval">
      ${rows.map(
        (row) => html`<section key=${row.name} class="months" aria-label=${row.name}>
          <h3>${row.name}</h3>
          <ol class=${`cells of${shape.columns}`}>
            ${row.cells.map(
              (cell) => html`<li key=${cell.interval} style=${{ "--column": cell.column }}>
                ${cell.run
                  ? html`<a class=${`cell ${cell.state}`} href=${to(cell)} tabindex=${stop()} title=${said(cell)} aria-label=${said(cell)}><${Inner} cell=${cell} /></a>`
                  : html`<span class=${`cell ${cell.state}`} title=${said(cell)}><span class="unseen">${said(cell)}</span><span aria-hidden="true"><${Inner} cell=${cell} /></span></span>`}
              </li>`,
            )}
          </ol>
        </section>`,
      )}
    </div>
    <ul class="legend">
      ${Object.entries(STATES).map(([state, { sign, words: text }]) => html`<li key=${state}><span class=${`cell ${state}`} aria-hidden="true">${sign}</span>${text}</li>`)}
    </ul>`;
}

function Inner({ cell }) {
  const sign = STATES[cell.state]?.sign;
  return html`<span class="label">${cell.label}</span>${sign && html`<span class="sign">${sign}</span>`}`;
}

const TONES = { complete: "good", running: "busy", failed: "bad", revised: "revised" };

/** A bar for each cell, of one of its numbers; a click opens its run. */
function bars(cells, number, unit, name, to) {
  return cells.map((cell) => ({
    value: cell[number],
    tone: TONES[cell.state] ?? "none",
    name: utc(cell.start, unit !== "day"),
    tip: `${utc(cell.start)}: ${words(cell.state)}\n${name(cell[number])}`,
    onClick: cell.run && (() => (location.hash = to(cell))),
  }));
}

const CELLS = (to) => [
  { name: "Interval (UTC)", cell: (row) => (row.run ? html`<a href=${to(row)}>${utc(row.start)} – ${utc(row.end)}</a>` : `${utc(row.start)} – ${utc(row.end)}`) },
  { name: "State", cell: (row) => html`<${State} value=${words(row.state)} as=${STATES[row.state]?.tone} />` },
  { name: "Slices", isNumber: true, cell: (row) => (row.slices ? `${count(row.done)} of ${count(row.slices)}` : dash) },
  { name: "Records", isNumber: true, cell: (row) => count(row.records) },
  { name: "Seconds", isNumber: true, cell: (row) => duration(row.seconds) },
  { name: "Revision", isNumber: true, cell: (row) => (row.revisions > 1 ? `${row.revision} of ${row.revisions}` : count(row.revision)) },
  { name: "DAG run", cell: (row) => (row.dag_run ? html`<${Airflow} link=${row.dag_run.link}>${row.dag_run.run_id}</${Airflow}> ${html`<${State} value=${row.dag_run.state} />`}` : dash) },
];

const BACKFILLS = [
  { name: "Backfill", cell: (row) => html`<${Airflow} link=${row.link}>${row.dag_id} ${row.id}</${Airflow}>` },
  { name: "From", cell: (row) => utc(row.from) },
  { name: "To", cell: (row) => utc(row.to) },
  { name: "State", cell: (row) => html`<${State} value=${row.state} as=${row.state === "running" ? "busy" : undefined} />` },
  { name: "Progress", cell: (row) => html`<span class="row"><progress max=${row.total} value=${row.done} aria-label="Runs done"></progress> ${count(row.done)} of ${count(row.total)}${row.failed > 0 && html` <${State} as="bad" value=${`${count(row.failed)} failed`} />`}</span>` },
];

export function Calendar({ connection, group, pipeline, parameters }) {
  const { start, end, dag_id: dag } = parameters;
  const look = useDocument(api(["clusters", connection, "calendar"], { group, pipeline, start, end, dag_id: dag }), {
    every: (answer) => ((answer.cells?.length ?? 0) > MANY_CELLS ? 30_000 : 5_000),
  });
  const found = look.answer?.cells ? look.answer : null;
  const cells = found?.cells ?? [];
  const { shape, rows } = useMemo(() => rowsOf(cells, found?.unit), [found]);
  const pages = Math.max(1, Math.ceil(rows.length / shape.perPage));
  const back = Math.min(Math.max(0, Number(parameters.back) || 0), pages - 1);
  const shown = useMemo(() => rows.slice(Math.max(0, rows.length - (back + 1) * shape.perPage), rows.length - back * shape.perPage), [rows, back]);
  const shownCells = useMemo(() => shown.flatMap((row) => row.cells), [shown]);
  const together = useMemo(() => (found?.wider ?? []).filter((each) => each.end > shownCells[0]?.start && each.start < shownCells.at(-1)?.end), [shownCells]);
  const to = (cell) => hash(["intervals", connection, group, pipeline, cell.run]);
  const step = (by) => () => replaceParameters({ back: back + by || "" });
  const sum = shownCells.reduce((total, cell) => total + (cell.records ?? 0), 0);
  return html`<${Head} title=${pipeline} look=${look} />
    ${!found && !look.failures.length && !look.answer?.errors?.length && html`<p class="quiet" role="status">Looking …</p>`}
    ${found &&
    html`<${Facts}
        facts=${[
          ["Intervals", html`<span class="row wide">${Object.entries(found.counts ?? {}).filter(([, number]) => number > 0).map(([state, number]) => html`<${State} key=${state} value=${state} as=${STATES[state]?.tone} text=${`${count(number)} ${words(state)}`} />`)}</span>`],
          ["DAG", found.dag_id ? html`<${Airflow} link=${`${location.pathname.replace(/\/exactly-once\/.*$/s, "")}/dags/${encodeURIComponent(found.dag_id)}`}>${found.dag_id}</${Airflow}>` : "none known: what is missing are gaps between intervals"],
          ["Group", html`<code>${found.group_id}</code>`],
          ["Duration", found.durations ? `median ${duration(found.durations.median)}, 95 % within ${duration(found.durations.p95)}, longest ${duration(found.durations.longest)}` : dash],
        ]}
      />
      ${cells.length === 0
        ? html`<p class="empty">No interval of this pipeline is on record.</p>`
        : html`<div class="filters">
              <h2>Calendar</h2>
              ${pages > 1 &&
              html`<nav class="pager" aria-label="Time">
                <button type="button" disabled=${back >= pages - 1} onClick=${step(1)}>‹ earlier</button>
                <span role="status" class="range">${shown[0]?.name} to ${shown.at(-1)?.name}</span>
                <button type="button" disabled=${back === 0} onClick=${step(-1)}>later ›</button>
              </nav>`}
            </div>
            <${Grid} rows=${shown} shape=${shape} to=${to} />
            ${together.length > 0 &&
            html`<h2>Written together</h2>
              <p class="quiet">Each interval within one of these is complete when that is, and has no figures of its own.</p>
              <${Table} caption="Intervals written together" columns=${CELLS(to)} rows=${together} id=${(row) => row.interval} empty="" />`}
            <h2>Records per interval</h2>
            <${Bars} values=${bars(shownCells, "records", found.unit, (value) => many(value, "record"), to)} height=${200} label=${`Bars: ${many(sum, "record")} in ${many(shownCells.length, "interval")}; the table below has the same.`} />
            ${shownCells.some((cell) => typeof cell.seconds === "number") &&
            html`<h2>Seconds per interval</h2>
              <${Bars} values=${bars(shownCells, "seconds", found.unit, duration, to)} height=${160} label=${`Bars: seconds that each of ${many(shownCells.length, "interval")} took; the table below has the same.`} />`}
            <${Folded} title="As a table"><${Table} caption="Intervals" columns=${CELLS(to)} rows=${shownCells} id=${(row) => row.interval} empty="" /></${Folded}>`}
      ${found.backfills?.length > 0 && html`<h2>Backfills</h2><${Table} caption="Backfills" columns=${BACKFILLS} rows=${found.backfills} id=${(row) => row.id} empty="" />`}`}
    <${Same} command="eos intervals list" />`;
}
