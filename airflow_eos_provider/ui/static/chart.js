// Pictures by Apache ECharts, on a canvas; each has a text for those who do not see it, and a table beside it.
import { html, useEffect, useRef } from "./vendor/preact.js";

const NAMES = ["good", "busy", "amber", "bad", "none", "revised", "text", "quiet", "line", "panel"];

/** The colours of the style sheet as they are now, for what the style sheet does not reach. */
function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** What is the same in every picture. Tips are drawn on the canvas: as HTML they would need inline styles. */
function common(colour) {
  const text = { color: colour.text, fontSize: 12 };
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    tooltip: { renderMode: "richText", confine: true, backgroundColor: colour.panel, borderColor: colour.line, textStyle: text },
  };
}

/** An axis in the colours of the page. */
export function axis(colour, more = {}) {
  return {
    axisLine: { lineStyle: { color: colour.line } },
    axisTick: { lineStyle: { color: colour.line } },
    splitLine: { lineStyle: { color: colour.line } },
    ...more,
    axisLabel: { color: colour.quiet, fontSize: 12, hideOverlap: true, ...more.axisLabel },
  };
}

/**
 * A picture.
 *
 * `option` makes ECharts' option from the colours and the width, with `tip`, the text of a tip; `label` says in a sentence what the picture shows; `onSelect` gets
 * the data of what was clicked.
 */
export function Chart({ option, label, height, onSelect }) {
  const place = useRef(null);
  const chart = useRef(null);
  const newest = useRef({ option, onSelect });
  newest.current = { option, onSelect };

  const draw = () => {
    if (!chart.current) return;
    const colour = colours();
    const [shared, own] = [common(colour), newest.current.option(colour, chart.current.getWidth())];
    chart.current.setOption({ ...shared, ...own, tooltip: { ...shared.tooltip, formatter: own.tip } }, { notMerge: true });
  };

  useEffect(() => {
    let isLeft = false;
    const sizes = new ResizeObserver(() => {
      chart.current?.resize();
      draw();
    });
    import("./vendor/echarts.js").then(({ init }) => {
      if (isLeft) return;
      chart.current = init(place.current, null, { renderer: "canvas" });
      chart.current.on("click", (event) => newest.current.onSelect?.(event.data));
      draw();
      sizes.observe(place.current);
      place.current.dataset.drawn = "true";
    });
    window.addEventListener("themechange", draw);
    return () => {
      isLeft = true;
      sizes.disconnect();
      window.removeEventListener("themechange", draw);
      chart.current?.dispose();
      chart.current = null;
    };
  }, []);
  useEffect(draw, [option]);

  return html`<div class="chart" role="img" aria-label=${label}><div ref=${place} style=${{ height: `${height}px` }}></div></div>`;
}
