// The page: its frame, and which view the URL names.
import { html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import { zone } from "./format.js";
import { To } from "./parts.js";
import { adoptOuterHash, airflowWindow, parse, showInAddressBar } from "./route.js";
import { followTheme } from "./theme.js";
import { Clusters } from "./views/clusters.js";
import { Cluster } from "./views/cluster.js";
import { Connector } from "./views/connector.js";
import { Connectors, Tasks } from "./views/connectors.js";
import { Fencing } from "./views/fencing.js";
import { History } from "./views/history.js";
import { Calendar, Pipelines } from "./views/intervals.js";
import { Interval } from "./views/interval.js";
import { Offsets } from "./views/offsets.js";
import { Rights } from "./views/rights.js";
import { Roll } from "./views/roll.js";
import { Topics } from "./views/topics.js";
import { Transactions } from "./views/transactions.js";

/** The views of one cluster, by the word in the URL behind its connection; the first has none. */
const TABS = [
  { word: "", name: "Overview", View: Cluster },
  { word: "connectors", name: "Connectors", View: Connectors, One: Connector },
  { word: "tasks", name: "Tasks", View: Tasks },
  { word: "offsets", name: "Offsets", View: Offsets },
  { word: "transactions", name: "Transactions", View: Transactions },
  { word: "fencing", name: "Fencing", View: Fencing },
  { word: "topics", name: "Topics", View: Topics },
  { word: "rights", name: "Rights", View: Rights },
  { word: "history", name: "History", View: History },
];

function NotFound({ parts }) {
  return html`<h1 tabindex="-1">There is no such view</h1>
    <p>The address names <code>${parts.join("/")}</code>. <${To} parts=${["clusters"]}>Go to the clusters</${To}>.</p>`;
}

function OfCluster({ parts, parameters }) {
  const [connection, word = "", one] = parts;
  const isRoll = word === "rolls";
  const tab = TABS.find((each) => each.word === (isRoll ? "history" : word));
  if (!tab) return html`<${NotFound} parts=${parts} />`;
  const given = { connection, parameters, one };
  return html`<nav class="crumbs" aria-label="Where you are"><${To} parts=${["clusters"]}>Clusters</${To}> <span aria-hidden="true">/</span> <span>${connection}</span></nav>
    <nav class="tabs" aria-label="Views of this cluster">
      ${TABS.map((each) => html`<${To} key=${each.word} current=${each === tab} parts=${["clusters", connection, each.word].filter(Boolean)}>${each.name}</${To}>`)}
    </nav>
    ${isRoll ? html`<${Roll} ...${given} />` : one && tab.One ? html`<${tab.One} ...${given} />` : html`<${tab.View} ...${given} />`}`;
}

function OfIntervals({ parts, parameters }) {
  const [connection, group, pipeline, run] = parts;
  const given = { connection, group, pipeline, run, parameters };
  if (!pipeline) return html`<${Pipelines} parameters=${parameters} />`;
  return html`<nav class="crumbs" aria-label="Where you are">
      <${To} parts=${["intervals"]}>Intervals</${To}> <span aria-hidden="true">/</span>
      ${run ? html`<${To} parts=${["intervals", connection, group, pipeline]}>${pipeline}</${To}> <span aria-hidden="true">/</span> <span>${run}</span>` : html`<span>${pipeline}</span>`}
    </nav>
    ${run ? html`<${Interval} ...${given} />` : html`<${Calendar} ...${given} />`}`;
}

function view({ parts, parameters }) {
  const [area = "clusters", ...rest] = parts;
  if (area === "intervals") return html`<${OfIntervals} parts=${rest} parameters=${parameters} />`;
  if (area !== "clusters") return html`<${NotFound} parts=${parts} />`;
  return rest.length ? html`<${OfCluster} parts=${rest} parameters=${parameters} />` : html`<${Clusters} parameters=${parameters} />`;
}

function Page() {
  const [route, setRoute] = useState(() => parse(location.hash));
  const main = useRef(null);
  const place = route.parts.join("/");
  const isFirst = useRef(true);

  useEffect(() => {
    const onChange = () => {
      setRoute(parse(location.hash));
      showInAddressBar();
    };
    const onKey = (event) => {
      const isTyping = event.target.closest?.("input, select, textarea");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const field = main.current?.querySelector('input[type="search"]');
      if (field) {
        event.preventDefault();
        field.focus();
      }
    };
    window.addEventListener("hashchange", onChange);
    window.addEventListener("keydown", onKey);
    showInAddressBar();
    return () => {
      window.removeEventListener("hashchange", onChange);
      window.removeEventListener("keydown", onKey);
    };
  }, []);

  // Another view is another page: it begins at its top, and a screen reader at its title.
  useEffect(() => {
    const title = main.current?.querySelector("h1");
    document.title = [title?.textContent, "Exactly once"].filter(Boolean).join(" · ");
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    window.scrollTo(0, 0);
    title?.focus({ preventScroll: true });
  }, [place]);

  const area = route.parts[0] ?? "clusters";
  const skip = (event) => {
    event.preventDefault();
    main.current?.querySelector("h1")?.focus();
  };
  return html`<header>
      <a class="skip" href="#" onClick=${skip}>Skip to the content</a>
      <span class="brand">Exactly once</span>
      <nav aria-label="Areas">
        <${To} parts=${["clusters"]} current=${area === "clusters"}>Clusters</${To}>
        <${To} parts=${["intervals"]} current=${area === "intervals"}>Intervals</${To}>
      </nav>
      ${airflowWindow() === null && html`<a class="airflow" href="../">Airflow</a>`}
    </header>
    <main ref=${main} key=${area}>${view(route)}</main>
    <footer>This page changes nothing. Times are in ${zone() === "UTC" ? "UTC." : `${zone()}; the ends of intervals are in UTC.`}</footer>`;
}

followTheme();
adoptOuterHash();
render(html`<${Page} />`, document.getElementById("page"));
