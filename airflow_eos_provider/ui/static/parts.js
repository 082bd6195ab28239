// The small parts that views are made of. All text goes through templates, which make text nodes of it, never markup.
import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { count, dash, duration, moment } from "./format.js";
import { hash, openInAirflow, ownPath, replaceParameters } from "./route.js";

/** What a word of state means for whoever looks: the colour, and a sign for those who do not see colours. */
const TONES = {
  good: { sign: "✓", words: ["running", "stable", "healthy", "enabled", "done", "passed", "pass", "complete", "completed", "allowed", "success", "completecommit", "ok", "restarted", "active"] },
  busy: { sign: "◔", words: ["preparing", "restarting", "gate", "announced", "intent", "ongoing", "preparecommit", "prepareabort", "rebalancing", "preparingrebalance", "completingrebalance", "queued", "started"] },
  warn: { sign: "!", words: ["mixed", "paused", "unknown", "unassigned", "interrupted", "inconclusive", "revised", "missing", "restored", "restoring", "starting", "stopping", "superseded", "unhealthy", "stopped"] },
  bad: { sign: "✕", words: ["failed", "fail", "dead", "aborted", "hanging", "overdue", "unreachable", "denied", "destroyed", "error"] },
};
const TONE_OF = new Map(Object.entries(TONES).flatMap(([tone, { words }]) => words.map((word) => [word, tone])));

/** The tone of a state; `none` for one that is neither good nor bad. */
export function tone(state) {
  return TONE_OF.get(String(state ?? "").toLowerCase().replace(/[ _-]/g, "")) ?? "none";
}

/** A state as a word with its colour and sign. */
export function State({ value, as, text }) {
  const shown = as ?? tone(value);
  if (value === null || value === undefined || value === "") return html`<span class="quiet">${dash}</span>`;
  return html`<span class="state ${shown}"><span aria-hidden="true">${TONES[shown]?.sign ?? "·"}</span> ${text ?? value}</span>`;
}

/** Who runs exactly-once: the mode of a worker or a cluster. */
export function Mode({ value, text }) {
  return html`<${State} value=${value} text=${text} as=${{ enabled: "good", preparing: "busy", disabled: "none" }[value] ?? "warn"} />`;
}

/** "3 RUNNING, 1 FAILED" as states. */
export function ByState({ counts }) {
  if (!counts) return html`<span class="quiet">unknown</span>`;
  const shown = Object.entries(counts).filter(([name, value]) => name !== "total" && value > 0);
  if (!shown.length) return html`<span class="quiet">none</span>`;
  return html`<span class="row">${shown.map(([name, value]) => html`<${State} key=${name} value=${name} text=${`${count(value)} ${name}`} />`)}</span>`;
}

export function When({ at }) {
  if (typeof at !== "number") return html`<span class="quiet">${dash}</span>`;
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${new Date(at * 1000).toISOString()}>${moment(at)}</time>`;
}

/** How old what is shown is; counts on by itself. */
export function Age({ look, answer }) {
  const lookedAt = answer ? answer.looked_at : look.answer?.looked_at;
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((value) => value + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  if (!lookedAt) return html`<span class="age quiet">${look.failures.length || look.answer?.errors?.length ? "no answer" : "looking …"}</span>`;
  const age = lookedAt.age_seconds + Math.max(0, performance.now() - look.receivedAt) / 1000;
  const isOld = age > Math.max(60, 6 * (lookedAt.kept_seconds ?? 10));
  const took = typeof lookedAt.took_seconds === "number" ? `, took ${duration(lookedAt.took_seconds)}` : "";
  return html`<span class="age ${isOld ? "old" : ""}" title=${`Looked at ${moment(lookedAt.at)}${took}`}>
    ${isOld ? "old: " : ""}seen ${duration(Math.round(age) < 10 ? Math.max(age, 0) : age)} ago${lookedAt.refreshing ? ", looking again" : ""}
  </span>`;
}

/** Failures, each with what to do about it. */
export function Failures({ failures, title }) {
  if (!failures?.length) return null;
  return html`<div class="failures" role="status">
    ${title && html`<p class="title">${title}</p>`}
    <ul>
      ${failures.map(
        (failure, index) => html`<li key=${index}>
          ${failure.connection_id && html`<code>${failure.connection_id}</code> `}<strong>${failure.found ?? failure.what}</strong>
          ${failure.expected && html` <span>Expected: ${failure.expected}</span>`}
          ${failure.remedy && html` <span class="remedy">${failure.remedy}</span>`}
        </li>`,
      )}
    </ul>
  </div>`;
}

/** A number, or that it is unknown, where a dash would leave open whether there is one. */
export function Known({ value }) {
  return typeof value === "number" ? html`<span>${count(value)}</span>` : html`<span class="quiet">unknown</span>`;
}

/** What a look could not see, though it saw the rest. */
export function NotSeen({ problems }) {
  return html`<${Failures} title="Could not be checked" failures=${problems?.map((found) => ({ found }))} />`;
}

/** What a look found: each finding with its remedy. */
export function Findings({ findings, none = "Nothing was found." }) {
  if (!findings?.length) return html`<p class="quiet">${none}</p>`;
  return html`<ul class="findings">
    ${findings.map(
      (finding, index) => html`<li key=${index}>
        <span>${typeof finding === "string" ? finding : finding.found ?? finding.text ?? JSON.stringify(finding)}</span>
        ${finding.remedy && html` <span class="remedy">${finding.remedy}</span>`}
      </li>`,
    )}
  </ul>`;
}

/**
 * A table; on a narrow screen each row becomes a card whose values carry their column's name.
 *
 * Without rows they are looked for; with null there is nothing to show, and a failure says why. The roles repeat what
 * the elements mean, for their display changes on a narrow screen, and with it their meaning.
 */
export function Table({ caption, columns, rows, id, empty, isLoading = false, isCaptionHidden = true }) {
  if (rows === null) return null;
  if (!rows) return html`<p class="quiet" role="status">Looking …</p>`;
  if (!rows.length) return html`<p class="empty" role="status">${empty}</p>`;
  return html`<table role="table" aria-busy=${isLoading ? "true" : "false"}>
    <caption class=${isCaptionHidden ? "unseen" : ""}>${caption}</caption>
    <thead role="rowgroup">
      <tr role="row">
        ${columns.map((column) => html`<th key=${column.name} scope="col" role="columnheader" class=${column.isNumber ? "number" : ""}>${column.name}</th>`)}
      </tr>
    </thead>
    <tbody role="rowgroup">
      ${rows.map(
        (row, index) => html`<tr role="row" key=${id ? id(row) : index}>
          ${columns.map(
            (column) => html`<td key=${column.name} role="cell" data-label=${column.name} class=${column.isNumber ? "number" : ""}>
              <div>${column.cell(row)}</div>
            </td>`,
          )}
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** "51–100 of 1,000" with steps back and forth; the page's number is in the URL. */
export function Pager({ answer }) {
  const [one, size] = [answer?.page ?? 1, answer?.page_size ?? 50];
  const found = answer?.found ?? 0;
  const last = Math.max(1, Math.ceil(found / size));
  const go = (page) => () => replaceParameters({ page: page === 1 ? "" : page });
  if (!answer?.total) return null;
  const of = found === answer.total ? count(found) : `${count(found)} found of ${count(answer.total)}`;
  return html`<nav class="pager" aria-label="Pages">
    <button type="button" disabled=${one <= 1} onClick=${go(1)} aria-label="First page">«</button>
    <button type="button" disabled=${one <= 1} onClick=${go(one - 1)} aria-label="Previous page">‹</button>
    <span role="status" class="range">${found ? `${count((one - 1) * size + 1)}–${count(Math.min(one * size, found))} of ${of}` : `0 of ${count(answer.total)}`}</span>
    <button type="button" disabled=${one >= last} onClick=${go(one + 1)} aria-label="Next page">›</button>
    <button type="button" disabled=${one >= last} onClick=${go(last)} aria-label="Last page">»</button>
  </nav>`;
}

const TYPING_MS = 200;

/** A field that searches while one types; `/` goes to it from anywhere. */
export function Search({ value, label }) {
  const field = useRef(null);
  const timer = useRef(0);
  useEffect(() => {
    if (field.current && document.activeElement !== field.current) field.current.value = value ?? "";
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const search = () => replaceParameters({ search: field.current.value.trim(), page: "" });
  const onInput = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(search, TYPING_MS);
  };
  const onSubmit = (event) => {
    event.preventDefault();
    clearTimeout(timer.current);
    search();
  };
  return html`<form role="search" class="search" onSubmit=${onSubmit}>
    <label><span class="unseen">${label}</span>
      <input ref=${field} type="search" placeholder=${label} defaultValue=${value ?? ""} onInput=${onInput} autocomplete="off" spellcheck="false" aria-keyshortcuts="/" />
    </label>
  </form>`;
}

/** One of few values, or all. */
export function Choice({ label, name, value, options, words = {} }) {
  return html`<label class="choice"><span>${label}</span>
    <select value=${value ?? ""} onChange=${(event) => replaceParameters({ [name]: event.currentTarget.value, page: "" })}>
      <option value="" selected=${!value}>all</option>
      ${options.map((option) => html`<option key=${option} value=${option} selected=${option === value}>${words[option] ?? option}</option>`)}
    </select>
  </label>`;
}

export function Check({ label, name, value }) {
  return html`<label class="check">
    <input type="checkbox" checked=${value === "true"} onChange=${(event) => replaceParameters({ [name]: event.currentTarget.checked ? "true" : "", page: "" })} />
    <span>${label}</span>
  </label>`;
}

/** Facts in two columns: `[[name, value], …]`. */
export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts.filter(([, value]) => value !== undefined).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value ?? dash}</dd></div>`)}
  </dl>`;
}

/** A link to another view of the page. */
export function To({ parts, parameters, children, current, ...rest }) {
  return html`<a href=${hash(parts, parameters)} aria-current=${current ? "page" : undefined} ...${rest}>${children}</a>`;
}

/** A link to a page of Airflow itself; plain text if the server gave no path of its own. */
export function Airflow({ link, children }) {
  const path = ownPath(link);
  return path ? html`<a href=${path} onClick=${openInAirflow}>${children}</a>` : html`<span>${children}</span>`;
}

/** The head of a view: its title, the age of what it shows, and what went wrong. */
export function Head({ title, look, isWithoutAge = false, children }) {
  return html`<div class="head">
      <h1 tabindex="-1">${title}</h1>
      <div class="row">${children}${look && !isWithoutAge && html`<${Age} look=${look} />`}</div>
    </div>
    ${look && html`<${Failures} failures=${[...look.failures, ...(look.answer?.errors ?? [])]} title=${look.answer?.looked_at ? "The newest look failed; what is shown is older." : ""} />`}`;
}

/** The command that prints the same. */
export function Same({ command }) {
  return html`<p class="same">On the command line: <code>${command}</code></p>`;
}

/** Names, one after another; beyond the limit only how many more there are. */
export function Names({ names, limit = 20, all }) {
  if (!names?.length) return html`<span class="quiet">none</span>`;
  const more = (all ?? names.length) - Math.min(names.length, limit);
  return html`<span class="names">${names.slice(0, limit).map((name) => html`<code key=${name}>${name}</code>`)}${more > 0 && html`<span class="quiet">and ${count(more)} more</span>`}</span>`;
}

/** Long text that is not always wanted. */
export function Folded({ title, children, open = false }) {
  return html`<details open=${open}><summary>${title}</summary>${children}</details>`;
}
