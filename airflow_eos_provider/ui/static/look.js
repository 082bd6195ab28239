// The documents of the API: fetched, asked for again while the page is seen, and kept while a newer one is awaited.
import { newest } from "./newest.js";
import { useEffect, useRef, useState } from "./vendor/preact.js";

/** Answers of which asking again makes no sense; what to do instead. */
const FINAL = {
  401: { found: "You are not signed in.", remedy: "Sign in to Airflow, then load this page again." },
  403: {
    found: "Your role may not see this page.",
    remedy: "Ask an administrator of Airflow for a role that may see connections, such as Op.",
  },
};
const LOOKING_AGAIN_MS = 1_000;
const REFRESH_MS = 5_000;
const LIMIT_MS = 30_000;

function isLooking(answer) {
  if (answer.still_looking === true) return true;
  if (Array.isArray(answer.still_looking) && answer.still_looking.length) return true;
  return (answer.items ?? []).some((item) => item?.still_looking === true);
}

async function ask(url, signal) {
  const response = await fetch(url, {
    headers: { accept: "application/json" },
    credentials: "same-origin",
    signal: AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]),
  });
  const body = await response.json().catch(() => ({}));
  if (response.ok) return { answer: body, failures: [], isFinal: false };
  const known = FINAL[response.status];
  const failures = known
    ? [known]
    : body.errors?.length
      ? body.errors
      : [{ found: `Airflow answered ${response.status}.`, remedy: "Read the log of Airflow's API server." }];
  return { answer: null, failures, isFinal: response.status >= 400 && response.status < 500 };
}

/** What is shown after an answer, and since when; no answer leaves what is there, unless that is over. */
function shownAfter(answer, before, { path, url, isFinal }) {
  if (!answer) return { answer: before.path === path && !isFinal ? before.answer : null, receivedAt: before.receivedAt };
  const now = performance.now();
  const shown = before.url === url ? before.answer : null;
  return { answer: newest(answer, shown, (now - before.receivedAt) / 1000), receivedAt: now };
}

/** The rows of a list as a table takes them: undefined while it is looked for, null if they could not be seen. */
export function foundRows(look, name = "items") {
  if (look.answer?.looked_at) return look.answer.is_known === false ? null : look.answer[name];
  return look.failures.length || look.answer?.errors?.length ? null : undefined;
}

/** The URL of a document below `api/`: its parts are quoted, empty parameters left out. */
export function api(parts, parameters = {}) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false),
  );
  return `api/${parts.map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

/**
 * The document at a URL, as it is now: `{answer, failures, receivedAt, isLoading}`.
 *
 * Asked for again every `every` milliseconds, sooner while the server still looks, and not at all while the page is
 * hidden. An answer stays until there is a newer one, also over failures; another URL of the same document (the next
 * page of a table) shows the old rows until its own are there. With `url` null nothing is asked.
 */
export function useDocument(url, { every = REFRESH_MS } = {}) {
  const path = url?.split("?")[0];
  const [state, setState] = useState({ path, url, answer: null, failures: [], receivedAt: 0 });
  const pace = useRef(every);
  pace.current = typeof every === "function" ? every : () => every;

  useEffect(() => {
    if (!url) return undefined;
    const leaving = new AbortController();
    let timer = 0;
    let isAsking = false;
    let isOver = false;

    async function look() {
      if (isAsking || isOver || leaving.signal.aborted || document.hidden) return;
      isAsking = true;
      clearTimeout(timer);
      let next = REFRESH_MS;
      try {
        const { answer, failures, isFinal } = await ask(url, leaving.signal);
        isOver = isFinal;
        setState((before) => ({ path, url, failures, ...shownAfter(answer, before, { path, url, isFinal }) }));
        if (answer) next = isLooking(answer) ? LOOKING_AGAIN_MS : pace.current(answer);
      } catch (error) {
        if (leaving.signal.aborted) return;
        const found = error.name === "TimeoutError" ? `Airflow has not answered for ${LIMIT_MS / 1000} s.` : "Airflow cannot be reached.";
        const failure = { found, remedy: "This page asks again by itself; look whether Airflow's API server runs." };
        setState((before) => ({ ...before, path, url, answer: before.path === path ? before.answer : null, failures: [failure] }));
      } finally {
        isAsking = false;
      }
      if (!isOver && !leaving.signal.aborted) timer = setTimeout(look, next);
    }

    const onVisible = () => !document.hidden && look();
    document.addEventListener("visibilitychange", onVisible);
    look();
    return () => {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [url]);

  const isHere = state.path === path;
  return {
    answer: isHere ? state.answer : null,
    failures: isHere ? state.failures : [],
    receivedAt: state.receivedAt,
    isLoading: Boolean(url) && state.url !== url,
  };
}
