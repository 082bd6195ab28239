// Dark or light as Airflow is: it keeps a class on its root element, and its user's choice in the local storage.
import { airflowWindow } from "./route.js";

const system = window.matchMedia("(prefers-color-scheme: dark)");

function wanted() {
  const root = airflowWindow()?.document.documentElement;
  if (root?.classList.contains("dark")) return "dark";
  if (root?.classList.contains("light")) return "light";
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // storage is off: the system's setting holds
  }
  if (chosen === "dark" || chosen === "light") return chosen;
  return system.matches ? "dark" : "light";
}

function apply() {
  document.documentElement.dataset.theme = wanted();
}

/** Follow Airflow's theme from now on. */
export function followTheme() {
  apply();
  system.addEventListener("change", apply);
  window.addEventListener("storage", apply);
  const root = airflowWindow()?.document.documentElement;
  if (root) new MutationObserver(apply).observe(root, { attributes: true, attributeFilter: ["class"] });
}
