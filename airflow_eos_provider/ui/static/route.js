// Where in the page we are: the URL's hash, `#/clusters/<connection>/connectors?search=…&page=2`.
//
// In Airflow the page is an iframe, and Airflow's own address bar follows only whole loads of it; so each change of the
// hash is written there, too. A link copied from the address bar then leads to the same view.

/** The page around this one if it is Airflow's and of the same origin; null otherwise. */
export function airflowWindow() {
  if (window.parent === window) return null;
  try {
    return window.parent.location.pathname.includes("/plugin/") ? window.parent : null;
  } catch {
    return null; // another origin: the browser refuses the look
  }
}

/** The hash of a view: `hash(["clusters", id], {page: 2})`; parameters that are empty are left out. */
export function hash(parts, parameters = {}) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false),
  );
  const path = parts.map((part) => `/${encodeURIComponent(part)}`).join("");
  return `#${path || "/"}${query.size ? `?${query}` : ""}`;
}

/** `{parts, parameters}` of a hash; whatever it holds, an answer. */
export function parse(text) {
  const [path, query = ""] = text.replace(/^#/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** Change parameters of this view in place: typing a search is no step to come back to. */
export function replaceParameters(changed) {
  const { parts, parameters } = parse(location.hash);
  history.replaceState(history.state, "", hash(parts, { ...parameters, ...changed }));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Take over a hash that Airflow's address bar brought along and did not pass on. */
export function adoptOuterHash() {
  const outer = airflowWindow();
  if (outer && !location.hash && outer.location.hash.startsWith("#/")) {
    history.replaceState(history.state, "", outer.location.hash);
  }
}

/** Show this view's hash in Airflow's address bar. */
export function showInAddressBar() {
  const outer = airflowWindow();
  if (outer && outer.location.hash !== location.hash) {
    outer.history.replaceState(outer.history.state, "", outer.location.pathname + outer.location.search + location.hash);
  }
}

/** Go to a page of Airflow itself, in Airflow's own window: the iframe's sandbox lets no link of ours do that. */
export function openInAirflow(event) {
  const outer = airflowWindow();
  if (!outer) return;
  event.preventDefault();
  const link = outer.document.createElement("a");
  link.href = event.currentTarget.getAttribute("href");
  if (event.ctrlKey || event.metaKey || event.shiftKey) link.target = "_blank";
  outer.document.body.append(link);
  link.click();
  link.remove();
}

/** A path of this server as it may stand in a link; null for anything else, `javascript:` and other hosts above all. */
export function ownPath(link) {
  if (typeof link !== "string") return null;
  const url = new URL(link, location.origin);
  return link.startsWith("/") && url.origin === location.origin ? url.pathname + url.search + url.hash : null;
}
