// Pictures as SVG, coloured by the style sheet; each has a text for those who do not see it, and a table beside it.
import { count } from "./format.js";
import { html, useEffect, useRef, useState } from "./vendor/preact.js";

/** A picture: `draw` makes what is in it from the width; `label` says in a sentence what it shows. */
export function Picture({ draw, label, height }) {
  const place = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const sizes = new ResizeObserver(([{ contentRect }]) => setWidth(Math.floor(contentRect.width)));
    sizes.observe(place.current);
    return () => sizes.disconnect();
  }, []);
  return html`<div class="chart" ref=${place}><svg role="img" aria-label=${label} width=${width} height=${height}>${width > 0 && draw(width)}</svg></div>`;
}

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];
const LETTER_WIDTH = 7;

/** Whole seconds between two times, `most` at most. */
export function times(from, to, most) {
  const step = SECONDS.find((each) => (to - from) / each <= most) ?? Math.ceil((to - from) / most / 86400) * 86400;
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.floor((to - first) / step) + 1 }, (_, index) => first + index * step);
}

/** Whole numbers from 0, about four of them, the last at least `most`. */
export function levels(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, most / 4)));
  const step = power * ([1, 2, 5].find((each) => each * power * 4 >= most) ?? 10);
  return Array.from({ length: Math.max(1, Math.ceil(most / step)) + 1 }, (_, index) => index * step);
}

/** A text's beginning, as far as there is room. */
export function cut(text, width) {
  const letters = Math.max(1, Math.floor(width / LETTER_WIDTH));
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
}

/** Bars from `values`, each `{value, tone, name, tip, onClick}`; one without a number has none. */
export function Bars({ values, label, height }) {
  const draw = (width) => {
    const [left, right, top, bottom] = [64, 12, 12, 28];
    const scale = levels(Math.max(0, ...values.map((each) => each.value ?? 0)));
    const y = (value) => top + (height - top - bottom) * (1 - value / scale.at(-1));
    const step = (width - left - right) / values.length;
    const bar = Math.max(1, Math.min(28, step * 0.7));
    const every = Math.ceil((LETTER_WIDTH * Math.max(...values.map((each) => each.name.length)) + 10) / step);
    return html`${scale.map((level) => html`<line key=${`l${level}`} class="grid" x1=${left} x2=${width - right} y1=${y(level)} y2=${y(level)} /><text key=${`t${level}`} class="end" x=${left - 8} y=${y(level) + 4}>${count(level)}</text>`)}
      ${values.map(({ value, tone, name, tip, onClick }, index) => {
        const middle = left + step * (index + 0.5);
        const [most, shown] = [scale.at(-1), typeof value === "number"];
        return html`<g key=${name} class=${onClick ? "link" : ""} onClick=${onClick}>
          <title>${tip}</title>
          ${shown && html`<rect class=${tone} x=${middle - bar / 2} width=${bar} y=${Math.min(y(value), y(0) - 1)} height=${Math.max(1, y(0) - y(value))} />`}
          <rect class="ground" x=${middle - step / 2} width=${step} y=${y(most)} height=${y(0) - y(most)} />
          ${index % every === 0 && html`<text class="middle" x=${middle} y=${height - 8}>${name}</text>`}
        </g>`;
      })}`;
  };
  return html`<${Picture} draw=${draw} label=${label} height=${height} />`;
}
